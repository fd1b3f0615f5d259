//! A question is told on the desktop of whoever ordered the run, and nowhere else.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_testkit::{Bailiwick, Origin, finish, skip};
use zbus::zvariant::OwnedValue;

/// What a notification said: the one it takes the place of, its head, its text, its buttons.
type Told = (u32, String, String, Vec<String>);

/// The notifications of a session.
struct Notifications(Arc<Mutex<Vec<Told>>>);

#[zbus::interface(name = "org.freedesktop.Notifications")]
impl Notifications {
    fn get_capabilities(&self) -> Vec<String> {
        vec!["body".into(), "body-markup".into()]
    }

    #[allow(clippy::too_many_arguments, reason = "that is how the call is")]
    fn notify(
        &self,
        _program: String,
        instead_of: u32,
        _icon: String,
        head: String,
        text: String,
        buttons: Vec<String>,
        _hints: HashMap<String, OwnedValue>,
        _expires: i32,
    ) -> u32 {
        self.0.lock().unwrap().push((instead_of, head, text, buttons));
        7
    }
}

/// A session bus that ends with this value.
struct Bus(Child);

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn c048_a_question_is_told_on_the_desktop_and_cannot_be_answered_there() {
    let there = Command::new("dbus-daemon")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return skip("dbus-daemon is not there");
    }
    let named = Command::new("id")
        .arg("-un")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !named.is_ok_and(|status| status.success()) {
        return skip("c048_a_question_is_told_on_the_desktop: a session bus takes only users that have a name");
    }
    let mut kit = Bailiwick::new();
    let bus = kit.outside().join("run/bus");
    let address = format!("unix:path={}", bus.display());
    let settings = kit.write_home(
        "bus.conf",
        &format!(
            "<busconfig><type>session</type><listen>{address}</listen><auth>EXTERNAL</auth><policy context=\"default\">\
             <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>"
        ),
    );
    let mut daemon = kit.outside_command("dbus-daemon");
    daemon.args([
        "--nofork",
        "--nopidfile",
        &format!("--config-file={}", settings.display()),
    ]);
    let _bus = Bus(daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begun = Instant::now();
    while !bus.exists() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the bus does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let _session = zbus::blocking::connection::Builder::address(address.as_str())
        .unwrap()
        .name("org.freedesktop.Notifications")
        .unwrap()
        .serve_at("/org/freedesktop/Notifications", Notifications(Arc::clone(&told)))
        .unwrap()
        .build()
        .unwrap();
    let probe = format!(
        "timeout 5 dbus-send --bus={address} --print-reply --dest=org.freedesktop.Notifications /org/freedesktop/Notifications \
         org.freedesktop.Notifications.GetCapabilities"
    );
    assert!(kit.shell_outside(&probe).ok().stdout.contains("body-markup"));
    let origin = Origin::start();
    let rules = format!(
        "extends = [\"coding\"]\n[network]\nask = [\"GET http://127.0.0.1:{}/**\"]\n[questions]\ndeadline = \"1 s\"\n",
        origin.port()
    );
    let asks = |kit: &Bailiwick, rules: &str, path: &str| {
        kit.write("bailiwick.toml", rules);
        kit.run(&["trust"]).ok();
        let url = origin.url(path);
        let line = format!("for n in 1 2 3; do curl -gs -m 60 -o /dev/null '{url}' & done; wait");
        finish(
            kit.command(&["run", "-q", "--", "sh", "-c", &line]),
            Duration::from_secs(60),
        )
        .ok();
    };
    // Nobody looks at a screen.
    asks(&kit, &rules, "/");
    kit.set("DISPLAY", ":0");
    // Somebody does, and wants not to be told.
    asks(&kit, &format!("{rules}notify = false\n"), "/");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(*told.lock().unwrap(), []);
    asks(&kit, &rules, "/x?a=1&b=2");
    let begun = Instant::now();
    while told.lock().unwrap().is_empty() {
        let talk = kit.home().join(".local/state/bailiwick/daemon.log");
        let talk = || std::fs::read_to_string(&talk).unwrap_or_default();
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "nothing was told: {}",
            talk()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(3));
    let told = told.lock().unwrap().clone();
    assert!(
        (1..=2).contains(&told.len()),
        "three at once are told together: {told:?}"
    );
    let (first, head, text, _) = &told[0];
    assert!(*first == 0 && head.contains("for you"), "{told:?}");
    assert!(
        text.contains("/x?a=1&amp;b=2")
            && text.contains("bailiwick approve")
            && text.contains("wants to send GET http://127.0.0.1"),
        "{text}"
    );
    for (_, head, text, buttons) in &told {
        assert!(buttons.is_empty(), "nothing can be answered there");
        assert!(!text.contains(['<', '>', '\u{1b}']) && !head.contains('<'), "{text}");
    }
    assert!(
        told[1..].iter().all(|(instead_of, ..)| *instead_of == 7),
        "they do not pile up: {told:?}"
    );
}
