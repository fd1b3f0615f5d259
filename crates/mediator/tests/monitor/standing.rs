//! Trees that are granted whole.

use crate::house::{House, Saying, TASK, path, says, spec};
use bailiwick_model::{Code, Decision, Event, Obligation, PathPattern, Request, Resource, Verb, Verdict};

fn granted(house: &House) -> Vec<(String, Vec<Obligation>)> {
    let trees = house.mediator.grant_trees(TASK, &|_, _| true).unwrap();
    trees
        .into_iter()
        .map(|(request, permit)| (request.to_string(), permit.terms().obligations.clone()))
        .collect()
}

fn hide(text: &str) -> Obligation {
    Obligation::Hide {
        pattern: PathPattern::parse(text).unwrap(),
    }
}

fn in_tree(request: &Request, root: &str) -> bool {
    matches!(&request.resource, Resource::Tree(tree) if path(root).holds(tree))
}

#[test]
fn p1_each_tree_is_granted_by_a_permit_on_record() {
    let trees = [
        (Verb::Read, "/p/docs"),
        (Verb::Write, "/p"),
        (Verb::Read, "/p"),
        (Verb::Read, "/usr"),
        (Verb::Write, "/usr/local"),
        (Verb::Read, "/etc"),
        (Verb::Write, "/asked"),
    ];
    let rules = Saying::with_trees(
        |request| {
            if in_tree(request, "/p") {
                Decision {
                    obligations: vec![hide("/**/.env")],
                    ..says(Verdict::Allow, 1)
                }
            } else if in_tree(request, "/usr") {
                says(Verdict::Allow, 2)
            } else if in_tree(request, "/asked") {
                says(Verdict::Ask, 3)
            } else {
                Decision::deny(Code::NoRule, "none")
            }
        },
        &trees,
    );
    let house = House::new(spec(rules));
    assert_eq!(
        granted(&house),
        [
            ("write /p/**".to_owned(), vec![hide("/**/.env")]),
            ("read /usr/**".to_owned(), vec![]),
            ("write /usr/local/**".to_owned(), vec![]),
        ]
    );
    let recorded: Vec<(String, Verdict)> = house
        .ledger
        .all()
        .into_iter()
        .filter_map(|(record, _)| match record.event {
            Event::Decided { request, decision, .. } => Some((request.to_string(), decision.verdict)),
            _ => None,
        })
        .collect();
    let want = [
        ("write /asked/**", Verdict::Deny),
        ("read /etc/**", Verdict::Deny),
        ("write /p/**", Verdict::Allow),
        ("read /usr/**", Verdict::Allow),
        ("write /usr/local/**", Verdict::Allow),
    ];
    assert_eq!(recorded, want.map(|(act, verdict)| (act.to_owned(), verdict)));
}

#[test]
fn p1_a_tree_inside_a_hidden_place_is_a_grant_of_its_own() {
    let rules = Saying::with_trees(
        |request| Decision {
            obligations: if in_tree(request, "/p/closed") {
                vec![]
            } else {
                vec![hide("/p/closed")]
            },
            ..says(Verdict::Allow, 1)
        },
        &[
            (Verb::Read, "/p"),
            (Verb::Read, "/p/closed/open"),
            (Verb::Read, "/p/other"),
        ],
    );
    let house = House::new(spec(rules));
    assert_eq!(
        granted(&house),
        [
            ("read /p/**".to_owned(), vec![hide("/p/closed")]),
            ("read /p/closed/open/**".to_owned(), vec![]),
        ]
    );
}

#[test]
fn p4_a_tree_whose_reading_is_denied_is_not_handed_over_to_be_written() {
    let rules = Saying::with_trees(
        |request| match request.verb {
            Verb::Read => says(Verdict::Deny, 1),
            _ => says(Verdict::Allow, 2),
        },
        &[(Verb::Write, "/p"), (Verb::Read, "/p")],
    );
    let house = House::new(spec(rules));
    assert_eq!(granted(&house), []);
}
