//! What the tests share: a log in memory that can fail, a clock that stands, rules in a closure, and a gate that talks
//! over a real socket.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bailiwick_authority::act_covers;
use bailiwick_gate::desk::Likes;
use bailiwick_gate::{
    Client, Clock, Counted, CountedKey, FrameReader, GateKind, GrantRow, Ledger, LedgerFault, Outcome, Passed, Pending,
    Random, Receipt, Refusal, Reply, Settlement, Store, StoreFault, TaskRow, Waiting,
};
use bailiwick_mediator::{Mediator, Rules, Session, TaskSpec};
use bailiwick_model::{
    AbsPath, Act, Anchors, Answered, Code, Command, ContextId, Decision, DecisionId, Digest, Durability, Event,
    GrantId, Host, HttpUrl, Label, Layer, Millis, Obligation, Reason, Record, Request, Resource, RuleRef, Tag, TaskId,
    Verb, Verdict,
};

/// How the log behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Works = 0,
    RefusesRecords = 1,
    LosesDurable = 2,
    Unhealthy = 3,
}

#[derive(Default)]
pub struct MemoryLedger {
    records: Mutex<Vec<(Record, Durability)>>,
    mood: AtomicU8,
}

impl MemoryLedger {
    pub fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::SeqCst);
    }

    pub fn all(&self) -> Vec<(Record, Durability)> {
        self.records.lock().unwrap().clone()
    }

    pub fn last(&self) -> (Event, Durability) {
        let all = self.all();
        let (record, durability) = all.last().expect("a record").clone();
        (record.event, durability)
    }
}

struct Written {
    index: u64,
    lost: bool,
    durability: Durability,
}

impl Written {
    fn result(&self) -> Result<Receipt, LedgerFault> {
        if self.lost {
            return Err(LedgerFault::Io("no space left on device".into()));
        }
        Ok(Receipt {
            index: self.index,
            checkpoint: None,
        })
    }
}

impl Pending for Written {
    fn index(&self) -> u64 {
        self.index
    }
    fn wait(self: Box<Self>) -> Result<Receipt, LedgerFault> {
        self.result()
    }
    fn then(self: Box<Self>, call: Box<dyn FnOnce(Result<Receipt, LedgerFault>) + Send>) {
        match self.durability {
            Durability::Ordered => call(self.result()),
            Durability::Durable => {
                std::thread::spawn(move || call(self.result()));
            }
        }
    }
}

impl Ledger for MemoryLedger {
    fn append(&self, record: &Record, durability: Durability) -> Result<Box<dyn Pending>, LedgerFault> {
        let mood = self.mood.load(Ordering::SeqCst);
        if mood == Mood::RefusesRecords as u8 {
            return Err(LedgerFault::Closed);
        }
        let mut records = self.records.lock().unwrap();
        records.push((record.clone(), durability));
        Ok(Box::new(Written {
            index: records.len() as u64 - 1,
            lost: mood == Mood::LosesDurable as u8 && durability == Durability::Durable,
            durability,
        }))
    }

    fn is_healthy(&self) -> bool {
        self.mood.load(Ordering::SeqCst) != Mood::Unhealthy as u8
    }
}

/// What outlives a mediator, in memory.
#[derive(Default)]
pub struct MemoryStore {
    pub given: Mutex<BTreeMap<GrantId, GrantRow>>,
    counts: Mutex<BTreeMap<(ContextId, String), Likes>>,
    pub counted: Mutex<BTreeMap<CountedKey, Counted>>,
}

impl Store for MemoryStore {
    /// No order is kept: the mediator asks for none.
    fn put_order(&self, _: TaskId, _: &str) -> Result<(), StoreFault> {
        Ok(())
    }
    fn order(&self, _: TaskId) -> Result<Option<String>, StoreFault> {
        Ok(None)
    }
    fn is_trusted(&self, _: &str, _: &Digest) -> Result<bool, StoreFault> {
        Ok(false)
    }
    fn trust(&self, _: &str, _: &Digest, _: bool, _: Millis) -> Result<(), StoreFault> {
        Ok(())
    }
    fn put_task(&self, _: &TaskRow) -> Result<(), StoreFault> {
        Ok(())
    }
    fn tasks(&self, _: u32) -> Result<Vec<TaskRow>, StoreFault> {
        Ok(Vec::new())
    }
    fn mark_lost(&self, _: Millis) -> Result<u64, StoreFault> {
        Ok(0)
    }
    fn put_question(&self, _: &Waiting) -> Result<(), StoreFault> {
        Ok(())
    }
    fn drop_question(&self, _: DecisionId) -> Result<(), StoreFault> {
        Ok(())
    }
    fn questions(&self) -> Result<Vec<Waiting>, StoreFault> {
        Ok(Vec::new())
    }
    fn put_grant(&self, row: &GrantRow) -> Result<(), StoreFault> {
        self.given.lock().unwrap().insert(row.granted.id, row.clone());
        Ok(())
    }
    fn use_grant(&self, id: GrantId, used: u64) -> Result<(), StoreFault> {
        if let Some(row) = self.given.lock().unwrap().get_mut(&id) {
            row.granted.used = row.granted.used.max(used);
        }
        Ok(())
    }
    fn drop_grant(&self, id: GrantId) -> Result<(), StoreFault> {
        self.given.lock().unwrap().remove(&id);
        Ok(())
    }
    fn grants(&self) -> Result<Vec<GrantRow>, StoreFault> {
        Ok(self.given.lock().unwrap().values().cloned().collect())
    }
    fn count(&self, context: &ContextId, kind: &str, answer: Answered) -> Result<(), StoreFault> {
        let mut counts = self.counts.lock().unwrap();
        let likes = counts.entry((context.clone(), kind.into())).or_default();
        likes.asked += 1;
        likes.yes += u64::from(answer == Answered::Yes);
        likes.no += u64::from(answer == Answered::No);
        Ok(())
    }
    fn first_use(&self, _: &Digest, now: Millis) -> Result<Millis, StoreFault> {
        Ok(now)
    }
    fn put_counted(&self, key: &CountedKey, counted: &Counted) -> Result<(), StoreFault> {
        self.counted.lock().unwrap().insert(key.clone(), counted.clone());
        Ok(())
    }
    fn drop_counted(&self, key: &CountedKey) -> Result<(), StoreFault> {
        self.counted.lock().unwrap().remove(key);
        Ok(())
    }
    fn counted(&self) -> Result<Vec<(CountedKey, Counted)>, StoreFault> {
        let counted = self.counted.lock().unwrap();
        Ok(counted
            .iter()
            .map(|(key, counted)| (key.clone(), counted.clone()))
            .collect())
    }
    fn likes(&self, context: &ContextId, kind: &str) -> Result<Likes, StoreFault> {
        let counts = self.counts.lock().unwrap();
        Ok(counts.get(&(context.clone(), kind.into())).copied().unwrap_or_default())
    }
}

#[derive(Default)]
pub struct StandingClock(pub AtomicU64);

impl Clock for StandingClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

/// Numbers that do not repeat within a test (splitmix64).
#[derive(Default)]
pub struct Numbers(AtomicU64);

impl Random for Numbers {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let z = (z ^ (z >> 31)).to_be_bytes();
            chunk.copy_from_slice(&z[..chunk.len()]);
        }
    }
}

type Say = dyn Fn(&Request) -> Decision + Send + Sync;

/// Rules in a closure.
pub struct Saying {
    say: Box<Say>,
    trees: Vec<(Verb, AbsPath)>,
}

impl Saying {
    pub fn new(say: impl Fn(&Request) -> Decision + Send + Sync + 'static) -> Arc<Self> {
        Self::with_trees(say, &[])
    }

    pub fn with_trees(say: impl Fn(&Request) -> Decision + Send + Sync + 'static, trees: &[(Verb, &str)]) -> Arc<Self> {
        let trees = trees.iter().map(|(verb, tree)| (verb.clone(), path(tree))).collect();
        Arc::new(Self {
            say: Box::new(say),
            trees,
        })
    }
}

impl Rules for Saying {
    fn evaluate(&self, request: &Request) -> Decision {
        (self.say)(request)
    }
    fn tree_candidates(&self) -> Vec<(Verb, AbsPath)> {
        self.trees.clone()
    }
    fn digest(&self) -> Digest {
        Digest([7; 32])
    }
}

/// Rules that speak of tags, over others.
pub struct Flowing {
    pub rules: Arc<dyn Rules>,
    pub may_reach: BTreeMap<Tag, Vec<Act>>,
    /// Tags of which a person may say where else they go.
    pub asks: BTreeSet<Tag>,
    /// What some answers carry.
    pub gives: Vec<(Act, Label)>,
    /// True where what is called must not be chosen by untrusted text.
    pub trusts: bool,
}

impl Flowing {
    pub fn over(rules: Arc<dyn Rules>) -> Self {
        Self {
            rules,
            may_reach: BTreeMap::new(),
            asks: BTreeSet::new(),
            gives: Vec::new(),
            trusts: false,
        }
    }
}

impl Rules for Flowing {
    fn evaluate(&self, request: &Request) -> Decision {
        self.rules.evaluate(request)
    }
    fn tree_candidates(&self) -> Vec<(Verb, AbsPath)> {
        self.rules.tree_candidates()
    }
    fn digest(&self) -> Digest {
        self.rules.digest()
    }
    fn cleared_for(&self, request: &Request) -> BTreeSet<Tag> {
        let reached = |acts: &[Act]| acts.iter().any(|act| act_covers(act, request));
        let cleared = self.may_reach.iter().filter(|(_, acts)| reached(acts));
        cleared.map(|(tag, _)| tag.clone()).collect()
    }
    fn otherwise(&self, tag: &Tag) -> (Verdict, Option<RuleRef>) {
        match self.asks.contains(tag) {
            true => (Verdict::Ask, None),
            false => (Verdict::Deny, None),
        }
    }
    fn label_of(&self, request: &Request, _: &[Obligation]) -> Label {
        let given = self.gives.iter().filter(|(act, _)| act_covers(act, request));
        given.fold(Label::default(), |sum, (_, label)| bailiwick_flow::join(&sum, label))
    }
    fn trusted_arguments(&self, request: &Request) -> Vec<(String, RuleRef)> {
        let rule = says(Verdict::Ask, 5).reasons.swap_remove(0).rule;
        let told = rule.filter(|_| self.trusts && request.verb.as_str() == "POST");
        told.map(|rule| ("x".to_owned(), rule)).into_iter().collect()
    }
}

/// What one rule on this line would answer.
pub fn says(verdict: Verdict, line: u32) -> Decision {
    let code = match verdict {
        Verdict::Allow => Code::AllowedByRule,
        Verdict::Ask => Code::AskedByRule,
        Verdict::Deny => Code::DeniedByRule,
    };
    let rule = RuleRef {
        layer: Layer::Context,
        file: "bailiwick.toml".into(),
        line,
        column: 1,
        act: format!("read /of/line/{line}"),
    };
    Decision {
        verdict,
        code,
        reasons: vec![Reason {
            verdict,
            code,
            rule: Some(rule),
            text: "a rule says so".into(),
        }],
        obligations: Vec::new(),
    }
}

/// Reading, GET, POST and tunnels are allowed, writing is asked, everything else is denied.
pub fn plain_rules() -> Arc<Saying> {
    Saying::new(|request| match request.verb.as_str() {
        "read" | "GET" | "POST" | "tunnel" => says(Verdict::Allow, 1),
        "write" => says(Verdict::Ask, 2),
        _ => Decision::deny(Code::NoRule, "no rule allows it"),
    })
}

pub const TASK: TaskId = TaskId([0xaa; 8]);

pub fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

pub fn act(text: &str) -> Act {
    let anchors = Anchors {
        root: AbsPath::new("/p").ok(),
        home: path("/home/dana"),
    };
    Act::parse(text, &anchors).unwrap()
}

/// Reads `VERB RESOURCE`; `/**` at the end of a path means the whole tree. Nothing is dialled yet.
pub fn dry(text: &str) -> Request {
    let (verb, resource) = text.split_once(' ').unwrap();
    let verb: Verb = verb.parse().unwrap();
    let resource = match &verb {
        Verb::Http(_) => Resource::Url(HttpUrl::parse(resource).unwrap()),
        Verb::Tunnel => {
            let (host, port) = HttpUrl::authority(resource, 443).unwrap();
            Resource::Endpoint { host, port }
        }
        Verb::Resolve => Resource::Name(Host::parse(resource).unwrap()),
        tool if tool.is_tool() => Resource::Tool(resource.parse().unwrap()),
        Verb::Run => Resource::Command(Command::typed(&resource.split(' ').collect::<Vec<_>>())),
        _ => match resource.strip_suffix("/**") {
            Some("") => Resource::Tree(AbsPath::root()),
            Some(tree) => Resource::Tree(path(tree)),
            None => Resource::File(path(resource)),
        },
    };
    Request::new(TASK, verb, resource)
}

/// The same, dialling a public address where one is needed.
pub fn request(text: &str) -> Request {
    let request = dry(text);
    match &request.resource {
        Resource::Url(_) | Resource::Endpoint { .. } => {
            let named = request.resource.host().and_then(Host::address);
            request.dialling(named.unwrap_or("93.184.216.34".parse().unwrap()))
        }
        _ => request,
    }
}

/// A mediator with one running task.
pub struct House {
    pub ledger: Arc<MemoryLedger>,
    pub clock: Arc<StandingClock>,
    pub mediator: Arc<Mediator>,
}

pub fn spec(policy: Arc<dyn Rules>) -> TaskSpec {
    let mut spec = TaskSpec::root("dana".into(), ContextId("/p".into()), vec!["agent".into()], policy);
    spec.id = Some(TASK);
    spec
}

impl House {
    pub fn new(spec: TaskSpec) -> Self {
        Self::keeping(spec, Arc::default())
    }

    pub fn keeping(spec: TaskSpec, store: Arc<MemoryStore>) -> Self {
        let (ledger, clock) = (Arc::<MemoryLedger>::default(), Arc::<StandingClock>::default());
        clock.0.store(1_000_000, Ordering::SeqCst);
        let mediator = Mediator::new(ledger.clone(), clock.clone(), Arc::<Numbers>::default()).keeping(store);
        mediator.take_up_grants().unwrap();
        mediator.begin(spec).unwrap();
        mediator.started(TASK, vec!["namespace".into()]).unwrap();
        Self {
            ledger,
            clock,
            mediator: Arc::new(mediator),
        }
    }

    pub fn now(&self) -> Millis {
        self.clock.now()
    }
}

pub fn settlement(permit: &bailiwick_gate::Permit, done: bool) -> Settlement {
    Settlement {
        nonce: permit.terms().nonce,
        done,
        note: String::new(),
        passed: Passed::default(),
    }
}

/// A gate at the other end of a socket, which waits for each answer.
pub struct SocketGate(Mutex<Channel>);

struct Channel {
    client: Client,
    socket: UnixStream,
    frames: FrameReader,
}

impl SocketGate {
    pub fn connect(mediator: Arc<Mediator>, task: TaskId) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        std::thread::spawn(move || serve(mediator, task, far));
        let client = Client::default();
        let mut channel = Channel {
            socket: near,
            frames: FrameReader::default(),
            client,
        };
        let hello = channel.client.hello("test", GateKind::Network).unwrap();
        channel.socket.write_all(&hello).unwrap();
        assert!(matches!(channel.next(), Some(Reply::Ready)));
        Self(Mutex::new(channel))
    }

    /// Sends bytes as they are, and says whether the channel still answers.
    pub fn survives(&self, bytes: &[u8]) -> bool {
        let mut channel = self.0.lock().unwrap();
        let sent = channel.socket.write_all(bytes).is_ok();
        let (_, frame) = channel.client.refused(TASK, Code::Fault, "are you there").unwrap();
        sent && channel.socket.write_all(&frame).is_ok() && matches!(channel.next(), Some(Reply::Noted(..)))
    }

    fn call(&self, frame: impl FnOnce(&mut Client) -> Vec<u8>) -> Option<Reply> {
        let mut channel = self.0.lock().unwrap();
        let frame = frame(&mut channel.client);
        channel.socket.write_all(&frame).ok()?;
        channel.next()
    }
}

impl Channel {
    fn next(&mut self) -> Option<Reply> {
        loop {
            if let Some(frame) = self.frames.next_frame().unwrap() {
                let frame = frame.to_vec();
                return self.client.receive(&frame).ok();
            }
            let mut bytes = [0; 4096];
            let read = self.socket.read(&mut bytes).ok().filter(|read| *read > 0)?;
            self.frames.push(&bytes[..read]);
        }
    }
}

fn serve(mediator: Arc<Mediator>, task: TaskId, mut socket: UnixStream) {
    let mut session = Session::new(mediator, task);
    let out = Mutex::new(socket.try_clone().unwrap());
    let reply: bailiwick_mediator::Reply = Arc::new(move |frame| {
        let _ = out.lock().unwrap().write_all(&frame);
    });
    let mut frames = FrameReader::default();
    let mut bytes = [0; 4096];
    'channel: while let Ok(read) = socket.read(&mut bytes) {
        if read == 0 {
            break;
        }
        frames.push(&bytes[..read]);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) if session.receive(frame, &reply).is_ok() => {}
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => break 'channel,
            }
        }
    }
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

fn gone() -> Refusal {
    Refusal::new(DecisionId([0; 6]), Code::MediatorUnavailable)
}

impl bailiwick_gate::Mediator for SocketGate {
    fn decide(&self, request: &Request) -> Outcome {
        match self.call(|client| client.decide(request).unwrap().1) {
            Some(Reply::Decided(_, outcome)) => outcome,
            Some(Reply::Waits(_, question)) => Outcome::Ask(question),
            _ => Outcome::Deny(gone()),
        }
    }

    fn settle(&self, settlement: &Settlement) -> Result<(), Refusal> {
        match self.call(|client| client.settle(settlement).unwrap().1) {
            Some(Reply::Settled(_, result)) => result,
            _ => Err(gone()),
        }
    }

    fn refused(&self, task: TaskId, code: Code, what: &str) -> Refusal {
        match self.call(|client| client.refused(task, code, what).unwrap().1) {
            Some(Reply::Noted(_, refusal)) => refusal,
            _ => gone(),
        }
    }
}
