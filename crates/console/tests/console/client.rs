//! A client that sends just the bytes it is told to: what browsers would never send, too.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::fake::{Served, dana};

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Heard {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Heard {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The value of a field of the page's forms.
    pub fn field(&self, name: &str) -> Option<String> {
        let mark = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.body.split_once(&mark)?;
        Some(rest.split('"').next()?.to_owned())
    }
}

/// Sends bytes, and hears all that comes back.
pub fn send(port: u16, bytes: &[u8]) -> Heard {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(bytes);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let text = String::from_utf8_lossy(&all).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    Heard {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// A browser that is logged in.
pub struct Browser {
    pub port: u16,
    /// `/s/…`
    pub path: String,
    pub cookie: String,
    pub form: String,
}

/// Sends a form as a browser does that is on the console's page.
pub fn post(port: u16, path: &str, cookie: &str, form: &str) -> Heard {
    let own = format!("http://127.0.0.1:{port}");
    post_from(
        port,
        path,
        cookie,
        form,
        &format!("Origin: {own}\r\nSec-Fetch-Site: same-origin\r\n"),
    )
}

/// Sends a form from wherever the headers say.
pub fn post_from(port: u16, path: &str, cookie: &str, form: &str, headers: &str) -> Heard {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}Cookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
        form.len()
    );
    send(port, head.as_bytes())
}

/// Gets a page.
pub fn get(port: u16, path: &str, cookie: &str) -> Heard {
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    send(port, head.as_bytes())
}

/// The token of a link.
pub fn token(served: &Served) -> String {
    let link = served.door.link(dana());
    let (before, token) = link.split_once('#').unwrap();
    assert_eq!(before, format!("http://127.0.0.1:{}/", served.port));
    token.to_owned()
}

impl Browser {
    /// Logs in by a link.
    pub fn enter(served: &Served) -> Self {
        let welcome = post(served.port, "/login", "", &format!("token={}", token(served)));
        Self::welcomed(served.port, &welcome)
    }

    /// Goes on from the answer to a login.
    pub fn welcomed(port: u16, welcome: &Heard) -> Self {
        assert_eq!(welcome.status, 303, "{}", welcome.body);
        let place = welcome.header("location").unwrap();
        let path = place.strip_suffix("/questions").unwrap().to_owned();
        let set = welcome.header("set-cookie").unwrap().to_owned();
        for part in [&format!("Path={path}"), "HttpOnly", "SameSite=Strict"] {
            assert!(set.split("; ").any(|one| one == part), "{set}");
        }
        let cookie = set.split(';').next().unwrap().to_owned();
        let mut browser = Self {
            port,
            path,
            cookie,
            form: String::new(),
        };
        browser.form = browser.get("/questions").field("form").unwrap();
        browser
    }

    pub fn get(&self, page: &str) -> Heard {
        get(self.port, &format!("{}{page}", self.path), &self.cookie)
    }

    pub fn post(&self, page: &str, form: &str) -> Heard {
        let form = format!("form={}&{form}", self.form);
        post(self.port, &format!("{}{page}", self.path), &self.cookie, &form)
    }

    /// The page that an answer goes on to.
    pub fn follow(&self, heard: &Heard) -> Heard {
        assert_eq!(heard.status, 303, "{}", heard.body);
        get(self.port, heard.header("location").unwrap(), &self.cookie)
    }

    /// The fields of a yes that stand in a question's page.
    pub fn yes_fields(&self, page: &Heard) -> String {
        let (_, yes) = page.body.split_once("id=\"yes\"").expect("there is a yes");
        let yes = Heard {
            body: yes.to_owned(),
            ..page.clone()
        };
        let mut fields = Vec::new();
        for name in ["offer", "count", "until", "scope", "shown"] {
            fields.push(format!("{name}={}", yes.field(name).unwrap()));
        }
        fields.extend(page.field("seen").map(|seen| format!("seen={seen}")));
        fields.join("&")
    }
}
