//! How a run does, as a JSON file that whoever started it can read: always whole, replaced at each step.
//!
//! Trust: the file may lie where the agent can write. It is never written through what lies there, and after the agent
//! has ended its last content is this command's.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bailiwick_gate::{Clock, FenceReport};
use serde_json::{Value, json};

use super::log::time;
use crate::daemon::SteadyClock;
use crate::failure::Failure;
use crate::protocol::Planned;

/// The file of a run; none is asked for most of the time.
#[derive(Debug)]
pub struct StatusFile {
    path: Option<PathBuf>,
    content: Value,
}

impl StatusFile {
    /// Begins the file, so that one that cannot be written is told before anything starts.
    pub fn begin(path: Option<&Path>, command: &[String]) -> Result<Self, Failure> {
        let file = Self {
            path: path.map(Path::to_owned),
            content: json!({
                "state": "starting", "task": null, "context": null, "command": command, "level": null, "enforced": [],
                "started": time(SteadyClock::default().now()), "ended": null, "status": null, "failure": null, "checkpoint": null, "denied": null,
            }),
        };
        file.write().map_err(|e| {
            let path = file.path.as_deref().unwrap_or(Path::new("")).display();
            Failure::usage(format!("the status file `{path}` cannot be written: {e}"))
        })?;
        Ok(file)
    }

    /// Notes what is planned.
    pub fn planned(&mut self, planned: &Planned) {
        self.set(&[("task", json!(planned.task)), ("context", json!(planned.root))]);
    }

    /// Notes that the agent runs.
    pub fn started(&mut self, report: &FenceReport) {
        let level = if report.parts.iter().any(|part| part == "namespaces") {
            "namespace"
        } else {
            "process"
        };
        self.set(&[
            ("state", json!("running")),
            ("level", json!(level)),
            ("enforced", json!(report.parts)),
        ]);
    }

    /// Notes that the agent goes on without this command.
    pub fn left_alone(&mut self) {
        self.set(&[("state", json!("detached"))]);
    }

    /// Notes how the agent ended.
    pub fn ended(&mut self, status: i32, checkpoint: Option<&str>, denied: u64) {
        self.set(&[
            ("state", json!("ended")),
            ("ended", json!(time(SteadyClock::default().now()))),
            ("status", json!(status)),
            ("checkpoint", json!(checkpoint)),
            ("denied", json!(denied)),
        ]);
    }

    /// Notes why it could not be run.
    pub fn failed(&mut self, failure: &Failure) {
        let told = json!({
            "exit": failure.exit as i32, "code": failure.code, "message": failure.message, "hint": failure.hint,
        });
        self.set(&[
            ("state", json!("failed")),
            ("ended", json!(time(SteadyClock::default().now()))),
            ("failure", told),
        ]);
    }

    fn set(&mut self, values: &[(&str, Value)]) {
        for (name, value) in values {
            if let Some(slot) = self.content.get_mut(name) {
                *slot = value.clone();
            }
        }
        if let (Err(e), Some(path)) = (self.write(), &self.path) {
            talkln!("bailiwick: the status file `{}` cannot be written: {e}", path.display());
        }
    }

    /// Writes the file beside its place, then puts it there.
    fn write(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let name = path.file_name().ok_or(std::io::ErrorKind::IsADirectory)?;
        let mut random = [0u8; 8];
        bailiwick_gate::Random::fill(&crate::daemon::KernelRandom, &mut random);
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{:016x}", u64::from_be_bytes(random)));
        let beside = path.with_file_name(beside);
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&beside)?;
        let put = file
            .write_all(format!("{:#}\n", self.content).as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&beside, path));
        if put.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        put
    }
}
