//! Which level of fence a task gets: what this machine can hold, what rules ask for, what the person accepted by name.
//!
//! Promises: P13 (the level asked for, or nothing starts, or the person named the weaker one), P2 (nobody accepts less
//! than the machine's rules ask for).
//! Not here: what each level keeps (`promises`), how the machine is tried (`bailiwick_fence::doctor`).

use bailiwick_fence::doctor::Survey;
use bailiwick_gate::{IdMap, LaunchFault};
use bailiwick_model::{Code, Level};
use bailiwick_policy::Settings;

/// What this machine can hold.
#[derive(Debug, Clone)]
pub struct Machine {
    survey: Survey,
}

impl Machine {
    /// Tries it. The process must have one thread.
    pub fn try_out() -> Self {
        Self {
            survey: bailiwick_fence::doctor::survey(),
        }
    }

    /// True when files can be asked about one by one in a fence of this level.
    pub fn asks_for_files(&self, level: Level) -> bool {
        let usable = self.survey.items.iter().any(|item| item.name == "fuse" && item.found);
        level == Level::Namespace && usable
    }

    /// The level for a task.
    pub fn choose(&self, named: Option<Level>, settings: &Settings) -> Result<Level, LaunchFault> {
        let strongest = self.survey.strongest();
        if let (Some(named), Some(least)) = (named, settings.least_level)
            && named < least
        {
            return Err(LaunchFault {
                code: Code::LevelRefused,
                what: format!(
                    "a fence of level `{}` is weaker than this machine allows",
                    named.as_str()
                ),
                cause: format!("its rules ask for `{}`", least.as_str()),
                hint: "see /etc/bailiwick, and whoever looks after this machine".into(),
            });
        }
        let least = named.or(settings.level);
        match (strongest, least) {
            (Some(strongest), None) => Ok(strongest),
            (Some(strongest), Some(least)) if strongest >= least => Ok(named.unwrap_or(strongest)),
            _ => Err(self.cannot(least.unwrap_or(Level::Process), strongest, settings.least_level)),
        }
    }

    fn cannot(&self, wanted: Level, strongest: Option<Level>, fixed: Option<Level>) -> LaunchFault {
        let missing = self.survey.missing(wanted);
        let cause = missing.map_or_else(String::new, |item| format!("{}: {}", item.name, item.seen));
        let mut hint = missing.map_or_else(String::new, |item| item.hint.to_owned());
        if let Some(weaker) = strongest.filter(|weaker| fixed.is_none_or(|fixed| *weaker >= fixed)) {
            let name = weaker.as_str();
            hint = format!(
                "{hint}; or accept the weaker one by name: `bailiwick run --level {name}` (`bailiwick doctor` says what it keeps)"
            );
        }
        LaunchFault {
            code: Code::LevelRefused,
            what: format!("a fence of level `{}` cannot be put up here", wanted.as_str()),
            cause,
            hint: hint.trim_start_matches("; ").into(),
        }
    }
}

/// Who the program is at a level: without namespaces nobody has another number inside.
pub fn identity_at(level: Level, identity: IdMap) -> IdMap {
    match level {
        Level::Namespace => identity,
        Level::Process => IdMap {
            inside: identity.outside,
            ..identity
        },
    }
}
