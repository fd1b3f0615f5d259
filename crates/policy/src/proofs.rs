//! Properties that hold for all rules: shown with rules and requests made up at random from a small world, in which
//! they meet often.

use std::net::IpAddr;

use bailiwick_gate::AsWritten;
use bailiwick_model::{AbsPath, Act, Anchors, Layer, Request, RuleRef, TaskId, Verdict};
use proptest::prelude::*;

use crate::judge::asked_for;
use crate::load::{SourceFile, Sources, load};
use crate::policy::Policy;
use crate::rule::Rule;
use crate::settings::Settings;

fn anchors() -> Anchors {
    Anchors {
        root: AbsPath::new("/p").ok(),
        home: AbsPath::new("/home/dana").unwrap(),
    }
}

/// A rule as (layer, effect, act).
type Line = (Layer, Verdict, String);

fn policy(lines: &[Line], granting: &[Layer]) -> Policy {
    let mut rules = Vec::new();
    for (number, (layer, effect, text)) in lines.iter().enumerate() {
        let act = Act::parse(text, &anchors()).unwrap();
        let origin = RuleRef {
            layer: *layer,
            file: "made-up".into(),
            line: u32::try_from(number).unwrap(),
            column: 1,
            act: text.clone(),
        };
        rules.extend(Rule::written(*effect, act, &origin, None, &AsWritten));
    }
    Policy::of(rules, Settings::default(), granting.to_vec()).unwrap()
}

fn path(wild: bool) -> impl Strategy<Value = String> {
    let segment = if wild {
        prop_oneof![3 => "[ab]", 1 => Just("*".to_owned()), 1 => Just("**".to_owned()), 1 => Just("a*".to_owned()), 1 => Just(".env".to_owned())].boxed()
    } else {
        prop_oneof![3 => "[ab]", 1 => Just("ab".to_owned()), 1 => Just(".env".to_owned())].boxed()
    };
    proptest::collection::vec(segment, 0..4).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn host(wild: bool) -> BoxedStrategy<String> {
    let plain = prop_oneof![
        Just("a.test"),
        Just("b.a.test"),
        Just("c.b.a.test"),
        Just("localhost"),
        Just("127.0.0.1"),
        Just("10.0.0.5"),
        Just("x.localhost"),
    ];
    if wild {
        let open = prop_oneof![
            Just("**"),
            Just("*.a.test"),
            Just("**.a.test"),
            Just("site:a.test"),
            Just("**.test"),
            Just("*.b.a.test")
        ];
        prop_oneof![plain, open].prop_map(Into::into).boxed()
    } else {
        plain.prop_map(Into::into).boxed()
    }
}

fn branch(wild: bool) -> BoxedStrategy<String> {
    let plain = prop_oneof![2 => Just(""), 1 => Just(" a"), 1 => Just(" a/b"), 1 => Just(" refs/tags/a")];
    match wild {
        true => prop_oneof![plain, Just(" a/*"), Just(" refs/**")]
            .prop_map(Into::into)
            .boxed(),
        false => plain.prop_map(Into::into).boxed(),
    }
}

/// Requests of git's, by method and what stands behind the repository.
fn git() -> impl Strategy<Value = (&'static str, &'static str)> {
    proptest::sample::select(vec![
        ("POST", "git-upload-pack"),
        ("POST", "git-receive-pack"),
        ("GET", "info/refs"),
    ])
}

/// Acts on what servers offer.
fn tool(wild: bool) -> BoxedStrategy<String> {
    let plain = prop_oneof![
        Just("call a/x"),
        Just("call a/x/y"),
        Just("call b/x"),
        Just("open a/x"),
        Just("sample a"),
        Just("roots b")
    ];
    match wild {
        true => prop_oneof![
            plain,
            Just("call a/*"),
            Just("call a/**"),
            Just("call */x"),
            Just("call *"),
            Just("sample *")
        ]
        .prop_map(Into::into)
        .boxed(),
        false => plain.prop_map(Into::into).boxed(),
    }
}

fn act(wild: bool) -> BoxedStrategy<String> {
    let open = if wild { 1 } else { 0 };
    let file =
        prop_oneof![3 => Just("read"), 3 => Just("write"), 1 => Just("create"), 1 => Just("delete"), open => Just("*")];
    let http = prop_oneof![2 => Just("GET"), 1 => Just("POST"), open => Just("*")];
    let port = prop_oneof![3 => Just(""), 1 => Just(":81"), open => Just(":*")];
    let run = if wild {
        prop_oneof![
            Just("run **"),
            Just("run make"),
            Just("run make all"),
            Just("run make -k"),
            Just("run m* a* **"),
            Just("run @exact make")
        ]
        .boxed()
    } else {
        prop_oneof![
            Just("run make all"),
            Just("run make -k all"),
            Just("run make"),
            Just("run cc -c a")
        ]
        .boxed()
    };
    prop_oneof![
        6 => (file, path(wild)).prop_map(|(verb, path)| format!("{verb} {path}")),
        4 => (http, prop_oneof![Just("http"), Just("https")], host(wild), port.clone(), path(wild), any::<bool>()).prop_map(move |(verb, scheme, host, port, path, encoded)| {
            // A slash inside a name, which servers read in two ways.
            let path = match path.strip_prefix("/a/") {
                Some(rest) if encoded && !wild && !rest.is_empty() => format!("/a%2F{rest}"),
                _ => path,
            };
            format!("{verb} {scheme}://{host}{port}{path}")
        }),
        3 => (host(wild), port).prop_map(|(host, port)| format!("tunnel {host}{port}")),
        2 => (prop_oneof![Just("fetch"), Just("push")], host(wild), path(wild), branch(wild)).prop_map(|(verb, host, path, branch)| match verb {
            "push" => format!("push https://{host}{path}{branch}"),
            _ => format!("fetch https://{host}{path}"),
        }),
        1 => (host(wild), path(false), git()).prop_map(|(host, path, (method, service))| format!("{method} https://{host}{}/{service}", path.trim_end_matches('/'))),
        1 => host(wild).prop_map(|host| format!("resolve {host}")),
        2 => tool(wild),
        2 => run.prop_map(Into::into),
    ]
    .boxed()
}

fn line(layers: &'static [Layer]) -> impl Strategy<Value = Line> {
    let effect = prop_oneof![4 => Just(Verdict::Allow), 1 => Just(Verdict::Ask), 1 => Just(Verdict::Deny)];
    (proptest::sample::select(layers), effect, act(true))
}

fn lines(layers: &'static [Layer], most: usize) -> impl Strategy<Value = Vec<Line>> {
    proptest::collection::vec(line(layers), 0..most)
}

fn request() -> impl Strategy<Value = Request> {
    let address = prop_oneof![
        4 => Just(None),
        1 => Just(Some("127.0.0.1")),
        1 => Just(Some("10.0.0.5")),
        1 => Just(Some("1.2.3.4")),
        1 => Just(Some("169.254.169.254")),
    ];
    (act(false), any::<bool>(), address).prop_map(|(text, tree, address)| {
        let (verb, resource) = asked_for(&text, &anchors(), &AsWritten).unwrap();
        let resource = match resource {
            bailiwick_model::Resource::File(path) if tree => bailiwick_model::Resource::Tree(path),
            other => other,
        };
        let request = Request::new(TaskId([0; 8]), verb, resource);
        let address: Option<IpAddr> = address.map(|text| text.parse().unwrap());
        address.map_or(request.clone(), |address| request.dialling(address))
    })
}

const ALL: &[Layer] = &[Layer::Builtin, Layer::Machine, Layer::Person, Layer::Context];
const INNER: &[Layer] = &[Layer::Context];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn p14_the_index_changes_no_answer(lines in lines(ALL, 14), requests in proptest::collection::vec(request(), 8)) {
        let policy = policy(&lines, &[Layer::Person, Layer::Context]);
        for request in requests {
            let through_index = policy.evaluate(&request);
            let by_all = policy.decide(&request, |request| policy.satisfied_by_all(request));
            prop_assert_eq!(&through_index, &by_all, "{}", request);
            // The policies mean to Cedar what the acts mean to the matcher.
            let covering = policy.rules().iter().enumerate().filter(|(_, rule)| rule.covers(&request.verb, &request.resource));
            let (denies, others): (Vec<_>, Vec<_>) = covering.partition(|(_, rule)| rule.effect == Verdict::Deny);
            let want: Vec<usize> = if denies.is_empty() { others } else { denies }.into_iter().map(|(number, _)| number).collect();
            prop_assert_eq!(policy.satisfied_by_all(&request), Ok(want), "{}", request);
        }
    }

    #[test]
    fn p14_what_is_remembered_changes_no_answer(lines in lines(ALL, 14), requests in proptest::collection::vec(request(), 1..10), order in proptest::collection::vec((0usize..10, any::<u8>()), 1..40)) {
        let policy = policy(&lines, &[Layer::Person, Layer::Context]);
        for (place, task) in order {
            let mut request = requests[place % requests.len()].clone();
            let anew = policy.with_secrets(&request, policy.decide(&request, |request| policy.satisfied_by_all(request)));
            request.task = TaskId([task; 8]);
            prop_assert_eq!(policy.evaluate(&request), anew, "{}", request);
        }
    }

    #[test]
    fn p14_the_same_question_has_the_same_answer(lines in lines(ALL, 10), request in request()) {
        let (one, other) = (policy(&lines, &[Layer::Context]), policy(&lines, &[Layer::Context]));
        prop_assert_eq!(one.evaluate(&request), one.evaluate(&request));
        prop_assert_eq!(one.evaluate(&request), other.evaluate(&request));
        prop_assert_eq!(one.digest(), other.digest());
        let turned: Vec<Line> = lines.into_iter().rev().collect();
        prop_assert_eq!(one.evaluate(&request).verdict, policy(&turned, &[Layer::Context]).evaluate(&request).verdict);
    }

    #[test]
    fn p4_adding_a_deny_never_widens(lines in lines(ALL, 10), deny in act(true), layer in proptest::sample::select(ALL), requests in proptest::collection::vec(request(), 6)) {
        let before = policy(&lines, &[Layer::Person, Layer::Context]);
        let mut more = lines.clone();
        more.push((layer, Verdict::Deny, deny));
        let after = policy(&more, &[Layer::Person, Layer::Context]);
        for request in requests {
            let (old, new) = (before.evaluate(&request), after.evaluate(&request));
            prop_assert!(new.verdict >= old.verdict, "{}: {:?} to {:?}", request, old, new);
            if new.verdict != Verdict::Deny {
                for duty in &old.obligations {
                    let pattern = |duty: &bailiwick_model::Obligation| match duty {
                        bailiwick_model::Obligation::Guard { pattern } => Some(pattern.clone()),
                        _ => None,
                    };
                    let raised = new.obligations.iter().any(|other| matches!(other, bailiwick_model::Obligation::Hide { pattern: hidden } if Some(hidden) == pattern(duty).as_ref()));
                    prop_assert!(raised || new.obligations.contains(duty), "{} loses {:?}", request, duty);
                }
            }
        }
    }

    #[test]
    fn p2_composing_a_layer_never_widens(inner in lines(INNER, 8), outer in lines(&[Layer::Person], 8), requests in proptest::collection::vec(request(), 6)) {
        let alone = policy(&inner, &[Layer::Context]);
        let both: Vec<Line> = outer.into_iter().chain(inner).collect();
        let composed = policy(&both, &[Layer::Person, Layer::Context]);
        for request in requests {
            let (old, new) = (alone.evaluate(&request), composed.evaluate(&request));
            prop_assert!(new.verdict >= old.verdict, "{}: {:?} to {:?}", request, old, new);
        }
    }

    #[test]
    fn p3_a_limit_never_widens_an_allow(lines in lines(ALL, 10), query in "(p=(a|b|ab))?", requests in proptest::collection::vec(request(), 6)) {
        let lines: Vec<Line> = lines.into_iter().filter(|(_, effect, _)| *effect != Verdict::Ask).collect();
        let open = policy(&lines, &[Layer::Person, Layer::Context]);
        let narrow = bailiwick_model::Parameter { values: vec!["a*".into()], longest: Some(1) };
        let limits = bailiwick_model::Limits { query: Some([("p".to_owned(), narrow)].into()), ..Default::default() };
        let mut rules = open.rules().to_vec();
        rules.iter_mut().filter(|rule| rule.effect == Verdict::Allow).for_each(|rule| rule.limit(&limits));
        let limited = Policy::of(rules, Settings::default(), vec![Layer::Person, Layer::Context]).unwrap();
        for mut request in requests {
            if let bailiwick_model::Resource::Url(url) = &mut request.resource {
                *url = bailiwick_model::HttpUrl::parse(&format!("{url}?{query}")).unwrap();
            }
            let (old, new) = (open.evaluate(&request), limited.evaluate(&request));
            prop_assert!(new.verdict >= old.verdict, "{}: {:?} to {:?}", request, old, new);
            let outside = matches!(request.resource, bailiwick_model::Resource::Url(_)) && !["", "p=a"].contains(&query.as_str());
            prop_assert!(!outside || new.verdict == Verdict::Deny, "{}", request);
            prop_assert_eq!(limited.decide(&request, |request| limited.satisfied_by_all(request)), new);
        }
    }

    #[test]
    fn p4_an_empty_policy_denies(denies in proptest::collection::vec(act(true), 0..4), request in request()) {
        let lines: Vec<Line> = denies.into_iter().map(|act| (Layer::Context, Verdict::Deny, act)).collect();
        for granting in [&[][..], &[Layer::Context], &[Layer::Person, Layer::Context]] {
            prop_assert_eq!(policy(&lines, granting).evaluate(&request).verdict, Verdict::Deny);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn p2_an_untrusted_project_never_widens(lines in lines(INNER, 10), requests in proptest::collection::vec(request(), 12)) {
        let of = |effect| {
            let acts = lines.iter().filter(move |(_, own, _)| *own == effect).map(|(_, _, act)| format!("{act:?}"));
            acts.collect::<Vec<_>>().join(", ")
        };
        let text = format!("allow = [{}]\ndeny = [{}]\n[network]\nprivate = ['**']\n", of(Verdict::Allow), of(Verdict::Deny));
        let sources = |project| Sources {
            machine: Vec::new(),
            person: Vec::new(),
            project,
            project_trusted: false,
            profiles: Vec::new(),
            toolchains: Vec::new(),
            found: None,
        preset: None,
        lock: None,
        person_lock: None,
        pinning: false,
        relations: None,
        mandate: None,
            anchors: anchors(),
        };
        let file = SourceFile { name: "bailiwick.toml".into(), text };
        let alone = load(&sources(None), &AsWritten).unwrap();
        // A file with a mistake gives no policy at all, which widens nothing.
        if let Ok(with) = load(&sources(Some(file)), &AsWritten) {
            prop_assert_eq!(&with.settings().private, &alone.settings().private);
            for request in requests {
                let (old, new) = (alone.evaluate(&request), with.evaluate(&request));
                prop_assert!(new.verdict >= old.verdict, "{}: {:?} to {:?}", request, old, new);
            }
        }
    }
}
