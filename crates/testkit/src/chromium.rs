//! A real browser, headless, driven by Playwright. Where either is not there, whoever asks for one skips aloud.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::agents::caches;

/// What drives it.
const DRIVER: &str = include_str!("chromium.mjs");

/// The names under which Chromium is installed.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser. Dropped, it ends.
#[derive(Debug, Clone)]
pub struct Chromium(Arc<Mutex<Driven>>);

#[derive(Debug)]
struct Driven {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The driver, and a home for the browser.
    _folder: tempfile::TempDir,
}

/// One page in it.
#[derive(Debug, Clone)]
pub struct Tab {
    browser: Chromium,
    number: u64,
}

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Width and height.
    pub size: (u32, u32),
    /// Whether the person likes it dark.
    pub dark: bool,
    /// Whether scripts run.
    pub script: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            size: (1200, 900),
            dark: false,
            script: true,
        }
    }
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("BAILIWICK_TEST_CHROMIUM") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    PROGRAMS.iter().find_map(|name| {
        folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    })
}

impl Chromium {
    /// Starts one; none where the machine has none, or nothing to drive it.
    pub fn start() -> Option<Self> {
        let installed = caches()
            .into_iter()
            .map(|cache| cache.join("node_modules/playwright-core"));
        let playwright = installed.into_iter().find(|folder| folder.is_dir())?;
        let program = program()?;
        let folder = tempfile::tempdir().expect("a folder for the browser can be made");
        let driver = folder.path().join("drive.mjs");
        std::fs::write(&driver, DRIVER).expect("a fresh folder is writable");
        let mut child = Command::new("node")
            .arg(&driver)
            .args([&playwright, &program])
            .env("HOME", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut driven = Driven {
            orders: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().expect("its output is a pipe")),
            child,
            _folder: folder,
        };
        let ready = driven.hear();
        assert_eq!(ready, json!({ "ready": true }), "the browser does not start");
        Some(Self(Arc::new(Mutex::new(driven))))
    }

    fn order(&self, order: &Value) -> Result<Value, String> {
        let mut driven = self.0.lock().expect("no thread panics with the browser");
        let orders = driven.orders.as_mut().expect("it takes orders until it is dropped");
        writeln!(orders, "{order}").expect("the browser hears");
        let mut said = driven.hear();
        match said.get("fault").and_then(Value::as_str) {
            Some(fault) => Err(fault.to_owned()),
            None => Ok(said["is"].take()),
        }
    }

    /// A page with cookies of its own.
    pub fn open(&self, look: Look) -> Tab {
        let (width, height) = look.size;
        let order = json!({ "do": "open", "width": width, "height": height, "dark": look.dark, "script": look.script });
        let number = self.order(&order).expect("a page opens");
        Tab {
            browser: self.clone(),
            number: number.as_u64().expect("a page has a number"),
        }
    }
}

impl Driven {
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the browser answers");
        serde_json::from_str(&line).unwrap_or_else(|fault| panic!("the browser says `{line}`: {fault}"))
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // Without further orders it ends by itself.
        self.orders.take();
        let _ = self.child.wait();
    }
}

impl Tab {
    /// Gives an order, with its fields.
    pub fn try_do(&self, what: &str, fields: Value) -> Result<Value, String> {
        let mut order = fields;
        order["do"] = what.into();
        order["page"] = self.number.into();
        self.browser.order(&order)
    }

    fn act(&self, what: &str, fields: Value) -> Value {
        let shown = format!("{what} {fields}");
        self.try_do(what, fields).unwrap_or_else(|fault| {
            let text = self.try_do("text", json!({ "at": "body", "timeout": 500 }));
            panic!("{shown}: {fault}\n--- page\n{text:?}")
        })
    }

    /// Another page with the same cookies.
    pub fn beside(&self) -> Self {
        let number = self.act("beside", json!({}));
        Self {
            browser: self.browser.clone(),
            number: number.as_u64().expect("a page has a number"),
        }
    }

    /// Goes to an address: the status of the answer.
    pub fn goto(&self, url: &str) -> u64 {
        self.act("goto", json!({ "url": url })).as_u64().unwrap_or(0)
    }

    /// Clicks.
    pub fn click(&self, at: &str) {
        self.act("click", json!({ "at": at }));
    }

    /// Types into a field.
    pub fn fill(&self, at: &str, text: &str) {
        self.act("fill", json!({ "at": at, "text": text }));
    }

    /// Chooses from a list.
    pub fn select(&self, at: &str, value: &str) {
        self.act("select", json!({ "at": at, "text": value }));
    }

    /// Points at.
    pub fn hover(&self, at: &str) {
        self.act("hover", json!({ "at": at }));
    }

    /// Presses a key.
    pub fn press(&self, key: &str) {
        self.act("press", json!({ "text": key }));
    }

    /// Waits until something is to be seen.
    pub fn wait(&self, at: &str) {
        self.act("wait", json!({ "at": at }));
    }

    /// Waits until an expression holds.
    pub fn until(&self, script: &str) {
        self.act("until", json!({ "script": script }));
    }

    /// The text that is to be seen.
    pub fn text(&self, at: &str) -> String {
        self.act("text", json!({ "at": at }))
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// What an expression comes to, in the page.
    pub fn eval(&self, script: &str) -> Value {
        self.act("eval", json!({ "script": script }))
    }

    /// Takes a picture of the whole page.
    pub fn shot(&self, path: &Path) {
        self.act("shot", json!({ "path": path }));
    }

    /// The cookies of this page's context.
    pub fn cookies(&self) -> Value {
        self.act("cookies", json!({}))
    }

    /// Closes it.
    pub fn close(&self) {
        self.act("close", json!({}));
    }

    /// Errors and warnings since they were last asked for: refused loads and scripts are among them.
    pub fn troubles(&self) -> Vec<String> {
        let all = self.act("troubles", json!({}));
        let all = all.as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|one| one.as_str().unwrap_or_default().to_owned())
            .collect()
    }
}
