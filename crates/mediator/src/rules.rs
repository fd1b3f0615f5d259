//! What deciding needs of a set of rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use bailiwick_gate::MayAnswer;
use bailiwick_model::{
    AbsPath, Budget, Decision, Digest, Label, Obligation, Request, RuleRef, Tag, Totals, Verb, Verdict,
};
use bailiwick_policy::{Moment, Policy};

/// Rules, compiled. The same request gets the same answer every time (P14); a fault inside is a deny (P4).
pub trait Rules: Send + Sync {
    /// What the rules say about a request.
    fn evaluate(&self, request: &Request) -> Decision;

    /// What the rules say about what the person orders by hand, which is a task's first program.
    fn evaluate_order(&self, request: &Request) -> Decision {
        self.evaluate(request)
    }

    /// What hours, and who is there, say against a request; nothing where they say nothing. `duties` is what the rules want of
    /// the gate.
    fn conditions(&self, _request: &Request, _duties: &[Obligation], _moment: Moment<'_>) -> Option<Decision> {
        None
    }

    /// Who may answer a question about a request; none for everybody who is an approver at all.
    fn approvers_of(&self, _request: &Request) -> Option<Vec<MayAnswer>> {
        None
    }

    /// The trees that the rules may allow as a whole, for standing permits.
    fn tree_candidates(&self) -> Vec<(Verb, AbsPath)>;

    /// The trees that some rule asks about.
    fn asked_candidates(&self) -> Vec<AbsPath> {
        Vec::new()
    }

    /// The budget of the rule that is written there, and its place among all budgets of these rules.
    fn budget(&self, _rule: &RuleRef) -> Option<(usize, Budget)> {
        None
    }

    /// What calls may come to in all by the rule that is written there, and a name of it that stays the same while its act
    /// does.
    fn totals(&self, _rule: &RuleRef) -> Option<(String, Arc<Totals>)> {
        None
    }

    /// The arguments of a call for which no rule admits it.
    fn arguments_at_fault(&self, _request: &Request) -> Vec<String> {
        Vec::new()
    }

    /// What the answer to a request carries, where it is allowed with these duties.
    fn label_of(&self, _request: &Request, _duties: &[Obligation]) -> Label {
        Label::default()
    }

    /// The tags of confidentiality that may reach what a request acts on.
    fn cleared_for(&self, _request: &Request) -> BTreeSet<Tag> {
        BTreeSet::new()
    }

    /// What is answered where data with a tag would reach what it may not, and by which rule.
    fn otherwise(&self, _tag: &Tag) -> (Verdict, Option<RuleRef>) {
        (Verdict::Deny, None)
    }

    /// The arguments of a call that must carry no untrusted influence, each with the rule that says so.
    fn trusted_arguments(&self, _request: &Request) -> Vec<(String, RuleRef)> {
        Vec::new()
    }

    /// Names the mandate in force, with the values that were set in it; none where there is none.
    fn mandate(&self) -> Option<Digest> {
        None
    }

    /// The digest of all rules in force.
    fn digest(&self) -> Digest;
}

impl Rules for Policy {
    fn evaluate(&self, request: &Request) -> Decision {
        Policy::evaluate(self, request)
    }

    fn evaluate_order(&self, request: &Request) -> Decision {
        Policy::evaluate_order(self, request)
    }

    fn conditions(&self, request: &Request, duties: &[Obligation], moment: Moment<'_>) -> Option<Decision> {
        Policy::conditions(self, request, duties, moment)
    }

    fn approvers_of(&self, request: &Request) -> Option<Vec<MayAnswer>> {
        self.settings().oversight.approvers_of(request)
    }

    fn tree_candidates(&self) -> Vec<(Verb, AbsPath)> {
        Policy::tree_candidates(self)
    }

    fn asked_candidates(&self) -> Vec<AbsPath> {
        Policy::asked_candidates(self)
    }

    fn budget(&self, rule: &RuleRef) -> Option<(usize, Budget)> {
        Policy::budget(self, rule)
    }

    fn totals(&self, rule: &RuleRef) -> Option<(String, Arc<Totals>)> {
        Policy::totals(self, rule)
    }

    fn arguments_at_fault(&self, request: &Request) -> Vec<String> {
        Policy::arguments_at_fault(self, request)
    }

    fn label_of(&self, request: &Request, duties: &[Obligation]) -> Label {
        Policy::label_of(self, request, duties)
    }

    fn cleared_for(&self, request: &Request) -> BTreeSet<Tag> {
        Policy::cleared_for(self, request)
    }

    fn otherwise(&self, tag: &Tag) -> (Verdict, Option<RuleRef>) {
        self.settings().tags.otherwise(tag)
    }

    fn trusted_arguments(&self, request: &Request) -> Vec<(String, RuleRef)> {
        Policy::trusted_arguments(self, request)
    }

    fn mandate(&self) -> Option<Digest> {
        Policy::mandate(self).and_then(|mandate| mandate.digest)
    }

    fn digest(&self) -> Digest {
        Policy::digest(self)
    }
}
