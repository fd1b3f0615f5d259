//! A launcher, as the daemon would start it. With `--as UID` it becomes that user first.

use std::process::ExitCode;

use rustix::process::{Gid, Uid};

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
        Ok(channel) => bailiwick_fence::run_launcher(channel),
        Err(_) => ExitCode::FAILURE,
    }
}
