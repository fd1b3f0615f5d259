//! A launcher, as the daemon would start it. With `--as UID` it becomes that user first.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick_gate::{FencePlan, Reading, Start};
use bailiwick_model::{Command, CommandPattern, Resource};

use rustix::process::{Gid, Uid};

/// What starts, by the names that the fence saw: file, name, first word, likeness, and the words.
struct AsSeen;

impl Reading for AsSeen {
    fn read(&self, start: &Start) -> Resource {
        let own = if start.own { "own" } else { "machine" };
        let mut seen = vec![
            start.file.clone(),
            start.called.clone(),
            own.into(),
            start.like.join(","),
        ];
        seen.extend(start.words.iter().cloned());
        seen.extend(
            start
                .variables
                .iter()
                .filter(|(name, _)| name == "STEER")
                .map(|(_, value)| value.clone()),
        );
        Resource::Command(Command::plain(seen, &start.called))
    }

    fn also(&self, _: &str) -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn follows(&self, _: &CommandPattern) -> Vec<CommandPattern> {
        Vec::new()
    }

    fn carriers(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
}

fn as_seen(_: &FencePlan) -> Arc<dyn Reading> {
    Arc::new(AsSeen)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--as") {
        let id: u32 = args.next().and_then(|text| text.parse().ok()).unwrap_or(4242);
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        let become_user = || -> rustix::io::Result<()> {
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(group, group, group)?;
            rustix::thread::set_thread_res_uid(user, user, user)?;
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
        };
        if become_user().is_err() {
            return ExitCode::FAILURE;
        }
    }
    match bailiwick_fence::inherited_channel() {
        Ok(channel) => bailiwick_fence::run_launcher(channel, as_seen),
        Err(_) => ExitCode::FAILURE,
    }
}
