//! Measures what a fence costs: the start of `true`, bare and inside, and a search of many files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measurement"
)]
#![allow(dead_code, reason = "the desk has more than is measured")]

#[path = "../tests/fence/desk.rs"]
mod desk;

use std::time::{Duration, Instant};

use bailiwick_gate::Protection;
use bailiwick_model::Level;
use desk::{Desk, Setting, Who, grant};

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn start(desk: &Desk, count: usize) -> (Duration, Duration, Duration) {
    let (mut started, mut ended, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    let mut plan = desk.plan.clone();
    plan.command = vec!["true".into()];
    for _ in 0..count {
        let before = Instant::now();
        let mut launcher = desk.launcher();
        let spawned = before.elapsed();
        // Until the spare waits for its order.
        std::thread::sleep(Duration::from_millis(15));
        let null = || {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .unwrap()
                .into()
        };
        let before = Instant::now();
        let mut running = launcher
            .launch(
                vec![grant()],
                &plan,
                Some([null(), null(), null()]),
                bailiwick_fence::Lines::default(),
            )
            .unwrap();
        started.push(before.elapsed());
        assert_eq!(running.child.wait(), 0);
        ended.push(before.elapsed());
        cold.push(spawned);
    }
    (median(started), median(ended), median(cold))
}

fn main() {
    let count = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(200);
    let bare = (0..count).map(|_| {
        let before = Instant::now();
        std::process::Command::new("/usr/bin/true").status().unwrap();
        before.elapsed()
    });
    println!("bare `true`: {:?}", median(bare.collect()));
    for who in Who::all() {
        let mut desk = Desk::of(Setting {
            who,
            level: Level::Namespace,
        });
        let (started, ended, spawned) = start(&desk, count);
        println!("{who:?}: started {started:?}, ended {ended:?} (spawn of a launcher, ahead of time: {spawned:?})");
        for folder in 0..1000 {
            for file in 0..20 {
                desk.file(&format!("project/f{}/g{}/{file}.txt", folder / 50, folder % 50), "");
            }
        }
        desk.protect("/**/.env", Protection::Hide);
        desk.protect("/**/.git/hooks", Protection::Guard);
        desk.protect("/**/*.pem", Protection::Hide);
        let (searched, ..) = start(&desk, 20);
        println!("{who:?}: with 20,000 files in 1,000 folders searched: started {searched:?}");
        for folder in 0..20 {
            for file in 0..50 {
                desk.file(&format!("project/f{folder}/g{file}/.env"), "");
            }
        }
        let (masked, ..) = start(&desk, 20);
        println!("{who:?}: and 1,000 of them hidden: started {masked:?}");
    }
}
