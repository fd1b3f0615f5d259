//! Offers: from narrow to wide, and held to their words.

use bailiwick_gate::Answer as Frame;
use bailiwick_gate::desk::{Answer, Scope};
use bailiwick_mediator::TaskSpec;
use bailiwick_model::Verdict;
use proptest::prelude::*;

use crate::grants::terms;
use crate::house::{House, request, says, spec};
use crate::talking::{Gate, dana};

fn says_of(house: &House, waiting: &bailiwick_gate::Waiting) -> Vec<String> {
    house
        .asked(waiting)
        .offers
        .into_iter()
        .map(|offer| offer.says)
        .collect()
}

#[test]
fn p8_offers_say_what_they_cover_from_narrow_to_wide() {
    let house = House::new(TaskSpec {
        approver_present: true,
        ..spec(crate::house::Saying::new(|_| says(Verdict::Ask, 1)))
    });
    let mut gate = Gate::new(&house);
    for (asked, want) in [
        (
            "write /a/b/c",
            &[
                "may change /a/b/c",
                "may change /a/b/c, and what is below it",
                "may change /a/b, and what is below it",
            ][..],
        ),
        ("read /a/b", &["may read /a/b", "may read /a/b, and what is below it"]),
        (
            "POST http://h.test/v1/send?to=x",
            &[
                "may send POST http://h.test/v1/send?to=x",
                "may send POST http://h.test/v1/send, with any query and body",
                "may send POST http://h.test/v1/**, with any query and body",
                "may send POST http://h.test/**, with any query and body",
            ],
        ),
        (
            "tunnel db.test:5432",
            &[
                "may connect to db.test:5432, unread",
                "may connect to db.test:5432, unread",
            ],
        ),
        // What names wildcards is granted as it is, once, and not as an act.
        ("read /a/*/b", &["may read /a/*/b"]),
        (
            "call bank/pay",
            &["may call bank/pay", "may call bank/pay, with any arguments"],
        ),
        // What a server says next has nobody seen yet.
        (
            "accept bank/pay",
            &["may take what its server now says of the tool bank/pay"],
        ),
    ] {
        let waiting = gate.asks(&house, &request(asked));
        assert_eq!(says_of(&house, &waiting), want, "{asked}");
        house.no(&waiting).unwrap();
        gate.is_denied();
    }
}

fn paths() -> impl Strategy<Value = String> {
    proptest::collection::vec("[ab*]{1,2}", 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn acts() -> impl Strategy<Value = String> {
    prop_oneof![
        (
            prop_oneof![Just("read"), Just("write"), Just("create"), Just("delete")],
            paths()
        )
            .prop_map(|(verb, path)| format!("{verb} {path}")),
        (
            prop_oneof![Just("GET"), Just("POST")],
            "[gh]",
            paths(),
            proptest::option::of("[a-c]=[a-c]")
        )
            .prop_map(|(verb, host, path, query)| {
                let query = query.map(|query| format!("?{query}")).unwrap_or_default();
                format!("{verb} http://{host}.test{path}{query}")
            }),
        ("[gh]", 1u16..4).prop_map(|(host, port)| format!("tunnel {host}.test:{port}")),
        proptest::collection::vec("(git|push|-f|-x|a|b|\\*)", 1..5)
            .prop_map(|words| format!("run {}", words.join(" "))),
    ]
}

/// What the words of an offer say of a request, read by somebody who knows nothing of capabilities.
fn says_so(words: &str, asked: &str) -> bool {
    let words = words.strip_prefix("may ").unwrap();
    let (verb, rest) = asked.split_once(' ').unwrap();
    let Some(told) = (match verb {
        "read" => words.strip_prefix("read "),
        "write" => words.strip_prefix("change "),
        // Who may change a folder may make and remove what is in it.
        "create" => words.strip_prefix("make ").or(words.strip_prefix("change ")),
        "delete" => words.strip_prefix("remove ").or(words.strip_prefix("change ")),
        "GET" | "POST" => words
            .strip_prefix("send ")
            .and_then(|words| words.strip_prefix(verb))
            .map(str::trim_start),
        "tunnel" => words.strip_prefix("connect to "),
        _ => words.strip_prefix("run "),
    }) else {
        return false;
    };
    if let Some(tree) = told.strip_suffix(", and what is below it") {
        return rest == tree || rest.starts_with(&format!("{tree}/"));
    }
    if let Some(head) = told.strip_suffix(", with any further words") {
        return rest == head || rest.starts_with(&format!("{head} "));
    }
    if let Some(exact) = told.strip_suffix(", in just these words") {
        return rest == exact.replace("\\*", "*").replace('\'', "");
    }
    let url = told
        .strip_suffix(", with any query and body")
        .or(told.strip_suffix(", with any query"));
    if let Some(url) = url {
        let path = rest.split('?').next().unwrap();
        return match url.strip_suffix("/**") {
            Some(folder) => path == folder || path.starts_with(&format!("{folder}/")),
            None => path == url,
        };
    }
    rest == told.trim_end_matches(", unread")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn p8_no_grant_allows_what_its_sentence_does_not_say(shown in acts(), near in proptest::collection::vec(acts(), 1..24)) {
        let asks = crate::house::Saying::new(|_| says(Verdict::Ask, 1));
        let all = || TaskSpec { approver_present: true, ..spec(asks.clone()) };
        let probe = House::new(all());
        let mut gate = Gate::new(&probe);
        let waiting = gate.asks(&probe, &request(&shown));
        let offers = probe.asked(&waiting).offers;
        for (place, offer) in offers.iter().enumerate().skip(1) {
            let house = House::new(all());
            let mut gate = Gate::new(&house);
            let waiting = gate.asks(&house, &request(&shown));
            let answer = Answer::yes(&house.asked(&waiting), place, terms(None, None, Scope::Task)).unwrap();
            house.mediator.answer(waiting.id, &answer, &dana()).unwrap();
            gate.is_allowed();
            prop_assert!(says_so(&offer.says, &shown), "`{}` does not say `{shown}`", offer.says);
            for near in &near {
                gate.decide(&request(near), false);
                let allowed = matches!(gate.hears(), Frame::Allow { .. });
                prop_assert!(!allowed || says_so(&offer.says, near), "`{}` allowed `{near}`", offer.says);
            }
        }
    }
}
