//! Logins that are renewed, the whole way: against a token service on the loopback that rotates its refresh tokens.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bailiwick_testkit::{Answer, Bailiwick, Heard, Origin, kits};

/// What the token service knows.
struct Known {
    /// The refresh token that it takes.
    token: String,
    /// The access tokens that hold.
    access: Vec<String>,
    count: usize,
    /// How long an access token holds, as it says.
    seconds: Option<u64>,
    /// What it answers in place of a token.
    instead: Option<Answer>,
    wait: Duration,
    rotates: bool,
}

struct Service {
    origin: Origin,
    known: Arc<Mutex<Known>>,
}

impl Service {
    fn start() -> Self {
        let known = Arc::new(Mutex::new(Known {
            token: "canary-refresh-0".into(),
            access: Vec::new(),
            count: 0,
            seconds: Some(3600),
            instead: None,
            wait: Duration::ZERO,
            rotates: true,
        }));
        let of = Arc::clone(&known);
        let origin = Origin::answering(move |heard| answer(&mut of.lock().unwrap(), heard));
        Self { origin, known }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    /// What it was sent for tokens.
    fn renewals(&self) -> Vec<Heard> {
        let all = self.origin.requests().into_iter();
        all.filter(|heard| heard.target == "/token").collect()
    }

    fn rules(&self, kit: &Bailiwick, more: &str) {
        let port = self.origin.port();
        kit.write_home(".config/refresh", "canary-refresh-0\n");
        kit.write(
            "bailiwick.toml",
            &format!(
                "extends = [\"coding\"]\n[network]\nallow = [\"GET http://127.0.0.1:{port}/api/**\"]\n{more}\n[secret.mail]\nfrom = \"file:~/.config/refresh\"\n\
                 refresh = {{ url = \"http://127.0.0.1:{port}/token\", client = \"desk\", scope = \"mail.read\" }}\n\
                 for = \"http://127.0.0.1:{port}/api/**\"\nas = \"bearer\"\nenv = \"KEY\"\n"
            ),
        );
        kit.run(&["trust"]).ok();
    }

    /// So many requests of one task; the status of each.
    fn requests(&self, kit: &Bailiwick, many: usize) -> String {
        let one = format!(
            "curl -s -m 30 -o body -w '%{{http_code}} ' {}",
            self.origin.url("/api/x")
        );
        kit.shell(&vec![one; many].join("; ")).stdout
    }
}

fn answer(known: &mut Known, heard: &Heard) -> Answer {
    if heard.target != "/token" {
        let sent = heard
            .header("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        let holds = sent.is_some_and(|sent| known.access.iter().any(|own| own == sent));
        // It repeats what it was sent, as a careless server would.
        return Answer::text(if holds { 200 } else { 401 }, format!("{:?}", heard.headers));
    }
    std::thread::sleep(known.wait);
    if let Some(instead) = &known.instead {
        return instead.clone();
    }
    let body = heard.text();
    let wanted = format!(
        "grant_type=refresh_token&refresh_token={}&scope=mail.read&client_id=desk",
        known.token
    );
    if body != wanted {
        return Answer::whole(400, "application/json", br#"{"error": "invalid_grant"}"#.to_vec());
    }
    known.count += 1;
    let access = format!("canary-access-{:08}", known.count);
    let mut said = serde_json::json!({"access_token": access, "token_type": "Bearer"});
    if let Some(seconds) = known.seconds {
        said["expires_in"] = seconds.into();
    }
    if known.rotates {
        known.token = format!("canary-refresh-{}", known.count);
        said["refresh_token"] = known.token.clone().into();
    }
    known.access.push(access);
    Answer::whole(200, "application/json", said.to_string().into_bytes())
}

fn talk(kit: &Bailiwick) -> String {
    std::fs::read_to_string(kit.home().join(".local/state/bailiwick/daemon.log")).unwrap_or_default()
}

#[test]
fn p9_a_login_is_renewed_outside_and_its_tokens_are_nowhere_inside() {
    for kit in kits() {
        let service = Service::start();
        service.rules(&kit, "");
        let line = format!(
            "env; for i in 1 2 3; do curl -s -m 30 -H \"Authorization: Bearer $KEY\" {url}; done; curl -s -m 30 {url}",
            url = service.origin.url("/api/x")
        );
        let done = kit.shell(&line).ok();
        assert!(!done.stdout.contains("canary"), "{done:?}");
        let used = service.origin.requests();
        let used: Vec<_> = used.iter().filter(|heard| heard.target != "/token").collect();
        assert_eq!(used.len(), 4);
        assert!(
            used.iter()
                .all(|heard| heard.header("authorization") == Some("Bearer canary-access-00000001"))
        );
        assert_eq!(service.renewals().len(), 1, "four requests share one renewal");
        // What takes the refresh token's place is kept for its owner alone, also for the daemon after this one.
        let folder = kit.home().join(".local/state/bailiwick/renewed");
        let kept = std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .find(|entry| entry.path().extension().is_some_and(|end| end == "json"));
        let kept = kept.unwrap();
        assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        kit.run(&["daemon", "stop"]).ok();
        assert_eq!(service.requests(&kit, 2), "200 200 ");
        assert_eq!(service.renewals().len(), 2);
        let log = kit.run(&["log", "show"]).ok().stdout;
        let sent = format!("for secret:mail: POST {}", service.origin.url("/token"));
        assert_eq!(log.matches(&sent).count(), 2, "{log}");
        assert_eq!(
            log.matches("for secret:mail: done, renewed for 3600 s, with a new refresh token")
                .count(),
            2,
            "{log}"
        );
        assert!(!log.contains("canary") && !talk(&kit).contains("canary"), "{log}");
        // It cannot be read inside, wherever one looks.
        let seen = kit.shell(&format!("cat {}/*; ls {}", folder.display(), folder.display()));
        assert!(
            !seen.stdout.contains("token") && !seen.stdout.contains(".json"),
            "{seen:?}"
        );
    }
}

#[test]
fn p9_a_login_is_renewed_when_it_runs_out_and_once_when_a_server_does_not_take_it() {
    let kit = Bailiwick::as_ordinary_user();
    let service = Service::start();
    service.rules(&kit, "");
    service.known().seconds = Some(1);
    let url = service.origin.url("/api/x");
    kit.shell(&format!("curl -s -m 30 {url}; sleep 1.2; curl -s -m 30 {url}"))
        .ok();
    assert_eq!(service.renewals().len(), 2, "one that has run out is renewed");
    // Without a word on how long it holds it does until a server does not take it.
    service.known().seconds = None;
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(service.requests(&kit, 2), "200 200 ");
    assert_eq!(service.renewals().len(), 3);
    let ended = format!("curl -s -m 30 -o body -w '%{{http_code}} ' {url}");
    let (before, after) = (
        "touch before; while [ ! -e go ]; do sleep 0.05; done",
        vec![ended.clone(); 3].join("; "),
    );
    let mut command = kit.command(&["run", "-q", "--", "sh", "-c", &format!("{ended}; {before}; {after}")]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    while !kit.project().join("before").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    service.known().access.clear();
    kit.write("go", "");
    kit.hand_over();
    let said = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "200 401 200 200 ");
    assert_eq!(service.renewals().len(), 4);
    // An agent that has itself refused again and again causes no more of them.
    service.known().rotates = false;
    let long = format!("for i in 1 2 3 4 5 6; do {ended}; done");
    let (known, clearing) = (
        Arc::clone(&service.known),
        Arc::new(std::sync::atomic::AtomicBool::new(true)),
    );
    let until = Arc::clone(&clearing);
    let cleared = std::thread::spawn(move || {
        while until.load(std::sync::atomic::Ordering::Relaxed) {
            known.lock().unwrap().access.clear();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    kit.shell(&long);
    clearing.store(false, std::sync::atomic::Ordering::Relaxed);
    cleared.join().unwrap();
    assert!(service.renewals().len() <= 5, "{}", service.renewals().len());
}

#[test]
fn p4_a_login_that_is_refused_is_not_asked_about_again_until_there_is_another() {
    for kit in kits() {
        let service = Service::start();
        service.rules(&kit, "");
        service.known().token = "another".into();
        let refused = kit.shell(&format!(
            "for i in 1 2 3; do curl -s -m 30 {}; done",
            service.origin.url("/api/x")
        ));
        assert_eq!(refused.stdout.matches("secret-unavailable").count(), 3, "{refused:?}");
        assert_eq!(service.renewals().len(), 1);
        std::thread::sleep(Duration::from_millis(2100));
        service.requests(&kit, 1);
        assert_eq!(service.renewals().len(), 1, "also later");
        let said = talk(&kit);
        assert!(
            said.contains("does not take the refresh token any more (invalid_grant): sign in again"),
            "{said}"
        );
        assert!(!said.contains("canary"), "{said}");
        // The person signs in again.
        std::thread::sleep(Duration::from_millis(2100));
        service.known().token = "canary-refresh-new".into();
        kit.write_home(".config/refresh", "canary-refresh-new");
        kit.hand_over();
        assert_eq!(service.requests(&kit, 1), "200 ");
        assert_eq!(service.renewals().len(), 2);
        // Nothing is sent where a rule denies that.
        let deny = format!("deny = [\"POST {}\"]", service.origin.url("/token"));
        service.rules(&kit, &deny);
        kit.run(&["daemon", "stop"]).ok();
        service.requests(&kit, 1);
        assert_eq!(service.renewals().len(), 2);
        assert!(talk(&kit).contains("a rule denies `POST"), "{}", talk(&kit));
    }
}

#[test]
fn p4_a_token_service_that_misbehaves_gives_no_login() {
    let kit = Bailiwick::as_ordinary_user();
    let service = Service::start();
    service.rules(&kit, "");
    let mut tries = 0;
    let whole = |status, text: &str| Answer::whole(status, "application/json", text.as_bytes().to_vec());
    for (instead, says) in [
        (
            whole(200, &format!("{{\"access_token\": \"{}\"}}", "canary".repeat(200_000))),
            "longer than 65536 bytes",
        ),
        (
            whole(200, "{\"access_token\": \"canary-x\""),
            "no answer of a token service",
        ),
        (
            whole(200, "{\"access_token\": \"canary-access\", \"token_type\": \"mac\"}"),
            "its `token_type` is not `Bearer`",
        ),
        (
            Answer::redirect(&service.origin.url("/api/token")),
            "it answered with 302",
        ),
        (whole(503, "canary"), "it answered with 503"),
        (
            whole(400, "{\"error\": \"invalid_client\"}"),
            "refuses to renew it (invalid_client)",
        ),
    ] {
        service.known().instead = Some(instead);
        let refused = kit.shell(&format!("curl -s -m 30 {}", service.origin.url("/api/x")));
        assert!(refused.stdout.contains("secret-unavailable"), "{says}: {refused:?}");
        tries += 1;
        assert_eq!(service.renewals().len(), tries, "{says}");
        let said = talk(&kit);
        assert!(said.contains(says) && !said.contains("canary"), "{says}: {said}");
        std::thread::sleep(Duration::from_millis(2100));
    }
    // Nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let rules = std::fs::read_to_string(kit.project().join("bailiwick.toml")).unwrap();
    kit.write(
        "bailiwick.toml",
        &rules.replace(&service.origin.url("/token"), &format!("http://127.0.0.1:{port}/token")),
    );
    kit.run(&["trust"]).ok();
    let refused = kit.shell(&format!("curl -s -m 30 {}", service.origin.url("/api/x")));
    assert!(refused.stdout.contains("secret-unavailable"), "{refused:?}");
    assert!(
        talk(&kit).contains("could not be renewed at `127.0.0.1`"),
        "{}",
        talk(&kit)
    );
}

#[test]
fn p9_tasks_at_once_share_one_renewal() {
    let kit = Bailiwick::as_ordinary_user();
    let service = Service::start();
    service.rules(&kit, "");
    // The daemon runs before both.
    kit.shell("true").ok();
    service.known().wait = Duration::from_millis(700);
    let url = service.origin.url("/api/x");
    let line = format!("for i in 1 2 3 4; do curl -s -m 30 -o /dev/null -w '%{{http_code}} ' {url} & done; wait");
    let start = || {
        let mut command = kit.command(&["run", "-q", "--", "sh", "-c", &line]);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let tasks = [start(), start()];
    for task in tasks {
        let done = task.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "200 200 200 200 ", "{done:?}");
    }
    assert_eq!(service.renewals().len(), 1);
}
