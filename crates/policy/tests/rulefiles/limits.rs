//! Limits of rules on requests: what they keep out, what they oblige the gate to, and what may not be limited.

use bailiwick_model::{Argument, Obligation, Request, argument};
use bailiwick_policy::Sources;

use crate::mistakes::said;
use crate::{answer, file, load, policy, request, sources};

const ALLOWED: &str = "allow allowed-by-rule";
const OUTSIDE: &str = "deny outside-limits";

fn saying(act: &str, length: i64, kind: &str) -> Request {
    let mut request = request(act);
    let said = [
        (argument::CONTENT_LENGTH, Argument::Whole(length)),
        (argument::CONTENT_TYPE, Argument::Text(kind.into())),
    ];
    request
        .arguments
        .extend(said.map(|(name, value)| (name.to_owned(), value)));
    request
}

#[test]
fn p4_a_query_is_held_to_what_the_rule_names() {
    let policy = policy(
        "[network]\nallow = [\n\
         { rule = \"GET https://a.test/search\", query = { q = { longest = 10 }, lang = [\"en\", \"de\"], page = \"*\" }, \
         allows = [\"GET https://a.test/search?q=x\"], denies = [\"GET https://a.test/search?debug=1\"] },\n\
         { rule = \"GET https://a.test/plain\", query = [] },\n\
         { rule = \"GET https://a.test/some\", query = [\"a\", \"b\"] },\n]\n",
    );
    for (act, want) in [
        ("GET https://a.test/search?q=hello+you&lang=de&page=17", ALLOWED),
        ("GET https://a.test/search", ALLOWED),
        ("GET https://a.test/search?q=hello+you+all", OUTSIDE),
        ("GET https://a.test/search?lang=fr", OUTSIDE),
        ("GET https://a.test/search?q=a&debug=1", OUTSIDE),
        ("GET https://a.test/search?q=a&q=b", OUTSIDE),
        ("GET https://a.test/plain", ALLOWED),
        ("GET https://a.test/plain?x", OUTSIDE),
        ("GET https://a.test/some?b=1&a=2", ALLOWED),
        ("GET https://a.test/other?a=1", "deny no-rule"),
        ("resolve a.test", ALLOWED),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let said = policy.evaluate(&request("GET https://a.test/search?debug=1"));
    assert_eq!(
        said.reasons[0].text,
        "`GET https://a.test/search` (bailiwick.toml:3) is for less: its query has a parameter `debug`, and the rule has no \
         other parameters than `lang` (`en` or `de`), `page` and `q` (at most 10 characters)"
    );
    let shown = policy.layers();
    assert!(
        shown.contains("          with no query\n")
            && shown.contains("          with no other parameters than `a` and `b`\n"),
        "{shown}"
    );
    assert!(
        policy
            .to_cedar()
            .contains("@limits(\"no other parameters than `a` and `b`\")")
    );
}

#[test]
fn p4_a_body_is_held_to_size_and_type() {
    let policy = policy(
        "[network]\nallow = [{ rule = \"POST https://a.test/notes\", body = { most = \"1 KiB\", types = [\"application/json\"] } }, \
         { rule = \"DELETE https://a.test/notes\", body = 0 }]\n",
    );
    let small = saying("POST https://a.test/notes", 1024, "application/json; charset=utf-8");
    assert_eq!(answer(&policy, &small), ALLOWED);
    let duty = Obligation::RequestBody {
        bytes: 1024,
        types: vec!["application/json".into()],
    };
    assert_eq!(policy.evaluate(&small).obligations, [duty]);
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/notes", 1025, "application/json")),
        OUTSIDE
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/notes", 10, "text/plain")),
        OUTSIDE
    );
    assert_eq!(
        answer(&policy, &request("POST https://a.test/notes")),
        ALLOWED,
        "the gate sees to it"
    );
    assert_eq!(
        answer(&policy, &saying("DELETE https://a.test/notes", 1, "text/plain")),
        OUTSIDE
    );
}

#[test]
fn p13_answers_and_keys_become_duties_of_the_gate() {
    let policy = policy(
        "[network]\nallow = [{ rule = \"GET https://a.test/**\", answer = { most = \"10 MiB\", within = \"2 min\", rate = \"1 MiB/s\" }, \
         pin = [\"sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM=\"] }]\n",
    );
    let duties = policy.evaluate(&request("GET https://a.test/x")).obligations;
    let Some(Obligation::PinKey { sha256 }) = duties.last() else {
        panic!("{duties:?}")
    };
    assert_eq!(sha256.len(), 1);
    let answer = Obligation::Answer {
        bytes: Some(10 << 20),
        seconds: Some(120),
        bytes_per_second: Some(1 << 20),
    };
    assert_eq!(duties[0], answer);
}

#[test]
fn p3_each_layer_has_its_limits_and_all_of_them_hold() {
    let with = |person: &str, project: &str| {
        load(&Sources {
            person: vec![file("rules.toml", person)],
            project: Some(file("bailiwick.toml", project)),
            ..sources()
        })
        .unwrap()
    };
    let policy = with(
        "allow = [{ rule = \"* https://**\", body = \"1 KiB\" }]\n",
        "[network]\nallow = [{ rule = \"POST https://a.test/**\", body = \"1 MiB\", answer = { most = \"1 MiB\" } }]\n",
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/x", 1024, "text/plain")),
        ALLOWED
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/x", 1025, "text/plain")),
        OUTSIDE
    );
    let duties = policy.evaluate(&request("POST https://a.test/x")).obligations;
    let body = |bytes| Obligation::RequestBody {
        bytes,
        types: Vec::new(),
    };
    assert!(
        duties.contains(&body(1024)) && duties.contains(&body(1 << 20)) && duties.len() == 3,
        "{duties:?}"
    );
}

#[test]
fn a_wider_rule_holds_for_what_a_limited_one_leaves_over() {
    let policy = policy(
        "[network]\nallow = [{ rule = \"POST https://a.test/x\", body = \"1 KiB\" }]\nask = [\"POST https://a.test/x\"]\n",
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/x", 10, "text/plain")),
        ALLOWED
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/x", 9999, "text/plain")),
        "ask asked-by-rule"
    );
    let policy = self::policy(
        "[network]\nallow = [\"POST https://a.test/**\"]\nask = [{ rule = \"POST https://a.test/x\", body = \"1 KiB\" }]\n",
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/x", 10, "text/plain")),
        "ask asked-by-rule"
    );
    assert_eq!(
        answer(&policy, &saying("POST https://a.test/x", 9999, "text/plain")),
        OUTSIDE,
        "what an ask limits, no wider allow lets through"
    );
    let policy = self::policy(
        "[network]\nallow = [{ rule = \"GET https://a.test/x\", query = [\"q\"] }, \"GET https://a.test/**\"]\n",
    );
    let told: Vec<String> = policy.warnings().iter().map(ToString::to_string).collect();
    assert!(
        told.concat().contains("keep nothing out: `GET https://a.test/**`"),
        "{told:?}"
    );
}

/// Holds what is said about a file against `want`, without the place.
fn says_somewhere(text: &str, want: &str) {
    let said = said(text);
    let [one] = said.as_slice() else {
        panic!("{text}\n{said:#?}")
    };
    assert_eq!(one.split_once(": ").map(|(_, rest)| rest), Some(want), "{text}");
}

#[test]
fn p13_limits_stand_only_where_they_hold() {
    let rule = |rule: &str, rest: &str| format!("[network]\nallow = [{{ rule = \"{rule}\", {rest} }}]\n");
    for (text, want) in [
        (
            rule("tunnel a.test", "query = []"),
            "`tunnel a.test` is passed on unread: nobody would see that `query` holds | open the host instead, with a rule \
             such as `GET https://host/**`",
        ),
        (
            rule("* https://a.test", "tls = \"pass\", body = 0"),
            "`tunnel a.test` is passed on unread: nobody would see that `body` holds | open the host instead, with a rule \
             such as `GET https://host/**`",
        ),
        (
            rule(
                "GET http://a.test/**",
                "pin = [\"sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM=\"]",
            ),
            "`GET http://a.test/**` goes to a server that shows no key | `pin` is for `https` rules",
        ),
        (
            rule("GET https://a.test/**", "answer = { most = \"much\" }"),
            "`most` is not a size, but a text | write `most = \"10 MiB\"`",
        ),
        (
            rule("GET https://a.test/**", "body = { types = [\"json\"] }"),
            "`json` is not a media type | write it without parameters, as in `application/json`",
        ),
        (
            rule("GET https://a.test/**", "query = { q = { long = 3 } }"),
            "`long` is not a known key | known here: `value`, `longest`",
        ),
        (
            rule("GET https://a.test/**", "pin = [\"x\"]"),
            "`x` is not the digest of a key | write `sha256/` and the 44 characters of the key's digest in base64; of an SSH \
             server `SHA256:` and 43, as `ssh-keygen -l` prints it",
        ),
        (
            rule(
                "tunnel a.test:22",
                "pin = [\"sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM=\"]",
            ),
            "`tunnel a.test:22` is passed on unread: nobody would see that `pin` holds | open the host instead, with a rule \
             such as `GET https://host/**`",
        ),
        (
            rule(
                "tunnel a.test",
                "pin = [\"SHA256:d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM\"]",
            ),
            "`tunnel a.test` is for TLS, and `pin` names the key of an SSH server | write the port on which SSH is spoken, as in \
             `host:22`",
        ),
        (
            rule(
                "GET https://a.test/**",
                "pin = [\"SHA256:d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM\"]",
            ),
            "`GET https://a.test/**` goes to no SSH server | write the key of the server's certificate, `sha256/…`",
        ),
    ] {
        says_somewhere(&text, want);
    }
    says_somewhere(
        "allow = [{ rule = \"read .\", query = [] }]\n",
        "`read /home/dana/site` is no request: `query` limits requests over HTTP | take the key out",
    );
    says_somewhere(
        "[network]\ndeny = [{ rule = \"GET https://a.test\", query = [] }]\n",
        "`GET https://a.test/**` is denied: `query` would limit what is not allowed | a deny holds for all that its act \
         covers: take the key out",
    );
}
