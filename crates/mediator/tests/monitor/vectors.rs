//! Decisions as data: `vectors/decide/*.toml` at the top of the repository, readable without Rust.
//!
//! A file holds rules and cases. `loads = false`: the rules must not load. `verdict = "unreadable"`: what is asked can
//! be brought to no request. `now` is the time of the decision (without it 1970), `watching` who is there and watches, `by` who
//! gave a grant; the principal is `dana`. The project's root is `/p`, the home `/home/dana`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use bailiwick_authority::Authority;
use bailiwick_commands::Grammars;
use bailiwick_gate::{Reading, Start};
use bailiwick_mediator::{Grant, Purpose, Rules, Snapshot, decide};
use bailiwick_model::GrantId;
use bailiwick_model::{
    AbsPath, Act, Anchors, Argument, Capability, Host, HttpUrl, Label, Millis, Obligation, Request, Resource, Tag,
    Verb, argument, words_of,
};
use bailiwick_policy::{MandateText, Policy, RelationsText, SourceFile, Sources, request_for};
use serde::Deserialize;

use crate::house::TASK;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    promises: Vec<String>,
    #[serde(default = "yes")]
    loads: bool,
    rules: RuleTexts,
    #[serde(default, rename = "case")]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTexts {
    project: Option<String>,
    #[serde(default = "yes")]
    trusted: bool,
    person: Option<String>,
    machine: Option<String>,
    #[serde(default)]
    profiles: Vec<String>,
    /// `bailiwick.lock`: what is pinned of the servers' tools.
    lock: Option<String>,
    /// The file that `[relations]` points to, read at the time 0; the task is `dana`'s.
    people: Option<String>,
    /// The mandate, first used at the time 0, and its values.
    mandate: Option<String>,
    #[serde(default)]
    values: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Case {
    ask: String,
    address: Option<IpAddr>,
    content_type: Option<String>,
    content_length: Option<i64>,
    #[serde(default)]
    purpose: Asking,
    #[serde(default)]
    approver: bool,
    now: Option<toml_edit::Datetime>,
    #[serde(default)]
    watching: Vec<String>,
    holds: Option<Vec<String>>,
    #[serde(default)]
    label: Vec<String>,
    #[serde(default)]
    influence: Vec<String>,
    granted: Option<Granted>,
    verdict: String,
    code: Option<String>,
    obligations: Option<Vec<String>>,
    obligations_among: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Granted {
    act: String,
    against: String,
    #[serde(default)]
    by: Vec<String>,
}

/// Milliseconds since 1970 of a time with an offset.
fn millis(time: &toml_edit::Datetime) -> Option<Millis> {
    let (date, clock) = (time.date?, time.time?);
    let toml_edit::Offset::Custom { minutes } = time.offset? else {
        return None;
    };
    // The number of days, in the calendar of the Gregorian rule (Hinnant, days_from_civil).
    let (month, day) = (i64::from(date.month), i64::from(date.day));
    let year = i64::from(date.year) - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days * 86_400
        + i64::from(clock.hour) * 3600
        + i64::from(clock.minute) * 60
        + i64::from(clock.second.unwrap_or(0))
        - i64::from(minutes) * 60;
    u64::try_from(seconds).ok().map(|seconds| Millis(seconds * 1000))
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Asking {
    #[default]
    Effect,
    Question,
}

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::shipped(Vec::new()));

fn yes() -> bool {
    true
}

pub fn anchors() -> Anchors {
    Anchors {
        root: AbsPath::new("/p").ok(),
        home: AbsPath::new("/home/dana").unwrap(),
    }
}

pub fn act(text: &str) -> Act {
    Act::parse(text, &anchors()).unwrap()
}

/// Rules from a project's file that is trusted, and perhaps a person's.
pub fn load(project: &str) -> Option<Policy> {
    load_all(&RuleTexts {
        project: Some(project.into()),
        trusted: true,
        person: None,
        machine: None,
        profiles: Vec::new(),
        lock: None,
        people: None,
        mandate: None,
        values: BTreeMap::new(),
    })
    .ok()
}

fn load_all(texts: &RuleTexts) -> Result<Policy, String> {
    let file = |name: &str, text: &Option<String>| {
        text.as_ref().map(|text| SourceFile {
            name: name.into(),
            text: text.clone(),
        })
    };
    let sources = Sources {
        machine: file("/etc/bailiwick/rules.toml", &texts.machine).into_iter().collect(),
        person: file("~/.config/bailiwick/rules.toml", &texts.person)
            .into_iter()
            .collect(),
        project: file("bailiwick.toml", &texts.project),
        project_trusted: texts.trusted,
        profiles: texts.profiles.clone(),
        toolchains: Vec::new(),
        found: None,
        preset: None,
        lock: file("bailiwick.lock", &texts.lock),
        person_lock: None,
        pinning: false,
        relations: file("people.toml", &texts.people).map(|file| RelationsText {
            file,
            read_at: Millis(0),
            user: "dana".into(),
        }),
        mandate: file("mandate.toml", &texts.mandate).map(|file| MandateText {
            file,
            values: texts.values.clone(),
            first_used: Millis(0),
        }),
        anchors: anchors(),
    };
    bailiwick_policy::load(&sources, &*GRAMMARS).map_err(|wrong| format!("{wrong:?}"))
}

/// Brings what is asked to a request, as the gates do: any spelling in, one form out.
fn read(text: &str) -> Option<Request> {
    let (verb, resource) = text.split_once(' ')?;
    let verb: Verb = verb.parse().ok()?;
    if verb.is_tool() {
        let mut request = request_for(text, &anchors(), &*GRAMMARS).ok()?;
        request.task = TASK;
        return Some(request);
    }
    let resource = match &verb {
        Verb::Http(_) => Resource::Url(HttpUrl::parse(resource).ok()?),
        Verb::Tunnel => {
            let (host, port) = HttpUrl::authority(resource, 443).ok()?;
            Resource::Endpoint { host, port }
        }
        Verb::Fetch | Verb::Push => {
            let (url, reference) = bailiwick_model::read_repository(resource).ok()?;
            Resource::Repository { url, reference }
        }
        Verb::Resolve => Resource::Name(Host::parse(resource).ok()?),
        Verb::Run => GRAMMARS.read(&Start::typed(words_of(resource).ok()?, "/p")),
        _ => {
            let path = |text: &str| match text.strip_prefix("~/") {
                Some(rest) => anchors().home.join(rest).ok(),
                None => AbsPath::new(text).ok(),
            };
            match resource.strip_suffix("/**") {
                Some(tree) => Resource::Tree(path(tree)?),
                None => Resource::File(path(resource)?),
            }
        }
    };
    Some(Request::new(TASK, verb, resource))
}

fn write(obligation: &Obligation) -> String {
    match obligation {
        Obligation::Hide { pattern } => format!("hide {pattern}"),
        Obligation::Guard { pattern } => format!("guard {pattern}"),
        Obligation::Ask { pattern } => format!("ask {pattern}"),
        Obligation::DialAddress { address } => format!("dial {address}"),
        Obligation::MatchServerName => "match-server-name".into(),
        Obligation::Tool(duty) => format!("{duty:?}"),
        Obligation::Inject { secret, place } => format!("inject {secret} as {place}"),
        Obligation::RequestBody { bytes, types } => match types.as_slice() {
            [] => format!("body {bytes}"),
            types => format!("body {bytes} of {}", types.join(" or ")),
        },
        Obligation::Answer {
            bytes,
            seconds,
            bytes_per_second,
        } => {
            let part = |limit: &Option<u64>, unit| limit.map(|limit| format!(" {limit} {unit}")).unwrap_or_default();
            format!(
                "answer{}{}{}",
                part(bytes, "B"),
                part(seconds, "s"),
                part(bytes_per_second, "B/s")
            )
        }
        Obligation::PinKey { sha256 } => {
            let keys: Vec<String> = sha256.iter().map(ToString::to_string).collect();
            format!("key {}", keys.join(" or "))
        }
    }
}

fn snapshot(case: &Case, policy: Arc<dyn Rules>) -> Snapshot {
    let purpose = match case.purpose {
        Asking::Effect => Purpose::Effect,
        Asking::Question => Purpose::Question,
    };
    let now = case
        .now
        .as_ref()
        .map_or(Millis(0), |time| millis(time).expect("a time with an offset"));
    let mut state = Snapshot::of_rules(TASK, policy.clone(), now, purpose);
    state.approver_present = case.approver;
    state.principal = "dana".into();
    state.approvers_present = Arc::new(case.watching.iter().cloned().collect());
    if let Some(held) = &case.holds {
        let held = held.iter().map(|text| Capability::of(act(text))).collect();
        state.authority = Arc::new(Authority::of(held));
    }
    let tags = |texts: &[String]| texts.iter().map(|text| Tag::parse(text).expect("a tag")).collect();
    state.label = Arc::new(Label {
        confidential: tags(&case.label),
        influence: tags(&case.influence),
    });
    if let Some(granted) = &case.granted {
        let mut asking = Snapshot::of_rules(TASK, policy, now, Purpose::Question);
        asking.approver_present = true;
        let against = decide(&read(&granted.against).expect("a request"), &asking);
        let capability = Capability::of(act(&granted.act));
        state.grants = [Grant::of(GrantId([1; 6]), capability, against).given_by(granted.by.clone())].into();
    }
    state
}

fn check(case: &Case, policy: Arc<dyn Rules>) -> Result<(), String> {
    let (Some(mut request), false) = (read(&case.ask), case.verdict == "unreadable") else {
        let unreadable = read(&case.ask).is_none() && case.verdict == "unreadable";
        return if unreadable {
            Ok(())
        } else {
            Err("it can be read, or should be".into())
        };
    };
    if let Some(address) = case.address {
        request = request.dialling(address);
    }
    let said = [
        (argument::CONTENT_TYPE, case.content_type.clone().map(Argument::Text)),
        (argument::CONTENT_LENGTH, case.content_length.map(Argument::Whole)),
    ];
    for (name, value) in said {
        request.arguments.extend(value.map(|value| (name.to_owned(), value)));
    }
    let decision = decide(&request, &snapshot(case, policy));
    let told = format!(
        "{} {}: {:?}",
        decision.verdict.as_str(),
        decision.code,
        decision.reasons
    );
    if decision.verdict.as_str() != case.verdict || Some(decision.code.as_str()) != case.code.as_deref() {
        return Err(told);
    }
    let duties: Vec<String> = decision.obligations.iter().map(write).collect();
    let exact = case.obligations.as_ref().is_none_or(|want| *want == duties);
    let among = case
        .obligations_among
        .iter()
        .flatten()
        .all(|want| duties.contains(want));
    if exact && among {
        Ok(())
    } else {
        Err(format!("{told}, with {duties:?}"))
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/decide")
}

/// All that is wrong with one file.
fn judge(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a readable file");
    let vector: Vector = match toml_edit::de::from_str(&text) {
        Ok(vector) => vector,
        Err(fault) => return vec![format!("{}: {fault}", file.display())],
    };
    let mut wrong = Vec::new();
    let is_promise = |id: &String| {
        id.strip_prefix('P')
            .and_then(|n| n.parse().ok())
            .is_some_and(|n: u8| (1..=14).contains(&n))
    };
    if vector.promises.is_empty() || !vector.promises.iter().all(is_promise) {
        wrong.push("it names no promise".into());
    }
    match load_all(&vector.rules) {
        Ok(_) if !vector.loads => wrong.push("its rules load".into()),
        Err(_) if !vector.loads => {}
        Err(fault) => wrong.push(fault),
        Ok(policy) => {
            let policy: Arc<dyn Rules> = Arc::new(policy);
            if vector.cases.is_empty() {
                wrong.push("it has no case".into());
            }
            for case in &vector.cases {
                if let Err(fault) = check(case, policy.clone()) {
                    wrong.push(format!("`{}` is {fault}", case.ask));
                }
            }
        }
    }
    wrong
        .into_iter()
        .map(|what| format!("{}: {what}", file.file_name().unwrap_or_default().display()))
        .collect()
}

#[test]
fn p14_the_vectors_are_decided_as_written() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let wrong: Vec<String> = files.iter().flat_map(|file| judge(file)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (number, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(
            name.starts_with(&format!("{:03}-", number + 1)) && name.ends_with(".toml"),
            "{name}: out of order"
        );
    }
}
