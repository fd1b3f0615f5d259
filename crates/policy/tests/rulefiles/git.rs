//! Git over HTTP as acts of its own: a fetch is no push, by whichever request.

use bailiwick_model::{Argument, argument};

use crate::{answer, policy, request};

const ALLOWED: &str = "allow allowed-by-rule";
const DENIED: &str = "deny denied-by-rule";
const NO_RULE: &str = "deny no-rule";

#[test]
fn p5_a_denied_push_leaves_fetching() {
    for rules in [
        "allow = [\"* https://git.test/**\"]\ndeny = [\"push https://git.test/**\"]\n",
        "allow = [\"GET https://git.test/**\", \"POST https://git.test/**\"]\ndeny = [\"push https://git.test/acme/site.git\"]\n",
        "allow = [\"fetch https://git.test/acme/*\"]\n",
    ] {
        let policy = policy(&format!("[network]\n{rules}"));
        for (act, fetches) in [
            ("fetch https://git.test/acme/site.git", true),
            (
                "GET https://git.test/acme/site.git/info/refs?service=git-upload-pack",
                true,
            ),
            ("POST https://git.test/acme/site.git/git-upload-pack", true),
            ("POST https://git.test/acme/site/git-upload-pack", true),
            ("push https://git.test/acme/site.git main", false),
            ("push https://git.test/acme/site", false),
            (
                "GET https://git.test/acme/site.git/info/refs?service=git-receive-pack",
                false,
            ),
            (
                "GET https://git.test/acme/site.git/info/refs?service=git%2dreceive-pack",
                false,
            ),
            ("POST https://git.test/acme/site.git/git-receive-pack", false),
            ("POST https://git.test/acme/site/git-receive-pack", false),
            ("tunnel git.test", false),
        ] {
            let said = answer(&policy, &request(act));
            assert_eq!(said == ALLOWED, fetches, "{rules}{act}: {said}");
        }
    }
}

#[test]
fn p5_a_deny_of_requests_is_a_deny_of_what_they_do() {
    let policy = policy(
        "[network]\nallow = [\"push https://git.test/**\", \"fetch https://git.test/**\"]\n\
         deny = [\"POST https://git.test/a.git/git-receive-pack\", \"* https://git.test/b/**\"]\n",
    );
    for (act, want) in [
        ("push https://git.test/a main", DENIED),
        ("fetch https://git.test/a", ALLOWED),
        ("push https://git.test/b main", DENIED),
        ("fetch https://git.test/b.git", DENIED),
        ("push https://git.test/c main", ALLOWED),
        ("POST https://git.test/c.git/git-receive-pack", ALLOWED),
        ("GET https://git.test/c", NO_RULE),
        ("POST https://git.test/c", NO_RULE),
        ("resolve git.test", ALLOWED),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
}

#[test]
fn p4_which_branch_is_pushed_counts_as_the_worst_that_it_may_be() {
    let policy = policy(
        "[network]\nallow = [\"push https://git.test/a.git agent/**\"]\ndeny = [\"push https://git.test/a.git agent/main\"]\n",
    );
    for (act, want) in [
        ("push https://git.test/a agent/fix", ALLOWED),
        ("push https://git.test/a agent/main", DENIED),
        ("push https://git.test/A agent/main", DENIED),
        ("push https://git.test/A agent/fix", NO_RULE),
        ("push https://git.test/a main", NO_RULE),
        ("push https://git.test/a refs/tags/agent/fix", NO_RULE),
        ("push https://git.test/a", DENIED),
        ("POST https://git.test/a.git/git-receive-pack", DENIED),
        ("GET https://git.test/a.git/info/refs?service=git-receive-pack", ALLOWED),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    for (changes, want) in [
        ("refs/heads/agent/fix", ALLOWED),
        ("refs/heads/agent/fix refs/heads/agent/more", ALLOWED),
        ("", ALLOWED),
        ("refs/heads/main", NO_RULE),
        ("refs/heads/agent/fix refs/heads/main", NO_RULE),
        ("refs/heads/main refs/heads/agent/fix", NO_RULE),
        ("refs/heads/agent/fix refs/heads/agent/main", DENIED),
        ("refs/heads/agent/fix no-name", DENIED),
        ("refs/heads/agent/fix ", DENIED),
    ] {
        let mut push = request("POST https://git.test/a.git/git-receive-pack");
        let text = Argument::Text(changes.into());
        push.arguments.insert(argument::REFERENCES.into(), text);
        assert_eq!(answer(&policy, &push), want, "{changes:?}");
    }
}

#[test]
fn the_narrower_of_a_push_and_any_request_decides() {
    let policy = policy("[network]\nallow = [\"* https://git.test/**\"]\nask = [\"push https://git.test/**\"]\n");
    for (act, want) in [
        ("push https://git.test/a main", "ask asked-by-rule"),
        ("POST https://git.test/a.git/git-receive-pack", "ask asked-by-rule"),
        ("fetch https://git.test/a", ALLOWED),
        ("POST https://git.test/a.git/git-upload-pack", ALLOWED),
        ("POST https://git.test/a/comments", ALLOWED),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let opens = policy
        .settings()
        .opens(&bailiwick_model::Host::parse("git.test").unwrap(), 443);
    assert!(opens, "so that it is seen what is pushed");
}
