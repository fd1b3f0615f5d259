//! The log: ordered and durable records in a second, and how long it takes to verify a million.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailiwick_gate::{Ledger, Pending, digest_of};
use bailiwick_ledger::{Log, SigningKey, VerifierKey, verify};
use bailiwick_model::{
    Code, Decision, DecisionId, Durability, Event, HttpUrl, Method, Millis, Reason, Record, Request, Resource, TaskId,
    Verb, Verdict,
};

use crate::decisions::Stopped;
use crate::measure::{Options, Table, Unit};

/// The name of the log.
const ORIGIN: &str = "bench.example.test/log";

/// How many wait for the disk at once, when many do.
const WAITING: usize = 64;

/// Measures the log.
pub fn measure(options: &Options, table: &mut Table) {
    let many = if options.quick { 50_000 } else { 1_000_000 };
    let verified = format!("`log verify` of {many} records");
    let ordered = "ordered records, until all are on disk and signed";
    if options.wants(ordered) || options.wants(&verified) {
        eprintln!("bench: {ordered}");
        let folder = folder();
        let appended = append_ordered(folder.path(), many);
        let rate = appended
            .as_ref()
            .map(|(took, _)| vec![many as f64 / took.as_secs_f64()])
            .map_err(Clone::clone);
        table.ours(ordered, "50,000", Unit::PerSecond, rate);
        eprintln!("bench: {verified}");
        let took = appended.and_then(|(_, key)| (0..3).map(|_| verify_once(folder.path(), &key, many)).collect());
        table.ours(&verified, "under 3,000 ms", Unit::Milliseconds, took);
    }
    for (item, waiting) in [
        ("durable records, one at a time", 1),
        ("durable records, 64 at a time", WAITING),
    ] {
        if options.wants(item) {
            eprintln!("bench: {item}");
            let rate = append_durable(folder().path(), options.rounds(300), waiting);
            table.ours(item, "", Unit::PerSecond, rate.map(|rate| vec![rate]));
        }
    }
}

/// A folder on a real disk: what is in memory says nothing of it.
fn folder() -> tempfile::TempDir {
    let base = std::env::var_os("BAILIWICK_TEST_SCRATCH").unwrap_or_else(|| "/var/tmp".into());
    tempfile::tempdir_in(base).expect("the scratch folder is writable")
}

fn open(folder: &Path) -> Result<(Log, VerifierKey), String> {
    let key = SigningKey::load_or_create(&folder.join("key/log.key"), ORIGIN).map_err(|fault| fault.to_string())?;
    let public = key.verifier().clone();
    let (log, _) = Log::open(&folder.join("log"), key, ORIGIN, Arc::new(Stopped)).map_err(|fault| fault.to_string())?;
    Ok((log, public))
}

fn append_ordered(folder: &Path, many: usize) -> Result<(Duration, VerifierKey), String> {
    let (log, key) = open(folder)?;
    let record = record()?;
    let begun = Instant::now();
    for _ in 0..many {
        let pending = log
            .append(&record, Durability::Ordered)
            .map_err(|fault| fault.to_string())?;
        pending.wait().map_err(|fault| fault.to_string())?;
    }
    log.checkpoint().map_err(|fault| fault.to_string())?;
    let took = begun.elapsed();
    log.close();
    Ok((took, key))
}

fn append_durable(folder: &Path, rounds: usize, waiting: usize) -> Result<f64, String> {
    let (log, _) = open(folder)?;
    let record = record()?;
    let begun = Instant::now();
    for _ in 0..rounds {
        let pending: Vec<Box<dyn Pending>> = (0..waiting)
            .map(|_| log.append(&record, Durability::Durable))
            .collect::<Result<_, _>>()
            .map_err(|fault| fault.to_string())?;
        for one in pending {
            one.wait().map_err(|fault| fault.to_string())?;
        }
    }
    let rate = (rounds * waiting) as f64 / begun.elapsed().as_secs_f64();
    log.close();
    Ok(rate)
}

/// Milliseconds of one verification, which must see every record.
fn verify_once(folder: &Path, key: &VerifierKey, many: usize) -> Result<f64, String> {
    let begun = Instant::now();
    let seen = verify(&folder.join("log"), key, None).map_err(|fault| fault.to_string())?;
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    if seen.size < many as u64 {
        return Err(format!("{} records of {many} were verified", seen.size));
    }
    Ok(took)
}

/// A record as a gate causes them: one allowed request.
fn record() -> Result<Record, String> {
    let method = Method::parse("GET").ok_or("`GET` is no method")?;
    let url =
        HttpUrl::parse("http://docs.example.test/a/path/of/some/length?x=1").map_err(|fault| fault.to_string())?;
    let task = TaskId([7; 8]);
    let request = Request::new(task, Verb::Http(method), Resource::Url(url));
    let reason = Reason {
        verdict: Verdict::Allow,
        code: Code::AllowedByRule,
        rule: None,
        text: "`GET http://docs.example.test/**` allows it".into(),
    };
    let event = Event::Decided {
        id: DecisionId([1; 6]),
        digest: digest_of(&request),
        decision: Decision {
            verdict: Verdict::Allow,
            code: Code::AllowedByRule,
            reasons: vec![reason],
            obligations: Vec::new(),
        },
        request,
    };
    Ok(Record {
        time: Millis(1),
        task: Some(task),
        event,
    })
}
