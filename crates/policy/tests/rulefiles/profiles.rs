//! What profiles bring, and what a context keeps.

use bailiwick_model::{AbsPath, Obligation, Verb};
use bailiwick_policy::{Policy, Sources, agents, toolchains};

use crate::{answer, file, load, policy, project, request, sources, tree};

const ALLOWED: &str = "allow allowed-by-rule";
const NO_RULE: &str = "deny no-rule";
const DENIED: &str = "deny denied-by-rule";

fn with(toolchains: &[&str], rules: Option<&str>) -> Policy {
    load(&Sources {
        project: rules.map(|rules| file("bailiwick.toml", rules)),
        toolchains: toolchains.iter().map(ToString::to_string).collect(),
        found: None,
        ..sources()
    })
    .unwrap()
}

#[test]
fn registries_come_with_the_toolchain_and_with_a_preset_that_fetches() {
    let npm = request("GET https://registry.npmjs.org/ms");
    let crates = request("GET https://static.crates.io/crates/itoa/1.0.0/download");
    for (toolchains, rules, for_npm, for_crates) in [
        (&["rust"][..], None, NO_RULE, ALLOWED),
        (&["node", "rust"], None, ALLOWED, ALLOWED),
        (&[], None, NO_RULE, NO_RULE),
        (&["rust"], Some("extends = [\"install\"]\n"), NO_RULE, ALLOWED),
        (&["rust"], Some("extends = [\"offline\"]\n"), NO_RULE, NO_RULE),
        (&["rust"], Some("extends = [\"readonly\"]\n"), NO_RULE, NO_RULE),
        (
            &["rust"],
            Some("extends = [\"coding\"]\nprofiles = [\"node\"]\n"),
            ALLOWED,
            NO_RULE,
        ),
        (
            &["rust"],
            Some("extends = [\"coding\"]\nprofiles = []\n"),
            NO_RULE,
            NO_RULE,
        ),
    ] {
        let policy = with(toolchains, rules);
        assert_eq!(answer(&policy, &npm), for_npm, "{toolchains:?} {rules:?}");
        assert_eq!(answer(&policy, &crates), for_crates, "{toolchains:?} {rules:?}");
    }
    let wrong = project("extends = [\"coding\"]\nprofiles = [\"rusty\"]\n").unwrap_err();
    assert!(
        wrong[0].to_string().contains("2:13: there is no profile `rusty`"),
        "{wrong:?}"
    );
    // A file that nobody trusts names nothing.
    let untrusted = load(&Sources {
        project: Some(file("bailiwick.toml", "profiles = [\"node\"]\n")),
        project_trusted: false,
        ..sources()
    });
    assert_eq!(answer(&untrusted.unwrap(), &npm), NO_RULE);
}

#[test]
fn p2_what_is_kept_is_another_folder_than_the_persons() {
    let policy = policy("extends = [\"coding\"]\n[state]\nkeep = [\"~/.tool\"]\n");
    for (act, want) in [
        ("keep ~/.tool", ALLOWED),
        ("keep ~/.cache", ALLOWED),
        ("keep ~/.tool/deep", ALLOWED),
        ("read ~/.tool/x", NO_RULE),
        ("write ~/.tool/x", NO_RULE),
        ("keep ~/.other", NO_RULE),
        ("keep ~/.ssh", DENIED),
        ("keep src", NO_RULE),
    ] {
        assert_eq!(answer(&policy, &request(act)), want, "{act}");
    }
    let kept = AbsPath::new("/home/dana/.tool").unwrap();
    assert!(policy.tree_candidates().contains(&(Verb::Keep, kept)));
    assert_eq!(answer(&policy, &tree(Verb::Keep, "/home/dana/.tool")), ALLOWED);
    let guarded = self::policy("extends = [\"coding\"]\ndeny = [\"write ~/.tool/x\"]\n[state]\nkeep = [\"~/.tool\"]\n");
    let duties = guarded.evaluate(&tree(Verb::Keep, "/home/dana/.tool")).obligations;
    assert!(
        matches!(duties.as_slice(), [.., Obligation::Guard { .. }]),
        "{duties:?}"
    );
    // Neither does a grant of the person's folder give one of the context's own.
    let policy = self::policy("extends = [\"coding\"]\n[files]\nwrite = [\"~/.tool\"]\n");
    assert_eq!(answer(&policy, &request("keep ~/.tool")), NO_RULE);
}

#[test]
fn what_is_kept_lies_below_the_home() {
    for (rules, want) in [
        ("keep = [\"/srv/x\"]", "outside the home"),
        ("keep = [\"~\"]", "the whole home cannot be kept"),
        ("keep = [\"~/x*\"]", "wildcard"),
        ("files = { \"/etc/x\" = \"\" }", "is not one place below the home"),
        ("links = { \"~/x\" = \"/etc\" }", "is not one place below the home"),
        ("kep = []", "did you mean `keep`"),
    ] {
        let wrong = project(&format!("extends = [\"coding\"]\n[state]\n{rules}\n")).unwrap_err();
        let told = format!("{wrong:?}");
        assert!(told.contains(want), "{rules}: {told}");
    }
}

#[test]
fn p2_every_profile_keeps_and_guards_under_the_shipped_ceiling() {
    for (name, _) in agents().chain(toolchains()) {
        let policy = load(&Sources {
            profiles: vec![name.into()],
            ..sources()
        })
        .unwrap_or_else(|wrong| panic!("{name}: {wrong:?}"));
        assert_eq!(policy.warnings(), [], "{name}");
        let kept: Vec<AbsPath> = policy
            .tree_candidates()
            .into_iter()
            .filter_map(|(verb, tree)| (verb == Verb::Keep).then_some(tree))
            .collect();
        assert!(!kept.is_empty(), "{name} keeps something");
        for path in policy
            .settings()
            .kept_files
            .keys()
            .chain(policy.settings().kept_links.keys())
        {
            assert!(kept.iter().any(|tree| tree.holds(path)), "{name}: {path} is kept");
        }
        // The person's own files of those names are no agent's to read or to change.
        for path in policy.settings().kept_files.keys() {
            for verb in ["read", "write"] {
                let own = request(&format!("{verb} {path}"));
                assert_ne!(answer(&policy, &own), ALLOWED, "{name}: {path}");
            }
        }
        // What is built in guards nothing in a kept folder; what a person denies does.
        let kept = policy.evaluate(&tree(Verb::Keep, kept[0].as_str()));
        assert_eq!(kept.verdict, bailiwick_model::Verdict::Allow);
        let guards = |duty: &Obligation| matches!(duty, Obligation::Guard { .. });
        assert!(!kept.obligations.iter().any(guards), "{name}: {kept:?}");
    }
}

#[test]
fn registries_are_read_and_nothing_is_published() {
    let all = with(&["rust", "node", "python"], None);
    for (act, want) in [
        ("GET https://index.crates.io/se/rd/serde", ALLOWED),
        ("HEAD https://static.crates.io/crates/serde/1.0.0/download", ALLOWED),
        ("GET https://crates.io/api/v1/crates?q=serde", ALLOWED),
        ("PUT https://crates.io/api/v1/crates/new", NO_RULE),
        ("DELETE https://crates.io/api/v1/crates/x/1.0.0/yank", NO_RULE),
        ("GET https://crates.io/api/v1/me", NO_RULE),
        ("GET https://pypi.org/simple/six/", ALLOWED),
        ("GET https://files.pythonhosted.org/packages/a/b/six-1.whl", ALLOWED),
        ("POST https://upload.pypi.org/legacy/", NO_RULE),
        ("POST https://pypi.org/simple/", NO_RULE),
        ("GET https://registry.npmjs.org/ms/-/ms-2.1.3.tgz", ALLOWED),
        ("GET https://registry.npmjs.org/@babel%2fcore", ALLOWED),
        ("PUT https://registry.npmjs.org/ms", NO_RULE),
        (
            "POST https://registry.npmjs.org/-/npm/v1/security/advisories/bulk",
            NO_RULE,
        ),
        ("tunnel registry.npmjs.org", NO_RULE),
        ("tunnel index.crates.io", NO_RULE),
        ("GET http://deb.debian.org/debian/dists/stable/InRelease", NO_RULE),
    ] {
        assert_eq!(answer(&all, &request(act)), want, "{act}");
    }
    let mut upload = request("GET https://index.crates.io/se/rd/serde");
    let length = bailiwick_model::Argument::Whole(1);
    upload
        .arguments
        .insert(bailiwick_model::argument::CONTENT_LENGTH.into(), length);
    assert_eq!(answer(&all, &upload), "deny outside-limits", "nothing is sent along");
    let debian = with(&[], Some("extends = [\"readonly\", \"debian\", \"crates-io\"]\n"));
    for (act, want) in [
        ("GET http://deb.debian.org/debian/dists/stable/InRelease", ALLOWED),
        ("GET https://index.crates.io/config.json", ALLOWED),
        ("POST http://deb.debian.org/debian/x", NO_RULE),
        ("GET https://pypi.org/simple/six/", NO_RULE),
    ] {
        assert_eq!(answer(&debian, &request(act)), want, "{act}");
    }
}
