//! Hours, who watches, four eyes and who may answer, where they are decided: with a clock that is handed in.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed"
)]

#[expect(dead_code, reason = "shared with the tests of the whole mediator")]
#[path = "../monitor/house.rs"]
mod house;
mod queue;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use bailiwick_authority::Authority;
use bailiwick_commands::Grammars;
use bailiwick_gate::{Mediator as _, Outcome, Reading as _, Start};
use bailiwick_mediator::{Grant, Purpose, Rules, Snapshot, decide};
use bailiwick_model::{AbsPath, Anchors, Capability, Code, Decision, GrantId, Millis, Request, Verb, Verdict};
use bailiwick_policy::{SourceFile, Sources};
use proptest::prelude::*;

use crate::house::{House, TASK, act, path, request, spec};

/// 2026-06-01T22:00:00+02:00.
const TEN_AT_NIGHT: u64 = 1_780_344_000_000;

static GRAMMARS: LazyLock<Grammars> = LazyLock::new(|| Grammars::shipped(Vec::new()));

/// The start of a command, as a gate reads it.
fn start(text: &str) -> Request {
    let words = text.split(' ').map(str::to_owned).collect();
    Request::new(TASK, Verb::Run, GRAMMARS.read(&Start::typed(words, "/p")))
}

fn people(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn rules(text: &str) -> Arc<dyn Rules> {
    let sources = Sources {
        machine: Vec::new(),
        person: Vec::new(),
        project: Some(SourceFile {
            name: "bailiwick.toml".into(),
            text: format!("extends = [\"coding\"]\n{text}"),
        }),
        project_trusted: true,
        profiles: Vec::new(),
        toolchains: Vec::new(),
        found: None,
        preset: None,
        lock: None,
        person_lock: None,
        pinning: false,
        relations: None,
        mandate: None,
        anchors: Anchors {
            root: AbsPath::new("/p").ok(),
            home: path("/home/dana"),
        },
    };
    Arc::new(bailiwick_policy::load(&sources, &*GRAMMARS).unwrap_or_else(|wrong| panic!("{wrong:#?}")))
}

fn code(house: &House, request: &Request) -> Code {
    match house.mediator.decide(request) {
        Outcome::Allow(_) => Code::AllowedByRule,
        Outcome::Ask(_) => Code::AskedByRule,
        Outcome::Deny(refusal) => refusal.code,
    }
}

#[test]
fn c053_a_command_of_the_night_is_denied_a_second_before_ten_and_allowed_at_ten() {
    let night =
        "[oversight]\nzone = \"Europe/Zurich\"\nhours = [{ on = [\"run touch night\"], open = \"22:00-06:00\" }]\n";
    let house = House::new(spec(rules(night)));
    let (touch, day) = (request("run touch night"), request("run touch day"));
    house.clock.0.store(TEN_AT_NIGHT - 1000, Ordering::SeqCst);
    assert_eq!(code(&house, &touch), Code::OutOfHours);
    assert_eq!(code(&house, &day), Code::AllowedByRule);
    let told = house.mediator.question(&touch).reasons.remove(0).text;
    assert!(
        told.starts_with("it opens Mon 2026-06-01 22:00 Europe/Zurich"),
        "{told}"
    );
    house.clock.0.store(TEN_AT_NIGHT, Ordering::SeqCst);
    assert_eq!(code(&house, &touch), Code::AllowedByRule);
    // Eight hours later it is day again; the clock set back by an hour brings the night back, and nothing else.
    house.clock.0.fetch_add(8 * 3_600_000, Ordering::SeqCst);
    assert_eq!(code(&house, &touch), Code::OutOfHours);
    house.clock.0.fetch_sub(3_600_000, Ordering::SeqCst);
    assert_eq!(code(&house, &touch), Code::AllowedByRule);
}

#[test]
fn p11_what_must_be_watched_stops_with_the_next_effect_when_nobody_watches_any_more() {
    let house = House::new(spec(rules(
        "[oversight]\npresent = [\"run pay\"]\napprovers = [\"ida\"]\n",
    )));
    let pay = request("run pay");
    assert_eq!(code(&house, &pay), Code::NobodyPresent);
    house.mediator.watched_by(people(&["dana"]));
    assert_eq!(code(&house, &pay), Code::NobodyPresent);
    house.mediator.watched_by(people(&["dana", "ida"]));
    assert_eq!(code(&house, &pay), Code::AllowedByRule);
    house.mediator.watched_by(BTreeSet::new());
    assert_eq!(code(&house, &pay), Code::NobodyPresent);
}

#[test]
fn p8_what_a_person_orders_by_hand_needs_four_eyes_too() {
    let mut spec = spec(rules("[oversight]\nfour_eyes = [\"run pay\"]\n"));
    spec.approver_present = true;
    let house = House::new(spec);
    assert!(matches!(
        house.mediator.decide_order(&request("run pay")),
        Outcome::Ask(_)
    ));
    assert!(matches!(
        house.mediator.decide_order(&request("run sh")),
        Outcome::Allow(_)
    ));
}

fn decided(policy: &Arc<dyn Rules>, asked: &Request, by: &[&str], watching: &[&str], now: u64) -> Decision {
    let mut snapshot = Snapshot::of_rules(TASK, Arc::clone(policy), Millis(now), Purpose::Question);
    snapshot.principal = "dana".into();
    snapshot.approver_present = true;
    snapshot.approvers_present = Arc::new(people(watching));
    snapshot.authority = Arc::new(Authority::whole());
    let against = decide(asked, &snapshot);
    if !by.is_empty() {
        let given = by.iter().map(|name| (*name).to_owned());
        snapshot.grants = [Grant::of(GrantId([1; 6]), Capability::of(act("run **")), against).given_by(given)].into();
    }
    decide(asked, &snapshot)
}

#[test]
fn p2_a_grant_of_somebody_whom_no_layer_names_answers_nothing() {
    let named = rules("[commands]\nask = [\"pay\"]\n[oversight]\napprovers = [\"ida\", \"theo\"]\n");
    let four = rules("[oversight]\nfour_eyes = [\"run pay\"]\napprovers = [\"ida\", \"theo\", \"dana\"]\n");
    let asked = request("run pay");
    for (policy, by, want) in [
        (&named, &["dana"][..], Verdict::Ask),
        (&named, &["program"], Verdict::Ask),
        (&named, &["ida"], Verdict::Allow),
        (&four, &["ida"], Verdict::Ask),
        (&four, &["ida", "sam"], Verdict::Ask),
        (&four, &["ida", "dana"], Verdict::Ask),
        (&four, &["ida", "dana", "sam"], Verdict::Ask),
        (&four, &["ida", "theo"], Verdict::Allow),
    ] {
        assert_eq!(decided(policy, &asked, by, &[], 0).verdict, want, "{by:?}");
    }
}

const WHO: [&str; 5] = ["dana", "ida", "theo", "rui", "sam"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whoever gave a grant, it answers four eyes only where two of them are not the principal; and no grant, no time and
    /// nobody who watches makes of a layer's no a yes.
    #[test]
    fn p2_oversight_only_narrows(
        by in proptest::collection::vec(0usize..5, 0..5), watching in proptest::collection::vec(0usize..5, 0..4),
        minute in 0u64..(14 * 1440), four in any::<bool>(), present in any::<bool>(), open in 0u64..24, shut in 1u64..24,
    ) {
        let names = |places: &[usize]| places.iter().map(|place| WHO[*place]).collect::<Vec<_>>();
        let (by, watching) = (names(&by), names(&watching));
        let shut = (open + shut) % 24;
        let now = 1_780_000_000_000 + minute * 60_000;
        let mut text = format!("[oversight]\nhours = \"{open:02}:00-{shut:02}:00 UTC\"\n");
        if open == shut {
            text = "[oversight]\n".into();
        }
        if four {
            text.push_str("four_eyes = [\"run pay\"]\n");
        }
        if present {
            text.push_str("present = [\"run pay\"]\napprovers = [\"ida\", \"theo\"]\n");
        }
        let overseen = rules(&text);
        let asked = request("run pay");
        let decision = decided(&overseen, &asked, &by, &watching, now);
        let hour = now / 3_600_000 % 24;
        let is_open = open == shut || if open < shut { (open..shut).contains(&hour) } else { hour >= open || hour < shut };
        let is_watched = !present || watching.iter().any(|name| ["ida", "theo"].contains(name));
        // Where rules name approvers, nobody else's yes counts.
        let counts = |name: &&&str| **name != "dana" && (!present || ["ida", "theo"].contains(*name));
        let givers: BTreeSet<&&str> = by.iter().filter(counts).collect();
        let want = match (is_open && is_watched, four) {
            (false, _) => Verdict::Deny,
            (true, true) if givers.len() < 2 => Verdict::Ask,
            (true, _) => Verdict::Allow,
        };
        prop_assert_eq!(decision.verdict, want, "{:?}", decision);
        // Without oversight the same is at least as free.
        prop_assert!(decided(&rules(""), &asked, &by, &watching, now).verdict <= decision.verdict);
    }
}
