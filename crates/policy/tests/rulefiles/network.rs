//! Hosts and addresses: C025 and C026 as far as rules decide them.

use bailiwick_model::{AbsPath, Host, HttpUrl, Obligation, Request, TaskId, Verb};
use bailiwick_policy::Sources;

use crate::{answer, file, load, policy, request, sources};

const ALLOWED: &str = "allow allowed-by-rule";

#[test]
fn c025_hosts_are_not_fooled_by_spelling() {
    let policy = policy("extends = [\"coding\"]\n[network]\nallow = [\"GET http://api.example.test/**\"]\n");
    for url in [
        "http://evilapi.example.test",
        "http://api.example.test.evil.test",
        "http://x.api.example.test",
    ] {
        assert_eq!(
            answer(&policy, &request(&format!("GET {url}"))),
            "deny no-rule",
            "{url}"
        );
    }
    for url in [
        "http://api.example.test@evil.test/",
        "http://evil.test\\@api.example.test/",
    ] {
        assert!(HttpUrl::parse(url).is_err(), "{url}");
    }
    assert_eq!(answer(&policy, &request("GET http://API.Example.Test./")), ALLOWED);

    let denies =
        crate::policy("extends = [\"coding\"]\nallow = [\"tunnel **\"]\ndeny = [\"tunnel münze.example.test\"]\n");
    assert_eq!(
        answer(&denies, &request("tunnel xn--mnze-0ra.example.test")),
        "deny denied-by-rule"
    );
    assert_eq!(answer(&denies, &request("tunnel example.test")), ALLOWED);
}

#[test]
fn c026_own_private_and_link_local_addresses_are_refused_in_every_spelling() {
    let policy = policy("extends = [\"coding\"]\nallow = [\"* http://**:*\", \"tunnel **:*\"]\n");
    for (host, want) in [
        ("2130706433", "deny address-loopback"),
        ("0x7f000001", "deny address-loopback"),
        ("0177.0.0.1", "deny address-loopback"),
        ("127.1", "deny address-loopback"),
        ("0", "deny address-loopback"),
        ("[::ffff:127.0.0.1]", "deny address-loopback"),
        ("[::ffff:7f00:1]", "deny address-loopback"),
        ("[::]", "deny address-loopback"),
        ("localhost.", "deny address-loopback"),
        ("10.1.2.3", "deny address-private"),
        ("2852039166", "deny address-link-local"),
        ("[64:ff9b::a9fe:a9fe]", "deny address-link-local"),
        ("1.1.1.1", ALLOWED),
        ("public.test", ALLOWED),
    ] {
        assert_eq!(
            answer(&policy, &request(&format!("GET http://{host}:8099/"))),
            want,
            "{host}"
        );
        assert_eq!(
            answer(&policy, &request(&format!("tunnel {host}:8099"))),
            want,
            "{host}"
        );
    }
    // A name that leads there is judged by where it leads.
    let asked = |address: &str| request("GET http://public.test/").dialling(address.parse().unwrap());
    for (address, want) in [
        ("127.0.0.1", "deny address-loopback"),
        ("::ffff:127.0.0.1", "deny address-loopback"),
        ("192.168.1.1", "deny address-private"),
        ("169.254.169.254", "deny address-link-local"),
        ("fe80::1", "deny address-link-local"),
        ("1.2.3.4", ALLOWED),
    ] {
        assert_eq!(answer(&policy, &asked(address)), want, "{address}");
    }
    let text = &policy.evaluate(&asked("127.0.0.1")).reasons[0].text;
    assert_eq!(
        text,
        "`public.test` is at 127.0.0.1, a loopback address that no rule names"
    );
}

#[test]
fn addresses_can_be_named() {
    let policy = policy(
        "[network]\ntunnel = [\"localhost:5432\", \"10.0.0.5:22\", \"db.test:5432\", \"a.corp.test\", \"public.test\"]\n\
         private = [\"*.corp.test\"]\n[network.hosts]\n\"db.test\" = \"127.0.0.1\"\n",
    );
    let at = |act: &str, address: &str| request(act).dialling(address.parse().unwrap());
    for (request, want) in [
        (at("tunnel localhost:5432", "127.0.0.1"), ALLOWED),
        (at("tunnel localhost:5432", "::1"), ALLOWED),
        (at("tunnel 127.0.0.1:5432", "127.0.0.1"), ALLOWED),
        (at("tunnel [::1]:5432", "::1"), ALLOWED),
        (request("tunnel localhost:5432"), ALLOWED),
        (at("tunnel localhost:5433", "127.0.0.1"), "deny no-rule"),
        (at("tunnel localhost:5432", "8.8.8.8"), "deny name-mismatch"),
        (at("tunnel 10.0.0.5:22", "10.0.0.5"), ALLOWED),
        (at("tunnel 10.0.0.5:22", "10.0.0.6"), "deny name-mismatch"),
        (at("tunnel db.test:5432", "127.0.0.1"), ALLOWED),
        (at("tunnel db.test:5432", "8.8.8.8"), "deny name-mismatch"),
        (at("tunnel a.corp.test", "10.9.9.9"), ALLOWED),
        (at("tunnel a.corp.test", "127.0.0.1"), "deny address-loopback"),
        (at("tunnel a.corp.test", "169.254.1.1"), "deny address-link-local"),
        (at("tunnel public.test", "10.9.9.9"), "deny address-private"),
    ] {
        assert_eq!(answer(&policy, &request), want, "{request} {:?}", request.address());
    }
    let duties = |request: &Request| policy.evaluate(request).obligations;
    let dial = |address: &str| Obligation::DialAddress {
        address: address.parse().unwrap(),
    };
    assert_eq!(
        duties(&at("tunnel public.test", "1.2.3.4")),
        [dial("1.2.3.4"), Obligation::MatchServerName]
    );
    assert_eq!(duties(&at("tunnel localhost:5432", "127.0.0.1")), [dial("127.0.0.1")]);
    assert_eq!(duties(&request("tunnel public.test")), [Obligation::MatchServerName]);
}

#[test]
fn a_port_that_a_rule_names_is_a_service_of_its_own_kind() {
    let policy = policy(
        "[network]\ntunnel = [\"db.test:5432\", \"*.git.test:22\", \"web.test\", \"web.test:443\", \"any.test:*\"]\n\
         allow = [\"GET http://page.test:8080/**\"]\n",
    );
    let duties = |act: &str| policy.evaluate(&request(act)).obligations;
    for act in ["tunnel db.test:5432", "tunnel a.git.test:22"] {
        assert_eq!(duties(act), [], "{act}");
    }
    for act in ["tunnel web.test", "tunnel any.test:5432", "tunnel any.test:22"] {
        assert_eq!(duties(act), [Obligation::MatchServerName], "{act}");
    }
    let settings = policy.settings();
    assert_eq!(settings.streams, [(Host::parse("db.test").unwrap(), 5432)].into());
    assert_eq!(settings.ports, None, "one rule names every port");
    let policy = self::policy(
        "[network]\ntunnel = [\"db.test:5432\", \"web.test\"]\nask = [\"GET http://page.test:8080/**\"]\n",
    );
    assert_eq!(policy.settings().ports, Some([443, 5432, 8080].into()));
}

#[test]
fn p5_a_deny_holds_by_every_road() {
    let policy = policy(
        "allow = [\"tunnel **\", \"* http://**\", \"tunnel localhost:1\"]\n\
         deny = [\"POST https://bin.test/upload/**\", \"* https://evil.test/**\", \"tunnel 1.2.3.4\", \"tunnel localhost:2\"]\n",
    );
    for (act, want) in [
        ("tunnel bin.test", "deny denied-by-rule"),
        ("resolve bin.test", ALLOWED),
        ("tunnel evil.test", "deny denied-by-rule"),
        ("resolve evil.test", "deny denied-by-rule"),
        ("tunnel [::1]:2", "deny denied-by-rule"),
        ("tunnel x.localhost:2", "deny denied-by-rule"),
        ("tunnel 127.1:1", ALLOWED),
        ("tunnel 1.2.3.4", "deny denied-by-rule"),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let elsewhere = request("tunnel other.test").dialling("1.2.3.4".parse().unwrap());
    assert_eq!(
        answer(&policy, &elsewhere),
        "deny denied-by-rule",
        "a denied address under another name"
    );
}

#[test]
fn a_name_is_looked_up_only_where_a_rule_could_allow_its_host() {
    let policy = policy("[network]\ntunnel = [\"*.a.test\"]\nallow = [\"GET http://b.test/x\"]\n");
    let name = |host: &str| {
        let host = Host::parse(host).unwrap();
        Request::new(TaskId([0; 8]), Verb::Resolve, bailiwick_model::Resource::Name(host))
    };
    for (host, want) in [
        ("x.a.test", ALLOWED),
        ("b.test", ALLOWED),
        ("a.test", "deny no-rule"),
        ("secret.evil.test", "deny no-rule"),
    ] {
        assert_eq!(answer(&policy, &name(host)), want, "{host}");
    }
}

#[test]
fn p5_https_is_judged_by_method_and_path_and_no_tunnel_stands_for_it() {
    let policy = policy(
        "[network]\ntunnel = [\"pinned.test\"]\n\
         allow = [\"GET https://docs.test/**\", \"* https://api.test:8443/v1/**\", { rule = \"* https://blind.test\", tls = \"pass\" }]\n\
         ask = [\"POST https://**\"]\ndeny = [\"* https://docs.test/private/**\"]\n",
    );
    for (act, want) in [
        ("GET https://docs.test/serde", ALLOWED),
        ("GET https://docs.test/private/x", "deny denied-by-rule"),
        ("PUT https://docs.test/serde", "deny no-rule"),
        ("POST https://docs.test/serde", "ask asked-by-rule"),
        ("GET http://docs.test/serde", "deny no-rule"),
        ("GET https://docs.test:8443/serde", "deny no-rule"),
        ("DELETE https://api.test:8443/v1/x", ALLOWED),
        ("GET https://api.test:8443/v2/x", "deny no-rule"),
        ("tunnel docs.test", "deny denied-by-rule"),
        ("tunnel api.test:8443", "deny no-rule"),
        ("resolve docs.test", ALLOWED),
        ("resolve api.test", ALLOWED),
        ("tunnel pinned.test", ALLOWED),
        ("GET https://pinned.test/x", "deny no-rule"),
        ("tunnel blind.test", ALLOWED),
        ("GET https://blind.test/x", "deny no-rule"),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let opens = |host: &str, port| policy.settings().opens(&Host::parse(host).unwrap(), port);
    assert!(opens("docs.test", 443) && opens("api.test", 8443) && opens("any.test", 443));
    assert!(!opens("pinned.test", 443) && !opens("blind.test", 443) && !opens("api.test", 8444));
}

#[test]
fn p2_the_shipped_ceiling_lets_requests_be_handed_on_and_others_must_name_them() {
    let with = |person: &str| {
        load(&Sources {
            person: vec![file("rules.toml", person)],
            project: Some(file("bailiwick.toml", "[network]\nallow = [\"* https://a.test/**\"]\n")),
            ..sources()
        })
        .unwrap()
    };
    let asked = request("POST https://a.test/x");
    assert_eq!(answer(&with("extends = [\"ceiling\"]\n"), &asked), ALLOWED);
    assert_eq!(answer(&with("allow = [\"tunnel **:*\"]\n"), &asked), "deny no-rule");
    let get = with("allow = [\"GET https://**\"]\n");
    assert_eq!(answer(&get, &asked), "deny no-rule");
    assert_eq!(answer(&get, &request("GET https://a.test/x")), ALLOWED);
    assert_eq!(
        answer(
            &with("extends = [\"ceiling\"]\n[network]\ndeny = [\"POST https://**\"]\n"),
            &asked
        ),
        "deny denied-by-rule"
    );
    let roots = with("extends = [\"ceiling\"]\n[network]\nroots = [\"~/ca.pem\"]\n");
    assert_eq!(roots.settings().roots, [AbsPath::new("/home/dana/ca.pem").unwrap()]);
}

#[test]
fn a_tunnel_of_a_profile_that_would_go_round_a_deny_is_told() {
    let told = |text: &str| {
        let policy = load(&Sources {
            project: Some(file("bailiwick.toml", text)),
            profiles: vec!["go".into()],
            ..sources()
        });
        let told: Vec<String> = policy.unwrap().warnings().iter().map(ToString::to_string).collect();
        told.join("\n")
    };
    let said = told("extends = [\"coding\"]\n[network]\ndeny = [\"PUT https://proxy.golang.org/**\"]\n");
    assert!(
        said.contains("`tunnel proxy.golang.org` can never match") && said.contains("PUT https://proxy.golang.org/**"),
        "{said}"
    );
    let said = told("extends = [\"coding\"]\n[network]\nallow = [\"GET https://proxy.golang.org/**\"]\n");
    assert!(
        said.contains("is never looked at: `tunnel proxy.golang.org` (profile:go:"),
        "{said}"
    );
    assert_eq!(
        told("extends = [\"coding\"]\n[network]\ndeny = [\"* https://evil.test/**\"]\n"),
        ""
    );
}
