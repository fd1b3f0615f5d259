//! How safe the record of a decision must be before its effect.
//!
//! Promises: P10.

use bailiwick_model::{Code, Decision, Durability, Request, Resource, Verb, Verdict};

/// Durable for questions, their answers, and requests that may change something elsewhere; ordered for the rest.
///
/// A denial has no effect that could come before its record, so it is ordered, unless a question was behind it.
pub(crate) fn of(request: &Request, decision: &Decision) -> Durability {
    let asked = decision.verdict == Verdict::Ask || matches!(decision.code, Code::NobodyToAsk | Code::AllowedByGrant);
    if asked || (decision.verdict == Verdict::Allow && changes_something(request)) {
        Durability::Durable
    } else {
        Durability::Ordered
    }
}

fn changes_something(request: &Request) -> bool {
    match (&request.resource, &request.verb) {
        (Resource::Url(_), Verb::Http(method)) => !method.is_safe(),
        (Resource::Repository { .. }, verb) => *verb != Verb::Fetch,
        (Resource::Url(_), _) | (Resource::Command(_), Verb::Broker) | (Resource::Tool(_), _) => true,
        (
            Resource::File(_)
            | Resource::Tree(_)
            | Resource::Endpoint { .. }
            | Resource::Name(_)
            | Resource::Command(_)
            | Resource::Secret(_),
            _,
        ) => false,
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{HttpUrl, TaskId};

    use super::*;

    #[test]
    fn p10_a_brokered_command_is_durable() {
        let allowed = Decision {
            verdict: Verdict::Allow,
            code: Code::AllowedByRule,
            reasons: Vec::new(),
            obligations: Vec::new(),
        };
        for (verb, want) in [(Verb::Run, Durability::Ordered), (Verb::Broker, Durability::Durable)] {
            let command = Resource::Command(bailiwick_model::Command::typed(&["git", "push"]));
            assert_eq!(of(&Request::new(TaskId([1; 8]), verb, command), &allowed), want);
        }
    }

    #[test]
    fn p10_what_changes_something_elsewhere_is_durable() {
        let allowed = Decision {
            verdict: Verdict::Allow,
            code: Code::AllowedByRule,
            reasons: Vec::new(),
            obligations: Vec::new(),
        };
        for (method, want) in [
            ("GET", Durability::Ordered),
            ("HEAD", Durability::Ordered),
            ("OPTIONS", Durability::Ordered),
            ("POST", Durability::Durable),
            ("DELETE", Durability::Durable),
            ("PROPFIND", Durability::Durable),
        ] {
            let url = Resource::Url(HttpUrl::parse("http://h.test/").unwrap());
            let request = Request::new(TaskId([1; 8]), method.parse().unwrap(), url);
            assert_eq!(of(&request, &allowed), want, "{method}");
            assert_eq!(of(&request, &Decision::deny(Code::NoRule, "")), Durability::Ordered);
            assert_eq!(
                of(&request, &Decision::deny(Code::NobodyToAsk, "")),
                Durability::Durable
            );
        }
    }
}
