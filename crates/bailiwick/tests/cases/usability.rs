//! Mistakes in rules, servers on the loopback, and what a refusal tells.

use bailiwick_testkit::{Bailiwick, Listener, Origin};

use crate::{kits, trust};

#[test]
fn c070_each_mistake_is_told_with_its_place_and_nothing_starts() {
    let kit = Bailiwick::new();
    // The rules, where the mistake stands, the wrong word, and the right one.
    let mistakes = [
        ("[files]\ndenyWrit = [\"x\"]\n", 2, "denyWrit", "deny"),
        (
            "deny = [{ rule = \"run **\", prefixx = \"npm test\" }]\n",
            1,
            "prefixx",
            "rule",
        ),
        ("[files]\nread = [\"a[b\"]\n", 2, "a[b", ""),
        ("[network]\ntunnel = [\"*.*\"]\n", 2, "*.*", ""),
        (
            "[network]\nallow = [\"* http://169.254.169.254/**\"]\n",
            2,
            "169.254.169.254",
            "link-local",
        ),
        ("[files]\nread = [\"x\"]\ndeny = [\"read x\"]\n", 3, "read x", ""),
        (
            "allow = [\"read ~/x\"]\ndeny = [\"read ~/x\"]\n",
            1,
            "both allowed and denied",
            "line 2",
        ),
        ("{ \"permissions\": { \"deny\": [\"Read(.env)\"] } }\n", 1, "", ""),
        ("[nettwork]\ntunnel = [\"x.test\"]\n", 1, "nettwork", "network"),
        ("extends = [\"codign\"]\n", 1, "codign", "coding"),
        ("[files]\nread = \".\"\n", 2, "not a text", "a list"),
        ("allow = [\"raed .\"]\n", 1, "raed", "read"),
    ];
    for (rules, line, wrong, right) in mistakes {
        kit.write("bailiwick.toml", rules);
        let checked = kit.run(&["policy", "check"]);
        let run = kit.run(&["run", "-q", "--", "touch", "started"]);
        for (told, what) in [(&checked, "check"), (&run, "run")] {
            assert!(
                told.stderr.contains(&format!("bailiwick.toml:{line}:"))
                    && told.stderr.contains(wrong)
                    && told.stderr.contains(right),
                "{what} of {rules}: {told:?}"
            );
        }
        assert_eq!((checked.status, run.status), (2, 125), "{rules}");
        assert!(!kit.project().join("started").exists(), "{rules}");
    }
    // An empty file is no mistake of syntax, and allows nothing more than without one.
    kit.write("bailiwick.toml", "");
    let empty = kit.run(&["policy", "check"]);
    assert!(
        empty.status != 0 || format!("{}{}", empty.stdout, empty.stderr).contains("bailiwick.toml"),
        "{empty:?}"
    );
    // A file that breaks while a task runs: that task keeps its rules, the next does not start.
    kit.write(
        "bailiwick.toml",
        "extends = [\"coding\"]\n[files]\ndeny = [\"secret\"]\n",
    );
    kit.write("secret/s.txt", "SECRET");
    kit.run(&["trust"]).ok();
    let mut command = kit.command(&[
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        "touch began; while [ ! -e go ]; do sleep 0.05; done; cat secret/s.txt; echo kept $?",
    ]);
    let child = command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !kit.project().join("began").exists() {
        assert!(std::time::Instant::now() < until, "the task begins");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    kit.write("bailiwick.toml", "[files]\ndenyy = []\n");
    kit.run(&["run", "-q", "--", "true"]).status_is(125);
    kit.write("go", "");
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(output, "kept 1\n");
}

#[test]
fn c073_the_own_loopback_is_free_and_the_machines_is_opened_port_by_port() {
    for kit in kits() {
        let (named, other) = (Origin::start(), Origin::start());
        let bare = Listener::start();
        let fetch = |port: u16, path: &str| {
            [
                format!("curl -s -m 5 http://127.0.0.1:{port}/{path}"),
                format!("curl -s -m 5 http://localhost:{port}/{path}"),
                format!("wget -q -T 5 -t 1 -O- http://localhost:{port}/{path}"),
                format!(
                    "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/{path}', timeout=5).read().decode())\""
                ),
                format!(
                    "node -e \"fetch('http://localhost:{port}/{path}').then(r => r.text()).then(console.log, e => process.exit(1))\""
                ),
                format!(
                    "printf 'GET /{path} HTTP/1.0\\r\\nHost: localhost:{port}\\r\\n\\r\\n' | nc -w 5 127.0.0.1 {port}"
                ),
            ]
        };
        trust(
            &kit,
            &format!(
                "extends = [\"offline\"]\n[network]\nallow = [\"* http://127.0.0.1:{}/**\"]\n",
                named.port()
            ),
        );
        // The own server: no entry in the rules.
        kit.write("served/page", "OWN-PAGE\n");
        let serve = "python3 -m http.server 8123 --bind 127.0.0.1 -d served 2> /dev/null & \
             for i in $(seq 100); do nc -z 127.0.0.1 8123 && break; sleep 0.05; done; test -n \"$http_proxy\"; ";
        for client in fetch(8123, "page") {
            let inside = kit.shell(&format!("{serve} {client}"));
            assert!(inside.stdout.contains("OWN-PAGE"), "{client}: {inside:?}");
        }
        for client in fetch(other.port(), "x") {
            assert!(kit.shell_outside(&client).stdout.contains("ok"), "{client}");
        }
        let before = other.requests().len();
        for (client, denied) in fetch(named.port(), "x").iter().zip(fetch(other.port(), "x")) {
            let inside = kit.shell(client);
            assert!(inside.stdout.contains("ok"), "{client}: {inside:?}");
            let inside = kit.shell(&denied);
            assert!(
                !inside.stdout.contains("ok\n") && inside.stdout != "ok",
                "{denied}: {inside:?}"
            );
        }
        assert_eq!(named.requests().len(), 6);
        let port = bare.port();
        kit.shell(&format!("nc -w 2 127.0.0.1 {port}; nc -w 2 localhost {port}; curl -s --proxytunnel --noproxy '' http://127.0.0.1:{port}/")).status_is(56);
        assert_eq!((other.requests().len(), bare.connections()), (before, 0));
    }
}

/// The id that a refusal names in brackets.
fn id_in(text: &str) -> Option<String> {
    let is_id = |word: &&str| word.len() == 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .find(is_id)
        .map(str::to_owned)
}

#[test]
fn c074_a_refusal_names_the_object_and_an_id_and_the_session_goes_on() {
    for kit in kits() {
        let origin = Origin::start();
        let port = origin.port();
        trust(
            &kit,
            &format!(
                "extends = [\"offline\"]\ndeny = [{{ rule = \"* http://127.0.0.1:{port}/admin/**\", reason = \"REASON-OF-DANA\" }}]\n\
                 [network]\nallow = [\"* http://127.0.0.1:{port}/**\"]\n"
            ),
        );
        let admin = format!("http://127.0.0.1:{port}/admin/x");
        // Each client, and what stands in its message.
        let told = [
            (format!("curl -s {admin}"), "GET http://127.0.0.1"),
            (format!("curl -s {admin} | cat"), "GET http://127.0.0.1"),
            (
                format!("wget -q --content-on-error -O- {admin}"),
                "GET http://127.0.0.1",
            ),
            (format!("wget -O- {admin}"), "denied-by-rule"),
            (
                format!("python3 -c \"import urllib.request as u; u.urlopen('{admin}')\""),
                "denied-by-rule",
            ),
            (
                format!("node -e \"fetch('{admin}').then(r => r.text()).then(console.log)\""),
                "GET http://127.0.0.1",
            ),
            (
                "curl -s http://evil.example.test/x".to_owned(),
                "GET http://evil.example.test/x",
            ),
            ("curl -sv https://evil.example.test/ 2>&1".to_owned(), "no-rule"),
            ("wget -O- https://evil.example.test/".to_owned(), "no-rule"),
            (
                "python3 -c \"import urllib.request as u; u.urlopen('https://evil.example.test/')\"".to_owned(),
                "no-rule",
            ),
            (
                "GIT_CURL_VERBOSE=1 git ls-remote https://evil.example.test/x.git".to_owned(),
                "no-rule",
            ),
            (
                "curl -s -X DELETE http://evil.example.test/ | tail -n 5".to_owned(),
                "DELETE http://evil.example.test/",
            ),
        ];
        for (line, words) in &told {
            let inside = kit.shell(line);
            let text = format!("{}{}", inside.stdout, inside.stderr);
            assert!(text.contains(words), "{line}: {text}");
            let id = id_in(&text).unwrap_or_else(|| panic!("no id: {line}: {text}"));
            assert!(
                !text.contains("REASON-OF-DANA") && !text.contains("bailiwick.toml"),
                "{line}: {text}"
            );
            let why = kit.run(&["explain", &id]).ok().stdout;
            assert!(
                why.starts_with("no: ") && why.contains("to change it: "),
                "{line}: {why}"
            );
            assert!(
                why.contains("REASON-OF-DANA") || why.contains("evil.example.test"),
                "{line}: {why}"
            );
        }
        assert!(origin.requests().is_empty());
        // A program that shows nothing of it, or a look-up that cannot: the agent asks from inside, and is told no rule.
        for (line, object) in [
            ("getent hosts evil.example.test", "evil.example.test"),
            (&format!("wget -q {admin}"), "REASON-OF-DANA"),
        ] {
            let inside = kit.shell(&format!("{line} > /dev/null 2>&1 || bailiwick last"));
            let text = format!("{}{}", inside.stdout, inside.stderr);
            let id = id_in(&text).unwrap_or_else(|| panic!("no id: {line}: {text}"));
            assert!(
                !text.contains("REASON-OF-DANA") && !text.contains("bailiwick.toml"),
                "{line}: {text}"
            );
            let why = kit.run(&["explain", &id]).ok().stdout;
            assert!(why.contains(object) && why.contains("to change it: "), "{line}: {why}");
            let last = kit.run(&["last"]).ok().stdout;
            assert!(last.contains(&id) && last.contains(object), "{line}: {last}");
        }
        // One session meets them all, and goes on.
        let all: String = told
            .iter()
            .map(|(line, _)| format!("{{ {line}; }} > /dev/null 2>&1\n"))
            .collect();
        let files = "cat .env; echo x > bailiwick.toml; ls ~/.ssh; no-such-program; getent hosts evil.example.test\n";
        let inside = kit.shell(&format!(
            "{all}{files}curl -sf http://127.0.0.1:{port}/fine > /dev/null && echo STILL-HERE"
        ));
        assert_eq!(inside.stdout, "STILL-HERE\n", "{inside:?}");
    }
}

#[test]
fn c074_asking_beforehand_gives_the_verdict_of_the_real_run() {
    for kit in kits() {
        let origin = Origin::start();
        let port = origin.port();
        kit.write("a.txt", "A\n");
        kit.write(".env", "K=1\n");
        kit.write("keys/k", "K\n");
        kit.write("sub/.git/hooks/pre-commit", "");
        kit.write_home("ref/r.txt", "R\n");
        kit.write_home("other/o.txt", "O\n");
        kit.write_home(".ssh/id_ed25519", "S\n");
        trust(
            &kit,
            &format!(
                "extends = [\"offline\"]\n[files]\nread = [\"~/ref\"]\ndeny = [\"keys\"]\n[network]\n\
                 allow = [\"GET http://127.0.0.1:{port}/public/**\", \"* http://ok.example.test:{port}/**\"]\n\
                 ask = [\"PUT http://ok.example.test:{port}/**\"]\n[network.hosts]\n\"ok.example.test\" = \"127.0.0.1\"\n\"no.example.test\" = \"127.0.0.1\"\n"
            ),
        );
        let http = |method: &str, url: &str| {
            (
                format!("{method} {url}"),
                format!("curl -sf -m 5 --path-as-is -X {method} '{url}' > /dev/null"),
            )
        };
        let read = |path: &str| (format!("read {path}"), format!("cat {path} > /dev/null"));
        let write = |path: &str| (format!("write {path}"), format!("echo x >> {path}"));
        let questions = [
            read("a.txt"),
            read(".env"),
            read("keys/k"),
            read("~/ref/r.txt"),
            read("~/other/o.txt"),
            read("~/.ssh/id_ed25519"),
            read("/etc/shadow"),
            read("/usr/bin/env"),
            write("a.txt"),
            write("bailiwick.toml"),
            write("sub/.git/hooks/pre-commit"),
            write("~/ref/r.txt"),
            write("keys/k"),
            http("GET", &format!("http://127.0.0.1:{port}/public/x")),
            http("POST", &format!("http://127.0.0.1:{port}/public/x")),
            http("GET", &format!("http://127.0.0.1:{port}/admin")),
            http("GET", &format!("http://127.0.0.1:{port}/public/../admin")),
            http("GET", &format!("http://localhost:{port}/public/x")),
            http("POST", &format!("http://ok.example.test:{port}/x")),
            http("PUT", &format!("http://ok.example.test:{port}/x")),
            http("GET", &format!("http://no.example.test:{port}/x")),
            http("GET", "http://evil.example.test/"),
            ("resolve ok.example.test".into(), "getent hosts ok.example.test".into()),
            ("resolve no.example.test".into(), "getent hosts no.example.test".into()),
            (
                "resolve evil.example.test".into(),
                "getent hosts evil.example.test".into(),
            ),
            (
                format!("tunnel no.example.test:{port}"),
                format!("curl -sf -m 5 --proxytunnel --proxy \"$http_proxy\" http://no.example.test:{port}/"),
            ),
            ("run true".into(), "true".into()),
        ];
        let heard = origin.requests().len();
        let said: Vec<bool> = questions
            .iter()
            .map(|(act, _)| kit.run(&["can", act]).status == 0)
            .collect();
        assert_eq!(origin.requests().len(), heard, "asking does nothing");
        assert!(
            said.iter().filter(|yes| **yes).count() >= 8 && said.iter().filter(|yes| !**yes).count() >= 14,
            "{said:?}"
        );
        for ((act, line), said) in questions.iter().zip(said) {
            let done = kit.shell(line);
            assert_eq!(done.status == 0, said, "{act}: {done:?}");
        }
    }
}
