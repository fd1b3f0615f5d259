//! Decisions: how long one takes with 10 to 10,000 rules, all but the disk.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bailiwick_gate::{
    Clock, Ledger, LedgerFault, Mediator as _, Outcome, Passed, Pending, Random, Receipt, Settlement,
};
use bailiwick_mediator::{Mediator, Purpose, Snapshot, TaskSpec, decide};
use bailiwick_model::{
    AbsPath, Anchors, ContextId, Durability, HttpUrl, Method, Millis, Record, Request, Resource, TaskId, Verb, Verdict,
};
use bailiwick_policy::{Policy, SourceFile, Sources, load};

use crate::measure::{Options, Table, Unit, median};

/// Measures decisions by the number of rules.
pub fn measure(options: &Options, table: &mut Table) {
    for rules in [10usize, 100, 1000, 10_000] {
        let item = format!("a decision with {rules} rules");
        if !options.wants(&item) {
            continue;
        }
        eprintln!("bench: {item}");
        let aim = match rules {
            1000 => "under 50 µs",
            10_000 => "at most 1.5 × that with 1,000",
            _ => "",
        };
        let measured = policy(rules).and_then(|policy| measure_with(&policy, rules, options.rounds(20_000)));
        let (decided, committed) = match measured {
            Ok((decided, committed)) => (Ok(decided), Ok(committed)),
            Err(fault) => (Err(fault.clone()), Err(fault)),
        };
        let rate = decided
            .clone()
            .map(|samples| median(&samples).map(|micros| vec![1e6 / micros]).unwrap_or_default());
        table.ours(&item, aim, Unit::Microseconds, decided);
        table.ours(
            &format!("{item}, with its record but no disk"),
            aim,
            Unit::Microseconds,
            committed,
        );
        table.ours(&format!("decisions with {rules} rules"), "", Unit::PerSecond, rate);
    }
}

/// A project of so many rules: ten paths on each host; every tenth rule denies one more path.
fn policy(rules: usize) -> Result<Arc<Policy>, String> {
    let mut allow = String::new();
    let mut deny = String::new();
    for number in 0..rules {
        let (host, part) = (number / 10, number % 10);
        if part == 9 {
            deny.push_str(&format!("    \"GET http://h{host}.example.test/p0/closed/**\",\n"));
        } else {
            allow.push_str(&format!("    \"GET http://h{host}.example.test/p{part}/**\",\n"));
        }
    }
    let text = format!("context = \"bench\"\n\n[network]\nallow = [\n{allow}]\ndeny = [\n{deny}]\n");
    let home = AbsPath::new("/home/bench").map_err(|fault| fault.to_string())?;
    let root = AbsPath::new("/home/bench/project").map_err(|fault| fault.to_string())?;
    let sources = Sources {
        machine: Vec::new(),
        person: Vec::new(),
        project: Some(SourceFile {
            name: "bailiwick.toml".into(),
            text,
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
        anchors: Anchors { root: Some(root), home },
    };
    let begun = Instant::now();
    let policy = load(&sources, &bailiwick_gate::AsWritten)
        .map_err(|faults| faults.first().map_or_else(String::new, ToString::to_string))?;
    eprintln!("bench: {rules} rules are read in {:?}", begun.elapsed());
    Ok(Arc::new(policy))
}

/// Requests that rules cover, spread over all hosts.
fn requests(task: TaskId, rules: usize) -> Result<Vec<Request>, String> {
    let get = Method::parse("GET").ok_or("`GET` is no method")?;
    (0..1000usize)
        .map(|number| {
            let host = number.wrapping_mul(7919) % rules.div_ceil(10);
            let url = format!("http://h{host}.example.test/p{}/a/b{number}", number % 9);
            let url = HttpUrl::parse(&url).map_err(|fault| fault.to_string())?;
            // A public address: what is this machine's own or private would need a rule that names it.
            let address = IpAddr::from([93, 184, 216, 34]);
            Ok(Request::new(task, Verb::Http(get.clone()), Resource::Url(url)).dialling(address))
        })
        .collect()
}

/// Microseconds of each decision alone, and of each with its commit to a log that keeps nothing.
fn measure_with(policy: &Arc<Policy>, rules: usize, rounds: usize) -> Result<(Vec<f64>, Vec<f64>), String> {
    let mediator = Mediator::new(
        Arc::new(Nowhere::default()),
        Arc::new(Stopped),
        Arc::new(Counting::default()),
    );
    let context = ContextId("bench".into());
    let spec = TaskSpec::root(
        "bench".into(),
        context,
        vec!["true".into()],
        Arc::<Policy>::clone(policy),
    );
    let task = mediator.begin(spec).map_err(|fault| fault.to_string())?;
    let requests = requests(task, rules)?;
    let snapshot = Snapshot::of_rules(task, Arc::<Policy>::clone(policy), Millis(1), Purpose::Effect);
    let mut decided = Vec::with_capacity(rounds);
    let mut committed = Vec::with_capacity(rounds);
    for request in requests.iter().cycle().take(rounds) {
        let begun = Instant::now();
        let decision = decide(request, &snapshot);
        decided.push(begun.elapsed().as_secs_f64() * 1e6);
        if decision.verdict != Verdict::Allow {
            return Err(format!(
                "`{request}` is {}: {:?}",
                decision.code,
                decision.reasons.first()
            ));
        }
        let begun = Instant::now();
        let outcome = mediator.decide(request);
        committed.push(begun.elapsed().as_secs_f64() * 1e6);
        let Outcome::Allow(permit) = outcome else {
            return Err(format!("`{request}` is not allowed by the mediator: {outcome:?}"));
        };
        let settlement = Settlement {
            nonce: permit.terms().nonce,
            done: true,
            note: String::new(),
            passed: Passed::default(),
        };
        mediator.settle(&settlement).map_err(|refusal| refusal.to_string())?;
    }
    Ok((decided, committed))
}

/// A log that counts and keeps nothing.
#[derive(Default)]
struct Nowhere(AtomicU64);

impl Ledger for Nowhere {
    fn append(&self, record: &Record, _: Durability) -> Result<Box<dyn Pending>, LedgerFault> {
        // What a log would write, so that making the record counts.
        let bytes = serde_json::to_vec(record).map_err(|fault| LedgerFault::Io(fault.to_string()))?;
        std::hint::black_box(bytes);
        Ok(Box::new(Kept(self.0.fetch_add(1, Ordering::Relaxed))))
    }

    fn is_healthy(&self) -> bool {
        true
    }
}

struct Kept(u64);

impl Pending for Kept {
    fn index(&self) -> u64 {
        self.0
    }

    fn wait(self: Box<Self>) -> Result<Receipt, LedgerFault> {
        Ok(Receipt {
            index: self.0,
            checkpoint: None,
        })
    }

    fn then(self: Box<Self>, call: Box<dyn FnOnce(Result<Receipt, LedgerFault>) + Send>) {
        call(self.wait());
    }
}

/// A clock that stands.
pub struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Millis {
        Millis(1)
    }
}

/// Not random at all; distinct is enough here.
#[derive(Default)]
struct Counting(AtomicU64);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        for (slot, byte) in bytes.iter_mut().zip(number.iter().cycle()) {
            *slot = *byte;
        }
    }
}
