//! Starts and lines, and what they come to.

use bailiwick_model::{AbsPath, Anchors};

use super::*;

fn grammars() -> Grammars {
    Grammars::shipped(vec![("PAGER".into(), "less".into())])
}

fn pattern(text: &str) -> CommandPattern {
    let anchors = Anchors {
        root: AbsPath::new("/p").ok(),
        home: AbsPath::new("/home/dana").unwrap(),
    };
    CommandPattern::parse(text, &anchors).unwrap()
}

fn typed(line: &str) -> Command {
    grammars().command(&Start::typed(words_of(line).unwrap(), "/p"))
}

fn denied(rule: &str, command: &Command) -> bool {
    command.forms().iter().any(|form| pattern(rule).holds(form))
}

fn allowed(rules: &[&str], command: &Command) -> bool {
    let mut forms = command.forms().iter().filter(|form| !form.only_against);
    forms.all(|form| rules.iter().any(|rule| pattern(rule).admits(form)))
}

#[test]
fn p5_a_push_is_a_push_however_it_is_spelled() {
    for line in [
        "git push",
        "git -C widget push origin main",
        "git --no-pager push",
        "git -c color.ui=false push",
        "git --git-dir=x --work-tree x push",
        "/usr/bin/git push",
        "env git push",
        "git -c alias.p=push p",
        "git --new-option push",
        "git --new-option pull push",
    ] {
        assert!(denied("git push", &typed(line)), "{line}");
    }
    for line in ["git pull", "git log push", "git commit -m push", "git -C push status"] {
        assert!(!denied("git push", &typed(line)), "{line}");
    }
}

#[test]
fn p4_what_a_launcher_carries_is_judged_too() {
    for line in [
        "env touch marker",
        "env A=b touch marker",
        "env -S 'touch marker'",
        "env -u X -- touch marker",
        "env env touch marker",
    ] {
        let command = typed(line);
        assert!(denied("touch", &command), "{line}");
        assert!(
            !allowed(&["env"], &command) && allowed(&["env", "touch"], &command),
            "{line}"
        );
    }
    assert!(!denied("touch", &typed("env ls touch")));
}

#[test]
fn p5_variables_that_steer_are_part_of_the_command() {
    for (line, want) in [
        ("GIT_PAGER=./grab.sh git log", false),
        ("env GIT_EXTERNAL_DIFF=./grab.sh git log", false),
        ("LD_PRELOAD=./x.so git log", false),
        ("PAGER=less git log", true),
        ("GIT_PAGER=cat git log", true),
        ("TZ=UTC git log", true),
    ] {
        assert_eq!(allowed(&["git log", "env"], &typed(line)), want, "{line}");
    }
    assert!(
        typed("GIT_PAGER=./grab.sh git log")
            .to_string()
            .starts_with("GIT_PAGER=./grab.sh git")
    );
}

#[test]
fn p5_a_name_ends_at_its_end_and_an_exact_rule_admits_no_more() {
    assert!(
        allowed(&["ls"], &typed("ls -la")) && !allowed(&["ls"], &typed("lsx")) && !allowed(&["ls"], &typed("./ls"))
    );
    for (line, want) in [
        ("rm -r build", true),
        ("rm -R -- build", true),
        ("rm --recurs build", true),
        ("rm -r build keep", false),
        ("rm -r build --no-preserve-root ../keep", false),
        ("rm build", false),
    ] {
        assert_eq!(allowed(&["rm -r build"], &typed(line)), want, "{line}");
    }
}

#[test]
fn p5_a_copy_a_link_and_another_first_word_are_the_program_to_a_deny() {
    let start = |file: &str, called: &str, words: &[&str], own, like: &[&str]| {
        grammars().command(&Start {
            file: file.into(),
            called: called.into(),
            words: words.iter().map(|word| (*word).into()).collect(),
            variables: Vec::new(),
            directory: "/p".into(),
            own,
            like: like.iter().map(|name| (*name).into()).collect(),
        })
    };
    let copy = start("/p/x", "/p/x", &["x", "push"], true, &["git"]);
    assert!(
        denied("git push", &copy) && !allowed(&["git", "x"], &copy) && allowed(&["./x"], &copy),
        "{copy:?}"
    );
    let renamed = start("/usr/bin/git", "/usr/bin/git", &["harmless", "push"], false, &[]);
    assert!(denied("git push", &renamed) && denied("harmless", &renamed));
    assert!(allowed(&["git"], &renamed) && !allowed(&["harmless"], &renamed));
    let pretended = start("/usr/bin/tool", "/usr/bin/tool", &["git", "push"], false, &[]);
    assert!(denied("git push", &pretended) && !allowed(&["git"], &pretended) && allowed(&["tool"], &pretended));
    let memory = start("memfd:x (deleted)", "/proc/self/fd/3", &["git", "push"], true, &[]);
    assert!(denied("git push", &memory) && !allowed(&["git", "*"], &memory));
    let nameless = start("/usr/bin/git", "/usr/bin/git", &[], false, &[]);
    assert!(denied("git", &nameless));
}

#[test]
fn p4_what_is_too_long_is_cut_and_said_so() {
    let words = ["git", "push"]
        .into_iter()
        .map(String::from)
        .chain((0..9000).map(|n| format!("refs/heads/{n}")))
        .collect();
    let command = grammars().command(&Start::typed(words, "/p"));
    assert!(command.forms()[0].cut && command.words().len() < 9000);
    assert!(
        denied("git push --force", &command)
            && denied("git push elsewhere", &command)
            && allowed(&["git push"], &command)
    );
    let deep = typed(&format!("{}touch x", "env ".repeat(30)));
    assert!(deep.forms().len() <= MAX_FORMS && !allowed(&["env A=b **", "@exact env"], &deep));
}

#[test]
fn what_an_allowed_command_starts_is_allowed_with_it() {
    let started = |text: &str| {
        let rules = grammars().follows(&pattern(text));
        rules.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(started("git fetch").contains(&"git-remote-https".to_owned()));
    assert!(
        !started("git log").contains(&"git-remote-https".to_owned()) && started("git log").contains(&"less".to_owned())
    );
    assert!(
        started("git fetch").contains(&"git pack-refs".to_owned()),
        "what is started starts others"
    );
    assert!(!started("git log").contains(&"git gc".to_owned()) && started("./git").is_empty());
    assert!(started("git").contains(&"git-remote-https".to_owned()) && started("rm").is_empty());
}

proptest::proptest! {
    #[test]
    fn p4_no_words_are_too_odd(words in proptest::collection::vec("(git|env|rm|sh|-C|-c|--|-[a-z]{1,3}|--[a-z]{1,5}(=x)?|A=b|\\PC{0,6})", 0..9)) {
        let command = grammars().command(&Start::typed(words, "/p"));
        proptest::prop_assert!(!command.forms().is_empty() && command.forms().len() <= MAX_FORMS);
    }
}
