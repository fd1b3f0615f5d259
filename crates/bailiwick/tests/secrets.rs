//! Secrets for requests, the whole way: a canary that is nowhere inside, keyrings, TLS, signatures, sessions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Answer, Bailiwick, Done, Heard, Origin, Root, at_level_process, finish, is_root, kits, skip};

fn rules(kit: &Bailiwick, text: &str) {
    kit.write("bailiwick.toml", &format!("extends = [\"coding\"]\n{text}"));
    kit.run(&["trust"]).ok();
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True when the memory of a process holds a text; none when it cannot be read.
fn memory_holds(pid: u32, text: &[u8]) -> Option<bool> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut read = false;
    for line in maps
        .lines()
        .filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with('r')))
    {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let mut bytes = vec![0u8; usize::try_from(to - from).ok()?];
        if memory.seek(SeekFrom::Start(from)).is_err() || memory.read_exact(&mut bytes).is_err() {
            continue;
        }
        read = true;
        if bytes.windows(text.len()).any(|part| part == text) {
            return Some(true);
        }
    }
    read.then_some(false)
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The processes of a fence: those in the pid namespace of one that carries a mark in its environment, and all that carry it.
fn inside(mark: &str) -> Vec<u32> {
    let marked = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(mark))
    };
    let space = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = space(std::process::id());
    let marked: Vec<u32> = processes().into_iter().filter(marked).collect();
    let spaces: Vec<_> = marked
        .iter()
        .map(|pid| space(*pid))
        .filter(|found| *found != own)
        .collect();
    let of_fence = |pid: &u32| marked.contains(pid) || spaces.contains(&space(*pid));
    processes().into_iter().filter(of_fence).collect()
}

/// Every file below a folder that holds a text.
fn files_with(folder: &Path, text: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_with(&entry.path(), text, found);
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            if bytes.windows(text.len()).any(|part| part == text) {
                found.push(entry.path().display().to_string());
            }
        }
    }
}

const AGENT: &str = "import os, subprocess, time, urllib.request as u
url, kept = os.environ['URL'], []
for i in range(5):
    kept.append(u.urlopen(u.Request(url, headers={'Authorization': 'Bearer ' + os.environ['KEY']})).read())
    kept.append(u.urlopen(url).read())
    kept.append(subprocess.run(['curl', '-si', url], capture_output=True).stdout)
child = subprocess.Popen(['sleep', '60'])
open('ready', 'w').write(str(len(kept)))
while not os.path.exists('over'): time.sleep(0.05)
child.kill()
print(kept)
";

#[test]
fn p9_a_canary_is_in_no_memory_file_log_or_message_inside() {
    if !is_root() {
        skip("p9_a_canary: only root reads the memory of all processes");
        return;
    }
    for kit in kits() {
        let origin = Origin::answering(|heard| Answer::text(200, format!("{:?}", heard.headers)));
        let halves = ["ghp_CanaryInTheMine", "0123456789abcdefghijk"];
        let canary = halves.concat();
        let mark = format!("canary-mark-{}", std::process::id());
        rules(
            &kit,
            &format!(
                "[network]\nallow = [\"* http://127.0.0.1:{p}/**\"]\n[environment]\nset = {{ URL = \"http://127.0.0.1:{p}/x\", MARK = \"{mark}\" }}\n\
                 [secret.x]\nfrom = \"command:printf %s%s {} {}\"\nfor = \"http://127.0.0.1:{p}/**\"\nas = \"bearer\"\nenv = \"KEY\"\n",
                halves[0],
                halves[1],
                p = origin.port()
            ),
        );
        kit.write("agent.py", AGENT);
        // The search finds it where it is.
        let holder = Command::new("python3")
            .args([
                "-c",
                &format!(
                    "x = '{}' + '{}'; print(x, flush=True); import time; time.sleep(60)",
                    halves[0], halves[1]
                ),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let holder = Ended(holder);
        until("the search works", || {
            memory_holds(holder.0.id(), canary.as_bytes()) == Some(true)
        });
        let command = kit.command(&["run", "-q", "--", "python3", "agent.py"]);
        let run = std::thread::spawn(move || finish(command, Duration::from_secs(100)));
        until("the agent has its answers", || {
            kit.project().join("ready").exists() || run.is_finished()
        });
        let pids = inside(&mark);
        let names: Vec<String> = pids
            .iter()
            .map(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            })
            .collect();
        assert!(
            names.iter().any(|name| name.starts_with("python")) && names.iter().any(|name| name == "sleep"),
            "{names:?}"
        );
        let searched: Vec<Option<bool>> = pids.iter().map(|pid| memory_holds(*pid, canary.as_bytes())).collect();
        for (name, held) in names.iter().zip(&searched) {
            assert!(*held != Some(true), "{name} holds the canary");
        }
        assert!(searched.iter().flatten().count() >= 2, "{names:?} {searched:?}");
        for pid in &pids {
            for part in ["environ", "cmdline"] {
                let text = std::fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
                assert!(!String::from_utf8_lossy(&text).contains(&canary));
            }
        }
        kit.write("over", "");
        let done = run.join().unwrap().ok();
        assert!(
            done.stdout.contains("Bearer ghp_") && !format!("{done:?}").contains(&canary),
            "{done:?}"
        );
        let heard = origin.requests();
        assert_eq!(heard.len(), 15);
        assert!(
            heard
                .iter()
                .all(|heard| heard.header("authorization") == Some(format!("Bearer {canary}").as_str()))
        );
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert_eq!(log.matches("secret x put in (bearer)").count(), 15, "{log}");
        assert!(!log.contains(&canary));
        let mut found = Vec::new();
        files_with(kit.outside(), canary.as_bytes(), &mut found);
        assert!(found.is_empty(), "{found:?}");
    }
}

/// A process that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A session bus and a keyring of the person's, where the product looks for them.
struct Keyring {
    _parts: Vec<Ended>,
}

impl Keyring {
    fn start(kit: &Bailiwick) -> Self {
        let bus = kit.outside().join("run/bus");
        let address = format!("unix:path={}", bus.display());
        let started = |program: &str, words: &[&str]| {
            let mut command = kit.outside_command(program);
            command
                .args(words)
                .env("DBUS_SESSION_BUS_ADDRESS", &address)
                .process_group(0);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().unwrap()
        };
        // Nothing is started by its name: a second keyring would be one that nobody has unlocked.
        let settings = kit.write_home(
            "bus.conf",
            &format!(
                "<busconfig><type>session</type><listen>{address}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
                 <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>"
            ),
        );
        let settings = format!("--config-file={}", settings.display());
        let first = Ended(started("dbus-daemon", &["--nofork", "--nopidfile", &settings]));
        until("the bus listens", || bus.exists());
        let mut keyring = started(
            "gnome-keyring-daemon",
            &["--foreground", "--components=secrets", "--unlock"],
        );
        keyring.stdin.take().unwrap().write_all(b"password").unwrap();
        let all = Self {
            _parts: vec![Ended(keyring), first],
        };
        let probe = "timeout 5 secret-tool store --label=probe probe probe";
        until("the keyring takes an item", || Self::tool(kit, probe, "x").status == 0);
        all
    }

    fn tool(kit: &Bailiwick, line: &str, input: &str) -> Done {
        let line =
            format!("export DBUS_SESSION_BUS_ADDRESS=unix:path=$XDG_RUNTIME_DIR/bus; printf %s '{input}' | {line}");
        kit.shell_outside(&line)
    }
}

#[test]
fn p9_a_secret_comes_from_the_keyring_of_the_session() {
    for program in ["dbus-daemon", "gnome-keyring-daemon", "secret-tool"] {
        let there = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output()
            .unwrap();
        assert!(there.status.success(), "{program} is not installed: run ./scripts/test");
    }
    let named = Command::new("id").arg("-un").output().unwrap().status.success();
    if !named || (at_level_process() && is_root()) {
        skip(
            "p9_a_secret_comes_from_the_keyring: a session bus takes only users that have a name, a fence of level `process` none that is root",
        );
        return;
    }
    let kit = Bailiwick::new();
    {
        let origin = Origin::start();
        let secrets = |from: &str| {
            format!(
                "[network]\nallow = [\"* http://127.0.0.1:{p}/**\"]\n[secret.hub]\nfrom = \"keyring:{from}\"\n\
                 for = \"http://127.0.0.1:{p}/**\"\nas = \"bearer\"\n",
                p = origin.port()
            )
        };
        rules(&kit, &secrets("hub token"));
        let fetch = || kit.run(&["run", "--", "curl", "-s", &origin.url("/")]);
        let none = fetch();
        assert!(none.stdout.contains("secret-unavailable"), "{none:?}");
        assert!(
            none.stderr
                .contains("secret:hub cannot be had: there is no session bus"),
            "{none:?}"
        );
        let keyring = Keyring::start(&kit);
        let store = |label: &str, user: &str, value: &str| {
            let line = format!("secret-tool store --label='{label}' service hub user {user}");
            Keyring::tool(&kit, &line, value).ok();
        };
        assert!(fetch().stderr.contains("the keyring has no such item"));
        store("hub token", "ann", "real-token-of-ann");
        assert_eq!(fetch().ok().stdout, "ok");
        assert_eq!(
            origin.requests()[0].header("authorization"),
            Some("Bearer real-token-of-ann")
        );
        store("hub token", "bob", "real-token-of-bob");
        assert!(fetch().stderr.contains("more than one such item"));
        rules(&kit, &secrets("service=hub,user=bob"));
        assert_eq!(fetch().ok().stdout, "ok");
        assert_eq!(
            origin.requests()[1].header("authorization"),
            Some("Bearer real-token-of-bob")
        );
        let lock = "dbus-send --session --print-reply --dest=org.freedesktop.secrets /org/freedesktop/secrets \
            org.freedesktop.Secret.Service.Lock array:objpath:/org/freedesktop/secrets/collection/login";
        Keyring::tool(&kit, lock, "").ok();
        assert!(fetch().stderr.contains("the keyring is locked"));
        drop(keyring);
        assert_eq!(origin.requests().len(), 2);
    }
}

#[test]
fn p9_a_secret_goes_over_opened_tls_and_to_no_other_name() {
    for kit in kits() {
        let root = Root::new();
        let origin = Origin::over_tls(&root, &["api.test", "other.test"], |heard| {
            Answer::text(200, format!("{:?}", heard.headers))
        });
        let port = origin.port();
        kit.write_home("root.pem", root.pem());
        kit.write_home(
            ".config/bailiwick/rules.toml",
            "extends = [\"ceiling\"]\n[network]\nroots = [\"~/root.pem\"]\n",
        );
        kit.write_home(".config/key", "glpat-real-value-0123456789ab");
        rules(
            &kit,
            &format!(
                "[network]\nallow = [\"* https://api.test:{port}/**\", \"* https://other.test:{port}/**\"]\n\
                 [network.hosts]\n\"api.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n\
                 [secret.lab]\nfrom = \"file:~/.config/key\"\nfor = \"https://api.test:{port}/**\"\nas = \"header:private-token\"\nenv = \"LAB\"\n"
            ),
        );
        let told = kit.run(&["run", "--", "true"]).ok().stderr;
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!("lab with https://api.test:{port}/** (header:private-token, stand-in in LAB)");
        assert!(told.contains(&line), "{told}");
        let line = format!("echo $LAB; curl -s -m 20 -H \"Private-Token: $LAB\" https://api.test:{port}/x");
        let done = kit.shell(&line).ok();
        let (stand_in, answer) = done.stdout.split_once('\n').unwrap();
        assert!(
            stand_in.starts_with("glpat-") && answer.contains(stand_in) && !answer.contains("real-value"),
            "{done:?}"
        );
        assert_eq!(
            origin.requests()[0].header("private-token"),
            Some("glpat-real-value-0123456789ab")
        );
        let python = format!(
            "import os, urllib.request as u; print(u.urlopen(u.Request('https://api.test:{port}/y', headers={{'Private-Token': os.environ['LAB']}})).status)"
        );
        assert_eq!(
            kit.run(&["run", "-q", "--", "python3", "-c", &python]).ok().stdout,
            "200\n"
        );
        let stray = kit.shell(&format!(
            "curl -s -m 20 -H \"Private-Token: $LAB\" https://other.test:{port}/x"
        ));
        assert!(stray.stdout.contains("stand-in-misused"), "{stray:?}");
        kit.shell(&format!("curl -s -m 20 https://other.test:{port}/x")).ok();
        let last = origin.requests().pop().unwrap();
        assert_eq!((origin.requests().len(), last.header("private-token")), (3, None));
    }
}

/// Makes the signature of a request again, from what a server heard of it.
const SIGNED: &str = "import hashlib, hmac, json, sys, urllib.parse as p
heard, key = json.loads(sys.argv[1]), sys.argv[2]
h = {k.lower(): v for k, v in heard['headers']}
parts = dict(x.strip().split('=', 1) for x in h['authorization'].split(' ', 1)[1].split(','))
_, day, region, service, _ = parts['Credential'].split('/')
path, _, query = heard['target'].partition('?')
pairs = sorted((p.quote(p.unquote(k), safe='-_.~'), p.quote(p.unquote(v), safe='-_.~')) for k, _, v in (x.partition('=') for x in query.split('&') if x))
names = parts['SignedHeaders'].split(';')
body = h.get('x-amz-content-sha256') or hashlib.sha256(heard['body'].encode()).hexdigest()
canonical = '\\n'.join([heard['method'], path, '&'.join('='.join(x) for x in pairs), *(n + ':' + h[n] for n in names), '', ';'.join(names), body])
text = '\\n'.join(['AWS4-HMAC-SHA256', h['x-amz-date'], f'{day}/{region}/{service}/aws4_request', hashlib.sha256(canonical.encode()).hexdigest()])
k = ('AWS4' + key).encode()
for part in (day, region, service, 'aws4_request', text): k = hmac.new(k, part.encode(), hashlib.sha256).digest()
print('good' if k.hex() == parts['Signature'] else 'bad', 'x-amz-content-sha256' in names, service)
";

fn signed(heard: &Heard, key: &str) -> String {
    let told = serde_json::json!({
        "method": heard.method, "target": heard.target, "headers": heard.headers, "body": heard.text()
    });
    let done = Command::new("python3")
        .args(["-c", SIGNED, &told.to_string(), key])
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    )
}

#[test]
fn p9_a_signature_is_made_outside_and_the_key_stays_there() {
    for kit in kits() {
        let origin = Origin::answering(|heard| Answer::text(200, format!("{:?}", heard.headers)));
        let key = "wJalrXUtnFEMIrealKEYbPxRfiCYEXAMPLE12345";
        kit.write_home(".config/aws", key);
        let of = |service: &str, path: &str| {
            format!(
                "[secret.{service}]\nfrom = \"file:~/.config/aws\"\nfor = \"http://127.0.0.1:{}{path}\"\nas = \"sigv4:{service}/eu-central-1\"\n\
                 user = \"AKIDEXAMPLE\"\nenv = \"KEY_{}\"\n",
                origin.port(),
                service.to_uppercase()
            )
        };
        rules(
            &kit,
            &format!(
                "[network]\nallow = [\"* http://127.0.0.1:{}/**\"]\n{}{}",
                origin.port(),
                of("s3", "/bucket/**"),
                of("dynamodb", "/db")
            ),
        );
        for (path, service, more) in [
            ("/bucket/a%20file?list-type=2&prefix=x%2Fy", "s3", ""),
            ("/bucket/put", "s3", "-X PUT -d some-text"),
            (
                "/db",
                "dynamodb",
                "-H 'X-Amz-Target: T.Get' -H 'Content-Type: application/x-amz-json-1.0' -d '{\"a\": 1}'",
            ),
        ] {
            for client in [
                format!(
                    "--aws-sigv4 aws:amz:eu-central-1:{service} --user AKIDEXAMPLE:$KEY_{}",
                    service.to_uppercase()
                ),
                String::new(),
            ] {
                let done = kit.shell(&format!("curl -s -m 20 {client} {more} '{}'", origin.url(path)));
                let last = origin.requests().pop().unwrap_or_else(|| panic!("{done:?}"));
                assert_eq!(last.target, path, "{done:?}");
                let verified = signed(&last, key);
                assert!(
                    verified.starts_with("good") && verified.contains(service),
                    "{path} {client}: {verified} {last:?} {done:?}"
                );
                let (_, signature) = last.header("authorization").unwrap().split_once("Signature=").unwrap();
                assert!(!done.stdout.contains(signature), "{done:?}");
            }
        }
        let other = kit.shell(&format!(
            "curl -s -m 20 --aws-sigv4 aws:amz:eu-central-1:s3 --user AKIDOTHER:x '{}'",
            origin.url("/bucket/x")
        ));
        assert!(other.stdout.contains("strangers-login"), "{other:?}");
        let log = kit.run(&["log", "show"]).ok().stdout;
        assert!(log.contains("secret s3 put in (sigv4:s3/eu-central-1)"), "{log}");
    }
}

#[test]
fn p9_the_cookies_of_a_session_stay_outside() {
    for kit in kits() {
        let origin = Origin::answering(|heard| match (heard.target.as_str(), heard.text().as_str()) {
            ("/login", "user=bot&pass=real%20password%267") => {
                Answer::text(200, "welcome").with_header("set-cookie", "id=cookie-of-the-session; Path=/; HttpOnly")
            }
            ("/login", _) => Answer::text(401, "who"),
            _ => match heard.header("cookie") {
                Some("id=cookie-of-the-session") => Answer::text(200, "you are in, cookie-of-the-session"),
                other => Answer::text(403, format!("{other:?}")),
            },
        });
        kit.write_home(".config/pass", "real password&7");
        rules(
            &kit,
            &format!(
                "[network]\nallow = [\"* http://127.0.0.1:{p}/**\"]\n[secret.shop]\nfrom = \"file:~/.config/pass\"\n\
                 for = \"http://127.0.0.1:{p}/login\"\nas = \"form:pass\"\nenv = \"PASS\"\nsession = true\n",
                p = origin.port()
            ),
        );
        let line = format!(
            "curl -si -m 20 -c jar -d user=bot -d \"pass=$PASS\" {}; echo; cat jar; curl -s -m 20 -b jar {}; \
             echo; curl -s -m 20 -H 'Cookie: id=mine' {}",
            origin.url("/login"),
            origin.url("/me"),
            origin.url("/me")
        );
        let done = kit.shell(&line);
        assert!(
            done.stdout.contains("welcome") && done.stdout.contains("you are in, ***********"),
            "{done:?}"
        );
        assert!(
            !done.stdout.to_lowercase().contains("set-cookie") && !done.stdout.contains("cookie-of-the"),
            "{done:?}"
        );
        assert!(done.stdout.contains("strangers-login"), "{done:?}");
        // The session ends with the task.
        let next = kit.shell(&format!("curl -s -m 20 {}", origin.url("/me")));
        assert!(next.stdout.contains("None"), "{next:?}");
    }
}
