//! The home outside the grants: absent inside, whatever lies there, and what was looked for is told to the person alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use bailiwick_testkit::{Bailiwick, at_level_process, skip};

fn kits() -> Vec<Bailiwick> {
    if at_level_process() {
        skip("level `process` does not listen");
        return Vec::new();
    }
    let kits = vec![Bailiwick::new(), Bailiwick::as_ordinary_user().with_fuse()];
    for kit in &kits {
        kit.write_home("Documents/tax.pdf", "tax\n");
        kit.write_home(".netrc", "secret\n");
        kit.write_home("Music/a/b", "b\n");
        kit.write_home("granted/x", "x\n");
        kit.write(
            "bailiwick.toml",
            "extends = [\"coding\"]\n[files]\nread = [\"~/granted\"]\n",
        );
        kit.hand_over();
        kit.run(&["trust"]).ok();
    }
    kits
}

#[test]
fn p10_what_was_looked_for_in_the_home_and_not_granted_is_told_once() {
    for kit in kits() {
        if kit.shell_outside("exec 3<>/dev/fuse").status != 0 {
            skip("`/dev/fuse` is not usable");
            continue;
        }
        kit.shell_outside("cat ~/Documents/tax.pdf ~/Music/a/b ~/granted/x")
            .ok();
        let line = "ls -A ~; cat ~/granted/x; for n in 1 2 3; do cat ~/Documents/tax.pdf; stat ~/Music; ls ~/nothing; done 2>&1 | \
                    grep -vc 'No such file'; echo new > ~/fresh; mkdir ~/folder; echo deep > ~/folder/f; cat ~/fresh ~/folder/f; \
                    mv ~/fresh ~/folder/g; rm -r ~/folder; test -e ~/Documents || echo absent; bailiwick last";
        let done = kit.run(&["run", "-q", "--", "sh", "-c", line]).ok();
        assert!(
            done.stdout.ends_with("x\n0\nnew\ndeep\nabsent\n") && !done.stdout.contains("Documents"),
            "{}\n{}",
            done.stdout,
            done.stderr
        );
        let last = kit.run(&["last"]).ok().stdout;
        assert!(
            last.contains("2 places of your home that it looked for: ~/Documents, ~/Music\n")
                && last.contains("`read = [\"~/Documents\", \"~/Music\"]` under [files]"),
            "{last}"
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert_eq!(log.matches("not-granted").count(), 2, "{log}");
        let denied = kit.run(&["log", "show", "--denied"]).ok().stdout;
        assert!(!denied.contains("not-granted"), "it is no refusal: {denied}");
        assert_eq!(
            kit.shell_outside("ls ~/fresh ~/folder 2>/dev/null").stdout,
            "",
            "nothing comes out"
        );
    }
}

#[test]
fn p4_only_so_many_places_are_told() {
    for kit in kits() {
        for number in 0..100 {
            kit.write_home(&format!("place-{number}"), "");
        }
        kit.hand_over();
        kit.shell("for n in $(seq 0 99); do cat ~/place-$n 2>/dev/null; done; true")
            .ok();
        let log = kit.run(&["log", "show"]).ok().stdout;
        let told = log.matches("not-granted").count();
        let usable = kit.shell_outside("exec 3<>/dev/fuse").status == 0;
        assert_eq!(told, if usable { 64 } else { 0 }, "{log}");
    }
}

#[test]
fn p9_a_home_that_is_granted_whole_is_not_listened_to() {
    if at_level_process() {
        skip("the home inside is the task's own at level `process`, also where the person's is granted");
        return;
    }
    let kit = Bailiwick::new();
    kit.write_home("a", "a\n");
    kit.write("bailiwick.toml", "extends = [\"coding\"]\n[files]\nread = [\"~\"]\n");
    kit.run(&["trust"]).ok();
    let done = kit
        .run(&["run", "-q", "--", "sh", "-c", "cat ~/a; cat ~/none; true"])
        .ok();
    assert_eq!(done.stdout, "a\n", "{}", done.stderr);
    assert!(!kit.run(&["log", "show"]).ok().stdout.contains("not-granted"));
}
