//! `authority` and `policy` read one act alike: one rule that allows, and one capability, cover the same requests.
//!
//! Left out, since they differ on purpose: reading under `write` (a rule's follows from it), loopback and private
//! addresses (only rules know classes of addresses), and places that shipped rules deny.

use bailiwick_authority::act_covers;
use bailiwick_model::Verdict;

use crate::house::request;
use crate::vectors::{act, load};

const RULES: [&str; 12] = [
    "read /a",
    "write /a",
    "* /a/b",
    "GET http://h.test/x/**",
    "* http://h.test",
    "POST http://*.test/x/*",
    "GET http://h.test:81/x",
    "* http://**.test:*",
    "tunnel h.test",
    "tunnel *.h.test:22",
    "tunnel **.test:*",
    "run **",
];

const ASKED: [&str; 30] = [
    "read /a",
    "read /a/b",
    "read /ab",
    "read /",
    "read /a/b/**",
    "read /a/**",
    "write /a",
    "write /a/b/c",
    "write /a/**",
    "write /a/b/**",
    "create /a/b",
    "delete /a/b",
    "delete /b",
    "GET http://h.test/x",
    "GET http://h.test/x/y",
    "GET http://h.test/x/y/z?q=1",
    "POST http://h.test/x/y",
    "POST http://a.h.test/x/y",
    "PUT http://h.test/",
    "GET http://h.test:81/x",
    "GET https://h.test/x",
    "tunnel h.test",
    "tunnel h.test:22",
    "tunnel a.h.test:22",
    "tunnel a.h.test",
    "tunnel b.a.h.test:22",
    "resolve h.test",
    "resolve a.h.test",
    "resolve h.example",
    "run git push",
];

#[test]
fn p5_rules_and_capabilities_read_an_act_alike() {
    for rule in RULES {
        let policy = load(&format!("allow = [\"{rule}\"]")).unwrap_or_else(|| panic!("`{rule}` loads"));
        for text in ASKED {
            if rule.starts_with("write") && text.starts_with("read") {
                continue;
            }
            let asked = request(text);
            let decision = policy.evaluate(&asked);
            assert_eq!(
                decision.verdict == Verdict::Allow,
                act_covers(&act(rule), &asked),
                "`{rule}` and `{text}`: {decision:?}"
            );
        }
    }
}
