//! A git server over HTTP on the loopback that asks for a login: `git http-backend` behind the small web server.
//!
//! See: git-http-backend(1); RFC 3875 (CGI); RFC 7617 (Basic).

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::web::{Answer, Heard, WebServer};

/// A running server with one bare repository, `/site.git`.
#[derive(Debug)]
pub struct GitServer {
    folder: Arc<tempfile::TempDir>,
    web: WebServer,
    heard: Arc<Mutex<Vec<Heard>>>,
}

fn basic(login: &str) -> String {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("Basic ");
    for three in login.as_bytes().chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let sign = (bits >> (18 - 6 * place)) & 0x3f;
            out.push(if place > three.len() {
                '='
            } else {
                char::from(SIGNS[sign as usize])
            });
        }
    }
    out
}

impl GitServer {
    /// Starts a server whose repository may be read and written with this login (`user:password`) only.
    pub fn start(login: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder for a repository"));
        let made = Command::new("git")
            .args(["init", "-q", "--bare", "-b", "main"])
            .arg(folder.path().join("site.git"))
            .status();
        assert!(made.is_ok_and(|made| made.success()), "git makes a repository");
        let set = Command::new("git")
            .arg("-C")
            .arg(folder.path().join("site.git"))
            .args(["config", "http.receivepack", "true"])
            .status();
        assert!(set.is_ok_and(|set| set.success()), "git takes a setting");
        let (heard, wanted, root) = (Arc::default(), basic(login), Arc::clone(&folder));
        let kept: Arc<Mutex<Vec<Heard>>> = Arc::clone(&heard);
        let reply = move |heard: &Heard| {
            kept.lock().expect("no thread panics with the list").push(heard.clone());
            if heard.header("authorization") != Some(wanted.as_str()) {
                return Answer::text(401, "who are you").with_header("www-authenticate", "Basic realm=\"site\"");
            }
            answer(heard, root.path().to_owned())
        };
        let web = WebServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Arc::new(reply));
        Self { folder, web, heard }
    }

    /// The host and port that it listens on.
    pub fn host(&self) -> String {
        self.web.address().to_string()
    }

    /// The address of the repository.
    pub fn url(&self) -> String {
        format!("http://{}/site.git", self.host())
    }

    /// What it has heard so far.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().expect("no thread panics with the list").clone()
    }

    /// The references of the repository, one a line.
    pub fn references(&self) -> String {
        let done = Command::new("git")
            .arg("-C")
            .arg(self.folder.path().join("site.git"))
            .args(["for-each-ref", "--format=%(refname)"])
            .output()
            .expect("git can be run");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

fn answer(heard: &Heard, root: PathBuf) -> Answer {
    let (path, query) = heard.target.split_once('?').unwrap_or((&heard.target, ""));
    let header = |name: &str| heard.header(name).unwrap_or_default().to_owned();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", &heard.method)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", heard.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .env("REMOTE_USER", "tester")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git http-backend can be run");
    let mut input = child.stdin.take().expect("its input is a pipe");
    let body = heard.body.clone();
    let writer = std::thread::spawn(move || input.write_all(&body));
    let done = child.wait_with_output().expect("it ends");
    let _ = writer.join();
    let end = done.stdout.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = done.stdout.split_at(end.expect("an answer has a head"));
    let head = String::from_utf8_lossy(head).into_owned();
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    };
    let status = field("status").and_then(|status| status.split(' ').next()?.parse().ok());
    let kind = field("content-type").unwrap_or_default();
    Answer::whole(status.unwrap_or(200), &kind, body[4..].to_vec())
}
