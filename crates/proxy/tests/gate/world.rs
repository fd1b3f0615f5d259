//! A gate in a thread, a mediator that answers by a closure, servers on the loopback.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bailiwick_gate::{
    Answer, Call, FrameReader, Handed, PROTOCOL, Passed, PermitTerms, Question, Redeemed, Refusal, SecretValue, decode,
    digest_of, encode,
};
use bailiwick_model::{Code, DecisionId, Host, HostPattern, Millis, Nonce, Obligation, Opened, Request, TaskId, Verb};
use bailiwick_proxy::{Authority, Config, GateFault, Resolve, Service, run};
use bailiwick_testkit::Root;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

pub const PATIENCE: Duration = Duration::from_secs(10);

/// What the mediator in a test answers.
pub enum Say {
    /// Allow, with the obligations that the real one gives.
    Allow,
    /// Allow, with these.
    AllowUnder(Vec<Obligation>),
    Deny(Code),
    /// A person is asked, who answers a moment later, or never.
    Ask(Option<bool>),
    /// No answer at all.
    Silence,
    /// An answer that is no frame.
    Nonsense,
}

/// What the mediator has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Asked(String, Option<IpAddr>),
    Settled(bool, String),
    Refused(Code, String),
    Withdrawn,
    Redeemed(String),
}

pub type Log = Arc<Mutex<Vec<Seen>>>;

/// What passed of each exchange that was settled.
pub type Counted = Arc<Mutex<Vec<Passed>>>;

/// A resolver that knows a few names and writes down what it was asked.
#[derive(Clone, Default)]
pub struct Zone {
    pub names: BTreeMap<String, Vec<IpAddr>>,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Resolve for Zone {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.into());
        let found = self.names.get(name).cloned();
        found.ok_or_else(|| io::Error::other("no such name"))
    }
}

pub struct World {
    pub log: Log,
    pub counted: Counted,
    pub zone: Zone,
    pub addresses: Vec<SocketAddr>,
    pub channel: UnixStream,
    /// Where the supervisor hands connections over, by the number of the service.
    doors: BTreeMap<usize, Arc<OwnedFd>>,
    authority: String,
    gate: Option<JoinHandle<Result<(), GateFault>>>,
}

/// Obligations as the real mediator gives them.
pub fn usual(request: &Request) -> Vec<Obligation> {
    let mut obligations = Vec::new();
    if let Some(address) = request.address() {
        obligations.push(Obligation::DialAddress { address });
    }
    if request.verb == Verb::Tunnel {
        obligations.push(Obligation::MatchServerName);
    }
    obligations
}

fn far_future() -> Millis {
    Millis(u64::MAX / 2)
}

fn mediate(mut socket: UnixStream, log: &Log, counted: &Counted, rules: &(dyn Fn(&Request) -> Say + Send)) {
    let mut reader = FrameReader::default();
    let mut buffer = [0u8; 65536];
    let mut number = 0u64;
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
            let answer = match decode::<Call>(frame).unwrap() {
                Call::Hello { protocol, .. } => {
                    assert_eq!(protocol, PROTOCOL);
                    Answer::Hello {
                        protocol,
                        build: "test".into(),
                    }
                }
                Call::Decide { call, request, patient } => {
                    let seen = Seen::Asked(request.to_string(), request.address());
                    log.lock().unwrap().push(seen);
                    let allow = |obligations| {
                        let mut nonce = [0u8; 16];
                        nonce[..8].copy_from_slice(&n);
                        Answer::Allow {
                            call,
                            terms: Box::new(PermitTerms {
                                decision: id,
                                digest: digest_of(&request),
                                task: request.task,
                                nonce: Nonce(nonce),
                                deadline: far_future(),
                                obligations,
                            }),
                        }
                    };
                    match rules(&request) {
                        Say::Allow => allow(usual(&request)),
                        Say::AllowUnder(obligations) => allow(obligations),
                        Say::Deny(code) => Answer::Deny {
                            call,
                            refusal: Refusal::new(id, code),
                        },
                        Say::Ask(_) if !patient => Answer::Deny {
                            call,
                            refusal: Refusal::new(id, Code::NobodyToAsk),
                        },
                        Say::Ask(answer) => {
                            let question = Question {
                                id,
                                deadline: far_future(),
                            };
                            let _ = socket.write_all(&encode(&Answer::Question { call, question }).unwrap());
                            std::thread::sleep(Duration::from_millis(200));
                            match answer {
                                None => continue,
                                Some(true) => allow(usual(&request)),
                                Some(false) => Answer::Deny {
                                    call,
                                    refusal: Refusal::new(id, Code::AnsweredNo),
                                },
                            }
                        }
                        Say::Silence => continue,
                        Say::Nonsense => {
                            let _ = socket.write_all(b"\0\0\0\x02{}");
                            continue;
                        }
                    }
                }
                Call::Withdraw { call } => {
                    log.lock().unwrap().push(Seen::Withdrawn);
                    Answer::Deny {
                        call,
                        refusal: Refusal::new(id, Code::QuestionWithdrawn),
                    }
                }
                Call::Settle { call, settlement } => {
                    counted.lock().unwrap().push(settlement.passed);
                    log.lock()
                        .unwrap()
                        .push(Seen::Settled(settlement.done, settlement.note));
                    Answer::Settled { call }
                }
                Call::Tell { .. } | Call::Attending => continue,
                Call::Redeem { call, secret, .. } => {
                    log.lock().unwrap().push(Seen::Redeemed(secret.to_string()));
                    let value = format!("real-value-of-{secret}").into_bytes();
                    Answer::Redeemed {
                        call,
                        redeemed: Redeemed::Value(SecretValue::new(value.into())),
                    }
                }
                Call::Refused { call, code, what, .. } => {
                    log.lock().unwrap().push(Seen::Refused(code, what));
                    Answer::Deny {
                        call,
                        refusal: Refusal::new(id, code),
                    }
                }
            };
            if socket.write_all(&encode(&answer).unwrap()).is_err() {
                return;
            }
        }
    }
}

impl World {
    /// Starts a gate that serves these on loopback ports, and a mediator that answers by `rules`.
    pub fn new(
        services: Vec<Service>,
        hosts: &[(&str, &str)],
        zone: Zone,
        rules: impl Fn(&Request) -> Say + Send + 'static,
    ) -> Self {
        Self::on(|_| 0, services, hosts, zone, rules)
    }

    /// The same on chosen ports.
    pub fn on(
        port_of: impl Fn(&Service) -> u16,
        services: Vec<Service>,
        hosts: &[(&str, &str)],
        zone: Zone,
        rules: impl Fn(&Request) -> Say + Send + 'static,
    ) -> Self {
        Self::made(port_of, services, hosts, zone, |_| (), rules)
    }

    /// A gate with a proxy and a service for programs that know none, which opens connections to these hosts (`host:port`)
    /// and believes a root of the test's. Names are pinned to the loopback.
    pub fn opening(opened: &[String], root: &Root, rules: impl Fn(&Request) -> Say + Send + 'static) -> Self {
        let pairs: Vec<(&str, u16)> = opened
            .iter()
            .map(|text| text.rsplit_once(':').unwrap())
            .map(|(host, port)| (host, port.parse().unwrap()))
            .collect();
        let hosts: Vec<(&str, &str)> = pairs.iter().map(|(host, _)| (*host, "127.0.0.1")).collect();
        let elsewhere = Service::Elsewhere {
            streams: std::collections::BTreeSet::new(),
        };
        let authority = Authority::make("of a test").unwrap();
        let believed = authority.certificate().to_owned();
        let adjust = |config: &mut Config| {
            config.authority = Some(authority);
            config.roots = root.pem().to_owned();
            config.opened = pairs
                .iter()
                .map(|(host, port)| Opened {
                    host: HostPattern::parse(host).unwrap(),
                    port: *port,
                    except: Vec::new(),
                })
                .collect();
        };
        let services = vec![Service::Proxy, elsewhere, Service::DnsStream];
        let mut world = Self::made(|_| 0, services, &hosts, Zone::default(), adjust, rules);
        world.authority = believed;
        world
    }

    fn made(
        port_of: impl Fn(&Service) -> u16,
        services: Vec<Service>,
        hosts: &[(&str, &str)],
        zone: Zone,
        adjust: impl FnOnce(&mut Config),
        rules: impl Fn(&Request) -> Say + Send + 'static,
    ) -> Self {
        let mut addresses = Vec::new();
        let mut sockets: Vec<OwnedFd> = Vec::new();
        let mut doors = BTreeMap::new();
        for (number, service) in services.iter().enumerate() {
            if matches!(service, Service::Elsewhere { .. }) {
                let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
                let (ours, theirs) = pair.unwrap();
                doors.insert(number, Arc::new(ours));
                addresses.push(([0, 0, 0, 0], 0).into());
                sockets.push(theirs);
            } else if *service == Service::DnsDatagram {
                let socket = UdpSocket::bind(("127.0.0.1", port_of(service))).unwrap();
                addresses.push(socket.local_addr().unwrap());
                sockets.push(socket.into());
            } else {
                let socket = TcpListener::bind(("0.0.0.0", port_of(service))).unwrap();
                addresses.push(([127, 0, 0, 1], socket.local_addr().unwrap().port()).into());
                sockets.push(socket.into());
            }
        }
        let mut config = Config {
            task: TaskId([7; 8]),
            sockets: services,
            hosts: hosts
                .iter()
                .map(|(name, address)| (Host::parse(name).unwrap(), address.parse().unwrap()))
                .collect(),
            opened: Vec::new(),
            authority: None,
            roots: String::new(),
            secrets: Vec::new(),
            build: "test".into(),
        };
        adjust(&mut config);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let log = Log::default();
        let channel = ours.try_clone().unwrap();
        let written = Arc::clone(&log);
        let counted = Counted::default();
        let counts = Arc::clone(&counted);
        std::thread::spawn(move || mediate(ours, &written, &counts, &rules));
        let resolver = zone.clone();
        let gate = std::thread::spawn(move || run(config, sockets, bailiwick_proxy::pairs().1, theirs, resolver));
        Self {
            log,
            counted,
            zone,
            addresses,
            channel,
            doors,
            authority: String::new(),
            gate: Some(gate),
        }
    }

    /// What a client inside believes: the gate's authority, as PEM.
    pub fn believed(&self) -> &str {
        &self.authority
    }

    /// A gate with one proxy, names pinned to the loopback.
    pub fn proxy(names: &[&str], rules: impl Fn(&Request) -> Say + Send + 'static) -> Self {
        let hosts: Vec<(&str, &str)> = names.iter().map(|name| (*name, "127.0.0.1")).collect();
        Self::new(vec![Service::Proxy], &hosts, Zone::default(), rules)
    }

    pub fn connect(&self, service: usize) -> TcpStream {
        patient(TcpStream::connect(self.addresses[service]).unwrap())
    }

    /// A port whose connections are handed over as the fence's supervisor does it: as made to the address `meant`.
    pub fn front(&self, service: usize, meant: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, door) = (listener.local_addr().unwrap(), Arc::clone(&self.doors[&service]));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let along = [connection.as_fd()];
                assert!(control.push(SendAncillaryMessage::ScmRights(&along)));
                let text = Handed::Connection(meant).to_string();
                let _ = sendmsg(
                    &door,
                    &[io::IoSlice::new(text.as_bytes())],
                    &mut control,
                    SendFlags::NOSIGNAL,
                );
            }
        });
        address
    }

    /// A connection that was made to the address `meant`.
    pub fn elsewhere(&self, service: usize, meant: SocketAddr) -> TcpStream {
        patient(TcpStream::connect(self.front(service, meant)).unwrap())
    }

    /// Tells the gate something as the supervisor does.
    pub fn told(&self, service: usize, message: &Handed) {
        rustix::net::send(
            &self.doors[&service],
            message.to_string().as_bytes(),
            SendFlags::empty(),
        )
        .unwrap();
    }

    /// Sends bytes to a service and reads until it closes.
    pub fn exchange(&self, service: usize, bytes: &str) -> String {
        let mut stream = self.connect(service);
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream)
    }

    /// One `GET` through the proxy.
    pub fn get(&self, url: &str) -> String {
        self.exchange(0, &format!("GET {url} HTTP/1.1\r\nconnection: close\r\n\r\n"))
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().clone()
    }

    pub fn asked(&self) -> Vec<String> {
        let acts = self.seen().into_iter().filter_map(|seen| match seen {
            Seen::Asked(act, _) => Some(act),
            _ => None,
        });
        acts.collect()
    }

    /// Waits until something stands in the log.
    pub fn wait_for(&self, what: &str, test: impl Fn(&Seen) -> bool) {
        let start = Instant::now();
        while !self.seen().iter().any(&test) {
            assert!(start.elapsed() < PATIENCE, "never seen: {what}; but {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Revokes the permit that answered the gate's frame of this number, from 1.
    pub fn revoke(&self, number: u64) {
        let mut nonce = [0u8; 16];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        let frame = encode(&Answer::Revoked { nonce: Nonce(nonce) }).unwrap();
        (&self.channel).write_all(&frame).unwrap();
    }

    /// Closes the channel and waits for the gate to end.
    pub fn end(&mut self) -> Result<(), GateFault> {
        let _ = self.channel.shutdown(Shutdown::Both);
        self.gate.take().unwrap().join().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.gate.is_some() && !std::thread::panicking() {
            self.end().unwrap();
        }
    }
}

pub fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads up to the end of a head.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0u8; 1];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server that writes down what each connection said first, and lets `serve` go on.
pub struct Origin {
    pub address: SocketAddr,
    pub heard: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// Each connection: the head is read and kept, then `serve` has the stream.
    pub fn http(serve: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::raw(move |stream, heard| {
            let head = read_head(stream);
            if head.is_empty() {
                return;
            }
            heard.lock().unwrap().push(head.clone());
            serve(&head, stream);
        })
    }

    /// A server whose answers say only that it was reached.
    pub fn plain() -> Self {
        Self::http(|_, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreached");
        })
    }

    pub fn raw(serve: impl Fn(&mut TcpStream, &Arc<Mutex<Vec<String>>>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&heard);
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (serve, heard) = (Arc::clone(&serve), Arc::clone(&kept));
                std::thread::spawn(move || serve(&mut patient(stream), &heard));
            }
        });
        Self { address, heard }
    }

    /// A server that echoes all it is sent, and writes down that it was reached.
    pub fn echo() -> Self {
        Self::raw(|stream, heard| {
            heard.lock().unwrap().push("connected".into());
            let mut buffer = [0u8; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                heard.lock().unwrap().push(format!("{count} bytes"));
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

/// A TLS 1.2/1.3 greeting as a client sends it, with or without a server name.
pub fn client_hello(name: Option<&str>) -> Vec<u8> {
    fn prefixed(width: usize, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&length[4 - width..], body].concat()
    }
    let extension = |kind: u16, body: &[u8]| [kind.to_be_bytes().as_slice(), &prefixed(2, body)].concat();
    let mut extensions = Vec::new();
    if let Some(name) = name {
        let entry = [&[0u8], prefixed(2, name.as_bytes()).as_slice()].concat();
        extensions.extend(extension(0, &prefixed(2, &entry)));
    }
    extensions.extend(extension(10, &prefixed(2, &[0, 29])));
    extensions.extend(extension(13, &prefixed(2, &[4, 3, 8, 4])));
    extensions.extend(extension(43, &prefixed(1, &[3, 4, 3, 3])));
    let share = [&[0u8, 29], prefixed(2, &[9; 32]).as_slice()].concat();
    extensions.extend(extension(51, &prefixed(2, &share)));
    let mut body = vec![3, 3];
    body.extend([7u8; 32]);
    body.extend(prefixed(1, &[]));
    body.extend(prefixed(2, &[0x13, 1, 0xc0, 0x2f]));
    body.extend(prefixed(1, &[0]));
    body.extend(prefixed(2, &extensions));
    let handshake = [&[1u8], prefixed(3, &body).as_slice()].concat();
    [&[22u8, 3, 1], prefixed(2, &handshake).as_slice()].concat()
}

/// The same greeting, its handshake message spread over records of at most `size` bytes.
pub fn in_small_records(hello: &[u8], size: usize) -> Vec<u8> {
    let pieces = hello[5..].chunks(size);
    pieces
        .flat_map(|piece| [&[22u8, 3, 1, 0, u8::try_from(piece.len()).unwrap()], piece].concat())
        .collect()
}

/// Opens a tunnel through the proxy; the answer's head, and the stream.
pub fn tunnel(world: &World, authority: &str) -> (String, TcpStream) {
    let mut stream = world.connect(0);
    write!(stream, "CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n").unwrap();
    let head = read_head(&mut stream);
    (head, stream)
}
