//! Measures how long loading takes and how long a decision takes at several numbers of rules.
//!
//! `cargo run --release -p bailiwick-policy --example measure_policy`

use std::hint::black_box;
use std::time::Instant;

use bailiwick_gate::AsWritten;
use bailiwick_model::{AbsPath, Anchors, Request, Resource, TaskId, Verb, Verdict};
use bailiwick_policy::{SourceFile, Sources, asked_for, load};

fn rules(count: usize) -> String {
    let mut text = String::from("extends = [\"coding\"]\n[files]\nwrite = [\".\"");
    let mut deny = String::from("deny = [\"**/secret\"");
    let mut tunnel = String::from("tunnel = [\"a.test\"");
    let mut allow = String::from("allow = [\"GET http://a.test/x/**\"");
    for number in 0..count {
        match number % 5 {
            0 => text.push_str(&format!(", \"~/tree{number}/src\"")),
            1 => deny.push_str(&format!(", \"**/name{number}.key\"")),
            2 => deny.push_str(&format!(", \"~/folder{}/*/name{number}\"", number % 97)),
            3 => tunnel.push_str(&format!(", \"h{number}.d{}.test\"", number % 89)),
            _ => allow.push_str(&format!(", \"GET http://h{}.test/part{number}/**\"", number % 101)),
        }
    }
    format!("{text}]\n{deny}]\n[network]\n{tunnel}]\n{allow}]\n")
}

/// Nanoseconds that this program was on a processor: other work on the machine does not count.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[expect(clippy::print_stdout, reason = "its whole work is to print figures")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let anchors = Anchors {
        root: Some(AbsPath::new("/home/dana/site")?),
        home: AbsPath::new("/home/dana")?,
    };
    let acts = [
        "read src/deep/er/still/main.rs",
        "write a/b/secret/x",
        "GET http://a.test/x/y",
        "tunnel a.test",
        "resolve a.test",
        "read ~/none/x",
    ];
    println!("{:>6} {:>6} {:>9}  median of a decision", "rules", "in all", "load");
    for count in [10usize, 100, 1_000, 10_000] {
        let sources = Sources {
            machine: Vec::new(),
            person: Vec::new(),
            project: Some(SourceFile {
                name: "bailiwick.toml".into(),
                text: rules(count),
            }),
            project_trusted: true,
            profiles: Vec::new(),
            toolchains: Vec::new(),
            found: None,
            preset: None,
            lock: None,
            person_lock: None,
            pinning: false,
            relations: None,
            mandate: None,
            anchors: anchors.clone(),
        };
        let start = on_cpu();
        let policy = load(&sources, &AsWritten).map_err(|wrong| format!("{wrong:?}"))?;
        let loading = on_cpu().saturating_sub(start) / 1_000_000;
        print!("{count:>6} {:>6} {:>6} ms ", policy.rules().len(), loading);
        let tree = Request::new(
            TaskId([0; 8]),
            Verb::Write,
            Resource::Tree(AbsPath::new("/home/dana/site")?),
        );
        let mut requests = vec![("tree".to_owned(), tree)];
        for act in acts {
            let (verb, resource) = asked_for(act, &anchors, &AsWritten)?;
            requests.push((act.to_owned(), Request::new(TaskId([0; 8]), verb, resource)));
        }
        for (name, request) in requests {
            let mut times: Vec<u128> = (0..501)
                .map(|_| {
                    let start = Instant::now();
                    black_box(policy.evaluate(black_box(&request)));
                    start.elapsed().as_nanos()
                })
                .collect();
            times.sort_unstable();
            let median = times.get(times.len() / 2).copied().unwrap_or(0);
            let verdict = policy.evaluate(&request).verdict;
            let mark = if verdict == Verdict::Allow { "+" } else { "-" };
            let word = name.split(' ').next().unwrap_or("");
            print!(" {word}{mark} {:.1}", median as f64 / 1_000.0);
        }
        println!(" µs");
    }
    Ok(())
}
