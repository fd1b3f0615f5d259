//! A container as engines make them by default, round the product: masked `/proc`, no user namespaces, no mounts, no
//! delegated control group; as root without the capabilities that engines take away.
//!
//! Not here: what it is made of (`container.py`, which needs no build and no `unsafe`). Signals sent to a command that was
//! started in it reach `nsenter`, not the program: send them to its process group, or from inside.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::user::{ORDINARY_UID, is_root};

const SCRIPT: &str = include_str!("container.py");

/// Goes in, and keeps the current folder: entering a mount namespace forgets it.
const GO_IN: &str = r#"pid=$1 python=$2 script=$3; shift 3
exec nsenter --target "$pid" $users --mount --pid -- "$python" -c "$script" enter "$PWD" "$@""#;

/// A running container. Dropped, it ends with all that runs in it.
#[derive(Debug)]
pub(crate) struct Container {
    first: Child,
    pid: String,
}

impl Container {
    /// Starts one. As root it has the machine's user namespace, as a container engine's has; else one of its own.
    pub(crate) fn start() -> Self {
        let mut command = Command::new("unshare");
        if !is_root() {
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        let mut first = command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--"])
            .args([python(), "-c", SCRIPT, "hold"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let mut said = String::new();
        let output = first.stdout.take().expect("a pipe was asked for");
        BufReader::new(output)
            .read_line(&mut said)
            .expect("the container speaks plain text");
        assert_eq!(said, "ready\n", "no container can be made here");
        let children = format!("/proc/{0}/task/{0}/children", first.id());
        let pid = std::fs::read_to_string(children).expect("the kernel lists children");
        let pid = pid.split_whitespace().next().expect("unshare has a child").to_owned();
        Self { first, pid }
    }

    /// A program in it, as the ordinary user when this process is root and that is asked for.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, ordinary: bool) -> Command {
        let mut command = Command::new("sh");
        let users = if is_root() { "" } else { "--user --preserve-credentials" };
        command.arg("-c").arg(GO_IN.replace("$users", users));
        command.args(["sh", &self.pid, python(), SCRIPT]);
        if ordinary && is_root() {
            let id = ORDINARY_UID;
            command.args(["setpriv", &format!("--reuid={id}"), &format!("--regid={id}")]);
            command.args(["--clear-groups", "--"]);
        }
        command.arg(program);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.first.stdin.take());
        let _ = self.first.wait();
    }
}

/// The system's python, which every user may run, else the first on the path.
fn python() -> &'static str {
    let system = "/usr/bin/python3";
    if Path::new(system).exists() { system } else { "python3" }
}
