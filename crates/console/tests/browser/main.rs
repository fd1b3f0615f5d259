//! The console in a real browser, with a desk that is made up. `BAILIWICK_SHOTS=FOLDER` keeps pictures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test that cannot go on has failed"
)]

#[path = "../console/fake.rs"]
mod fake;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bailiwick_gate::desk::{Answer, AtWork, Terms};
use bailiwick_model::TaskId;
use bailiwick_testkit::{Answer as Reply, Chromium, Look, Origin, Tab, skip};

use fake::{Going, HOSTILE, Served, dana, every_kind, grant, hostile, id, question, serve, some_times};

/// A browser that is logged in, and the console.
struct World {
    served: Served,
    browser: Chromium,
    tab: Tab,
}

fn world() -> Option<World> {
    let Some(browser) = Chromium::start() else {
        skip("there is no Chromium with Playwright here");
        return None;
    };
    let served = serve(Arc::new(Going));
    let tab = browser.open(Look::default());
    tab.goto(&served.door.link(dana()));
    tab.wait("h1");
    tab.until("location.pathname.endsWith('/questions')");
    Some(World { served, browser, tab })
}

impl World {
    fn ask(&self, number: u32) {
        let mut asked = question(
            number,
            &format!("claude wants to run git push origin topic{number}"),
            "run git push",
            &[("program", "git"), ("word 1", "push")],
        );
        (asked.since, asked.deadline) = soon();
        self.served.desk.change(|held| held.asked.push(asked));
    }

    fn said(&self) -> Vec<Answer> {
        self.served
            .desk
            .look(|held| held.said.iter().map(|(_, answer, _)| answer.clone()).collect())
    }

    fn base(&self) -> String {
        let path = self.tab.eval("location.pathname");
        let path = path.as_str().unwrap().split('/').nth(2).unwrap().to_owned();
        format!("http://127.0.0.1:{}/s/{path}", self.served.port)
    }
}

fn soon() -> (bailiwick_model::Millis, bailiwick_model::Millis) {
    use bailiwick_gate::Clock;
    let now = Going.now().0;
    (
        bailiwick_model::Millis(now - 65_000),
        bailiwick_model::Millis(now + 400_000),
    )
}

#[test]
fn a_link_logs_in_once_and_leaves_the_address() {
    let Some(world) = world() else { return };
    let link = world.served.door.link(dana());
    let token = link.rsplit('#').next().unwrap().to_owned();
    let tab = world.browser.open(Look::default());
    tab.goto(&link);
    tab.until("location.pathname.endsWith('/questions')");
    assert_eq!(tab.eval("location.hash"), "");
    assert_eq!(tab.eval("document.cookie"), "", "no script reads the cookie");
    let cookies = tab.cookies();
    let cookie = &cookies.as_array().unwrap()[0];
    assert_eq!(
        (cookie["httpOnly"].clone(), cookie["sameSite"].clone()),
        (true.into(), "Strict".into()),
        "{cookies}"
    );
    assert!(cookie["path"].as_str().unwrap().starts_with("/s/"));
    // Going back finds no address with the token.
    let _ = tab.try_do("eval", serde_json::json!({ "script": "history.back()" }));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!tab.eval("location.href").as_str().unwrap().contains(&token));
    let other = world.browser.open(Look::default());
    other.goto(&link);
    other.wait(".told.wrong");
    assert!(other.text("main").contains("used already"));
    assert_eq!(world.tab.troubles(), Vec::<String>::new());
}

#[test]
fn a_question_appears_within_200_ms_and_nothing_moves_under_the_pointer() {
    let Some(world) = world() else { return };
    let tab = &world.tab;
    tab.until("document.getElementById('none').hidden === false");
    // By the page's own watch: what drives the browser takes its time, too.
    tab.eval("window.seen = {}; new MutationObserver(() => document.querySelectorAll('#list > li').forEach((row) => { seen[row.id] ??= performance.timeOrigin + performance.now(); })).observe(document.getElementById('list'), { childList: true }); true");
    let mut took = Vec::new();
    for number in 1..=6 {
        std::thread::sleep(Duration::from_millis(120));
        let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0;
        world.ask(number);
        tab.until(&format!("!!seen['q-{}']", id(number)));
        let seen = tab.eval(&format!("seen['q-{}']", id(number))).as_f64().unwrap();
        took.push(seen - asked);
    }
    took.sort_by(f64::total_cmp);
    eprintln!("a question appears after {took:.0?} ms");
    assert!(took[took.len() / 2] < 200.0, "{took:?}");
    assert_eq!(tab.text("#count"), "6");
    assert!(tab.eval("document.title").as_str().unwrap().starts_with("(6) "));
    tab.until("document.getElementById('news').textContent.includes('new question')");

    // While somebody points at one, what is answered elsewhere stays in its place, and what is new comes below.
    let third = format!("#q-{} .what", id(3));
    tab.hover(&third);
    let place = |tab: &Tab| {
        tab.eval(&format!(
            "document.querySelector('#q-{}').getBoundingClientRect().top",
            id(3)
        ))
    };
    let before = place(tab);
    world
        .served
        .desk
        .change(|held| held.asked.retain(|asked| asked.id != id(1)));
    world.ask(7);
    tab.until(&format!(
        "document.getElementById('q-{}').classList.contains('gone') && !!document.getElementById('q-{}')",
        id(1),
        id(7)
    ));
    assert_eq!(place(tab), before);
    assert_eq!(
        tab.eval(&format!("document.querySelectorAll('#q-{} a').length", id(1))),
        0,
        "an answered one cannot be opened"
    );
    // Afterwards it is tidied up.
    tab.hover("h1");
    tab.until(&format!("!document.getElementById('q-{}')", id(1)));
    assert_eq!(tab.troubles(), Vec::<String>::new());
}

#[test]
fn p8_a_yes_waits_half_a_second_and_goes_by_keyboard_alone() {
    let Some(world) = world() else { return };
    let tab = &world.tab;
    world.ask(1);
    tab.wait(&format!("#q-{}", id(1)));
    let press = |key: &str, times: usize| (0..times).for_each(|_| tab.press(key));
    // From the top: to the content, then to the first question.
    let focus = |wanted: &str| {
        for _ in 0..40 {
            if tab.eval(&format!(
                "!!document.activeElement && document.activeElement.matches('{wanted}')"
            )) == true
            {
                return;
            }
            press("Tab", 1);
        }
        panic!("{wanted} is not reached by the tab key");
    };
    focus(&format!("#q-{} a", id(1)));
    tab.press("Enter");
    tab.wait("#say-yes");
    // The page has just come: no yes, whatever is pressed.
    assert_eq!(tab.eval("document.getElementById('say-yes').disabled"), true);
    tab.until("!document.getElementById('say-yes').disabled");
    focus("#say-yes");
    tab.press("Enter");
    tab.wait(".told");
    assert!(
        tab.text(".told")
            .contains("yes: may run git push origin topic1, once, in this task")
    );
    assert!(matches!(world.said().as_slice(), [Answer::Yes { offer: 0, .. }]));
    assert_eq!(tab.troubles(), Vec::<String>::new());
}

#[test]
fn p8_a_long_question_is_read_to_its_end_before_a_yes() {
    let Some(world) = world() else { return };
    let tab = &world.tab;
    let script: String = (0..700).map(|n| format!("echo step {n}\n")).collect();
    let asked = question(
        1,
        "claude wants to run sh",
        "run sh",
        &[("word 1", &format!("{script}rm -r keep"))],
    );
    world.served.desk.change(|held| held.asked.push(asked));
    tab.goto(&format!("{}/question/{}", world.base(), id(1)));
    tab.wait("#say-yes");
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(tab.eval("document.getElementById('say-yes').disabled"), true);
    assert!(tab.text("#yes-note").contains("come to the end"));
    assert!(!tab.text("#whole").contains("rm -r keep"));
    // A button that somebody enables by force changes nothing: the server has not served the end.
    tab.eval("document.getElementById('say-yes').disabled = false");
    tab.click("#say-yes");
    tab.wait(".told.wrong");
    assert!(tab.text(".told.wrong").contains("was not shown to its end"));
    assert!(world.said().is_empty());
    // Reading: by the keys that scroll.
    tab.eval("document.getElementById('whole').focus()");
    for _ in 0..60 {
        if tab.eval("!!document.getElementById('end')") == true
            && tab.eval("!document.getElementById('say-yes').disabled") == true
        {
            break;
        }
        tab.press("End");
        std::thread::sleep(Duration::from_millis(80));
    }
    assert!(tab.text("#whole").contains("rm -r keep"));
    tab.until("!document.getElementById('say-yes').disabled");
    tab.click("#say-yes");
    tab.wait(".told:not(.wrong)");
    assert_eq!(world.said().len(), 1);
    assert_eq!(tab.troubles(), Vec::<String>::new());
}

#[test]
fn p8_wider_terms_are_a_new_sentence_and_a_gone_question_is_told() {
    let Some(world) = world() else { return };
    let tab = &world.tab;
    world.ask(1);
    world.ask(2);
    tab.goto(&format!("{}/question/{}", world.base(), id(1)));
    tab.click("#offer-1");
    tab.until("document.querySelector('.sentence').textContent.includes('/home/dana/reference')");
    tab.select("#often", "times");
    tab.fill("#times", "4");
    tab.press("Tab");
    tab.until("document.querySelector('.sentence').textContent.includes('at most 4 times')");
    tab.select("#long", "1h");
    tab.until("document.querySelector('.sentence').textContent.includes('UTC')");
    assert_eq!(
        tab.eval("document.getElementById('say-yes').disabled"),
        true,
        "a new sentence has its half second"
    );
    // An end of one's own: nothing can be said before it is whole.
    tab.select("#long", "until");
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(tab.eval("document.getElementById('say-yes').disabled"), true);
    tab.fill("#until-local", "2099-06-01T18:00");
    tab.press("Tab");
    tab.until("document.querySelector('.sentence').textContent.includes('until 2099-06-01 16:00:00 UTC')");
    tab.until("!document.getElementById('say-yes').disabled");
    tab.click("#say-yes");
    tab.wait(".told");
    let said = world.said();
    let [Answer::Yes { offer: 1, terms, .. }] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!(terms.count, Some(4));
    // Somebody else is quicker.
    tab.goto(&format!("{}/question/{}", world.base(), id(2)));
    tab.until("!document.getElementById('say-yes').disabled");
    world.served.desk.change(|held| held.asked.clear());
    tab.wait("#state .told");
    assert!(tab.text("#state").contains("somebody else answered it"));
    assert_eq!(
        tab.eval("[...document.querySelectorAll('.answers button')].every((one) => one.disabled)"),
        true
    );
    assert_eq!(tab.troubles(), Vec::<String>::new());
}

#[test]
fn p8_texts_of_agents_run_nowhere() {
    let Some(world) = world() else { return };
    let tab = &world.tab;
    world.served.desk.change(|held| {
        held.asked.push(hostile(1));
        held.granted.push(grant(1, HOSTILE, some_times(3)));
        held.at_work.push(AtWork {
            id: TaskId([5; 8]),
            context: HOSTILE.into(),
            command: vec![HOSTILE.into()],
            started: fake::NOW,
        });
    });
    tab.wait(&format!("#q-{}", id(1)));
    for page in [
        "questions",
        "question/000000000001",
        "tasks",
        "tasks/0505050505050505/end",
        "grants",
        "log",
        "authority",
    ] {
        assert_eq!(tab.goto(&format!("{}/{page}", world.base())), 200, "{page}");
        std::thread::sleep(Duration::from_millis(250));
        assert!(
            !tab.eval("document.title").as_str().unwrap().contains("owned"),
            "{page}"
        );
        assert_eq!(tab.eval("document.images.length + document.querySelectorAll('script:not([src]), iframe, object, [onerror]').length"), 0, "{page}");
        assert_eq!(tab.troubles(), Vec::<String>::new(), "{page}");
    }
    // Fragments that the script puts in, too.
    tab.goto(&format!("{}/question/{}", world.base(), id(1)));
    tab.click("#offer-2");
    tab.until("document.querySelector('.sentence').textContent.includes('any') || true");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(tab.eval("document.images.length"), 0);
    assert_eq!(tab.troubles(), Vec::<String>::new());
}

#[test]
fn p8_pages_of_others_speak_for_nobody() {
    let Some(world) = world() else { return };
    world.ask(1);
    let base = world.base();
    let path = base.split_once("/s/").unwrap().1.to_owned();
    let port = world.served.port;
    // The worst case: a server on this machine, seen by the same browser, that knows the session's address.
    let evil = Origin::answering(move |heard| {
        let target = format!("http://127.0.0.1:{port}/s/{path}");
        let page = match heard.target.as_str() {
            "/form" => format!(
                "<form id=f method=post action='{target}/question/000000000001/no'><input name=word value=x></form><script>f.submit()</script>"
            ),
            "/frame" => format!(
                "<iframe id=i src='{target}/questions'></iframe><iframe src='http://127.0.0.1:{port}/'></iframe>"
            ),
            "/cookie" => "<script>document.cookie='bailiwick-console=00;path=/'</script>".into(),
            _ => "<p>hello".into(),
        };
        Reply::whole(200, "text/html", page.into_bytes())
    });
    let tab = world.tab.beside();
    tab.goto(&evil.url("/form"));
    tab.until(&format!("location.port === '{port}'"));
    assert!(
        tab.text("body").contains("a page that is not the console's"),
        "{}",
        tab.text("body")
    );
    assert!(world.said().is_empty());
    // Fetched: refused, and not to be read. Its cookies are not sent to it, on whatever port.
    tab.goto(&evil.url("/cookie"));
    let fetched = tab.eval(&format!(
        "fetch('{base}/questions', {{credentials: 'include'}}).then((a) => a.text()).catch(() => 'refused')"
    ));
    assert_eq!(fetched, "refused");
    let sent = tab.eval(&format!("fetch('{base}/question/{}/no', {{method: 'POST', mode: 'no-cors', credentials: 'include', headers: {{'content-type': 'application/x-www-form-urlencoded'}}, body: 'word=x'}}).then((a) => a.type).catch(() => 'refused')", id(1)));
    assert!(sent == "opaque" || sent == "refused", "{sent}");
    assert!(world.said().is_empty());
    for heard in evil.requests() {
        let cookies = heard.header("cookie").unwrap_or_default();
        assert!(
            !cookies.contains("bailiwick-console=") || cookies.contains("bailiwick-console=00"),
            "{cookies}"
        );
    }
    // Framed: nothing to be clicked on.
    tab.goto(&evil.url("/frame"));
    std::thread::sleep(Duration::from_millis(500));
    let troubles = tab.troubles().join("\n");
    assert!(
        troubles.contains("frame-ancestors") || troubles.contains("X-Frame-Options") || troubles.contains("403"),
        "{troubles}"
    );
    // The person's own page goes on, whatever cookie was set beside.
    assert_eq!(world.tab.goto(&format!("{base}/questions")), 200);
    // A name that points here.
    let status = tab.try_do(
        "goto",
        serde_json::json!({ "url": format!("http://rebound.localhost:{port}/") }),
    );
    assert_eq!(status, Ok(421.into()));
}

#[test]
fn forms_go_without_a_script() {
    let Some(world) = world() else { return };
    world.ask(1);
    world.ask(2);
    let look = Look {
        script: false,
        ..Look::default()
    };
    let tab = world.browser.open(look);
    let link = world.served.door.link(dana());
    tab.goto(&link);
    tab.fill("#token", &link);
    tab.click("#link-form button");
    tab.wait("#list");
    tab.click(&format!("#q-{} a", id(1)));
    tab.wait("#say-yes");
    tab.click("#offer-1");
    tab.select("#often", "any");
    tab.click("#show");
    tab.wait(".sentence");
    assert!(
        tab.text(".sentence")
            .contains("may read /home/dana/reference, and what is below it, in this task")
    );
    tab.click("#say-yes");
    tab.wait(".told");
    // A click that follows at once is taken for a slip, and the page says so.
    if tab.text(".told").contains("half a second") {
        tab.click("#offer-1");
        tab.select("#often", "any");
        tab.click("#show");
        std::thread::sleep(Duration::from_millis(600));
        tab.click("#say-yes");
        tab.wait(".told:not(.wrong)");
    }
    tab.click(&format!("#q-{} a", id(2)));
    tab.fill("#no-word", "use a branch");
    tab.click("#no button");
    tab.wait(".told");
    assert_eq!(world.said().len(), 2);
}

#[test]
fn a_thousand_questions_stay_usable() {
    let Some(world) = world() else { return };
    let tab = &world.tab;
    let begun = Instant::now();
    for block in 0..20u32 {
        world.served.desk.change(|held| {
            for n in 0..50 {
                let number = block * 50 + n;
                held.asked.push(question(
                    number,
                    &format!("claude wants to run tool{} {number}", number % 9),
                    &format!("run tool{}", number % 9),
                    &[("word 1", "x")],
                ));
            }
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    tab.until("document.getElementById('count').textContent === '1000'");
    eprintln!("a thousand were told after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5));
    let rows = tab.eval("document.querySelectorAll('#list > li').length");
    assert!(rows.as_u64().unwrap() <= 80, "{rows}");
    let begun = Instant::now();
    tab.goto(&format!("{}/questions", world.base()));
    tab.wait("#list .many");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(tab.eval("document.querySelectorAll('#list > li').length"), 9);
    tab.click("#list > li:first-child a");
    tab.wait(".pager");
    assert_eq!(tab.eval("document.querySelectorAll('#list > li').length"), 40);
}

#[test]
fn pages_have_landmarks_labels_and_contrast() {
    let Some(world) = world() else { return };
    settle(&world);
    for dark in [false, true] {
        let tab = world.browser.open(Look {
            dark,
            size: (390, 844),
            ..Look::default()
        });
        tab.goto(&world.served.door.link(dana()));
        tab.until("location.pathname.endsWith('/questions')");
        let base = tab.eval("location.href.replace(/\\/questions.*/, '')");
        let base = base.as_str().unwrap().to_owned();
        for page in PAGES {
            tab.goto(&format!("{base}/{page}"));
            std::thread::sleep(Duration::from_millis(100));
            let found = tab.eval(CHECKS);
            assert_eq!(found, serde_json::json!([]), "{page}, dark: {dark}");
        }
    }
}

const PAGES: [&str; 8] = [
    "questions",
    "question/000000000007",
    "question/000000000008",
    "question/00000000000b",
    "tasks",
    "grants",
    "log",
    "authority",
];

/// One of each landmark, one first heading, a name for each field and button, nothing wider than the page, and letters that
/// differ enough from their ground (WCAG 2.2 AA: 4.5 to 1).
const CHECKS: &str = r#"(() => {
  const found = [];
  const visible = (e) => { const b = e.getBoundingClientRect(); const s = getComputedStyle(e); return b.width > 1 && b.height > 1 && s.visibility === "visible"; };
  for (const one of ["main", "header", "footer", "h1", "header nav"]) {
    const count = document.querySelectorAll(one).length;
    if (count !== 1) found.push(`${count} of ${one}`);
  }
  if (!document.documentElement.lang) found.push("no language");
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (visible(field) && !(field.labels && field.labels.length)) found.push(`no label: ${field.id || field.name}`);
  }
  for (const button of document.querySelectorAll("button, a, summary")) {
    if (visible(button) && !button.textContent.trim() && !button.ariaLabel) found.push(`no name: ${button.outerHTML.slice(0, 80)}`);
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3")) {
    const now = Number(heading.tagName[1]);
    if (now > level + 1) found.push(`h${level} is followed by h${now}`);
    level = now;
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: ${id}`);
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push(`${document.documentElement.scrollWidth} wide on ${innerWidth}`);
  const rgb = (text) => { const n = text.match(/[\d.]+/g).map(Number); return { c: n.slice(0, 3), a: n.length > 3 ? n[3] : 1 }; };
  const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = (e) => { for (; e; e = e.parentElement) { const b = rgb(getComputedStyle(e).backgroundColor); if (b.a > 0.5) return b.c; } return [255, 255, 255]; };
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !visible(e) || e.closest(".quiet") || e.disabled || e.closest("fieldset:disabled")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color).c), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: ${e.tagName}.${e.className} ${e.textContent.trim().slice(0, 30)}`);
  }
  return found;
})()"#;

fn settle(world: &World) {
    world.served.desk.change(|held| {
        held.asked = every_kind().into_iter().map(|(_, asked)| asked).take(11).collect();
        for asked in &mut held.asked {
            (asked.since, asked.deadline) = soon();
        }
        held.granted = vec![
            grant(1, "may read /home/dana/reference, and what is below it, at most 5 times, until 2026-11-30 19:04:05 UTC, in this context", some_times(5)),
            grant(2, "may run gh pr create, with any further words, in this task", Terms::default()),
        ];
        held.at_work = vec![AtWork {
            id: TaskId([5; 8]),
            context: "/home/dana/acme-site".into(),
            command: vec!["claude".into(), "--continue".into()],
            started: soon().0,
        }];
    });
}

#[test]
fn pictures_for_people_to_look_at() {
    let Some(folder) = std::env::var_os("BAILIWICK_SHOTS").map(PathBuf::from) else {
        return;
    };
    let Some(world) = world() else { return };
    std::fs::create_dir_all(&folder).unwrap();
    let looks = [
        ("desktop", (1200, 900), false),
        ("phone", (390, 844), false),
        ("dark", (1200, 900), true),
    ];
    for (name, size, dark) in looks {
        let tab = world.browser.open(Look {
            size,
            dark,
            ..Look::default()
        });
        world.served.desk.change(|held| held.asked.clear());
        tab.goto(&format!("http://127.0.0.1:{}/", world.served.port));
        tab.shot(&folder.join(format!("{name}-login.png")));
        tab.goto(&world.served.door.link(dana()));
        tab.until("location.pathname.endsWith('/questions')");
        tab.shot(&folder.join(format!("{name}-none.png")));
        settle(&world);
        let base = tab.eval("location.href.replace(/\\/questions.*/, '')");
        let base = base.as_str().unwrap().to_owned();
        for page in PAGES
            .iter()
            .chain(&["question/000000000004", "tasks/0505050505050505/end"])
        {
            tab.goto(&format!("{base}/{page}"));
            std::thread::sleep(Duration::from_millis(800));
            tab.shot(&folder.join(format!("{name}-{}.png", page.replace('/', "-"))));
        }
    }
}
