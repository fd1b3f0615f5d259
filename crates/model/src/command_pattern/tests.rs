//! What patterns admit and hold for.

use super::*;
use crate::command::Command;

fn anchors() -> Anchors {
    Anchors {
        root: AbsPath::new("/p").ok(),
        home: AbsPath::new("/home/dana").unwrap(),
    }
}

fn pattern(text: &str) -> CommandPattern {
    CommandPattern::parse(text, &anchors()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A form as a grammar would make it: program, subcommand, options with `=` for a value, operands.
fn form(text: &str, subcommands: usize) -> NormalForm {
    let words: Vec<&str> = text.split(' ').collect();
    let mut form = Command::typed(&words).forms()[0].clone();
    (form.known, form.options, form.operands) = (true, Vec::new(), Vec::new());
    for word in words.iter().skip(1) {
        if word.starts_with('-') {
            let (name, value) = word
                .split_once('=')
                .map_or((*word, None), |(name, value)| (name, Some(value)));
            let names = match name {
                "-r" | "--recursive" => vec!["--recursive".into(), "-r".into(), "-R".into()],
                other => vec![other.into()],
            };
            let value = value.map(Into::into);
            form.options.push(Given { names, value });
        } else if form.subcommand.len() < subcommands {
            form.subcommand.push(vec![(*word).into()]);
        } else {
            form.operands.push((*word).into());
        }
    }
    form
}

#[test]
fn an_allow_admits_what_it_says() {
    for (rule, command, subcommands, want) in [
        ("ls", "ls -l x", 0, true),
        ("ls", "lsx", 0, false),
        ("git push", "git -C=x push origin main", 1, true),
        ("git push", "git pull", 1, false),
        ("gh pr", "gh pr create -f", 2, true),
        ("rm -r build", "rm -r build", 0, true),
        ("rm -R build", "rm --recursive build", 0, true),
        ("rm -rf build", "rm -f -r build", 0, true),
        ("rm build -r", "rm -r build", 0, true),
        ("rm -r build", "rm -r build keep", 0, false),
        ("rm -r build", "rm -r --no-preserve-root build", 0, false),
        ("rm -r build **", "rm -r -f build keep", 0, true),
        ("rm build/*", "rm build/x", 0, true),
        ("rm build/*", "rm build/..", 0, false),
        ("rm build/*", "rm build/x/y", 0, false),
        ("rm build/**", "rm build/x/y", 0, true),
        ("tool -n 5", "tool -n=5", 0, true),
        ("tool -n5", "tool -n=5", 0, true),
        ("tool -n 5", "tool -n=6", 0, false),
        ("tool --name=5", "tool --name=5", 0, true),
        ("@exact ls", "ls", 0, true),
        ("@exact ls", "ls x", 0, false),
        ("git push origin", "git push origin main", 1, false),
        ("*", "anything at all", 0, true),
        ("python3*", "python3.12 x", 0, true),
    ] {
        assert_eq!(
            pattern(rule).admits(&form(command, subcommands)),
            want,
            "allow {rule} and {command}"
        );
    }
}

#[test]
fn a_deny_holds_for_all_that_has_at_least_this() {
    for (rule, command, subcommands, want) in [
        ("git push", "git -C=x push origin main", 1, true),
        ("git push", "git pull", 1, false),
        ("git push --force", "git push origin --force", 1, true),
        ("git push --force", "git push origin", 1, false),
        ("rm -r", "rm -f -r x", 0, true),
        ("rm -rf", "rm -f -v -r x", 0, true),
        ("rm -rf", "rm -f x", 0, false),
        ("rm keep", "rm a keep b", 0, true),
        ("rm b a", "rm a b", 0, false),
        ("@exact rm a", "rm a b", 0, false),
        ("@exact rm a", "rm a", 0, true),
        ("tool -n", "tool -n=5", 0, true),
    ] {
        assert_eq!(
            pattern(rule).holds(&form(command, subcommands)),
            want,
            "deny {rule} and {command}"
        );
    }
}

#[test]
fn p4_doubt_admits_nothing_and_holds_all() {
    let mut unsure = form("rm --what build", 0);
    unsure.unknown = vec!["--what".into()];
    assert!(!pattern("rm build").admits(&unsure) && !pattern("rm --what build").admits(&unsure));
    assert!(pattern("rm").admits(&unsure) && pattern("rm **").admits(&unsure));
    assert!(
        pattern("rm -r build").holds(&unsure),
        "the option may be another spelling of `-r`"
    );
    let mut alias = form("git p", 1);
    alias.doubtful = true;
    assert!(pattern("git push").holds(&alias) && !pattern("git push").admits(&alias));
    let mut cut = form("rm a", 0);
    cut.cut = true;
    assert!(pattern("rm b").holds(&cut) && !pattern("rm a").admits(&cut));
    let unread = Command::typed(&["tool", "go", "--fast"]);
    let unread = &unread.forms()[0];
    for (rule, want) in [
        ("tool", true),
        ("tool go --fast", true),
        ("tool --fast go", false),
        ("tool go", false),
        ("tool go **", true),
        ("tool * *", false),
    ] {
        assert_eq!(pattern(rule).admits(unread), want, "{rule}");
    }
    let unread = Command::typed(&["tool", "go", "-xf", "--fast=1"]);
    let unread = &unread.forms()[0];
    for (rule, want) in [
        ("tool go", true),
        ("tool --fast", true),
        ("tool -x -f", true),
        ("tool -fx go", true),
        ("tool -y", false),
        ("tool stop", false),
    ] {
        assert_eq!(pattern(rule).holds(unread), want, "{rule}");
    }
}

#[test]
fn variables_are_part_of_a_command() {
    let mut steered = form("git log", 1);
    steered.steering = vec![("GIT_PAGER".into(), "./x".into())];
    assert!(!pattern("git log").admits(&steered) && !pattern("GIT_PAGER=cat git log").admits(&steered));
    assert!(pattern("GIT_PAGER=* git log").admits(&form("git log", 1)));
    assert!(pattern("GIT_PAGER=./x git log").admits(&steered));
    assert!(pattern("git log").holds(&steered) && pattern("GIT_PAGER=** *").holds(&steered));
    assert!(!pattern("LD_PRELOAD=** *").holds(&steered));
    assert!(pattern("GIT_*=** git log").admits(&steered) && !pattern("GI=** git log").admits(&steered));
}

#[test]
fn names_count_for_allows_only_where_the_agent_made_none() {
    let mut own = form("git status", 1);
    own.licensed.clear();
    own.paths.insert("/p/git".into());
    assert!(!pattern("git").admits(&own) && pattern("git").holds(&own));
    assert!(pattern("./git").admits(&own) && pattern("./git").holds(&own) && !pattern("./g").admits(&own));
    own.only_against = true;
    assert!(!pattern("./git").admits(&own) && pattern("./git").holds(&own));
}

#[test]
fn what_an_answer_grants_is_this_command_alone() {
    for (command, subcommands) in [("git push origin *", 1), ("rm -r a\\b", 0), ("tool **", 0)] {
        let form = form(command, subcommands);
        let pattern = CommandPattern::exactly(&form);
        assert!(pattern.admits(&form), "{pattern}");
        let again = CommandPattern::parse(&pattern.to_string(), &anchors()).unwrap();
        assert_eq!(again, pattern);
    }
    let star = CommandPattern::exactly(&form("git push origin *", 1));
    assert!(!star.admits(&form("git push origin main", 1)));
}

#[test]
fn patterns_print_as_they_are_read() {
    for text in [
        "git push",
        "@exact 'a b' \"it's\" x",
        "A='' B='c d' ls -l **",
        "@read-only",
        "/usr/bin/x y",
        "ls ''",
    ] {
        let one = pattern(text);
        assert_eq!(pattern(&one.to_string()), one, "{text}: {one}");
    }
    for bad in [
        "",
        "-x",
        "a | b",
        "a 'b",
        "** a",
        "@none",
        "@read-only x",
        "@exact a **",
        "a ** b",
        "a $x",
    ] {
        assert!(CommandPattern::parse(bad, &anchors()).is_err(), "{bad}");
    }
}

#[test]
fn p3_within_is_said_only_when_sure() {
    for (wide, narrow, admits, holds) in [
        ("git", "git push", true, true),
        ("git push", "git push origin", false, true),
        ("git push **", "git push origin", true, true),
        ("git push origin", "git push", false, false),
        ("git", "gh", false, false),
        ("git", "A=b git", false, true),
    ] {
        assert_eq!(
            pattern(wide).admits_all_of(&pattern(narrow)),
            admits,
            "{wide} admits {narrow}"
        );
        assert_eq!(
            pattern(wide).holds_for_all_of(&pattern(narrow)),
            holds,
            "{wide} holds {narrow}"
        );
    }
    assert!(pattern("git push").may_meet(&pattern("g* push x")) && !pattern("git push").may_meet(&pattern("git pull")));
}

proptest::proptest! {
    #[test]
    fn p4_reading_a_pattern_never_fails_otherwise(text in "\\PC{0,40}") {
        if let Ok(read) = CommandPattern::parse(&text, &anchors()) {
            proptest::prop_assert_eq!(CommandPattern::parse(&read.to_string(), &anchors()), Ok(read));
        }
    }

    #[test]
    fn p3_what_an_allow_admits_a_deny_of_the_same_words_holds(
        rule in "rm( (-r|-f|a|b|\\*|a\\*)){0,3}", command in "rm( (-r|-f|a|b|ab)){0,4}",
    ) {
        let (rule, form) = (pattern(&rule), form(&command, 0));
        proptest::prop_assert!(!rule.admits(&form) || rule.holds(&form));
    }
}
