//! The lattice: labels joined by union, compared by what a sink is cleared for.

use std::collections::BTreeSet;

use bailiwick_model::{Label, Tag};

/// The tags of confidentiality that may reach a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clearance {
    /// All: what stays with the person.
    Everything,
    /// These and no others. The empty set is the clearance of a sink that no rule names.
    Only(BTreeSet<Tag>),
}

impl Clearance {
    /// The clearance of a sink that no rule names.
    pub fn none() -> Self {
        Self::Only(BTreeSet::new())
    }
}

/// What is known of a thing made from two others: all that is known of either.
#[must_use]
pub fn join(one: &Label, other: &Label) -> Label {
    one.joined(other)
}

/// The tags that a sink is not cleared for.
pub fn excess(label: &Label, clearance: &Clearance) -> BTreeSet<Tag> {
    match clearance {
        Clearance::Everything => BTreeSet::new(),
        Clearance::Only(cleared) => label.confidential.difference(cleared).cloned().collect(),
    }
}

/// True when data with this label may reach a sink with this clearance. Untrusted influence is no matter of where
/// data goes, but of what it decides; it is not looked at here.
pub fn flows_to(label: &Label, clearance: &Clearance) -> bool {
    match clearance {
        Clearance::Everything => true,
        Clearance::Only(cleared) => label.confidential.is_subset(cleared),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tags() -> impl Strategy<Value = BTreeSet<Tag>> {
        proptest::collection::btree_set("[a-e]", 0..4)
            .prop_map(|texts| texts.iter().filter_map(|text| Tag::parse(text)).collect())
    }

    fn labels() -> impl Strategy<Value = Label> {
        (tags(), tags()).prop_map(|(confidential, influence)| Label {
            confidential,
            influence,
        })
    }

    fn clearances() -> impl Strategy<Value = Clearance> {
        prop_oneof![1 => Just(Clearance::Everything), 4 => tags().prop_map(Clearance::Only)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn p6_join_is_a_semilattice(a in labels(), b in labels(), c in labels()) {
            prop_assert_eq!(join(&a, &a), a.clone());
            prop_assert_eq!(join(&a, &b), join(&b, &a));
            prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
            prop_assert_eq!(join(&a, &Label::default()), a);
        }

        #[test]
        fn p6_more_tags_never_reach_more(a in labels(), b in labels(), to in clearances()) {
            let both = join(&a, &b);
            prop_assert_eq!(flows_to(&both, &to), flows_to(&a, &to) && flows_to(&b, &to));
            prop_assert!(excess(&both, &to).is_superset(&excess(&a, &to)));
            prop_assert_eq!(flows_to(&a, &to), excess(&a, &to).is_empty());
        }

        #[test]
        fn p6_less_clearance_never_lets_more_through(a in labels(), cleared in tags(), fewer in tags()) {
            let narrow = Clearance::Only(cleared.intersection(&fewer).cloned().collect());
            if flows_to(&a, &narrow) {
                prop_assert!(flows_to(&a, &Clearance::Only(cleared)) && flows_to(&a, &Clearance::Everything));
            }
        }
    }

    #[test]
    fn p6_a_sink_that_no_rule_names_is_cleared_for_nothing() {
        let pii = Label {
            confidential: Tag::parse("pii").into_iter().collect(),
            ..Label::default()
        };
        assert!(!flows_to(&pii, &Clearance::none()) && flows_to(&Label::default(), &Clearance::none()));
        assert_eq!(excess(&pii, &Clearance::none()), pii.confidential);
    }
}
