//! Git as people use it: with their name and habits, signed or not, in linked work trees, submodules, nested repositories
//! and parts of large ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::process::Stdio;
use std::time::Duration;

use bailiwick_testkit::{Bailiwick, GitServer, finish};

fn everyone() -> [Bailiwick; 2] {
    [Bailiwick::new(), Bailiwick::as_ordinary_user()]
}

const PERSON: &str =
    "[user]\n\tname = Dana \\\"D\\\" Doe\n\temail = dana@example.test\n[init]\n\tdefaultBranch = trunk\n";

/// A kit whose project is a repository with one commit.
fn repository(kit: &Bailiwick) {
    kit.write_home(".gitconfig", PERSON);
    kit.write("file", "content\n");
    kit.shell_outside("git init -q . && git add file && git commit -q -m first")
        .ok();
}

/// Insists that a line works without a fence and not in one.
fn only_outside(kit: &Bailiwick, folder: &str, line: &str, undo: &str) {
    let line = format!("cd '{folder}' && {line}");
    kit.shell_outside(&line).ok();
    kit.shell_outside(&format!("cd '{folder}' && {undo}")).ok();
    let mut command = kit.command(&["run", "-q", "--", "sh", "-c", &line]);
    command.current_dir(folder);
    let inside = finish(command, Duration::from_secs(60));
    assert!((1..125).contains(&inside.status), "`{line}`: {inside:?}");
}

/// Runs a line in the fence of a folder.
fn inside(kit: &Bailiwick, folder: &str, line: &str) -> bailiwick_testkit::Done {
    let mut command = kit.command(&["run", "--", "sh", "-c", line]);
    command.current_dir(folder);
    finish(command, Duration::from_secs(60))
}

#[test]
fn c023_commits_carry_the_persons_name_and_habits_and_nothing_that_names_a_program() {
    for kit in everyone() {
        let more = kit.write_home(
            "more.gitconfig",
            "[user]\n\temail = dana@work.test\n[alias]\n\tlast = log -1\n",
        );
        let config = format!(
            "{PERSON}[alias]\n\tone = log --oneline\n\tevil = !touch /tmp/evil\n[core]\n\tpager = evil\n\tsshCommand = evil\n\
             [credential]\n\thelper = store\n[url \"https://evil.test/\"]\n\tinsteadOf = https://good.test/\n\
             [diff]\n\texternal = evil\n[include]\n\tpath = {}\n",
            more.display()
        );
        kit.write_home(".gitconfig", &config);
        kit.write("file", "content\n");
        // A new repository would bring settings and hooks: it is made outside.
        kit.shell("git init -q .").status_is(1);
        kit.shell_outside("rm -rf .git && git init -q .").ok();
        kit.shell("git add file && git commit -q -m 'by the agent'").ok();
        let said = kit
            .shell("git one; git last --format='%an <%ae>'; git branch --show-current")
            .ok();
        assert!(said.stdout.contains("by the agent"), "{}", said.stdout);
        assert!(
            said.stdout.contains("Dana \"D\" Doe <dana@work.test>\ntrunk\n"),
            "{}",
            said.stdout
        );
        let outside = kit.shell_outside("git config --list").ok();
        assert!(
            outside.stdout.contains("evil") && outside.stdout.contains("credential"),
            "{}",
            outside.stdout
        );
        let listed = kit.shell("git config --list").ok();
        for word in ["evil", "credential", "insteadof", "include", "more.gitconfig"] {
            assert!(!listed.stdout.contains(word), "{word}: {}", listed.stdout);
        }
        kit.shell_outside("cat ~/.gitconfig ~/more.gitconfig").ok();
        assert_ne!(kit.shell("cat ~/.gitconfig").status, 0);
        assert_ne!(kit.shell("cat ~/more.gitconfig").status, 0);
        assert_ne!(kit.shell("git evil").status, 0);
        kit.write_home("lists/ignored", "*.swp\n");
        kit.write_home(
            ".gitconfig",
            &format!("{PERSON}[core]\n\texcludesFile = ~/lists/ignored\n"),
        );
        let status = "touch a.swp b && git status --short --untracked-files";
        let said = [kit.shell_outside(status).ok(), kit.shell(status).ok()];
        assert!(
            said.iter()
                .all(|said| said.stdout.contains("b") && !said.stdout.contains("swp")),
            "{said:?}"
        );
    }
}

#[test]
fn c023_where_git_knows_nobody_that_is_said_before() {
    for kit in everyone() {
        kit.shell_outside("git init -q .").ok();
        let said = kit.run(&["run", "--", "true"]).ok();
        assert!(
            said.stderr.contains("git knows no name and no email of yours"),
            "{}",
            said.stderr
        );
        // Half of it in the repository's own settings, then all.
        kit.shell_outside("git config user.name Dana").ok();
        let said = kit.run(&["run", "--", "true"]).ok().stderr;
        assert!(said.contains("git knows no email of yours"), "{said}");
        kit.shell_outside("git config user.email dana@example.com").ok();
        let commit = "git commit -q --allow-empty -m here && git log -1 --format=%ae";
        let said = kit.run(&["run", "--", "sh", "-c", commit]).ok();
        assert!(said.stdout.contains("dana@example.com"), "{said:?}");
        assert!(!said.stderr.contains("git knows no"), "{}", said.stderr);
        kit.shell_outside("git config --unset user.name; git config --unset user.email")
            .ok();
        kit.write_home(".gitconfig", PERSON);
        assert!(!kit.run(&["run", "--", "true"]).ok().stderr.contains("git knows no"));
    }
}

#[test]
fn c023_who_signs_gets_no_unsigned_commit_without_saying_so() {
    for kit in everyone() {
        repository(&kit);
        let signs =
            format!("{PERSON}[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = ~/.ssh/id\n");
        kit.write_home(".gitconfig", &signs);
        let line = "git commit -q --allow-empty -m unsigned";
        let said = inside(&kit, &kit.project().display().to_string(), line);
        assert_eq!(said.status, 128, "{said:?}");
        assert!(
            said.stderr.contains("bailiwick: nothing is signed in here"),
            "{}",
            said.stderr
        );
        assert!(
            said.stderr
                .contains("your commits are signed, which nothing in there can do"),
            "{}",
            said.stderr
        );
        // The repository cannot lead around it, nor can one that says it for itself alone.
        kit.shell_outside("git config gpg.ssh.program /bin/true && git config gpg.program /bin/true")
            .ok();
        assert_ne!(kit.shell(line).status, 0);
        kit.write_home(".gitconfig", PERSON);
        kit.shell_outside("git config commit.gpgSign true").ok();
        let said = kit.shell(line);
        assert!(said.stderr.contains("nothing is signed in here"), "{}", said.stderr);
        let count = || kit.shell_outside("git rev-list --count HEAD").ok().stdout;
        assert_eq!(count(), "1\n");
        kit.write("bailiwick.toml", "extends = [\"coding\"]\n[git]\nunsigned = true\n");
        // A file that nobody trusts widens nothing.
        assert_ne!(kit.shell(line).status, 0);
        kit.run(&["trust"]).ok();
        let said = inside(&kit, &kit.project().display().to_string(), line).ok();
        assert!(
            said.stderr.contains("the agent's are not, as `[git] unsigned` says"),
            "{}",
            said.stderr
        );
        assert_eq!(count(), "2\n");
    }
}

#[test]
fn c023_an_agent_commits_in_a_linked_work_tree_and_leaves_the_repository_alone() {
    for kit in everyone() {
        repository(&kit);
        let (tree, other) = (kit.outside().join("tree"), kit.outside().join("other"));
        let (tree, other) = (tree.display().to_string(), other.display().to_string());
        kit.shell_outside(&format!(
            "git worktree add -q {tree} -b side && git worktree add -q {other} -b third"
        ))
        .ok();
        let said = inside(
            &kit,
            &tree,
            "echo more >> file && git add file && git commit -q -m 'in the tree' && git log --oneline && git status --short \
             && git branch new && git stash list && git tag v1 && git diff HEAD~1 --stat",
        )
        .ok();
        assert!(
            said.stdout.contains("in the tree") && said.stdout.contains("first"),
            "{}",
            said.stdout
        );
        assert!(said.stderr.contains("this is a linked work tree"), "{}", said.stderr);
        let log = kit
            .shell_outside("git log -1 --format='%an %s' side && git rev-parse new v1")
            .ok();
        assert!(log.stdout.starts_with("Dana \"D\" Doe in the tree\n"), "{}", log.stdout);
        let main = kit.project().display().to_string();
        for (line, undo) in [
            (
                format!("echo '#' >> {main}/.git/config"),
                format!("sed -i '$d' {main}/.git/config"),
            ),
            (
                format!("echo x > {main}/.git/hooks/post-commit"),
                format!("rm {main}/.git/hooks/post-commit"),
            ),
            (
                format!("echo /nowhere > {main}/.git/commondir"),
                format!("rm {main}/.git/commondir"),
            ),
            (
                format!("echo x > {main}/.git/config.worktree"),
                format!("rm {main}/.git/config.worktree"),
            ),
            (
                format!("cp {main}/.git/HEAD {main}/.git/x && mv {main}/.git/x {main}/.git/HEAD"),
                "true".into(),
            ),
            (format!("touch {main}/.git/index"), "true".into()),
            (format!("touch {main}/.git/worktrees/other/HEAD"), "true".into()),
            (format!("touch {main}/.git/worktrees/tree/commondir"), "true".into()),
            (format!("touch {main}/.git/worktrees/tree/gitdir"), "true".into()),
            (format!("touch {main}/file"), "true".into()),
            (format!("touch {other}/file"), "true".into()),
            (format!("touch {tree}/.git"), "true".into()),
        ] {
            only_outside(&kit, &tree, &line, &undo);
        }
    }
}

#[test]
fn c023_p2_a_file_that_leads_to_another_repository_gets_nothing_there() {
    for kit in everyone() {
        repository(&kit);
        let (evil, victim) = (kit.outside().join("evil"), kit.outside().join("victim"));
        let (evil, victim) = (evil.display().to_string(), victim.display().to_string());
        kit.shell_outside(&format!(
            "mkdir {evil} && git init -q {victim} && cd {victim} && git commit -q --allow-empty -m x && git worktree add -q ../real"
        ))
        .ok();
        for lead in ["victim/.git", "victim/.git/worktrees/real", "project/.git", "home"] {
            kit.shell_outside(&format!(
                "echo \"gitdir: {}/{lead}\" > {evil}/.git",
                kit.outside().display()
            ))
            .ok();
            kit.shell_outside(&format!("cat {victim}/.git/HEAD")).ok();
            let said = inside(&kit, &evil, &format!("cat {victim}/.git/HEAD"));
            assert!((1..125).contains(&said.status), "{lead}: {said:?}");
            assert!(
                said.stderr.contains("git does not work in there"),
                "{lead}: {}",
                said.stderr
            );
        }
    }
}

#[test]
fn c023_an_agent_commits_in_a_submodule_and_in_a_nested_repository() {
    for kit in everyone() {
        repository(&kit);
        kit.shell_outside(
            "git init -q ../lib && cd ../lib && git commit -q --allow-empty -m lib && cd ../project && \
             git -c protocol.file.allow=always submodule --quiet add ../lib sub && git commit -q -m sub && git init -q nested",
        )
        .ok();
        // From the top: the submodule's repository lies in it.
        kit.shell("cd sub && git commit -q --allow-empty -m 'from above' && cd ../nested && git commit -q --allow-empty -m nested")
            .ok();
        // In the submodule alone.
        let sub = kit.project().join("sub").display().to_string();
        let said = inside(
            &kit,
            &sub,
            "touch a && git add a && git commit -q -m 'from inside' && git log --oneline",
        )
        .ok();
        assert!(
            said.stdout.contains("from inside") && said.stdout.contains("from above"),
            "{}",
            said.stdout
        );
        let main = kit.project().display().to_string();
        for (line, undo) in [
            (
                "echo '#' >> ../.git/modules/sub/config".to_owned(),
                "sed -i '$d' ../.git/modules/sub/config".to_owned(),
            ),
            (
                "touch ../.git/modules/sub/hooks/post-commit".into(),
                "rm ../.git/modules/sub/hooks/post-commit".into(),
            ),
            (format!("touch {main}/.git/config"), "true".into()),
            (format!("touch {main}/file"), "true".into()),
        ] {
            only_outside(&kit, &sub, &line, &undo);
        }
        only_outside(
            &kit,
            &main,
            "touch nested/.git/hooks/post-commit",
            "rm nested/.git/hooks/post-commit",
        );
    }
}

#[test]
fn c023_a_context_below_the_top_of_its_repository_is_told_and_given_what_rules_name() {
    for kit in everyone() {
        repository(&kit);
        let part = kit.write("packages/a/bailiwick.toml", "extends = [\"coding\"]\n");
        let folder = part.parent().unwrap().display().to_string();
        kit.write("packages/b/file", "of others\n");
        let trust = |kit: &Bailiwick| {
            let mut command = kit.command(&["trust"]);
            command.current_dir(&folder);
            finish(command, Duration::from_secs(60)).ok();
        };
        trust(&kit);
        let said = inside(&kit, &folder, "git status");
        assert_eq!(said.status, 128, "{said:?}");
        let top = kit.project().display().to_string();
        let lines = [
            format!("read = [\"{top}\"]"),
            format!("write = [\".\", \"{top}/.git\"]"),
        ];
        for line in &lines {
            assert!(said.stderr.contains(line.as_str()), "{}", said.stderr);
        }
        let rules = format!("extends = [\"coding\"]\n[files]\n{}\n", lines.join("\n"));
        kit.write("packages/a/bailiwick.toml", &rules);
        trust(&kit);
        let line = "touch new && git add new && git commit -q -m part && git status --short";
        let said = inside(&kit, &folder, line).ok();
        assert!(!said.stderr.contains("lies above this context"), "{}", said.stderr);
        assert_eq!(kit.shell_outside("git log -1 --format=%s").ok().stdout, "part\n");
        only_outside(&kit, &folder, "touch ../b/file", "true");
        only_outside(
            &kit,
            &folder,
            &format!("touch {top}/.git/hooks/post-commit"),
            &format!("rm {top}/.git/hooks/post-commit"),
        );
        only_outside(&kit, &folder, &format!("touch {top}/.git/config"), "true");
    }
}

#[test]
fn c023_two_agents_in_one_tree_are_told() {
    for kit in everyone() {
        let mut first = kit.command(&[
            "run",
            "-q",
            "--",
            "sh",
            "-c",
            "touch begun; while ! test -e end; do sleep 0.05; done",
        ]);
        let mut first = first.stdin(Stdio::null()).spawn().unwrap();
        while !kit.project().join("begun").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let second = kit.run(&["run", "--", "touch", "end"]).ok();
        assert!(
            second.stderr.contains("another task runs in this tree: "),
            "{}",
            second.stderr
        );
        assert!(first.wait().unwrap().success());
        let third = kit.run(&["run", "--", "true"]).ok();
        assert!(!third.stderr.contains("another task"), "{}", third.stderr);
    }
}

#[test]
fn c023_a_work_tree_of_its_own_for_one_task() {
    for kit in everyone() {
        repository(&kit);
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[environment]\nset = { TRUSTED = \"yes\" }\n",
        );
        kit.run(&["trust"]).ok();
        kit.write("deep/er/file", "x");
        kit.shell_outside("git add deep && git commit -q -m deep").ok();
        kit.write("file", "not committed\n");
        let mut command = kit.command(&[
            "run",
            "--worktree=fix",
            "--",
            "sh",
            "-c",
            "pwd; cat ../../file; echo $TRUSTED; touch new && git add new && git commit -q -m fixed",
        ]);
        command.current_dir(kit.project().join("deep/er"));
        let said = finish(command, Duration::from_secs(60)).ok();
        let place = kit.outside().join("project.worktrees/fix");
        assert_eq!(said.stdout, format!("{}/deep/er\ncontent\nyes\n", place.display()));
        for words in [
            "on the branch `bailiwick/fix`",
            "what is not committed in the project is not in there",
            "is kept: one commit of its own",
            "git merge bailiwick/fix",
            "git worktree remove ",
        ] {
            assert!(said.stderr.contains(words), "{words}: {}", said.stderr);
        }
        // Once more in the same one, then in one without a name.
        let again = kit
            .run(&["run", "--worktree=fix", "--", "git", "log", "-1", "--format=%s"])
            .ok();
        assert_eq!(again.stdout, "fixed\n");
        let numbered = kit
            .run(&["run", "--worktree", "--", "git", "branch", "--show-current"])
            .ok();
        assert_eq!(numbered.stdout, "bailiwick/1\n");
        // What is said to take and to remove it works.
        kit.shell_outside("git merge -q --ff-only bailiwick/fix && git worktree remove --force ../project.worktrees/fix && git branch -D bailiwick/fix")
            .ok();
        assert!(kit.project().join("deep/er/new").exists());
        for bad in ["../x", "a/b", "-x"] {
            let refused = kit.run(&["run", &format!("--worktree={bad}"), "--", "true"]);
            assert_eq!(refused.status, 125, "{bad}: {refused:?}");
        }
        kit.shell_outside("mkdir -p ../project.worktrees/taken").ok();
        assert_eq!(kit.run(&["run", "--worktree=taken", "--", "true"]).status, 125);
    }
}

#[test]
fn p5_a_push_over_http_is_judged_by_each_branch_that_it_changes() {
    for kit in [Bailiwick::new(), Bailiwick::as_ordinary_user()] {
        let server = GitServer::start("bot:pw");
        let port = server.host().rsplit(':').next().unwrap().to_owned();
        kit.shell_outside("git init -q -b main && git -c user.name=d -c user.email=d@x commit -q --allow-empty -m one")
            .ok();
        let push = |host: &str, refs: &str| format!("git push -q http://bot:pw@{host}:{port}/site.git {refs}");
        // Nothing but the rules is in the way.
        kit.shell_outside(&push("127.0.0.1", "HEAD:refs/heads/old HEAD:refs/heads/agent/old"))
            .ok();
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network]\nallow = [\"fetch http://git.test:{port}/site.git\", \
                 \"push http://git.test:{port}/site.git agent/*\"]\n[network.hosts]\n\"git.test\" = \"127.0.0.1\"\n"
            ),
        );
        kit.run(&["trust"]).ok();
        kit.shell(&format!("git ls-remote http://bot:pw@git.test:{port}/site.git"))
            .ok();
        kit.shell(&push("git.test", "HEAD:refs/heads/agent/x HEAD:refs/heads/agent/y"))
            .ok();
        kit.shell(&push("git.test", ":refs/heads/agent/old")).ok();
        for refs in [
            "HEAD:refs/heads/main",
            "HEAD:refs/heads/agent/z HEAD:refs/heads/main",
            "HEAD:refs/tags/agent/z",
            ":refs/heads/old",
        ] {
            let done = kit.shell(&push("git.test", refs));
            assert!(done.status != 0 && done.stderr.contains("403"), "{refs}: {done:?}");
        }
        assert_eq!(
            server.references(),
            "refs/heads/agent/x\nrefs/heads/agent/y\nrefs/heads/old\n"
        );
    }
}
