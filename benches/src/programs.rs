//! Programs: bare, in bwrap, in the peers that are installed (`sandlock`, `nono`), and in ours with a daemon up.
//!
//! Each peer gets the fence that is nearest to ours: the project writable, the rest as far as it is needed, no network, `.env`
//! out of sight where it can do that by name. What it cannot do is not asked of it: the columns say what each costs, not
//! that they hold the same.

use std::path::Path;
use std::process::{Command, Stdio};

use bailiwick_testkit::Bailiwick;

use crate::measure::{Options, Table, Way, installed};
use crate::sample;

/// One program to be measured.
struct Item {
    name: &'static str,
    aim: &'static str,
    rounds: usize,
    /// A shell line, or a program without arguments.
    line: &'static str,
    /// Rules for ours; those of the preset where there are none.
    rules: Option<&'static str>,
    prepare: fn(&mut Bailiwick),
}

/// Rules that tell programs apart: each start is looked at, and `git` is asked about.
const JUDGED: &str = "extends = [\"coding\"]\n[commands]\ndeny = [\"git push\"]\n";
/// Rules by which each opening of a file is looked at.
const STRICT: &str = "extends = [\"coding\"]\n[fence]\nstrict = true\n";

/// Loops of ten keep the start of the fence small against the work that is measured.
const ITEMS: [Item; 18] = [
    Item {
        name: "start of `true`",
        aim: "at most 6 ms more than bare",
        rounds: 60,
        line: "true",
        rules: None,
        prepare: |_| {},
    },
    Item {
        name: "2,000 × /bin/true in one shell",
        aim: "within 4 % of bare",
        rounds: 9,
        line: "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done",
        rules: None,
        prepare: |_| {},
    },
    Item {
        name: "10 × `git status` in 20,000 files",
        aim: "within 4 % of bare",
        rounds: 15,
        line: "for i in 0 1 2 3 4 5 6 7 8 9; do git --no-optional-locks status --porcelain >/dev/null || exit 1; done",
        rules: None,
        prepare: |kit| sample::repository(&kit.project()),
    },
    Item {
        name: "10 × `rg` in 20,000 files",
        aim: "within 4 % of bare",
        rounds: 15,
        line: "for i in 0 1 2 3 4 5 6 7 8 9; do rg --count needle . >/dev/null || exit 1; done",
        rules: None,
        prepare: |kit| sample::repository(&kit.project()),
    },
    Item {
        name: "C build of 60 files",
        aim: "within 4 % of bare",
        rounds: 7,
        line: "rm -f *.o prog; for f in *.c; do gcc -O1 -c \"$f\" || exit 1; done; gcc -o prog *.o && ./prog",
        rules: None,
        prepare: |kit| sample::c_project(&kit.project()),
    },
    Item {
        name: "the same, where starts are judged",
        aim: "at most 60 µs more for each",
        rounds: 9,
        line: "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done",
        rules: Some(JUDGED),
        prepare: |_| {},
    },
    Item {
        name: "100 × `git status` in a small tree, where git is asked about",
        aim: "",
        rounds: 9,
        line: "i=0; while [ $i -lt 100 ]; do git --no-optional-locks status --porcelain >/dev/null; i=$((i+1)); done",
        rules: Some(JUDGED),
        prepare: |kit| sample::small_repository(&kit.project()),
    },
    Item {
        name: "20,000 starts by one program",
        aim: "at most 60 µs more for each",
        rounds: 5,
        line: "./calls start 20000",
        rules: None,
        prepare: |kit| sample::calls(&kit.project()),
    },
    Item {
        name: "20,000 starts by one program, judged",
        aim: "at most 60 µs more for each",
        rounds: 5,
        line: "./calls start 20000",
        rules: Some(JUDGED),
        prepare: |kit| sample::calls(&kit.project()),
    },
    Item {
        name: "20,000 files made",
        aim: "",
        rounds: 7,
        line: "./calls make 20000",
        rules: None,
        prepare: |kit| sample::calls(&kit.project()),
    },
    Item {
        name: "200,000 opens to read",
        aim: "",
        rounds: 7,
        line: "./calls open 200000",
        rules: None,
        prepare: |kit| sample::calls(&kit.project()),
    },
    Item {
        name: "20,000 opens to read, strict",
        aim: "",
        rounds: 7,
        line: "./calls open 20000",
        rules: Some(STRICT),
        prepare: |kit| sample::calls(&kit.project()),
    },
    Item {
        name: "2,000 opens to read of a file that is asked about",
        aim: "",
        rounds: 7,
        line: "./calls open 2000 ../home/asked/file",
        rules: None,
        prepare: sample::asked_file,
    },
    Item {
        name: "20,000 connections to itself",
        aim: "at most 60 µs more for each",
        rounds: 7,
        line: "./calls connect 20000",
        rules: None,
        prepare: |kit| sample::calls(&kit.project()),
    },
    Item {
        name: "`git checkout` there and back, 20,000 files",
        aim: "within 4 % of bare",
        rounds: 5,
        line: "git checkout -q other && git checkout -q main",
        rules: None,
        prepare: |kit| sample::two_branches(&kit.project()),
    },
    Item {
        name: "`cargo build` of 40 modules",
        aim: "within 4 % of bare",
        rounds: 5,
        line: "rm -rf target && cargo build -q --offline",
        rules: None,
        prepare: sample::cargo_project,
    },
    Item {
        name: "`npm install` of 40 packages, 4,000 files",
        aim: "within 4 % of bare",
        rounds: 5,
        line: "rm -rf node_modules && npm install --offline --no-audit --no-fund --no-package-lock --silent",
        rules: None,
        prepare: |kit| sample::npm_project(&kit.project()),
    },
    Item {
        name: "C build of 60 files, strict",
        aim: "",
        rounds: 5,
        line: "rm -f *.o prog; for f in *.c; do gcc -O1 -c \"$f\" || exit 1; done; gcc -o prog *.o && ./prog",
        rules: Some(STRICT),
        prepare: |kit| sample::c_project(&kit.project()),
    },
];

/// Measures every item that is wanted.
pub fn measure(options: &Options, table: &mut Table) {
    let wanted: Vec<&Item> = ITEMS.iter().filter(|item| options.wants(item.name)).collect();
    let peers: Vec<&Peer> = PEERS.iter().filter(|peer| peer.is_there(!wanted.is_empty())).collect();
    for item in wanted {
        let mut kit = Bailiwick::new();
        (item.prepare)(&mut kit);
        if let Some(rules) = item.rules {
            kit.write("bailiwick.toml", rules);
            kit.run(&["trust"]).ok();
        }
        let words: Vec<&str> = match item.line {
            "true" => vec!["true"],
            line => vec!["sh", "-c", line],
        };
        let project = kit.project();
        let mut ways: Vec<Way<'_>> = vec![("bare", Box::new(|| run(outside(&kit, &words))))];
        for peer in &peers {
            let once = || run((peer.command)(&kit, &project, &words));
            ways.push((peer.name, Box::new(once)));
        }
        let ours = || {
            let mut arguments = vec!["run", "-q", "--"];
            arguments.extend(&words);
            run(kit.command(&arguments))
        };
        ways.push(("ours", Box::new(ours)));
        table.interleave(item.name, item.aim, options.rounds(item.rounds), ways);
    }
}

fn outside(kit: &Bailiwick, words: &[&str]) -> Command {
    let mut command = kit.outside_command(words.first().copied().unwrap_or("true"));
    command.args(words.iter().skip(1));
    command
}

/// Another fence.
struct Peer {
    name: &'static str,
    command: fn(&Bailiwick, &Path, &[&str]) -> Command,
}

const PEERS: [Peer; 3] = [
    Peer {
        name: "bwrap",
        command: bubblewrap,
    },
    Peer {
        name: "sandlock",
        command: sandlock,
    },
    Peer {
        name: "nono",
        command: nono,
    },
];

impl Peer {
    /// True when it is installed. That it is not is said, where it matters.
    fn is_there(&self, matters: bool) -> bool {
        let there = installed(self.name).is_some();
        if matters && !there {
            eprintln!("bench: `{}` is not in the PATH, so it has no column", self.name);
        }
        there
    }
}

/// The disk to be read, the project to be written, by Landlock and held calls; `.env` of the project's top denied by its path,
/// since it takes no patterns. Scratch is the kit's own, since it mounts none.
fn sandlock(kit: &Bailiwick, project: &Path, words: &[&str]) -> Command {
    let mut command = kit.outside_command("sandlock");
    command.args(["run", "--fs-read", "/", "--fs-write", "/dev"]);
    for writable in [project.to_owned(), kit.outside().join("tmp"), kit.home()] {
        command.arg("--fs-write").arg(writable);
    }
    command.arg("--fs-deny").arg(project.join(".env"));
    command.args(["--net-allow", "127.0.0.1", "--"]).args(words);
    command
}

/// The same by `nono`, which cannot take anything out of a tree that it grants on Linux. It asks no server for updates.
fn nono(kit: &Bailiwick, project: &Path, words: &[&str]) -> Command {
    let mut command = kit.outside_command("nono");
    command.env("NONO_NO_UPDATE_CHECK", "1");
    command.args(["--silent", "run", "--no-rollback", "--read", "/usr", "--read", "/etc"]);
    for writable in [project.to_owned(), kit.outside().join("tmp")] {
        command.arg("--allow").arg(writable);
    }
    command.args(["--block-net", "--"]).args(words);
    command
}

/// What people use today: the whole disk read-only, the project writable, no network, names of its own.
fn bubblewrap(kit: &Bailiwick, project: &Path, words: &[&str]) -> Command {
    let mut command = kit.outside_command("bwrap");
    command
        .args([
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "--bind",
        ])
        .arg(project)
        .arg(project)
        .args(["--unshare-all", "--die-with-parent", "--chdir"])
        .arg(project)
        .args(words);
    command
}

fn run(mut command: Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|fault| format!("cannot be started: {fault}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{}: {}",
        output.status,
        said.lines().next().unwrap_or("nothing was said")
    ))
}
