//! Logins that the network gate puts into requests: in one place, for one host, and never seen inside.

use std::sync::{Arc, Mutex};

use bailiwick_testkit::{Answer, Bailiwick, GitServer, Heard, Origin};

use crate::kits;

const REAL: &str = "ghp_canaryOfTheRealValue0123456789abcdef";

fn rules(kit: &Bailiwick, allow: &[&Origin], secrets: &str) {
    let allow: Vec<String> = allow
        .iter()
        .map(|origin| format!("\"* http://127.0.0.1:{}/**\"", origin.port()))
        .collect();
    kit.write(
        "bailiwick.toml",
        &format!(
            "extends = [\"coding\"]\n[network]\nallow = [{}]\n{secrets}",
            allow.join(", ")
        ),
    );
    kit.run(&["trust"]).ok();
}

fn secret(name: &str, origin: &Origin, path: &str, place: &str, more: &str) -> String {
    format!(
        "[secret.{name}]\nfrom = \"file:~/.config/{name}\"\nfor = \"http://127.0.0.1:{}{path}\"\nas = \"{place}\"\nenv = \"KEY_{}\"\n{more}\n",
        origin.port(),
        name.to_uppercase()
    )
}

fn holds(heard: &[Heard], text: &str) -> bool {
    heard.iter().any(|heard| {
        heard.target.contains(text)
            || heard.text().contains(text)
            || heard
                .headers
                .iter()
                .any(|(name, value)| name.contains(text) || value.contains(text))
    })
}

#[test]
fn c055_a_secret_has_one_host_one_place_and_one_road() {
    for kit in kits() {
        let (a, b) = (Origin::start(), Origin::start());
        kit.write_home(".config/a", &format!("{REAL}\n"));
        kit.write_home(".config/b", "real-value-of-b");
        let secrets = [
            secret("a", &a, "/api/**", "bearer", ""),
            secret("b", &b, "/**", "header:x-key", ""),
        ]
        .concat();
        rules(&kit, &[&a, &b], &secrets);
        let (to_a, to_b) = (a.url("/api/x"), b.url("/x"));
        let send = |arguments: &str| kit.shell(&format!("curl -s -m 20 -w '%{{http_code}}' {arguments}"));
        // The stand-in looks like the value and is another one.
        let seen = kit.shell("echo $KEY_A; env").ok().stdout;
        let stand_in = seen.lines().next().unwrap();
        assert!(
            stand_in.starts_with("ghp_") && stand_in.len() == REAL.len() && stand_in != REAL,
            "{stand_in}"
        );
        assert!(!seen.contains(REAL));
        // In its place, and where nothing was sent.
        for arguments in [format!("-H \"Authorization: Bearer $KEY_A\" {to_a}"), to_a.clone()] {
            let done = send(&arguments);
            assert!(done.stdout.ends_with("200"), "{done:?}");
            let last = a.requests().pop().unwrap();
            assert_eq!(last.header("authorization"), Some(format!("Bearer {REAL}").as_str()));
        }
        assert!(send(&format!("-H \"X-Key: $KEY_B\" {to_b}")).stdout.ends_with("200"));
        assert_eq!(b.requests().pop().unwrap().header("x-key"), Some("real-value-of-b"));
        let (before_a, before_b) = (a.requests().len(), b.requests().len());
        for arguments in [
            format!("-H \"Authorization: Bearer $KEY_A\" {to_b}"),
            format!("-H \"Authorization: Bearer $KEY_A\" {}", a.url("/other")),
            format!("-d \"{{\\\"k\\\": \\\"$KEY_A\\\"}}\" -H 'Content-Type: application/json' {to_a}"),
            format!("\"{to_a}?q=$KEY_A\""),
            format!("\"{}/$KEY_A\"", a.url("/api")),
            format!("-H \"Cookie: s=$KEY_A\" {to_a}"),
            format!("-H \"Referer: http://x/$KEY_A\" {to_a}"),
            format!("-H \"Authorization: Bearer $KEY_A $KEY_A\" {to_a}"),
            format!("-u \"bot:$KEY_A\" {to_a}"),
            format!("-H 'Transfer-Encoding: chunked' -d \"x=$KEY_A\" {to_b}"),
            "-H \"Authorization: Bearer $KEY_A\" http://none.example.test/".to_owned(),
        ] {
            let done = send(&arguments);
            assert!(
                done.stdout.contains("stand-in-misused") && done.stdout.ends_with("403"),
                "{arguments}: {done:?}"
            );
        }
        // A large body is stopped on its way, before the stand-in.
        let large = kit.shell(&format!(
            "(head -c 300000 /dev/zero | tr '\\0' x; echo $KEY_A) | curl -s -m 20 -w '%{{http_code}}' -T - {to_b}"
        ));
        assert!(large.stdout.contains("stand-in-misused"), "{large:?}");
        assert_eq!(a.requests().len(), before_a);
        assert!(b.requests().len() <= before_b + 1);
        for origin in [&a, &b] {
            assert!(!holds(&origin.requests(), stand_in));
        }
        assert!(!holds(&b.requests(), REAL));
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert_eq!(log.matches("stand-in-misused").count(), 12, "{log}");
        assert_eq!(log.matches("secret a put in (bearer)").count(), 2, "{log}");
        assert!(!log.contains(REAL));
    }
}

#[test]
fn c054_git_and_curl_log_in_with_a_stand_in_inside_basic() {
    for kit in kits() {
        for password in ["real-7", "with:colon-and-more", "größe-7"] {
            let server = GitServer::start(&format!("bot:{password}"));
            kit.write_home(".config/hub", password);
            let rule = format!(
                "extends = [\"coding\"]\n[network]\nallow = [\"* http://{h}/**\"]\n[secret.hub]\nfrom = \"file:~/.config/hub\"\n\
                 for = \"http://{h}/**\"\nas = \"basic\"\nenv = \"KEY\"\n",
                h = server.host()
            );
            kit.write("bailiwick.toml", &rule);
            kit.run(&["trust"]).ok();
            let line = format!(
                "cd ${{TMPDIR:-/tmp}} && git config --global user.email t@t.test && git config --global user.name T && \
                 git config --global credential.helper '!f() {{ echo username=bot; echo password=$KEY; }}; f' && \
                 git clone -q {url} c && cd c && echo one >one && git add -A && git commit -qm one && git push -q origin HEAD:main && \
                 git fetch -q && curl -s -o /dev/null -w '%{{http_code}}\\n' -u bot:$KEY '{url}/info/refs?service=git-upload-pack' && \
                 cat .git/config ~/.gitconfig; env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' ' '",
                url = server.url()
            );
            let done = kit.shell(&line).ok();
            assert!(done.stdout.starts_with("200\n"), "{done:?}");
            assert_eq!(server.references(), "refs/heads/main\n");
            for hidden in [password, base64(&format!("bot:{password}")).as_str()] {
                assert!(!format!("{done:?}").contains(hidden), "{done:?}");
            }
        }
    }
}

/// Base64, by the tool of that name.
fn base64(text: &str) -> String {
    let line = format!("printf %s '{text}' | base64 -w0");
    let done = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    String::from_utf8(done.stdout).unwrap()
}

/// A server that repeats what it is sent.
fn echo() -> Origin {
    Origin::answering(|heard| {
        let login = heard.header("authorization").unwrap_or_default().to_owned();
        let token = login.trim_start_matches("Bearer ").to_owned();
        match heard.target.as_str() {
            "/head" => Answer::text(200, "x").with_header("x-echo", &login),
            "/redirect" => Answer::redirect(&format!("/next?t={token}")),
            "/gzip" => Answer::whole(200, "text/plain", gzip(&login)).with_header("content-encoding", "gzip"),
            "/base64" => Answer::text(200, base64(&format!("x{login}"))),
            "/json" => Answer::whole(
                200,
                "application/json",
                format!("{{\"login\": \"{login}\"}}").into_bytes(),
            ),
            "/events" => {
                let (one, two) = login.split_at(20);
                Answer::events(vec![
                    (std::time::Duration::ZERO, format!("data: {one}").into_bytes()),
                    (std::time::Duration::from_millis(100), format!("{two}\n\n").into_bytes()),
                ])
            }
            "/token" => Answer::whole(
                200,
                "application/json",
                format!("{{\"access_token\": \"fresh-{token}\", \"old\": \"{token}\"}}").into_bytes(),
            ),
            "/error" => Answer::text(500, format!("bad login {login}")),
            _ => Answer::text(200, login),
        }
    })
}

fn gzip(text: &str) -> Vec<u8> {
    let line = format!("printf %s '{text}' | gzip -c");
    std::process::Command::new("sh")
        .args(["-c", &line])
        .output()
        .unwrap()
        .stdout
}

#[test]
fn c056_what_a_server_repeats_does_not_come_back() {
    for kit in kits() {
        let origin = echo();
        kit.write_home(".config/a", REAL);
        rules(&kit, &[&origin], &secret("a", &origin, "/**", "bearer", ""));
        let outside = kit.shell_outside(&format!(
            "curl -si -H 'Authorization: Bearer {REAL}' {}",
            origin.url("/json")
        ));
        assert!(outside.stdout.contains(REAL), "{outside:?}");
        for path in [
            "/body",
            "/head",
            "/redirect",
            "/gzip",
            "/base64",
            "/json",
            "/events",
            "/error",
        ] {
            let done = kit.shell(&format!(
                "echo $KEY_A; curl -si -m 20 --compressed -H \"Authorization: Bearer $KEY_A\" {}",
                origin.url(path)
            ));
            let (stand_in, answer) = done.stdout.split_once('\n').unwrap();
            assert!(
                !answer.contains("canary") && !answer.contains(&base64(REAL)[4..20]),
                "{path}: {answer}"
            );
            match path {
                "/gzip" => assert!(answer.contains("secret-unkept"), "{answer}"),
                "/base64" => assert!(answer.contains("xxxxxxxx"), "{answer}"),
                _ => assert!(answer.contains(stand_in), "{path}: {answer}"),
            }
            if path == "/json" {
                let body = answer.rsplit("\r\n\r\n").next().unwrap();
                assert_eq!(body, format!("{{\"login\": \"Bearer {stand_in}\"}}"));
            }
        }
        // A new login is the server's to give and not the agent's to have.
        let done = kit.shell(&format!("curl -si -m 20 -d x=1 {}", origin.url("/token")));
        assert!(
            done.stdout.contains("secret-unkept") && !done.stdout.contains("fresh"),
            "{done:?}"
        );
    }
}

#[test]
fn c060_nobody_uses_anothers_login() {
    for kit in kits() {
        let who = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&who);
        let origin = Origin::answering(move |heard| {
            let login = heard.header("authorization").unwrap_or("nobody").to_owned();
            seen.lock().unwrap().push(login);
            Answer::text(200, "ok")
        });
        kit.write_home(".config/ann", "real-token-of-ann");
        let ann = secret("ann", &origin, "/**", "bearer", "");
        rules(&kit, &[&origin], &ann);
        let url = origin.url("/x");
        assert!(kit.shell(&format!("curl -s {url}")).ok().stdout.contains("ok"));
        // A login that was made for somebody else, by any road to the host, whichever way it is spelled.
        for arguments in [
            format!("-H 'Authorization: Bearer of-another-service' {url}"),
            format!("-H 'Cookie: session=of-ann' {url}"),
            format!("-u bob:secret {}", url.replace("127.0.0.1", "localhost")),
        ] {
            let done = kit.shell(&format!("curl -s -w '%{{http_code}}' {arguments}"));
            assert!(
                done.stdout.contains("strangers-login") && done.stdout.ends_with("403"),
                "{done:?}"
            );
        }
        assert_eq!(*who.lock().unwrap(), ["Bearer real-token-of-ann"]);
        // Where the rule lets it be.
        rules(
            &kit,
            &[&origin],
            &secret("ann", &origin, "/**", "bearer", "own_login = true"),
        );
        kit.shell(&format!("curl -s -H 'Authorization: Bearer mine' {url}"))
            .ok();
        assert_eq!(who.lock().unwrap().pop().as_deref(), Some("Bearer mine"));
        // Ann has signed out: her login is gone, and nobody else's is taken.
        rules(&kit, &[&origin], &ann);
        std::fs::remove_file(kit.home().join(".config/ann")).unwrap();
        let before = who.lock().unwrap().len();
        let done = kit.shell(&format!("curl -s -w '%{{http_code}}' {url}"));
        assert!(
            done.stdout.contains("secret-unavailable") && done.stdout.ends_with("403"),
            "{done:?}"
        );
        assert_eq!(who.lock().unwrap().len(), before);
        // Another context, which was not given it, goes without.
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network]\nallow = [\"* http://127.0.0.1:{}/**\"]\n",
                origin.port()
            ),
        );
        kit.run(&["trust"]).ok();
        kit.write_home(".config/bailiwick/secrets.toml", &ann);
        kit.write_home(".config/ann", "real-token-of-ann");
        kit.shell(&format!("curl -s {url}; env | grep -c KEY_ANN")).status_is(1);
        assert_eq!(who.lock().unwrap().pop().as_deref(), Some("nobody"));
        kit.write("bailiwick.toml", &format!("extends = [\"coding\"]\nallow = [\"use secret:ann\"]\n[network]\nallow = [\"* http://127.0.0.1:{}/**\"]\n", origin.port()));
        kit.run(&["trust"]).ok();
        kit.shell(&format!("curl -s {url}; env | grep -c KEY_ANN")).ok();
        assert_eq!(who.lock().unwrap().pop().as_deref(), Some("Bearer real-token-of-ann"));
    }
}

#[test]
fn c028_a_redirect_takes_no_login_along() {
    for kit in kits() {
        let b = Origin::start();
        let to_b = b.url("/from-a");
        let a = Origin::answering(move |_| Answer::redirect(&to_b));
        kit.write_home(".config/a", REAL);
        rules(&kit, &[&a], &secret("a", &a, "/**", "bearer", ""));
        let line = format!(
            "curl -sL -w '%{{http_code}}' --location-trusted -H \"Authorization: Bearer $KEY_A\" {}",
            a.url("/start")
        );
        let done = kit.shell(&line);
        assert!(done.status != 0 || done.stdout.ends_with("403"), "{done:?}");
        assert!(a.requests()[0].header("authorization").unwrap().contains(REAL));
        assert!(b.requests().is_empty(), "{:?}", b.requests());
        // Also where the other host may be reached.
        rules(&kit, &[&a, &b], &secret("a", &a, "/**", "bearer", ""));
        kit.shell(&format!("curl -sL {}", a.url("/start"))).ok();
        assert_eq!(b.requests().len(), 1);
        assert_eq!(b.requests()[0].header("authorization"), None);
    }
}
