//! A small internet in a network namespace of the test's own, where the product runs too: every question that leaves the
//! machine, and every connection, is heard.

use std::fmt::Write as _;
use std::time::Duration;

use bailiwick_testkit::{Bailiwick, finish, is_root};

/// One step: a shell line, in the fence or without one.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// Through `bailiwick run`.
    Inside(&'a str),
    /// Without a fence.
    Outside(&'a str),
    /// Writes and trusts rules.
    Rules(&'a str),
}

/// What came of a step.
#[derive(Debug, Clone)]
pub struct Came {
    pub status: i32,
    pub output: String,
    /// What the servers heard: `dns NAME`, `http HOST METHOD PATH`, `tls NAME`, `tcp PORT`.
    pub heard: Vec<String>,
}

impl Came {
    /// True when a line that the servers heard holds this.
    pub fn has(&self, word: &str) -> bool {
        self.heard.iter().any(|line| line.contains(word))
    }
}

/// Runs steps one after the other, all in one namespace, and returns what came of each.
pub fn steps(kit: &Bailiwick, steps: &[Step<'_>]) -> Vec<Came> {
    let net = kit.outside().join("net");
    std::fs::create_dir_all(&net).unwrap();
    std::fs::write(net.join("world.py"), include_str!("world.py")).unwrap();
    std::fs::write(kit.project().join("raw.py"), include_str!("raw.py")).unwrap();
    std::fs::write(
        net.join("resolv.conf"),
        "nameserver 192.0.2.53\noptions timeout:2 attempts:1\n",
    )
    .unwrap();
    std::fs::write(
        net.join("nsswitch.conf"),
        "passwd: files\ngroup: files\nhosts: files dns\n",
    )
    .unwrap();
    let product = kit.program();
    let folder = net.display();
    let setup = format!(
        "set -e\nip link set lo up\nfor a in 192.0.2.53 93.184.215.14 93.184.215.15; do ip addr add $a/32 dev lo; done\n\
         mount --bind '{folder}/resolv.conf' /etc/resolv.conf\nmount --bind '{folder}/nsswitch.conf' /etc/nsswitch.conf\n\
         /usr/bin/env python3 '{folder}/world.py' '{folder}' &\nworld=$!\n\
         for i in $(seq 200); do test -e '{folder}/ready' && break; sleep 0.05; done\ntest -e '{folder}/ready'\n"
    );
    let mut script = String::new();
    for (number, step) in steps.iter().enumerate() {
        let (text, run) = match step {
            Step::Inside(line) => (line, format!("'{product}' run -q -- sh .step")),
            Step::Outside(line) => (line, "sh .step".to_owned()),
            Step::Rules(rules) => (rules, format!("cp .step bailiwick.toml && '{product}' trust")),
        };
        std::fs::write(net.join(format!("{number}.step")), text).unwrap();
        let _ = writeln!(
            script,
            "cp '{folder}/{number}.step' .step; {run} > '{folder}/{number}.out' 2>&1 < /dev/null\n\
             echo $? > '{folder}/{number}.status'; sleep 0.1; cp '{folder}/heard' '{folder}/{number}.heard'; : > '{folder}/heard'"
        );
    }
    let _ = writeln!(script, "'{product}' daemon stop; true");
    std::fs::write(net.join("steps.sh"), script).unwrap();
    kit.hand_over();
    // Whoever is not root has to be root of the namespace to set it up, and is nobody special again for the steps.
    let (unshare, become_self) = if is_root() && !is_ordinary(kit) {
        ("-mn", "")
    } else {
        ("-rmn", "unshare -U --map-user=4242 --map-group=4242 ")
    };
    let script = format!("{setup}{become_self}bash '{folder}/steps.sh'; kill $world; true\n");
    let mut command = kit.outside_command("unshare");
    command.args([unshare, "--propagation", "private", "bash", "-c", &script]);
    let done = finish(command, Duration::from_secs(180)).ok();
    let read = |number: usize, kind: &str| {
        std::fs::read(net.join(format!("{number}.{kind}")))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_else(|e| panic!("step {number}: {e}\n{}\n{}", done.stdout, done.stderr))
    };
    let came: Vec<Came> = (0..steps.len())
        .map(|number| Came {
            status: read(number, "status").trim().parse().unwrap(),
            output: read(number, "out"),
            heard: read(number, "heard").lines().map(str::to_owned).collect(),
        })
        .collect();
    for (step, came) in steps.iter().zip(&came) {
        assert!(
            !matches!(step, Step::Rules(_)) || came.status == 0,
            "{step:?}: {came:?}"
        );
    }
    came
}

/// True when the kit's commands run as another user than the test.
fn is_ordinary(kit: &Bailiwick) -> bool {
    kit.outside_command("true").get_program() != "true"
}
