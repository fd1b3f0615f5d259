//! A gate in a thread, a mediator that answers by a closure, servers in threads, a client on the loopback.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bailiwick_gate::{Answer, Call, FrameReader, PROTOCOL, PermitTerms, Question, Refusal, decode, digest_of, encode};
use bailiwick_model::{Code, DecisionId, Millis, Nonce, Obligation, Request, TaskId, ToolPattern, Verb};
use bailiwick_tools::{Backing, Config, Definition, Ends, GateFault, Lock, ServerConfig, ServerLimits, Visible, run};
use serde_json::{Value, json};

pub const PATIENCE: Duration = Duration::from_secs(10);
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// What the mediator in a test answers.
pub enum Say {
    Allow,
    /// Allow, with these obligations.
    Under(Vec<Obligation>),
    Deny(Code),
    /// Deny, with the arguments that are at fault.
    DenyWith(Code, Vec<String>),
    /// A person is asked, who answers a moment later.
    Ask(bool),
    /// A person wants to know more.
    TellMore(&'static str),
    /// A person is asked, and says nothing.
    Silence,
    /// Allow, and revoke a moment later.
    Revoke,
}

/// What the mediator and the daemon have seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Asked(String, String),
    Settled(bool, String),
    Refused(Code, String),
    Told(String),
    Withdrawn,
    Started(String),
    Ended(String),
    Accepted(String),
}

pub type Log = Arc<Mutex<Vec<Seen>>>;

/// A server in a test: reads requests, writes lines.
pub type Script = Arc<dyn Fn(Lines) + Send + Sync>;

/// A server's ends.
pub struct Lines {
    pub reader: BufReader<UnixStream>,
    pub writer: UnixStream,
}

impl Lines {
    /// The next message; none at the end.
    pub fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).ok()?;
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    pub fn say(&mut self, message: &Value) {
        let _ = self.writer.write_all(format!("{message}\n").as_bytes());
    }

    pub fn answer(&mut self, request: &Value, result: Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    pub fn fail(&mut self, request: &Value, message: &str) {
        let error = json!({"code": -32000, "message": message});
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
    }

    /// Answers greeting and lists; hands back the next call.
    pub fn next_call(&mut self, tools: &Value) -> Option<Value> {
        loop {
            let message = self.next()?;
            if !self.usual(&message, tools) {
                return Some(message);
            }
        }
    }

    /// Answers what every server answers. False for what is left to the script.
    pub fn usual(&mut self, message: &Value, tools: &Value) -> bool {
        match message["method"].as_str() {
            Some("initialize") => {
                let result = json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {},
                        "completions": {}, "logging": {}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                });
                self.answer(message, result);
            }
            Some("tools/list") => self.answer(message, json!({"tools": tools})),
            Some("logging/setLevel") => self.answer(message, json!({})),
            Some(method) if method.starts_with("notifications/") => {}
            _ => return false,
        }
        true
    }
}

pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub fn tool(name: &str, properties: Value) -> Value {
    json!({"name": name, "description": format!("does {name}"),
        "inputSchema": {"type": "object", "properties": properties, "additionalProperties": false}})
}

/// A server that answers each call with its name and arguments.
pub fn echo(tools: Value) -> Script {
    Arc::new(move |mut lines| {
        while let Some(call) = lines.next_call(&tools) {
            let said = format!(
                "{} {}",
                call["params"]["name"].as_str().unwrap_or("?"),
                call["params"]["arguments"]
            );
            lines.answer(&call, text(&said));
        }
    })
}

struct Daemon {
    servers: BTreeMap<String, Script>,
    log: Log,
}

impl Backing for Daemon {
    fn start(&self, server: &str) -> io::Result<Ends> {
        self.log.lock().unwrap().push(Seen::Started(server.into()));
        let script = self.servers.get(server).cloned().ok_or(io::ErrorKind::NotFound)?;
        let (ours, theirs) = UnixStream::pair()?;
        let lines = Lines {
            reader: BufReader::new(theirs.try_clone()?),
            writer: theirs,
        };
        std::thread::spawn(move || script(lines));
        Ok(Ends {
            to: ours.try_clone()?.into(),
            from: ours.into(),
        })
    }

    fn accept(&self, request: &Request, _: &Nonce, definition: &Definition) -> io::Result<()> {
        let said = format!("{request}: {}", definition.value()["description"]);
        self.log.lock().unwrap().push(Seen::Accepted(said));
        Ok(())
    }

    fn end(&self, server: &str) {
        self.log.lock().unwrap().push(Seen::Ended(server.into()));
    }
}

pub struct World {
    pub log: Log,
    pub address: SocketAddr,
    channel: UnixStream,
    gate: Option<JoinHandle<Result<(), GateFault>>>,
}

/// How a world is made.
pub struct Plan {
    pub servers: BTreeMap<String, Script>,
    pub configs: Vec<ServerConfig>,
    pub lock: Lock,
}

impl Plan {
    pub fn new() -> Self {
        Self {
            servers: BTreeMap::new(),
            configs: Vec::new(),
            lock: Lock::default(),
        }
    }

    /// A server of which these acts are shown, and these definitions accepted.
    pub fn server(mut self, name: &str, acts: &[&str], accepted: &Value, script: Script) -> Self {
        let visible = acts.iter().map(|act| {
            let (verb, pattern) = act.split_once(' ').unwrap();
            Visible {
                verb: verb.parse::<Verb>().unwrap(),
                pattern: ToolPattern::parse(pattern).unwrap(),
            }
        });
        self.configs.push(ServerConfig {
            name: name.into(),
            visible: visible.collect(),
            reasons: Vec::new(),
            altered: Vec::new(),
            choosing: Vec::new(),
            unlisted: name == "unlisted",
            limits: ServerLimits {
                start_seconds: 5,
                call_seconds: 5,
                ..ServerLimits::default()
            },
        });
        for definition in accepted.as_array().unwrap() {
            self.lock.accept(name, definition_of(definition));
        }
        self.servers.insert(name.into(), script);
        self
    }

    pub fn config(mut self, change: impl FnOnce(&mut ServerConfig)) -> Self {
        change(self.configs.last_mut().unwrap());
        self
    }

    pub fn start(self, rules: impl Fn(&Request) -> Say + Send + 'static) -> World {
        let log = Log::default();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mediator_log, socket) = (Arc::clone(&log), theirs.try_clone().unwrap());
        std::thread::spawn(move || mediate(socket, &mediator_log, &rules));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = Config {
            task: TaskId([1; 8]),
            build: "test".into(),
            token: TOKEN.into(),
            servers: self.configs,
            lock: self.lock.write(),
        };
        let backing = Arc::new(Daemon {
            servers: self.servers,
            log: Arc::clone(&log),
        });
        let gate = std::thread::spawn(move || run(config, OwnedFd::from(listener), ours, backing));
        World {
            log,
            address,
            channel: theirs,
            gate: Some(gate),
        }
    }
}

/// What the gate takes a definition for, as it comes over the protocol.
pub fn definition_of(tool: &Value) -> Definition {
    Definition::of(&serde_json::from_value::<rmcp::model::Tool>(tool.clone()).unwrap())
}

impl World {
    pub fn client(&self) -> Client {
        self.client_with(json!({}))
    }

    /// A client with these capabilities, greeted.
    pub fn client_with(&self, capabilities: Value) -> Client {
        let mut client = self.stranger(TOKEN);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"}});
        let greeted = client.request("initialize", params);
        assert_eq!(greeted["result"]["serverInfo"]["name"], "bailiwick", "{greeted}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// A connection that has said a token and nothing else.
    pub fn stranger(&self, token: &str) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client {
            reader: BufReader::new(stream.try_clone().unwrap()),
            stream,
            number: 0,
            heard: Vec::new(),
        };
        client.stream.write_all(format!("{token}\n").as_bytes()).unwrap();
        client
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().clone()
    }

    /// Waits until something was seen.
    pub fn wait(&self, what: impl Fn(&Seen) -> bool) -> Seen {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = self.seen().into_iter().find(|seen| what(seen)) {
                return seen;
            }
            assert!(Instant::now() < until, "not seen: {:#?}", self.seen());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn asked(&self) -> Vec<String> {
        let acts = self.seen().into_iter().filter_map(|seen| match seen {
            Seen::Asked(act, _) => Some(act),
            _ => None,
        });
        acts.collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.channel.shutdown(std::net::Shutdown::Both);
        if let Some(gate) = self.gate.take()
            && !std::thread::panicking()
        {
            let until = Instant::now() + PATIENCE;
            while !gate.is_finished() {
                assert!(Instant::now() < until, "the gate goes on without its channel");
                std::thread::sleep(Duration::from_millis(5));
            }
            gate.join().unwrap().unwrap();
        }
    }
}

/// A client that writes its lines by hand.
pub struct Client {
    pub reader: BufReader<TcpStream>,
    pub stream: TcpStream,
    number: u64,
    /// What came while something else was waited for.
    pub heard: Vec<Value>,
}

impl Client {
    pub fn send(&mut self, message: &Value) {
        self.write(&message.to_string());
    }

    pub fn write(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next message; none at the end.
    pub fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => None,
            Err(fault) => panic!("{fault}; heard {:#?}", self.heard),
        }
    }

    /// Sends a request; its number.
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.number += 1;
        let number = self.number;
        self.send(&json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}));
        number
    }

    /// Waits for the answer to a request.
    pub fn answer_to(&mut self, number: u64) -> Value {
        let is_it = |message: &Value| message["id"] == number && message.get("method").is_none();
        if let Some(at) = self.heard.iter().position(is_it) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.next().expect("the gate closed the connection");
            if is_it(&message) {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let number = self.ask(method, params);
        self.answer_to(number)
    }

    /// Waits for a message with this method.
    pub fn hear(&mut self, method: &str) -> Value {
        if let Some(at) = self.heard.iter().position(|message| message["method"] == method) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.next().expect("the gate closed the connection");
            if message["method"] == method {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub fn call(&mut self, name: &str, arguments: Value) -> Called {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        called(&answer)
    }

    /// The names that are listed, without the gate's own.
    pub fn tools(&mut self) -> Vec<String> {
        let listed = self.request("tools/list", json!({}));
        let tools = listed["result"]["tools"]
            .as_array()
            .unwrap_or_else(|| panic!("{listed}"))
            .clone();
        {
            let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
            names.filter(|name| !name.starts_with("bailiwick__")).collect()
        }
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Called {
    pub is_error: bool,
    pub text: String,
    pub whole: Value,
}

pub fn called(answer: &Value) -> Called {
    let result = answer.get("result").unwrap_or_else(|| panic!("no result: {answer}"));
    let texts = result["content"].as_array().unwrap().iter();
    let texts: Vec<&str> = texts.filter_map(|block| block["text"].as_str()).collect();
    Called {
        is_error: result["isError"] == true,
        text: texts.join("\n"),
        whole: result.clone(),
    }
}

impl Called {
    /// That it was refused, with this code.
    #[track_caller]
    pub fn refused(&self, code: &str) -> &str {
        let begin = format!("bailiwick refused this call: {code}");
        assert!(self.is_error && self.text.starts_with(&begin), "{self:?}");
        &self.text
    }

    #[track_caller]
    pub fn done(&self) -> &str {
        assert!(!self.is_error, "{self:?}");
        &self.text
    }
}

fn mediate(mut socket: UnixStream, log: &Log, rules: &(dyn Fn(&Request) -> Say + Send)) {
    let mut reader = FrameReader::default();
    let mut buffer = [0u8; 65536];
    let mut number = 0u64;
    let far = Millis(u64::MAX / 2);
    loop {
        let count = match socket.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        reader.push(&buffer[..count]);
        while let Some(frame) = reader.next_frame().unwrap() {
            number += 1;
            let n = number.to_be_bytes();
            let id = DecisionId([n[2], n[3], n[4], n[5], n[6], n[7]]);
            let mut say = |answer: &Answer| {
                let _ = socket.write_all(&encode(answer).unwrap());
            };
            let saw = |seen: Seen| log.lock().unwrap().push(seen);
            match decode::<Call>(frame).unwrap() {
                Call::Hello { protocol, .. } => {
                    assert_eq!(protocol, PROTOCOL);
                    let build = "test".into();
                    say(&Answer::Hello { protocol, build });
                }
                Call::Decide { call, request, patient } => {
                    assert!(patient, "every call can wait for a person");
                    let fields = request.arguments.iter().map(|(name, value)| format!("{name}={value}"));
                    let fields: Vec<String> = fields.collect();
                    saw(Seen::Asked(request.to_string(), fields.join(" ")));
                    let mut nonce = [0u8; 16];
                    nonce[..8].copy_from_slice(&n);
                    let allow = |obligations| Answer::Allow {
                        call,
                        terms: Box::new(PermitTerms {
                            decision: id,
                            digest: digest_of(&request),
                            task: request.task,
                            nonce: Nonce(nonce),
                            deadline: far,
                            obligations,
                        }),
                    };
                    let deny = |code| Answer::Deny {
                        call,
                        refusal: Refusal::new(id, code),
                    };
                    let question = Answer::Question {
                        call,
                        question: Question { id, deadline: far },
                    };
                    match rules(&request) {
                        Say::Allow => say(&allow(Vec::new())),
                        Say::Under(obligations) => say(&allow(obligations)),
                        Say::Deny(code) => say(&deny(code)),
                        Say::DenyWith(code, arguments) => {
                            let mut refusal = Refusal::new(id, code);
                            refusal.arguments = arguments;
                            say(&Answer::Deny { call, refusal });
                        }
                        Say::Ask(yes) => {
                            say(&question);
                            std::thread::sleep(Duration::from_millis(50));
                            say(&if yes { allow(Vec::new()) } else { deny(Code::AnsweredNo) });
                        }
                        Say::TellMore(word) => {
                            say(&question);
                            let mut refusal = Refusal::new(id, Code::TellMore);
                            refusal.word = Some(word.into());
                            say(&Answer::Deny { call, refusal });
                        }
                        Say::Silence => say(&question),
                        Say::Revoke => {
                            say(&allow(Vec::new()));
                            std::thread::sleep(Duration::from_millis(100));
                            say(&Answer::Revoked { nonce: Nonce(nonce) });
                        }
                    }
                }
                Call::Withdraw { call } => {
                    saw(Seen::Withdrawn);
                    let refusal = Refusal::new(id, Code::QuestionWithdrawn);
                    say(&Answer::Deny { call, refusal });
                }
                Call::Settle { call, settlement } => {
                    saw(Seen::Settled(settlement.done, settlement.note));
                    say(&Answer::Settled { call });
                }
                Call::Tell { words, .. } => saw(Seen::Told(words)),
                Call::Attending => {}
                Call::Redeem { .. } => panic!("a tool gate asks for no secret"),
                Call::Refused { call, code, what, .. } => {
                    saw(Seen::Refused(code, what));
                    say(&Answer::Deny {
                        call,
                        refusal: Refusal::new(id, code),
                    });
                }
            }
        }
    }
}
