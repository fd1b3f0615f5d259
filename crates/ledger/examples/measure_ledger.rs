//! Measures the log: ordered and durable records per second, and the time that `verify` takes.
//!
//! `cargo run --release --example measure_ledger -- [RECORDS] [FOLDER]`: a table on stdout, or JSON with `--json`.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bailiwick_gate::{Clock, Ledger};
use bailiwick_ledger::{Log, SigningKey, verify};
use bailiwick_model::{
    AbsPath, Code, Decision, DecisionId, Digest, Durability, Event, Millis, Reason, Record, Request, Resource, TaskId,
    Verb, Verdict,
};

struct Still;

impl Clock for Still {
    fn now(&self) -> Millis {
        Millis(1_764_437_000_000)
    }
}

/// A record as a decision leaves it.
fn record(number: u64, template: &Decision) -> Result<Record, Box<dyn std::error::Error>> {
    let task = TaskId([7; 8]);
    let path = AbsPath::new(format!("/home/dana/acme-site/src/component-{number}.rs"))?;
    let event = Event::Decided {
        id: DecisionId([number as u8; 6]),
        request: Request::new(task, Verb::Read, Resource::File(path)),
        digest: Digest([number as u8; 32]),
        decision: template.clone(),
    };
    Ok(Record {
        time: Millis(1_764_437_000_000 + number),
        task: Some(task),
        event,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut count, mut folder, mut json) = (1_000_000u64, None, false);
    for argument in std::env::args().skip(1) {
        match argument.parse() {
            Ok(number) => count = number,
            Err(_) if argument == "--json" => json = true,
            Err(_) => folder = Some(PathBuf::from(argument)),
        }
    }
    let own = folder.is_none();
    let folder =
        folder.unwrap_or_else(|| std::env::temp_dir().join(format!("bailiwick-measure-{}", std::process::id())));
    let key = SigningKey::load_or_create(&folder.join("key/log.key"), "measure.example")?;
    let verifier = key.verifier().clone();
    let place = folder.join("log");
    let (log, _) = Log::open(&place, key, "measure.example", Arc::new(Still))?;

    let template = decision();
    let bytes = serde_json::to_vec(&record(1, &template)?)?.len();
    let mut slowest = Duration::ZERO;
    let began = Instant::now();
    for number in 0..count {
        let record = record(number, &template)?;
        let asked = Instant::now();
        log.append(&record, Durability::Ordered)?.wait()?;
        slowest = slowest.max(asked.elapsed());
    }
    let acknowledged = began.elapsed();
    log.checkpoint()?;
    let ordered = count as f64 / began.elapsed().as_secs_f64();

    let mut durable = Vec::new();
    for threads in [1u64, 16, 128] {
        let until = Instant::now() + Duration::from_secs(2);
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (log, template) = (log.clone(), template.clone());
                thread::spawn(move || {
                    let mut done = 0u64;
                    while Instant::now() < until {
                        let record = record(done, &template).map_err(|error| error.to_string())?;
                        let pending = log
                            .append(&record, Durability::Durable)
                            .map_err(|error| error.to_string())?;
                        pending.wait().map_err(|error| error.to_string())?;
                        done += 1;
                    }
                    Ok::<u64, String>(done)
                })
            })
            .collect();
        let mut done = 0;
        for worker in workers {
            done += worker.join().map_err(|_| "a thread failed")??;
        }
        durable.push((threads, done as f64 / 2.0));
    }
    let size = log.size();
    let began = Instant::now();
    log.close();
    let closed = began.elapsed();

    let began = Instant::now();
    let verified = verify(&place, &verifier, None)?;
    let verify_time = began.elapsed();
    let began = Instant::now();
    let key = SigningKey::load_or_create(&folder.join("key/log.key"), "measure.example")?;
    let (log, _) = Log::open(&place, key, "measure.example", Arc::new(Still))?;
    let open_time = began.elapsed();
    log.close();
    if own {
        std::fs::remove_dir_all(&folder)?;
    }
    if json {
        let durable: serde_json::Map<_, _> = durable
            .iter()
            .map(|(threads, rate)| (threads.to_string(), (*rate).into()))
            .collect();
        let all = serde_json::json!({
            "record_bytes": bytes, "ordered_per_second": ordered, "durable_per_second": durable,
            "verified_records": verified.size, "verify_seconds": verify_time.as_secs_f64(),
            "open_seconds": open_time.as_secs_f64(),
        });
        println!("{all}");
        return Ok(());
    }
    println!("record                      {bytes} bytes");
    println!(
        "ordered                     {ordered:.0} records/s ({count} in {acknowledged:.2?}, slowest {slowest:.2?})"
    );
    for (threads, rate) in durable {
        println!("durable, {threads:3} threads        {rate:.0} records/s");
    }
    println!("close                       {closed:.2?}");
    println!("verify of {size:9} records {verify_time:.2?}");
    println!("open                        {open_time:.2?}");
    Ok(())
}

/// An allow with one reason.
fn decision() -> Decision {
    let text = "may write `/home/dana/acme-site` and all below it: a rule of the project".into();
    let reason = Reason {
        verdict: Verdict::Allow,
        code: Code::AllowedByRule,
        rule: None,
        text,
    };
    Decision {
        verdict: Verdict::Allow,
        code: Code::AllowedByRule,
        reasons: vec![reason],
        obligations: Vec::new(),
    }
}
