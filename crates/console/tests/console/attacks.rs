//! What others try: pages of other origins, names that point here, other programs of the machine, agents by their texts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_gate::desk::AtWork;
use bailiwick_model::TaskId;

use crate::client::{Browser, get, post, post_from, send, token};
use crate::fake::{HOSTILE, NOW, Served, Still, grant, hostile, id, question, serve, some_times};

fn house() -> (Served, Browser) {
    let served = serve(Arc::new(Still));
    let browser = Browser::enter(&served);
    let asked = question(1, "claude wants to run git push", "run git push", &[("program", "git")]);
    served.desk.change(|held| held.asked.push(asked));
    (served, browser)
}

/// All that a session can have done by a form.
const FORMS: [&str; 9] = [
    "/questions/no",
    "/question/000000000001/yes",
    "/question/000000000001/no",
    "/question/000000000001/more",
    "/tasks/0505050505050505/end",
    "/grants/010101010101/revoke",
    "/grants/010101010101/narrow",
    "/log/verify",
    "/leave",
];

/// All that a session can read.
const PAGES: [&str; 13] = [
    "/",
    "/questions",
    "/questions/list",
    "/question/000000000001",
    "/question/000000000001/part",
    "/question/000000000001/offer",
    "/question/000000000001/state",
    "/tasks",
    "/tasks/0505050505050505/end",
    "/grants",
    "/log",
    "/authority",
    "/live",
];

fn untouched(served: &Served) {
    served.desk.look(|held| {
        assert!(held.said.is_empty() && held.revoked.is_empty() && held.narrowed.is_empty() && held.ended.is_empty());
    });
}

#[test]
fn p8_a_form_of_another_page_does_nothing() {
    let (served, browser) = house();
    served
        .desk
        .change(|held| held.granted.push(grant(1, "may read /a", some_times(5))));
    let own = format!("Origin: http://127.0.0.1:{}\r\n", served.port);
    let port = served.port;
    for page in FORMS {
        let path = format!("{}{page}", browser.path);
        let form = format!("form={}&word=x&count=1&questions=000000000001", browser.form);
        // With cookie and form token, from elsewhere: a server of the agent's on this very machine, the web, a file.
        for origin in [
            "Origin: http://127.0.0.1:5173\r\nSec-Fetch-Site: same-site\r\n".to_owned(),
            "Origin: http://evil.test\r\nSec-Fetch-Site: cross-site\r\n".to_owned(),
            "Origin: null\r\n".to_owned(),
            format!("{own}Sec-Fetch-Site: cross-site\r\n"),
            format!("{own}{own}"),
            String::new(),
        ] {
            let heard = post_from(port, &path, &browser.cookie, &form, &origin);
            assert_eq!(heard.status, 403, "{page} {origin}: {}", heard.body);
        }
        // From here, without what only our pages know.
        for form in [
            "word=x",
            "form=&word=x",
            "form=00&word=x",
            &format!("form={}", "03".repeat(16)),
        ] {
            let heard = post(port, &path, &browser.cookie, form);
            assert_eq!(heard.status, 403, "{page} {form}");
        }
        // Without the session.
        let heard = post(port, &path, "", &form);
        assert_eq!(heard.status, 401, "{page}");
        // As another kind of content, which a page of another origin could send without being asked.
        let bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{own}Cookie: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
            browser.cookie,
            form.len()
        );
        assert_eq!(send(port, bytes.as_bytes()).status, 415, "{page}");
    }
    untouched(&served);
    assert_eq!(browser.get("/questions").status, 200, "the session was left");
}

#[test]
fn p8_reading_changes_nothing() {
    let (served, browser) = house();
    served
        .desk
        .change(|held| held.granted.push(grant(1, "may read /a", some_times(5))));
    for page in FORMS {
        let heard = browser.get(&format!("{page}?form={}&word=x&offer=0", browser.form));
        assert!(
            [405, 404].contains(&heard.status) || page == "/tasks/0505050505050505/end",
            "{page}: {}",
            heard.status
        );
    }
    untouched(&served);
    assert_eq!(browser.get("/questions").status, 200);
}

#[test]
fn p8_no_page_is_read_without_cookie_and_path() {
    let (served, browser) = house();
    for page in PAGES {
        for (path, cookie) in [
            (browser.path.clone(), String::new()),
            (browser.path.clone(), "bailiwick-console=00".to_owned()),
            (browser.path.clone(), browser.cookie.replace('=', "x=")),
            (format!("/s/{}", "00".repeat(16)), browser.cookie.clone()),
            ("/s/".to_owned(), browser.cookie.clone()),
        ] {
            let heard = get(served.port, &format!("{path}{page}"), &cookie);
            assert_eq!(heard.status, 401, "{path}{page} {cookie}");
            assert!(!heard.body.contains("git push"), "{page}");
        }
    }
    // A cookie that a server on another port has set beside ours does no harm.
    let both = format!("bailiwick-console=aa; {}; other=1", browser.cookie);
    assert_eq!(
        get(served.port, &format!("{}/questions", browser.path), &both).status,
        200
    );
}

#[test]
fn p8_a_name_that_was_made_to_point_here_is_not_heard() {
    let (served, browser) = house();
    let port = served.port;
    for host in [
        "rebound.test",
        &format!("rebound.test:{port}"),
        "127.0.0.1",
        "127.0.0.1:1",
        &format!("127.0.0.2:{port}"),
        "",
    ] {
        for path in ["/", "/login", "/assets/x", &format!("{}/questions", browser.path)] {
            let bytes = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\nConnection: close\r\n\r\n",
                browser.cookie
            );
            let heard = send(port, bytes.as_bytes());
            assert!([421, 400].contains(&heard.status), "{host} {path}: {}", heard.status);
            assert!(!heard.body.contains("git push"));
        }
    }
    // In the request's line: the host there counts for nothing else than the header.
    let bytes = "GET http://rebound.test/ HTTP/1.1\r\nHost: rebound.test\r\nConnection: close\r\n\r\n";
    assert_eq!(send(port, bytes.as_bytes()).status, 421);
    for name in [format!("localhost:{port}"), format!("[::1]:{port}")] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        assert_eq!(send(port, bytes.as_bytes()).status, 200, "{name}");
    }
}

#[test]
fn p8_pages_are_framed_read_and_cached_by_nobody() {
    let (served, browser) = house();
    let mut all: Vec<_> = PAGES
        .iter()
        .filter(|page| **page != "/live")
        .map(|page| browser.get(page))
        .collect();
    all.push(get(served.port, "/", ""));
    all.push(get(served.port, "/nothing", ""));
    all.push(get(served.port, "/s/x/questions", ""));
    all.push(post(served.port, "/login", "", "token=x"));
    for heard in all {
        let policy = heard.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.split("; ").any(|one| one == part), "{policy}");
        }
        assert_eq!(heard.header("x-frame-options"), Some("DENY"));
        assert_eq!(heard.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(heard.header("referrer-policy"), Some("same-origin"));
        assert_eq!(heard.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(heard.header("cache-control"), Some("no-store"));
        assert_eq!(heard.header("access-control-allow-origin"), None);
        // Nothing stands in a page that its policy would refuse.
        let body = &heard.body;
        assert!(
            !body.contains("style=\"")
                && !body.contains("<style")
                && !body.contains("onclick")
                && !body.contains("javascript:\"")
        );
        assert_eq!(
            body.matches("<script").count(),
            body.matches("<script src=\"/assets/console.").count()
        );
    }
    // Pages of others: they cannot be gone to, fetched or embedded.
    for headers in [
        "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
        "Origin: http://127.0.0.1:5173\r\n",
    ] {
        let bytes = format!(
            "GET {}/questions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{headers}Cookie: {}\r\nConnection: close\r\n\r\n",
            browser.path, served.port, browser.cookie
        );
        assert_eq!(send(served.port, bytes.as_bytes()).status, 403, "{headers}");
    }
}

#[test]
fn p8_a_cookie_goes_to_no_other_server_of_the_machine() {
    let served = serve(Arc::new(Still));
    let welcome = post(served.port, "/login", "", &format!("token={}", token(&served)));
    let set = welcome.header("set-cookie").unwrap();
    let path = set.split("; ").find_map(|part| part.strip_prefix("Path=/s/")).unwrap();
    assert_eq!(path.len(), 32, "128 bits that no page of another port knows");
    assert!(!set.contains("Domain"));
}

#[test]
fn p8_texts_of_agents_are_texts() {
    let served = serve(Arc::new(Still));
    let browser = Browser::enter(&served);
    served.desk.change(|held| {
        held.asked.push(hostile(1));
        let mut grant = grant(1, HOSTILE, some_times(5));
        grant.by = vec![HOSTILE.into()];
        held.granted.push(grant);
        held.at_work.push(AtWork {
            id: TaskId([5; 8]),
            context: HOSTILE.into(),
            command: vec![HOSTILE.into()],
            started: NOW,
        });
    });
    for page in [
        "/questions",
        "/question/000000000001",
        "/question/000000000001/offer?offer=1",
        "/tasks",
        "/tasks/0505050505050505/end",
        "/grants",
        "/log",
        "/authority",
    ] {
        let heard = browser.get(page);
        assert_eq!(heard.status, 200, "{page}");
        let body = &heard.body;
        for raw in ["<script>", "<img", "onerror=alert(1)>", "<b>"] {
            assert!(!body.contains(raw), "{page}: {raw}");
        }
        for drawn in ['\u{1b}', '\r', '\u{202e}', '\u{200b}', '\u{0}'] {
            assert!(!body.contains(drawn), "{page}: {drawn:?}");
        }
        if page.contains("question") || page.contains("tasks") || page.contains("grants") {
            assert!(
                body.contains("&lt;script&gt;document.title='owned'&lt;/script&gt;"),
                "{page}"
            );
            assert!(body.contains("\\u{1b}[2K\\r\\u{202e}gpj\\u{200b}"), "{page}");
        }
    }
    // What was said is told on the next page.
    let told = browser.follow(&browser.post("/question/000000000001/no", "word=%3Cscript%3Ealert(1)%3C%2Fscript%3E"));
    assert!(told.body.contains("&lt;script&gt;alert(1)") && !told.body.contains("<script>alert"));
}

#[test]
fn p8_wrong_tokens_cost_nothing_and_are_slowed_down() {
    let served = serve(Arc::new(Still));
    let good = token(&served);
    let mut statuses = Vec::new();
    for n in 0..40 {
        statuses.push(post(served.port, "/login", "", &format!("token={n:064x}")).status);
    }
    assert!(
        statuses.starts_with(&[403]) && statuses.ends_with(&[429]),
        "{statuses:?}"
    );
    assert!(
        statuses.iter().filter(|status| **status == 403).count() <= 22,
        "{statuses:?}"
    );
    // The right one is heard all the same.
    assert_eq!(post(served.port, "/login", "", &format!("token={good}")).status, 303);
    // The token is taken from a form only: nothing that merely looks at the link uses it up.
    let good = token(&served);
    assert_eq!(get(served.port, &format!("/login?token={good}"), "").status, 200);
    assert_eq!(get(served.port, &format!("/?{good}"), "").status, 200);
    let whole = format!("token=http%3A%2F%2F127.0.0.1%3A{}%2F%23{good}", served.port);
    assert_eq!(
        post(served.port, "/login", "", &whole).status,
        303,
        "a link that is put in whole is understood"
    );
}

#[test]
fn requests_are_bounded() {
    let (served, browser) = house();
    let port = served.port;
    assert_eq!(
        browser
            .post("/question/000000000001/no", &format!("word={}", "x".repeat(70_000)))
            .status,
        413
    );
    assert_eq!(get(port, &format!("/{}", "x".repeat(3000)), "").status, 414);
    let long = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX: {}\r\n\r\n",
        "x".repeat(100_000)
    );
    assert!([0, 431].contains(&send(port, long.as_bytes()).status));
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{many}\r\n");
    assert!([0, 400, 431].contains(&send(port, many.as_bytes()).status));
    for method in ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW"] {
        let bytes = format!("{method} / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        assert!([405, 400].contains(&send(port, bytes.as_bytes()).status), "{method}");
    }
    let twice = browser.post("/question/000000000001/no", "word=a&word=b");
    assert_eq!(twice.status, 400);
    untouched(&served);
}

#[test]
fn connections_are_bounded_and_slow_ones_end() {
    let served = serve(Arc::new(Still));
    let mut held: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
            let _ = stream.write_all(b"GET / HT");
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let closed = held
        .iter_mut()
        .filter_map(|stream| {
            stream.set_read_timeout(Some(Duration::from_millis(5))).ok()?;
            let mut byte = [0u8; 1];
            match stream.read(&mut byte) {
                Ok(0) => Some(()),
                Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => Some(()),
                _ => None,
            }
        })
        .count();
    assert!((60..=80).contains(&closed), "{closed} of 200 were closed");
    // Those that do not go on make place.
    let begun = Instant::now();
    while get(served.port, "/", "").status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(25), "no place is given back");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn p8_it_listens_on_loopback_and_nowhere_else() {
    let served = serve(Arc::new(Still));
    let wanted = format!(":{:04X}", served.port);
    let mut found = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            let (Some(local), Some(_), Some(state)) = (words.nth(1), words.next(), words.next()) else {
                continue;
            };
            if local.ends_with(&wanted) && state == "0A" {
                assert_eq!(local, format!("0100007F{wanted}"));
                found += 1;
            }
        }
    }
    assert_eq!(found, 1);
    let _ = id(0);
}
