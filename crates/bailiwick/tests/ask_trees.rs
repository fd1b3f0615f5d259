//! Trees whose files are asked about one by one: names are seen, an opening waits for its answer, one yes is for one opening.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, Done, at_level_process, finish, is_root, skip};
use serde_json::Value;

/// How long anything may take that nobody is asked about.
const SOON: Duration = Duration::from_secs(20);

/// A home with documents to be asked about, as root and as an ordinary user; none where such trees cannot be.
fn kits(more: &str) -> Vec<Bailiwick> {
    let mut kits = vec![Bailiwick::new(), Bailiwick::as_ordinary_user().with_fuse()];
    if at_level_process() {
        skip("level `process` shows no such trees");
        return Vec::new();
    }
    if !is_root()
        && std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_err()
    {
        skip("`/dev/fuse` is not usable");
        return Vec::new();
    }
    kits.retain(|kit| {
        kit.write_home("Documents/tax.pdf", "tax\n");
        kit.write_home("Documents/deep/note", "note\n");
        kit.write("bailiwick.toml", &format!("extends = [\"coding\"]\n{more}"));
        kit.hand_over();
        kit.run(&["trust"]).ok();
        true
    });
    kits
}

fn plain() -> Vec<Bailiwick> {
    kits("[files]\nask = [\"~/Documents\"]\n[questions]\ndeadline = \"30 s\"\n")
}

fn begin(kit: &Bailiwick, line: &str) -> JoinHandle<Done> {
    let command = kit.command(&["run", "-q", "--", "sh", "-c", line]);
    std::thread::spawn(move || finish(command, Duration::from_secs(90)))
}

fn asked(kit: &Bailiwick) -> Vec<(String, String)> {
    let listed = kit.run(&["approve", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let home = kit.home().display().to_string();
    let all = listed["waiting"].as_array().unwrap().iter();
    all.map(|one| (text(one, "id"), text(one, "act").replace(&home, "~")))
        .collect()
}

/// The questions, once there are so many.
fn wait_for(kit: &Bailiwick, count: usize) -> Vec<(String, String)> {
    let begun = Instant::now();
    loop {
        let all = asked(kit);
        if all.len() >= count {
            return all;
        }
        assert!(begun.elapsed() < SOON, "{all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for one question about this act, and answers it.
fn answer(kit: &Bailiwick, act: &str, yes: bool) {
    let all = wait_for(kit, 1);
    let (id, found) = &all[0];
    assert_eq!(found, act, "{all:?}");
    let words: &[&str] = if yes {
        &["approve", id]
    } else {
        &["approve", "--no", id]
    };
    kit.run(words).ok();
}

#[test]
fn p8_an_opening_waits_and_one_yes_is_for_one_opening() {
    for kit in plain() {
        kit.shell_outside("cat ~/Documents/tax.pdf").ok();
        let run = begin(
            &kit,
            "cd ~/Documents && ls -lR . >/dev/null && stat -c %s tax.pdf && test -f deep/note && cat tax.pdf; cat tax.pdf || echo no",
        );
        answer(&kit, "read ~/Documents/tax.pdf", true);
        answer(&kit, "read ~/Documents/tax.pdf", false);
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "4\ntax\nno\n", "{}", done.stderr);
        assert!(done.stderr.contains("Permission denied"), "{}", done.stderr);
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert_eq!(log.matches("question read").count(), 2, "{log}");
    }
}

#[test]
fn p4_silence_is_a_no_for_a_file_too() {
    for kit in kits("[files]\nask = [\"~/Documents\"]\n[questions]\ndeadline = \"2 s\"\n") {
        let done = begin(
            &kit,
            "cat ~/Documents/tax.pdf; echo x > ~/Documents/new; ls ~/Documents",
        )
        .join()
        .unwrap();
        let done = done.ok();
        assert_eq!(done.stdout, "deep\ntax.pdf\n", "{}", done.stderr);
        assert!(done.elapsed >= Duration::from_secs(4), "{:?}", done.elapsed);
        let done = kit
            .run(&[
                "run",
                "-q",
                "--no-ask",
                "--",
                "sh",
                "-c",
                "cat ~/Documents/tax.pdf || ls ~/Documents",
            ])
            .ok();
        assert_eq!(done.stdout, "deep\ntax.pdf\n", "{}", done.stderr);
    }
}

#[test]
fn p8_a_yes_to_one_file_does_not_open_another() {
    for kit in plain() {
        let run = begin(&kit, "cd ~/Documents; cat tax.pdf & cat deep/note & wait; echo end");
        let all = wait_for(&kit, 2);
        let acts: BTreeSet<&str> = all.iter().map(|(_, act)| act.as_str()).collect();
        assert_eq!(acts, ["read ~/Documents/deep/note", "read ~/Documents/tax.pdf"].into());
        let of = |act: &str| all.iter().find(|(_, found)| found.ends_with(act)).unwrap().0.clone();
        kit.run(&["approve", &of("tax.pdf")]).ok();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(asked(&kit).len(), 1, "the other waits still");
        kit.run(&["approve", "--no", &of("note")]).ok();
        assert_eq!(run.join().unwrap().ok().stdout, "tax\nend\n");
    }
}

#[test]
fn p1_what_changes_a_name_or_a_file_is_asked_by_its_verb() {
    for kit in plain() {
        let run = begin(
            &kit,
            "cd ~/Documents; echo new > a; mkdir d; mv a d/b; ln d/b c; ln -s tax.pdf s; chmod 600 tax.pdf; truncate -s 1 tax.pdf; \
             rm c s; echo more >> d/b; touch -d 2001-01-01 d/b; echo end",
        );
        for act in [
            "create ~/Documents/a",
            "create ~/Documents/d",
            "delete ~/Documents/a",
            "create ~/Documents/d/b",
            "write ~/Documents/d/b",
            "create ~/Documents/c",
            "create ~/Documents/s",
            "write ~/Documents/tax.pdf",
            "write ~/Documents/tax.pdf",
            "delete ~/Documents/c",
            "delete ~/Documents/s",
            "write ~/Documents/d/b",
            "write ~/Documents/d/b",
        ] {
            answer(&kit, act, true);
        }
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "end\n", "{}", done.stderr);
        let seen = kit
            .shell_outside("cd ~/Documents; cat d/b; stat -c '%a %s' tax.pdf; stat -c %Y d/b; ls")
            .ok()
            .stdout;
        assert_eq!(seen, "new\nmore\n600 1\n978307200\nd\ndeep\ntax.pdf\n");
        let owner = kit.shell_outside("stat -c %u ~/Documents/d/b; id -u").ok().stdout;
        let owners: Vec<&str> = owner.lines().collect();
        assert_eq!(owners[0], owners[1], "the person owns what was made");
    }
}

#[test]
fn p8_an_interrupted_wait_ends_and_withdraws_its_question() {
    for kit in plain() {
        // A reader whose call the kernel holds, a writer whose call the supervisor makes, and one that catches the signal.
        let catching = "import signal, time\\ndef f(*a): raise KeyboardInterrupt\\nsignal.signal(signal.SIGINT, f)\\n\
                        try: open('tax.pdf')\\nexcept KeyboardInterrupt: print('caught')\\n";
        let run = begin(
            &kit,
            &format!(
                "cd ~/Documents; timeout -s INT 1 cat tax.pdf; echo $?; timeout -s INT 1 sh -c 'echo x > tax.pdf'; echo $?; \
                 printf '{}' > /tmp/c.py; timeout -s INT 1 python3 /tmp/c.py; echo $?; timeout -s KILL 1 cat tax.pdf; echo $?",
                catching.replace('\'', "'\\''")
            ),
        );
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "124\n124\ncaught\n124\n137\n", "{}", done.stderr);
        assert!(done.elapsed < Duration::from_secs(15), "{:?}", done.elapsed);
        assert!(asked(&kit).is_empty());
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert_eq!(log.matches("withdrawn").count(), 4, "{log}");
        assert_eq!(kit.shell_outside("cat ~/Documents/tax.pdf").ok().stdout, "tax\n");
    }
}

/// The servers of this home's tasks: their parents are launchers, whose parent is the daemon.
fn servers(kit: &Bailiwick) -> Vec<i32> {
    let status: Value = serde_json::from_str(&kit.run(&["status", "--json"]).ok().stdout).unwrap();
    let daemon = status["daemon"]["pid"].as_i64().unwrap().to_string();
    let parent = |number: &str| -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some(stat.rsplit(") ").next()?.split(' ').nth(1)?.to_owned())
    };
    let is_server = |number: &String| {
        let comm = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        comm.trim() == "bailiwick-ask"
            && parent(number).and_then(|launcher| parent(&launcher)).as_ref() == Some(&daemon)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(is_server);
    numbers.map(|number| number.parse().unwrap()).collect()
}

#[test]
fn p4_a_dead_or_stopped_server_is_a_refusal_never_a_hang() {
    use rustix::process::{Pid, Signal, kill_process};
    for (signal, patience) in [(Signal::KILL, 5), (Signal::STOP, 15)] {
        for kit in plain() {
            let run = begin(
                &kit,
                "cd ~/Documents; cat tax.pdf; echo $?; cat deep/note; echo $?; echo x > new; echo $?; cd /; ls ~/Documents; echo $?; \
                 echo still > /tmp/t && cat /tmp/t",
            );
            wait_for(&kit, 1);
            let found = servers(&kit);
            let [server] = found.as_slice() else {
                panic!("{found:?}")
            };
            let begun = Instant::now();
            kill_process(Pid::from_raw(*server).unwrap(), signal).unwrap();
            let done = run.join().unwrap().ok();
            assert_eq!(done.stdout, "1\n1\n2\n2\nstill\n", "{}", done.stderr);
            assert!(begun.elapsed() < Duration::from_secs(patience), "{:?}", begun.elapsed());
            assert!(asked(&kit).is_empty(), "nobody waits for it any more");
        }
    }
}

#[test]
fn p8_sixty_four_threads_wait_at_once() {
    for kit in plain() {
        for number in 0..64 {
            std::fs::write(kit.home().join(format!("Documents/{number}")), format!("{number}\n")).unwrap();
        }
        kit.hand_over();
        let script = "import threading, os\\nd = os.path.expanduser('~/Documents/')\\nseen = []\\n\
                      def go(n):\\n  seen.append(int(open(d + str(n)).read()))\\n\
                      ts = [threading.Thread(target=go, args=(n,)) for n in range(64)]\\n\
                      [t.start() for t in ts]\\n[t.join() for t in ts]\\nprint(sorted(seen) == list(range(64)))\\n";
        kit.write("t.py", &script.replace("\\n", "\n"));
        let run = begin(&kit, "python3 t.py");
        for (id, _) in wait_for(&kit, 64) {
            kit.run(&["approve", &id]).ok();
        }
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "True\n", "{}", done.stderr);
    }
}

#[test]
fn p5_other_spellings_and_roads_lead_to_the_same_question() {
    for kit in plain() {
        let run = begin(
            &kit,
            "ln -s ~/Documents way; cat way/tax.pdf; cat /proc/self/root$HOME/Documents/tax.pdf; cd ~/Documents; \
             cat /proc/self/cwd/deep/../tax.pdf; exec 5< tax.pdf; cat /dev/fd/5; (echo x > /dev/fd/5) || echo kept; \
             ln tax.pdf ~/proj-link 2>/dev/null || echo apart; mv -n tax.pdf \"$OLDPWD/moved\" 2>/dev/null || echo stays; cat tax.pdf",
        );
        for _ in 0..5 {
            answer(&kit, "read ~/Documents/tax.pdf", true);
        }
        answer(&kit, "write ~/Documents/tax.pdf", false);
        // `mv` copies between file systems: to read it is asked again.
        answer(&kit, "read ~/Documents/tax.pdf", false);
        answer(&kit, "read ~/Documents/tax.pdf", true);
        let done = run.join().unwrap().ok();
        assert_eq!(
            done.stdout, "tax\ntax\ntax\ntax\nkept\napart\nstays\ntax\n",
            "{}",
            done.stderr
        );
    }
}

#[test]
fn p5_a_path_swapped_between_question_and_answer_opens_nothing() {
    for kit in plain() {
        kit.write_home("Documents/deep/diary", "diary\n");
        for swap in [
            "mv deep/diary tax.pdf",
            "rm tax.pdf; ln -s deep/diary tax.pdf",
            "rm tax.pdf",
            "mv tax.pdf other; mv deep/diary tax.pdf",
        ] {
            kit.write_home("Documents/tax.pdf", "tax\n");
            kit.write_home("Documents/deep/diary", "diary\n");
            let run = begin(&kit, "cat ~/Documents/tax.pdf || echo no");
            let all = wait_for(&kit, 1);
            kit.shell_outside(&format!("cd ~/Documents; {swap}")).ok();
            kit.run(&["approve", &all[0].0]).ok();
            let done = run.join().unwrap().ok();
            assert_eq!(done.stdout, "no\n", "{swap}: {}", done.stderr);
            kit.shell_outside("cd ~/Documents; rm -f tax.pdf other").ok();
        }
    }
}

#[test]
fn p1_an_ask_tree_holds_inside_a_granted_one_and_around_one() {
    for kit in kits("[files]\nask = [\"secret\", \"~/Documents\"]\nread = [\"~/Documents/deep\"]\n") {
        kit.write("secret/key", "key\n");
        kit.write("open", "open\n");
        kit.hand_over();
        let run = begin(
            &kit,
            "cat open; cat ~/Documents/deep/note; mv secret other 2>/dev/null || echo stays; cat secret/key; cat ~/Documents/tax.pdf",
        );
        answer(&kit, &format!("read {}/secret/key", kit.project().display()), true);
        answer(&kit, "read ~/Documents/tax.pdf", true);
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "open\nnote\nstays\nkey\ntax\n", "{}", done.stderr);
    }
}

#[test]
fn p5_what_is_hidden_or_guarded_stays_so_in_an_ask_tree() {
    for kit in kits(
        "deny = [\"write **/frozen\"]\n[files]\nask = [\"~/Documents\"]\ndeny = [\"~/Documents/deep\", \"**/*.key\"]\n",
    ) {
        kit.write_home("Documents/a.key", "key\n");
        kit.write_home("Documents/frozen", "frozen\n");
        kit.hand_over();
        kit.shell_outside("cat ~/Documents/a.key ~/Documents/deep/note; echo x >> ~/Documents/frozen")
            .ok();
        let run = begin(
            &kit,
            "cd ~/Documents; ls; cat a.key || echo hidden; cat deep/note || echo hidden; echo x > b.key || echo no; \
             echo x >> frozen || echo guarded; cat frozen",
        );
        answer(&kit, "read ~/Documents/frozen", true);
        let done = run.join().unwrap().ok();
        assert_eq!(
            done.stdout, "frozen\ntax.pdf\nhidden\nhidden\nno\nguarded\nfrozen\nx\n",
            "{}",
            done.stderr
        );
    }
}

#[test]
fn p8_asked_by_verb_only_what_is_named_is_asked() {
    for kit in kits("ask = [\"write ~/Documents\"]\n[files]\nread = [\"~/Documents\"]\n") {
        let run = begin(
            &kit,
            "cat ~/Documents/tax.pdf; echo x > ~/Documents/tax.pdf || echo no; cat ~/Documents/tax.pdf",
        );
        answer(&kit, "write ~/Documents/tax.pdf", false);
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "tax\nno\ntax\n", "{}", done.stderr);
    }
    // One file can be asked about, too.
    for kit in kits("ask = [\"read ~/Documents/tax.pdf\"]\n") {
        let run = begin(&kit, "ls ~/Documents; cat ~/Documents/tax.pdf");
        answer(&kit, "read ~/Documents/tax.pdf", true);
        let done = run.join().unwrap().ok();
        assert_eq!(done.stdout, "tax.pdf\ntax\n", "{}", done.stderr);
    }
}

#[test]
fn p13_where_files_cannot_be_asked_about_they_are_not_shown_and_that_is_said() {
    for level in ["namespace", "process"] {
        let kit = Bailiwick::as_ordinary_user();
        if level == "namespace" && kit.shell_outside("exec 3<>/dev/fuse").status == 0 {
            skip("`/dev/fuse` is usable");
            continue;
        }
        kit.write_home("Documents/tax.pdf", "tax\n");
        kit.write("secret/key", "key\n");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[files]\nask = [\"secret\", \"~/Documents\"]\n",
        );
        kit.run(&["trust"]).ok();
        let line = "ls ~/Documents; cat ~/Documents/tax.pdf; cat secret/key; true";
        let done = kit.run(&["run", "--level", level, "--", "sh", "-c", line]).ok();
        assert_eq!(done.stdout, "", "{}", done.stderr);
        let said = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("are not shown: files cannot be asked about"), "{said}");
    }
}
