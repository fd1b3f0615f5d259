//! Puts the layers together from the files that there are.
//!
//! Promises: P2, P4 (any error in any file: no policy). Trust: a project's file that nobody trusts may be written by
//! whoever wrote the repository: of it only the denies are taken, and no setting.
//! Not here: reading one file (`document`), finding files and keeping trust (the program's).

use bailiwick_gate::Reading;
use bailiwick_model::{Anchors, Digest, Layer, Resource, ResourcePattern, Verb, VerbPattern, Verdict};
use sha2::{Digest as _, Sha256};

use crate::diagnostic::{Diagnostic, Place, Severity, suggest};
use crate::document::{Reader, RuleFile};
use crate::mandate::MandateText;
use crate::opened::unread;
use crate::overlap;
use crate::policy::Policy;
use crate::preset::{self, BROKER, BUILTIN, CEILING, DEFAULT, EXTENDABLE, SERVER, SIGN_IN};
use crate::relations::RelationsText;
use crate::rule::{Rule, host_of};
use crate::settings::Settings;
use crate::tag::{Naming, TagNamed};
use crate::tool::written::ToolTable;

/// One rule file's text, under the name that is shown to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// The path that is shown to people.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// All that a policy is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The files of `/etc/bailiwick`, in the order of their names.
    pub machine: Vec<SourceFile>,
    /// The files of `~/.config/bailiwick`, in the order of their names.
    pub person: Vec<SourceFile>,
    /// The project's `bailiwick.toml`.
    pub project: Option<SourceFile>,
    /// True when a person trusts the project's file as it is ([`trust_digest`]).
    pub project_trusted: bool,
    /// Shipped profiles to add to the context's rules, such as the agent's.
    pub profiles: Vec<String>,
    /// Profiles of the toolchains that were recognized in the project. A trusted project's file may name others.
    pub toolchains: Vec<String>,
    /// Rules that the program found by itself for this place, such as where git keeps a linked work tree. What they let
    /// write holds only where the context's own rules let write its root.
    pub found: Option<SourceFile>,
    /// The preset that holds for this run, in place of all that the context's rules would allow.
    pub preset: Option<String>,
    /// What is pinned of the tools of the project's servers: the text of the `bailiwick.lock` beside its file.
    pub lock: Option<SourceFile>,
    /// What is pinned of the tools of the person's own servers.
    pub person_lock: Option<SourceFile>,
    /// True while tools are being pinned: that a rule is about one that is not is no mistake then.
    pub pinning: bool,
    /// What stands where `[relations]` points to.
    pub relations: Option<RelationsText>,
    /// The errand that the task runs for.
    pub mandate: Option<MandateText>,
    /// What `.` and `~` stand for.
    pub anchors: Anchors,
}

/// Makes the policy, or says all that is wrong with its files. Commands in them are read with these grammars.
pub fn load(sources: &Sources, reading: &dyn Reading) -> Result<Policy, Vec<Diagnostic>> {
    let mut loader = Loader::of(sources, reading);
    loader.layers();
    loader.finish()
}

/// The digest that a person trusts a project's file by: of its text, of what is pinned beside it, and of all shipped rules
/// that it names.
pub fn trust_digest(project: &SourceFile, lock: Option<&SourceFile>) -> Digest {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(text.as_bytes());
    };
    part("bailiwick trust v1");
    part(&project.text);
    // Without a lock as before there were any.
    if let Some(lock) = lock {
        part("lock");
        part(&lock.text);
    }
    let mut names = extends_of(&project.text);
    let mut next = 0usize;
    while let Some(name) = names.get(next).cloned() {
        next = next.saturating_add(1);
        part(&name);
        let text = preset::preset(&name).unwrap_or("");
        part(text);
        for further in extends_of(text) {
            if !names.contains(&further) {
                names.push(further);
            }
        }
    }
    for name in listed(&project.text, "profiles") {
        part(&name);
        let text = preset::profile(&name).unwrap_or("");
        part(text);
        for further in extends_of(text) {
            part(preset::preset(&further).unwrap_or(""));
        }
    }
    Digest(hash.finalize().into())
}

fn extends_of(text: &str) -> Vec<String> {
    listed(text, "extends")
}

/// The texts of a list at the top of a file.
fn listed(text: &str, key: &str) -> Vec<String> {
    let Ok(document) = toml_edit::Document::parse(text) else {
        return Vec::new();
    };
    let list = document.as_table().get(key).and_then(|item| item.as_array());
    let names = list.into_iter().flatten().filter_map(|value| value.as_str());
    names.map(Into::into).collect()
}

pub(crate) struct Loader<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) reading: &'a dyn Reading,
    /// What is still to be held against what is pinned of tools.
    pub(crate) tables: Vec<ToolTable>,
    /// Tags that rules about calls name.
    pub(crate) tags_named: Vec<TagNamed>,
    /// Anchors for files that hold for every context.
    outer: Anchors,
    pub(crate) rules: Vec<Rule>,
    pub(crate) settings: Settings,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) granting: Vec<Layer>,
    /// Whether rules that another one makes idle are mistakes.
    pub(crate) overlaps: bool,
    /// Names of secrets that brokers are handed: the file, the name, where it stands.
    secrets: Vec<(String, String, Place)>,
    /// True when a preset of the context lets toolchains reach their registries.
    registries: bool,
    /// True when the agent is to sign in, and reaches nothing but what that takes.
    sign_in: bool,
}

impl<'a> Loader<'a> {
    pub(crate) fn of(sources: &'a Sources, reading: &'a dyn Reading) -> Self {
        Self {
            outer: Anchors {
                root: None,
                home: sources.anchors.home.clone(),
            },
            sources,
            reading,
            tables: Vec::new(),
            tags_named: Vec::new(),
            rules: Vec::new(),
            settings: Settings::default(),
            diagnostics: Vec::new(),
            granting: Vec::new(),
            overlaps: true,
            secrets: Vec::new(),
            registries: false,
            sign_in: false,
        }
    }

    /// Reads the files of all layers.
    pub(crate) fn layers(&mut self) {
        let sources = self.sources;
        self.builtin();
        self.context();
        self.ceiling(Layer::Person, &sources.person);
        self.ceiling(Layer::Machine, &sources.machine);
        self.mandate();
    }

    pub(crate) fn say(&mut self, severity: Severity, file: &str, place: Place, message: &str, hint: &str) {
        self.diagnostics
            .push(Diagnostic::new(severity, file, place, message, Some(hint.into())));
    }

    fn read(&mut self, layer: Layer, name: &str, text: &str, anchors: &Anchors, shipped: bool) -> RuleFile {
        let (file, wrong) = Reader::read(layer, name, text, anchors, self.reading, shipped);
        self.diagnostics.extend(wrong);
        file
    }

    pub(crate) fn add(&mut self, mut file: RuleFile) {
        self.rules.append(&mut file.rules);
        self.tables.append(&mut file.tables);
        self.tags_named.append(&mut file.tags_named);
        self.settings.merge(file.settings);
    }

    fn builtin(&mut self) {
        let outer = self.outer.clone();
        let file = self.read(Layer::Builtin, "builtin", BUILTIN, &outer, true);
        self.add(file);
    }

    /// Adds a shipped preset and what it extends.
    fn preset(&mut self, layer: Layer, name: &str, text: &str, seen: &mut Vec<String>) {
        if seen.iter().any(|known| known == name) {
            return;
        }
        seen.push(name.into());
        let anchors = if layer == Layer::Context {
            self.sources.anchors.clone()
        } else {
            self.outer.clone()
        };
        let file = self.read(layer, &format!("preset:{name}"), text, &anchors, true);
        self.registries |= file.registries;
        self.sign_in |= file.sign_in;
        for (extended, _) in &file.extends {
            if let Some(text) = preset::preset(extended) {
                self.preset(layer, extended, text, seen);
            }
        }
        self.add(file);
    }

    fn context(&mut self) {
        self.granting.push(Layer::Context);
        let mut seen = Vec::new();
        let sources = self.sources;
        let project = sources.project.as_ref().map(|source| {
            let file = self.read(Layer::Context, &source.name, &source.text, &sources.anchors, false);
            self.extends_known(source, &file, EXTENDABLE);
            (source, file)
        });
        let speaks = sources.project_trusted && sources.preset.is_none();
        match &project {
            Some((_, file)) if speaks => {
                for (name, _) in &file.extends {
                    if let Some(text) = preset::preset(name) {
                        self.preset(Layer::Context, name, text, &mut seen);
                    }
                }
            }
            _ => self.preset_of_run(sources.preset.as_deref().unwrap_or(DEFAULT), &mut seen),
        }
        let named = |names: &[String]| names.iter().map(|name| (name.clone(), Place::START)).collect();
        let recognized: Vec<(String, Place)> = named(&sources.toolchains);
        self.profiles("profiles", named(&sources.profiles));
        match &project {
            Some((source, file)) if speaks && file.profiles.is_some() => {
                self.profiles(&source.name, file.profiles.clone().unwrap_or_default());
            }
            // Whoever signs in works on no project.
            _ if self.sign_in => {}
            _ => self.profiles("profiles", recognized),
        }
        self.project(project);
        self.found();
    }

    /// What the program found by itself, as far as the context may do the like.
    fn found(&mut self) {
        let sources = self.sources;
        let (Some(found), Some(root)) = (&sources.found, &sources.anchors.root) else {
            return;
        };
        let mut file = self.read(Layer::Context, &found.name, &found.text, &sources.anchors, true);
        let may = |verb: &Verb| {
            let own = Resource::Tree(root.clone());
            let allows = |rule: &&Rule| rule.layer() == Layer::Context && rule.effect == Verdict::Allow;
            self.rules.iter().filter(allows).any(|rule| rule.covers(verb, &own))
        };
        let (reads, writes) = (may(&Verb::Read) || may(&Verb::Write), may(&Verb::Write));
        file.rules.retain(|rule| match (&rule.effect, &rule.act().verb) {
            (Verdict::Deny, _) => true,
            (_, VerbPattern::One(Verb::Write)) => writes,
            _ => reads,
        });
        self.add(file);
    }

    fn project(&mut self, project: Option<(&SourceFile, RuleFile)>) {
        let sources = self.sources;
        let speaks = sources.project_trusted && sources.preset.is_none();
        let Some((source, mut file)) = project else { return };
        if file.empty {
            let hint = "write `extends = [\"coding\"]`, or remove the file";
            self.say(
                Severity::Error,
                &source.name,
                Place::START,
                "the file holds no rule",
                hint,
            );
        } else if !speaks {
            if sources.preset.is_none() {
                let hint = "read it, then run `bailiwick trust`";
                let message = "this file is not trusted: only its denies hold, beside the preset `coding`";
                self.say(Severity::Warning, &source.name, Place::START, message, hint);
            }
            // A mistake is one whether or not the rule holds yet.
            self.diagnostics.extend(overlap::dead_in(&file.rules));
            file.rules.retain(|rule| rule.effect == Verdict::Deny);
            // What a trusted file has watched over stays so where another preset holds for a run: it only narrows.
            // So does what it says of where data may go.
            let oversight = std::mem::take(&mut file.settings.oversight);
            let tags = std::mem::take(&mut file.settings.tags);
            file.settings = Settings::default();
            if sources.project_trusted {
                file.settings.oversight = oversight;
                file.settings.tags = tags;
            }
            file.secrets_named.clear();
            file.tags_named.clear();
        } else if file.extends.is_empty()
            && file.profiles.is_none()
            && file.rules.iter().all(|rule| rule.effect == Verdict::Deny)
        {
            let hint = "add `extends = [\"coding\"]`, or rules that allow something";
            self.say(
                Severity::Warning,
                &source.name,
                Place::START,
                "this file allows nothing",
                hint,
            );
        }
        let named = file.secrets_named.drain(..);
        self.secrets
            .extend(named.map(|(name, place)| (source.name.clone(), name, place)));
        self.add(file);
    }

    /// The one preset that holds where no file of the context says which.
    fn preset_of_run(&mut self, name: &str, seen: &mut Vec<String>) {
        match preset::preset(name).filter(|_| EXTENDABLE.contains(&name) || [SIGN_IN, BROKER, SERVER].contains(&name)) {
            Some(text) => self.preset(Layer::Context, name, text, seen),
            None => {
                let message = format!("there is no preset `{name}` for a project");
                self.say(
                    Severity::Error,
                    "presets",
                    Place::START,
                    &message,
                    &suggest(name, EXTENDABLE),
                );
            }
        }
    }

    fn profiles(&mut self, by: &str, names: Vec<(String, Place)>) {
        for (name, place) in names {
            let origin = format!("profile:{name}");
            match preset::profile(&name) {
                Some(_) if self.rules.iter().any(|rule| rule.origin.file == origin) => {}
                Some(text) => self.profile(&origin, text),
                None => {
                    let hint = suggest(&name, &preset::profile_names());
                    self.say(
                        Severity::Error,
                        by,
                        place,
                        &format!("there is no profile `{name}`"),
                        &hint,
                    );
                }
            }
        }
    }

    fn profile(&mut self, origin: &str, text: &str) {
        let anchors = self.sources.anchors.clone();
        let mut file = self.read(Layer::Context, origin, text, &anchors, true);
        // What a toolchain fetches from, a context has only with a preset that lets it fetch.
        let fetches = if file.marks.is_empty() {
            !self.sign_in
        } else {
            self.registries
        };
        if self.sign_in {
            self.rules.append(&mut file.login_rules);
        }
        if !fetches {
            file.rules
                .retain(|rule| host_of(rule.act()).is_none() || rule.effect == Verdict::Deny);
        }
        let registries: Vec<String> = file.extends.drain(..).map(|(name, _)| name).collect();
        self.add(file);
        for name in registries.iter().filter(|_| fetches) {
            let origin = format!("preset:{name}");
            let known = self
                .rules
                .iter()
                .any(|rule| rule.origin.file == origin && rule.layer() == Layer::Context);
            if let (false, Some(text)) = (known, preset::preset(name)) {
                self.preset(Layer::Context, name, text, &mut Vec::new());
            }
        }
    }

    /// Complains about presets that are not shipped.
    fn extends_known(&mut self, source: &SourceFile, file: &RuleFile, known: &[&str]) {
        for (name, place) in &file.extends {
            if known.contains(&name.as_str()) {
                continue;
            }
            let (message, hint) = match name.as_str() {
                "office" => (
                    "the preset `office` is not shipped with this build".into(),
                    suggest("", known),
                ),
                CEILING => (
                    "`ceiling` is a preset for `~/.config/bailiwick` and `/etc/bailiwick` only".into(),
                    suggest("", known),
                ),
                other if preset::preset(other).is_some() => (
                    format!("`{other}` is a preset for projects: rules here hold for every context"),
                    suggest("", known),
                ),
                other => (format!("there is no preset `{other}`"), suggest(other, known)),
            };
            self.say(Severity::Error, &source.name, *place, &message, &hint);
        }
    }

    /// A ceiling: what an outer layer lets contexts have. Files that only deny narrow, and need no allow of their own.
    fn ceiling(&mut self, layer: Layer, sources: &[SourceFile]) {
        let anchors = self.outer.clone();
        let mut grants = false;
        for source in sources {
            let file = self.read(layer, &source.name, &source.text, &anchors, false);
            self.extends_known(source, &file, &[CEILING]);
            if file.empty {
                let hint = "remove it, or write a rule";
                self.say(
                    Severity::Warning,
                    &source.name,
                    Place::START,
                    "the file holds no rule",
                    hint,
                );
            }
            let of_server = |rule: &Rule| {
                rule.follows_from
                    .as_ref()
                    .is_some_and(|from| from.starts_with("server "))
            };
            grants |= file
                .rules
                .iter()
                .any(|rule| rule.effect != Verdict::Deny && !of_server(rule));
            if file.extends.iter().any(|(name, _)| name == CEILING) && !self.has_ceiling(layer) {
                self.shipped_ceiling(layer);
                grants = true;
            }
            self.add(file);
        }
        if layer == Layer::Person && !grants {
            self.shipped_ceiling(layer);
            grants = true;
        }
        if grants {
            self.granting.push(layer);
        }
    }

    fn has_ceiling(&self, layer: Layer) -> bool {
        let name = format!("preset:{CEILING}");
        self.rules
            .iter()
            .any(|rule| rule.layer() == layer && rule.origin.file == name)
    }

    fn shipped_ceiling(&mut self, layer: Layer) {
        let text = preset::preset(CEILING).unwrap_or("");
        self.preset(layer, CEILING, text, &mut Vec::new());
    }

    /// Where somebody lists what may be started, in whichever file of a layer, the shipped `run **` of that layer does not
    /// hold any more: a list is a list.
    fn listed_commands(&mut self) {
        let lists = |rule: &&Rule| {
            rule.effect == Verdict::Allow
                && rule.act().verb == VerbPattern::One(Verb::Run)
                && matches!(rule.act().resource, ResourcePattern::Command(_))
                && !is_shipped(rule)
        };
        let layers: std::collections::BTreeSet<Layer> = self.rules.iter().filter(lists).map(Rule::layer).collect();
        self.rules.retain(|rule| {
            let any = rule.effect == Verdict::Allow
                && rule.act().verb == VerbPattern::One(Verb::Run)
                && rule.act().resource == ResourcePattern::AnyCommand;
            !(any && is_shipped(rule) && layers.contains(&rule.layer()))
        });
    }

    /// A broker is handed only a secret that there is.
    fn secrets_known(&mut self) {
        for (file, name, place) in std::mem::take(&mut self.secrets) {
            if !self.settings.secrets.contains_key(&name) {
                let hint =
                    format!("add `[secret.{name}]` with `from = \"file:~/…\"`, here or in `~/.config/bailiwick`");
                self.say(
                    Severity::Error,
                    &file,
                    place,
                    &format!("there is no secret `{name}`"),
                    &hint,
                );
            }
        }
    }

    /// Holds the tags that rules name, and the tables that there are, against each other.
    fn tags_of_rules(&mut self) {
        let given: Vec<_> = self
            .tags_named
            .iter()
            .filter(|named| named.naming == Naming::Given)
            .map(|named| named.tag.clone())
            .collect();
        self.tags_known();
        // Where another preset holds for a run, the rules that would give a tag may not be there.
        if self.sources.preset.is_none() {
            self.tags_given(&given);
        }
    }

    pub(crate) fn finish(mut self) -> Result<Policy, Vec<Diagnostic>> {
        self.listed_commands();
        self.secrets_known();
        self.servers_apart();
        self.tags_of_rules();
        let relations = self.relations();
        let lock = self.lock();
        self.pinned(&lock, relations.as_ref());
        // What follows from a rule and is written out elsewhere too says nothing more.
        let mut known = std::collections::HashSet::new();
        for rule in self.rules.iter().filter(|rule| rule.follows_from.is_none()) {
            known.insert((rule.layer(), rule.effect, rule.act().clone(), rule.limits().clone()));
        }
        self.rules.retain(|rule| {
            let own = || (rule.layer(), rule.effect, rule.act().clone(), rule.limits().clone());
            rule.follows_from.is_none() || known.insert(own())
        });
        self.rules.sort_by_key(Rule::layer);
        self.granting.sort_unstable();
        self.settings.derive(&self.rules);
        let policy = match Policy::of(self.rules, self.settings, self.granting) {
            Ok(policy) => policy,
            Err(wrong) => {
                let (rule, fault) = *wrong;
                let (file, place) = rule.map_or(("policy".to_owned(), Place::START), |rule| {
                    let origin = rule.origin;
                    (
                        origin.file,
                        Place {
                            line: origin.line,
                            column: origin.column,
                        },
                    )
                });
                let hint = "this is a fault of the program: please report it with the rule";
                self.diagnostics.push(Diagnostic::new(
                    Severity::Error,
                    &file,
                    place,
                    &fault,
                    Some(hint.into()),
                ));
                return Err(self.diagnostics);
            }
        };
        if self.overlaps {
            self.diagnostics.extend(overlap::dead(&policy));
            self.diagnostics.extend(unread(policy.rules()));
            self.diagnostics.extend(overlap::idle_limits(policy.rules()));
        }
        if self.diagnostics.iter().any(Diagnostic::is_error) {
            return Err(self.diagnostics);
        }
        let policy = policy.knowing(relations);
        Ok(policy.warning(self.diagnostics).read_by(self.reading))
    }
}

/// True for a rule of a preset or a profile.
fn is_shipped(rule: &Rule) -> bool {
    rule.origin.file.starts_with("preset:") || rule.origin.file.starts_with("profile:")
}
