//! Secrets for requests: which go with which, and what is refused.

use bailiwick_model::{Argument, Obligation, Request, Verdict, argument};
use bailiwick_policy::{Policy, Sources};

use crate::{answer, file, load, policy, request, sources};

const RULES: &str = "extends = [\"coding\"]\n[network]\nallow = [\"* https://api.test/**\"]\n\
    [secret.wide]\nfrom = \"env:W\"\nfor = \"https://api.test/**\"\nas = \"bearer\"\nenv = [\"A\", \"B\"]\n\
    [secret.narrow]\nfrom = \"env:N\"\nfor = [\"https://api.test/v1/**\"]\nas = \"header:x-key\"\n";

fn injected(policy: &Policy, act: &str) -> Vec<String> {
    let decision = policy.evaluate(&request(act));
    let injects = decision.obligations.iter().filter_map(|duty| match duty {
        Obligation::Inject { secret, place } => Some(format!("{secret} {place}")),
        _ => None,
    });
    injects.collect()
}

fn with_person(project: &str, person: &str) -> Policy {
    load(&Sources {
        project: Some(file("bailiwick.toml", project)),
        person: vec![file("rules.toml", person)],
        ..sources()
    })
    .unwrap()
}

#[test]
fn p9_a_secret_goes_with_the_requests_that_it_is_for() {
    let policy = policy(RULES);
    assert_eq!(
        injected(&policy, "GET https://api.test/v1/x"),
        ["narrow header:x-key", "wide bearer"]
    );
    assert_eq!(injected(&policy, "GET https://api.test/v2"), ["wide bearer"]);
    assert!(injected(&policy, "GET https://other.test/v1/x").is_empty());
    assert_eq!(answer(&policy, &request("use secret:wide")), "allow allowed-by-rule");
    assert_eq!(answer(&policy, &request("use secret:other")), "deny no-rule");
    let names: Vec<String> = policy
        .secrets_for_requests()
        .iter()
        .map(|(name, ..)| name.to_string())
        .collect();
    assert_eq!(names, ["narrow", "wide"]);
}

#[test]
fn p2_a_secret_is_used_where_every_layer_lets_it_be() {
    let denied = with_person(RULES, "deny = [\"use secret:wide\"]\n");
    assert_eq!(injected(&denied, "GET https://api.test/v2"), [] as [String; 0]);
    assert_eq!(
        answer(&denied, &request("GET https://api.test/v2")),
        "allow allowed-by-rule"
    );
    assert!(denied.withholds("wide") && !denied.withholds("narrow"));
    // A person's secret is for the contexts that name it.
    let own = "[secret.mine]\nfrom = \"env:M\"\nfor = \"https://api.test/**\"\nas = \"bearer\"\n";
    let network = "[network]\nallow = [\"* https://api.test/**\"]\n";
    let without = with_person(&format!("extends = [\"coding\"]\n{network}"), own);
    assert!(injected(&without, "GET https://api.test/v2").is_empty());
    let with = with_person(
        &format!("extends = [\"coding\"]\nallow = [\"use secret:mine\"]\n{network}"),
        own,
    );
    assert_eq!(injected(&with, "GET https://api.test/v2"), ["mine bearer"]);
    // A file that nobody trusts names nothing.
    let untrusted = load(&Sources {
        project: Some(file("bailiwick.toml", RULES)),
        project_trusted: false,
        ..sources()
    });
    let untrusted = untrusted.unwrap();
    assert!(untrusted.secrets_for_requests().is_empty() && untrusted.settings().secrets.is_empty());
    assert_eq!(answer(&untrusted, &request("use secret:wide")), "deny no-rule");
}

#[test]
fn an_ask_is_asked_with_the_request() {
    let policy = policy(&RULES.replace("as = \"bearer\"\n", "as = \"bearer\"\nask = true\n"));
    assert_eq!(
        policy.evaluate(&request("GET https://api.test/v2")).verdict,
        Verdict::Ask
    );
    assert_eq!(injected(&policy, "GET https://api.test/v2"), ["wide bearer"]);
}

#[test]
fn a_strangers_login_is_refused_beside_a_secret() {
    let brings = |act: &str| {
        let mut request: Request = request(act);
        request
            .arguments
            .insert(argument::CREDENTIAL.into(), Argument::Flag(true));
        request
    };
    let policy = policy(RULES);
    assert_eq!(
        answer(&policy, &brings("GET https://api.test/none-of-it")),
        "deny strangers-login"
    );
    let lax = crate::policy(&RULES.replace("as = \"", "own_login = true\nas = \""));
    assert_eq!(
        answer(&lax, &brings("GET https://api.test/v2")),
        "allow allowed-by-rule"
    );
}

#[test]
fn p4_what_a_secret_cannot_be_is_a_mistake() {
    for (keys, said) in [
        (
            "for = \"http://api.test/**\"\nas = \"bearer\"",
            "where others can read it",
        ),
        ("for = \"https://**\"\nas = \"bearer\"", "to any host or port"),
        ("for = \"https://a.test:*/\"\nas = \"bearer\"", "to any host or port"),
        ("for = \"a.test\"\nas = \"bearer\"", "not a url pattern"),
        ("for = \"https://a.test/\"", "has no place"),
        ("as = \"bearer\"", "is for no request"),
        ("env = \"A\"", "is for no request"),
        ("for = \"https://a.test/\"\nas = \"cookie\"", "no place for a secret"),
        ("for = \"https://a.test/\"\nas = \"sigv4:s3/x\"", "id of the key"),
        (
            "for = \"https://a.test/\"\nas = \"bearer\"\nenv = \"A B\"",
            "not the name of a variable",
        ),
        (
            "for = \"https://a.test/\"\nas = \"bearer\"\nshape = \"a b\"",
            "no beginning of a token",
        ),
        (
            "for = \"https://a.test/\"\nas = \"bearer\"\nsession = 1",
            "must be yes or no",
        ),
        ("fore = \"https://a.test/\"", "not a known key"),
        (
            "refresh = { url = \"https://a.test/token\" }",
            "does not say where, or as whom",
        ),
        ("refresh = { client = \"x\" }", "does not say where, or as whom"),
        (
            "refresh = { url = \"http://a.test/token\", client = \"x\" }",
            "an address that others can read along with",
        ),
        ("refresh = { url = \"a.test\", client = \"x\" }", "a.test"),
        (
            "refresh = { url = \"https://a.test/token\", client = \"x\", secret = \"env:B\" }",
            "`secret` is not a known key",
        ),
        (
            "refresh = { url = \"https://a.test/token\", client = \"x\", client_secret = \"nowhere\" }",
            "is no place that a secret comes from",
        ),
        (
            "refresh = { url = \"https://a.test/token\", client = \"ä\" }",
            "`client` is one line of ASCII",
        ),
        (
            "for = \"https://a.test/\"\nas = \"sigv4:s3/eu\"\nuser = \"AKIA0\"\nrefresh = { url = \"https://a.test/token\", client = \"x\" }",
            "a key that signs is not renewed",
        ),
    ] {
        let text = format!("extends = [\"coding\"]\n[secret.x]\nfrom = \"env:A\"\n{keys}\n");
        let wrong = load(&Sources {
            project: Some(file("bailiwick.toml", &text)),
            ..sources()
        })
        .map(|_| ())
        .unwrap_err();
        assert!(
            wrong.iter().any(|wrong| wrong.message.contains(said)),
            "{keys}: {wrong:?}"
        );
    }
    for ours in ["http://127.0.0.1:80/", "http://localhost:8080/x", "http://[::1]:9/**"] {
        policy(&format!(
            "extends = [\"coding\"]\n[secret.x]\nfrom = \"env:A\"\nfor = \"{ours}\"\nas = \"bearer\"\n"
        ));
    }
}

#[test]
fn a_login_that_is_renewed_says_where_and_as_whom() {
    let policy = policy(
        "extends = [\"coding\"]\n[network]\nallow = [\"* https://api.test/**\"]\ndeny = [\"POST https://old.test/**\"]\n\
         [secret.mail]\nfrom = \"keyring:mail\"\nfor = \"https://api.test/**\"\nas = \"bearer\"\n\
         refresh = { url = \"https://login.test/token\", client = \"desk\", client_secret = \"env:PW\", scope = \"mail.read\" }\n",
    );
    let secret = &policy.settings().secrets["mail"];
    let renewal = secret.renewal.as_ref().unwrap();
    assert_eq!(
        renewal.to_string(),
        "renewed at https://login.test/token as desk for mail.read"
    );
    assert_eq!(renewal.client_secret.as_ref().unwrap().to_string(), "env:PW");
    assert_eq!(injected(&policy, "GET https://api.test/x"), ["mail bearer"]);
    // The line says where it is sent; a deny holds for that, too.
    let url = |text: &str| bailiwick_model::HttpUrl::parse(text).unwrap();
    let post = bailiwick_model::Method::parse("POST").unwrap();
    assert!(!policy.denies_own(&post, &url("https://login.test/token")));
    assert!(policy.denies_own(&post, &url("https://old.test/token")));
}
