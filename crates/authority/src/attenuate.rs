//! Narrowing: the one way in which authority is handed on.
//!
//! Promises: P3. Trust: what is wanted may come from an agent. An explicit wish for more is refused, never quietly
//! cut down; a dimension about which nothing is said takes the parent's limit.
//! Not here: that several children of one counted capability share its count; who counts (`mediator`) sees to that.

use bailiwick_model::{Act, Capability, Constraints, Millis};

use crate::act::act_within;
use crate::limits::narrowed;

/// Says why a capability cannot be had from its parent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Widening {
    /// The parent does not cover the act, or it is not sure that it does.
    #[error("`{0}` is more than may be handed on")]
    Act(Act),
    /// More uses are wanted than the parent has.
    #[error("{wanted} uses are more than the {held} that may be handed on")]
    Count {
        /// What was wanted.
        wanted: u64,
        /// What the parent has.
        held: u64,
    },
    /// It would be usable before the parent is.
    #[error("it would hold before what it comes from does")]
    NotBefore,
    /// It would be usable after the parent is not.
    #[error("it would hold longer than what it comes from")]
    Expires,
    /// It may not be handed on so often.
    #[error("it may not be handed on that often")]
    Depth,
    /// A limit of requests is wider, or it is not sure that it is not.
    #[error("its {0} would be wider than that of what it comes from")]
    Limit(&'static str),
}

/// Narrows a capability: what is wanted, with the parent's limits wherever nothing is said.
///
/// Handing on takes one off `depth`; a parent with depth 0 is not handed on at all.
pub fn attenuate(parent: &Capability, wanted: &Capability) -> Result<Capability, Widening> {
    for act in &wanted.acts {
        if !parent.acts.iter().any(|held| act_within(act, held)) {
            return Err(Widening::Act(act.clone()));
        }
    }
    let (held, want) = (&parent.constraints, &wanted.constraints);
    Ok(Capability {
        acts: wanted.acts.clone(),
        constraints: Constraints {
            count: at_most(held.count, want.count).map_err(|(held, wanted)| Widening::Count { wanted, held })?,
            not_before: at_least(held.not_before, want.not_before)?,
            expires: at_most(held.expires, want.expires).map_err(|_| Widening::Expires)?,
            depth: depth(held.depth, want.depth)?,
            limits: narrowed(&held.limits, &want.limits).map_err(Widening::Limit)?,
        },
    })
}

/// The wanted limit where it is no more than the held one, the held one where nothing is wanted.
fn at_most<T: Ord + Copy>(held: Option<T>, wanted: Option<T>) -> Result<Option<T>, (T, T)> {
    match (held, wanted) {
        (Some(held), Some(wanted)) if wanted > held => Err((held, wanted)),
        (held, None) => Ok(held),
        (_, wanted) => Ok(wanted),
    }
}

fn at_least(held: Option<Millis>, wanted: Option<Millis>) -> Result<Option<Millis>, Widening> {
    match (held, wanted) {
        (Some(held), Some(wanted)) if wanted < held => Err(Widening::NotBefore),
        (held, None) => Ok(held),
        (_, wanted) => Ok(wanted),
    }
}

fn depth(held: Option<u32>, wanted: Option<u32>) -> Result<Option<u32>, Widening> {
    match held {
        None => Ok(wanted),
        Some(held) => {
            let left = held.checked_sub(1).ok_or(Widening::Depth)?;
            at_most(Some(left), wanted).map_err(|_| Widening::Depth)
        }
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{Argument, BodyLimit, Limits, Parameter, Request, Resource, argument};
    use proptest::prelude::*;

    use super::*;
    use crate::held::covers;
    use crate::held::tests::{act, request};

    fn of(text: &str, constraints: Constraints) -> Capability {
        Capability {
            acts: vec![act(text)],
            constraints,
        }
    }

    #[test]
    fn p3_more_is_refused_and_silence_takes_the_limit() {
        let parent = of(
            "write /a",
            Constraints {
                count: Some(3),
                not_before: Some(Millis(10)),
                expires: Some(Millis(20)),
                depth: Some(1),
                limits: Limits::default(),
            },
        );
        let wish = |constraints| attenuate(&parent, &of("create /a/b", constraints));
        let plain = wish(Constraints::default()).unwrap();
        assert_eq!(
            plain.constraints,
            Constraints {
                depth: Some(0),
                ..parent.constraints.clone()
            }
        );
        assert_eq!(
            attenuate(&plain, &plain),
            Err(Widening::Depth),
            "handed on once, no more"
        );
        let count = Constraints {
            count: Some(4),
            ..Constraints::default()
        };
        assert_eq!(wish(count), Err(Widening::Count { wanted: 4, held: 3 }));
        let early = Constraints {
            not_before: Some(Millis(9)),
            ..Constraints::default()
        };
        assert_eq!(wish(early), Err(Widening::NotBefore));
        let late = Constraints {
            expires: Some(Millis(21)),
            ..Constraints::default()
        };
        assert_eq!(wish(late), Err(Widening::Expires));
        let sizes = |bytes| Limits {
            body: BodyLimit {
                bytes: Some(bytes),
                types: Vec::new(),
            },
            ..Limits::default()
        };
        let limited = of(
            "write /a",
            Constraints {
                limits: sizes(10),
                ..Constraints::default()
            },
        );
        let wider = Constraints {
            limits: sizes(11),
            ..Constraints::default()
        };
        assert_eq!(
            attenuate(&limited, &of("write /a", wider)),
            Err(Widening::Limit("body"))
        );
        let silent = attenuate(&limited, &of("write /a", Constraints::default())).unwrap();
        assert_eq!(silent.constraints.limits, sizes(10));
        let deep = Constraints {
            depth: Some(1),
            ..Constraints::default()
        };
        assert_eq!(wish(deep), Err(Widening::Depth));
        assert!(matches!(
            attenuate(&parent, &of("read /a", Constraints::default())),
            Err(Widening::Act(_))
        ));
    }

    fn acts() -> impl Strategy<Value = String> {
        let verbs = "(read|write|create|delete|\\*)";
        prop_oneof![
            (verbs, "(/(a|b|\\*|\\*\\*|a\\*)){1,3}").prop_map(|(verb, path)| format!("{verb} {path}")),
            "(GET|POST|\\*) http://(h\\.test|\\*\\.test|\\*\\*)(/(a|b|\\*|\\*\\*)){1,3}",
            "(tunnel|resolve) (h\\.test|\\*\\.test|\\*\\*\\.test|\\*\\*)(:22|:\\*)?",
        ]
    }

    fn requests() -> impl Strategy<Value = String> {
        prop_oneof![
            "(read|write|create|delete) (/(a|b|ab)){1,4}(/\\*\\*)?",
            "(GET|POST) http://(h|a\\.h)\\.test(/(a|b)){1,3}(\\?(p|q)=(a|b|ab))?",
            "(tunnel (h|a\\.h)\\.test(:22)?|resolve (h|a\\.h)\\.test)",
        ]
    }

    fn constraints() -> impl Strategy<Value = Constraints> {
        let some = |top: u64| proptest::option::of(0..top);
        (some(3), some(6), some(6), proptest::option::of(0u32..3), limits()).prop_map(
            |(count, from, until, depth, limits)| Constraints {
                count,
                not_before: from.map(Millis),
                expires: until.map(Millis),
                depth,
                limits,
            },
        )
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let parameter = (
            proptest::collection::vec("(a|b|\\*|a\\*)", 0..3),
            proptest::option::of(0u64..3),
        )
            .prop_map(|(values, longest)| Parameter { values, longest });
        let query = proptest::collection::btree_map("(p|q)", parameter, 0..3);
        let types = proptest::collection::vec("(text/a|text/b)", 0..2);
        let query = prop_oneof![2 => Just(None), 1 => query.prop_map(Some)];
        let bytes = prop_oneof![2 => Just(None), 1 => (0u64..3).prop_map(Some)];
        (query, bytes, types).prop_map(|(query, bytes, types)| Limits {
            query,
            body: BodyLimit { bytes, types },
            ..Limits::default()
        })
    }

    /// What a gate says of a request's body.
    fn saying(mut asked: Request, length: Option<i64>, kind: Option<&str>) -> Request {
        if matches!(asked.resource, Resource::Url(_)) {
            let length = length.map(|length| (argument::CONTENT_LENGTH.to_owned(), Argument::Whole(length)));
            let kind = kind.map(|kind| (argument::CONTENT_TYPE.to_owned(), Argument::Text(kind.into())));
            asked.arguments.extend(length.into_iter().chain(kind));
        }
        asked
    }

    fn capabilities() -> impl Strategy<Value = Capability> {
        (proptest::collection::vec(acts(), 1..4), constraints()).prop_map(|(acts, constraints)| Capability {
            acts: acts.iter().map(|text| act(text)).collect(),
            constraints,
        })
    }

    /// A wish that is often narrower: some of the parent's acts with narrower paths, and limits of its own.
    fn wishes(parent: &Capability) -> impl Strategy<Value = Capability> + use<> {
        let own: Vec<String> = parent.acts.iter().map(ToString::to_string).collect();
        let inside = own
            .iter()
            .map(|text| {
                text.replace(":*", ":22")
                    .replace("**", "b")
                    .replace('*', "a")
                    .replace("a a", "* a")
            })
            .filter(|text| text.split_once(' ').is_some_and(|(verb, _)| verb.len() > 1));
        let pool: Vec<String> = own
            .iter()
            .cloned()
            .chain(inside)
            .filter(|text| !text.starts_with("a "))
            .collect();
        (
            proptest::collection::vec(prop_oneof![4 => proptest::sample::select(pool), 1 => acts()], 1..3),
            constraints(),
        )
            .prop_map(|(acts, constraints)| Capability {
                acts: acts.iter().map(|text| act(text)).collect(),
                constraints,
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn p3_attenuation_never_widens(
            (parent, wanted, again) in capabilities().prop_flat_map(|parent| {
                let wishes = (wishes(&parent), wishes(&parent));
                (Just(parent), wishes.0, wishes.1)
            }),
            asked in proptest::collection::vec(requests(), 16),
            now in 0u64..7,
            length in proptest::option::of(0i64..4),
            kind in proptest::option::of("text/(a|b)"),
        ) {
            let Ok(child) = attenuate(&parent, &wanted) else { return Ok(()) };
            let grandchild = attenuate(&child, &again);
            for asked in asked.iter().map(|text| saying(request(text), length, kind.as_deref())) {
                let now = Millis(now);
                if covers(&child, &asked, now) {
                    prop_assert!(covers(&parent, &asked, now), "{asked} is covered by the child alone");
                }
                if let Ok(grandchild) = &grandchild && covers(grandchild, &asked, now) {
                    prop_assert!(covers(&parent, &asked, now), "{asked} is covered by the grandchild alone");
                }
            }
        }

        #[test]
        fn p3_what_is_within_covers_no_more(narrow in acts(), wide in acts(), asked in proptest::collection::vec(requests(), 16)) {
            let (narrow, wide) = (act(&narrow), act(&wide));
            if act_within(&narrow, &wide) {
                for asked in asked.iter().map(|text| request(text)) {
                    prop_assert!(
                        !crate::act_covers(&narrow, &asked) || crate::act_covers(&wide, &asked),
                        "{asked}: {narrow} is said to lie within {wide}"
                    );
                }
            }
        }
    }
}
