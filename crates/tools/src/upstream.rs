//! One server behind the gate: started when it is first needed, spoken to, ended.
//!
//! Promises: P4 (a server that does not start, does not answer, or breaks a limit is an answer to whoever waits, in time),
//! P5 (what a server asks for during a call goes to the client that made the call, and to no other).
//! Trust: the server is hostile: it may say anything, at any time, as often as it can. What it offers is held against
//! what was accepted before each call.
//! Not here: starting processes (`Backing`); whether a call may be made (`call`); what a server asks for (`reversed`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bailiwick_model::Verb;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ErrorCode, Implementation, InitializeRequestParams,
    ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ResourceUpdatedNotificationParam, ServerPeerInfo, SetLevelRequestParams,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, PeerRequestOptions, RequestContext,
    RequestHandle, RunningService, ServiceError, serve_client_with_lifecycle,
};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use rustix::fs::{FileType, fstat};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::backing::{Backing, Ends};
use crate::config::ServerConfig;
use crate::definition::{Definition, Kind};
use crate::gate::Gate;
use crate::limits;
use crate::lines::{Ended, From, ServerLines, To};
use crate::lock::Offered;
use crate::results::quoted;

/// What a server asks for.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// Something that the agent's model writes.
    Sample(Box<CreateMessageRequestParams>),
    /// Input of whoever works with the agent.
    Elicit(Box<ElicitRequestParams>),
    /// The folders that the agent works in.
    Roots,
}

/// What a server is given.
#[derive(Debug)]
pub(crate) enum Given {
    /// What the model wrote.
    Sample(Box<CreateMessageResult>),
    /// The input.
    Elicit(Box<ElicitResult>),
    /// The folders.
    Roots(ListRootsResult),
}

/// What a server says while a call is under way.
pub(crate) enum Event {
    /// How far it is.
    Progress(ProgressNotificationParam),
    /// Something for a log.
    Log(LoggingMessageNotificationParam),
    /// It asks for something.
    Wants(Wanted, Giving),
}

/// Where what a server is given goes.
pub(crate) type Giving = oneshot::Sender<Result<Given, ErrorData>>;

struct Waiting {
    client: u64,
    token: ProgressToken,
    events: mpsc::Sender<Event>,
}

/// The calls that are under way at one server, in the order in which they began.
#[derive(Default)]
struct Calls {
    number: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Waiting>>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where what a server asks for goes: to the call that began last, where all are of one client.
    fn asker(&self) -> Option<mpsc::Sender<Event>> {
        let waiting = self.lock();
        let clients: BTreeSet<u64> = waiting.values().map(|waiting| waiting.client).collect();
        if clients.len() > 1 {
            return None;
        }
        waiting.values().next_back().map(|waiting| waiting.events.clone())
    }
}

/// One call under way.
pub(crate) struct Under {
    /// The answer.
    pub(crate) handle: RequestHandle<RoleClient>,
    /// What the server says meanwhile.
    pub(crate) events: mpsc::Receiver<Event>,
    calls: Arc<Calls>,
    number: u64,
}

impl Drop for Under {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.number);
    }
}

impl Under {
    /// Tells the server that nobody waits any more.
    pub(crate) async fn cancel(&self, why: &str) {
        let id = self.handle.id.clone();
        let notice = rmcp::model::CancelledNotificationParam::new(Some(id), Some(why.to_owned()));
        let _ = timeout(limits::LAST_WORDS, self.handle.peer.notify_cancelled(notice)).await;
    }
}

/// The gate's ear at one server.
pub(crate) struct Ear {
    gate: Weak<Gate>,
    server: String,
    info: ClientConfig,
    calls: Arc<Calls>,
    /// How many requests of the server are open.
    open: Semaphore,
}

impl Ear {
    async fn wants(&self, wanted: Wanted) -> Result<Given, ErrorData> {
        let refused = |text: &str| Err(ErrorData::invalid_request(text.to_owned(), None));
        let Ok(_place) = self.open.try_acquire() else {
            return refused("too many requests are open");
        };
        let Some(gate) = self.gate.upgrade() else {
            return refused("the gate has ended");
        };
        let Some(events) = self.calls.asker() else {
            let what = match wanted {
                Wanted::Sample(_) => Verb::Sample,
                Wanted::Elicit(_) => Verb::Elicit,
                Wanted::Roots => Verb::Roots,
            };
            let refusal = gate.refuse_reversed(&what, &self.server).await;
            return Err(refusal);
        };
        let (answer, answered) = oneshot::channel();
        if events.send(Event::Wants(wanted, answer)).await.is_err() {
            return refused("the call has ended");
        }
        answered.await.unwrap_or_else(|_| refused("the call has ended"))
    }

    /// What the other side of a mismatch is called. It cannot come about: each request gets its own kind of answer.
    fn odd() -> ErrorData {
        ErrorData::internal_error("an answer of another kind", None)
    }
}

impl ClientHandler for Ear {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        match self.wants(Wanted::Sample(Box::new(params))).await? {
            Given::Sample(result) => Ok(*result),
            Given::Elicit(_) | Given::Roots(_) => Err(Self::odd()),
        }
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        match self.wants(Wanted::Elicit(Box::new(params))).await? {
            Given::Elicit(result) => Ok(*result),
            Given::Sample(_) | Given::Roots(_) => Err(Self::odd()),
        }
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        match self.wants(Wanted::Roots).await? {
            Given::Roots(result) => Ok(result),
            Given::Sample(_) | Given::Elicit(_) => Err(Self::odd()),
        }
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let events = {
            let waiting = self.calls.lock();
            let call = waiting.values().find(|waiting| waiting.token == params.progress_token);
            call.map(|waiting| waiting.events.clone())
        };
        // What does not fit is not said: it is only how far a call is.
        if let Some(events) = events {
            let _ = events.try_send(Event::Progress(params));
        }
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(events) = self.calls.asker() {
            let _ = events.try_send(Event::Log(params));
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed(Changed::Tools).await;
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed(Changed::Prompts).await;
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed(Changed::Resources).await;
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(gate) = self.gate.upgrade() {
            gate.resource_updated(&self.server, &params.uri).await;
        }
    }

    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }
}

/// Which list has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
}

impl Ear {
    async fn changed(&self, what: Changed) {
        if let Some(gate) = self.gate.upgrade() {
            gate.server_changed(&self.server, what).await;
        }
    }
}

/// A server that runs.
pub(crate) struct Connection {
    service: RunningService<RoleClient, Ear>,
    ended: Ended,
    /// What it offers now, and what of the lock that was held against last; 0 where it never was.
    offered: Mutex<(Arc<Offered>, u64)>,
    calls: Arc<Calls>,
    backing: Arc<dyn Backing>,
    server: String,
    places: Arc<Semaphore>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (backing, server) = (Arc::clone(&self.backing), self.server.clone());
        // It may block; where there is no runtime any more, the daemon ends all that was the task's.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || backing.end(&server));
        }
    }
}

impl Connection {
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// What it said of itself.
    pub(crate) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.peer().peer_info()
    }

    pub(crate) fn offered(&self) -> Arc<Offered> {
        Arc::clone(&self.lock_offered().0)
    }

    /// What it offers, where that was not held against this state of the lock before. Counts as held against it then.
    pub(crate) fn not_compared(&self, lock: u64) -> Option<Arc<Offered>> {
        let mut offered = self.lock_offered();
        let before = std::mem::replace(&mut offered.1, lock);
        (before != lock).then(|| Arc::clone(&offered.0))
    }

    fn lock_offered(&self) -> MutexGuard<'_, (Arc<Offered>, u64)> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed()
    }

    /// What is said where it ended.
    pub(crate) fn end(&self) -> String {
        let why = self.ended.why().unwrap_or("it ended");
        format!("the server `{}` failed: {why}", self.server)
    }

    /// How much it is to say for a log. One that knows no such thing is left alone.
    pub(crate) async fn set_level(&self, level: LoggingLevel) {
        if self.info().is_some_and(|info| info.capabilities.logging.is_some()) {
            let _ = timeout(
                limits::LAST_WORDS,
                self.peer().set_level(SetLevelRequestParams::new(level)),
            )
            .await;
        }
    }

    /// Asks again what it offers.
    pub(crate) async fn look_again(&self) -> Result<(), String> {
        let offered = offered_by(self.peer()).await?;
        *self.lock_offered() = (Arc::new(offered), 0);
        Ok(())
    }

    /// Sends a request for a client.
    pub(crate) async fn send(&self, client: u64, request: ClientRequest) -> Result<Under, String> {
        let options = PeerRequestOptions::no_options();
        let sent = self.peer().send_cancellable_request(request, options).await;
        let handle = sent.map_err(|_| self.end())?;
        let (sender, events) = mpsc::channel(limits::REVERSED.saturating_mul(4));
        let number = self.calls.number.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting {
            client,
            token: handle.progress_token.clone(),
            events: sender,
        };
        self.calls.lock().insert(number, waiting);
        Ok(Under {
            handle,
            events,
            calls: Arc::clone(&self.calls),
            number,
        })
    }

    /// A call of a tool.
    pub(crate) fn call_of(params: CallToolRequestParams) -> ClientRequest {
        ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(params))
    }

    /// A place among its calls.
    pub(crate) fn places(&self) -> Arc<Semaphore> {
        Arc::clone(&self.places)
    }
}

/// How often it failed of late.
#[derive(Default)]
struct State {
    running: Option<Arc<Connection>>,
    crashes: u32,
    rests_until: Option<Instant>,
}

/// A server, running or not.
pub(crate) struct Upstream {
    pub(crate) config: ServerConfig,
    /// 0 while nobody looks what it offers, 1 while somebody does, 2 where it is to be looked again.
    pub(crate) looks: AtomicU8,
    state: AsyncMutex<State>,
}

impl Upstream {
    pub(crate) fn new(config: ServerConfig) -> Self {
        Self {
            config,
            looks: AtomicU8::new(0),
            state: AsyncMutex::default(),
        }
    }

    /// The server where it runs already.
    pub(crate) async fn running(&self) -> Option<Arc<Connection>> {
        let state = self.state.lock().await;
        state.running.clone().filter(|connection| !connection.is_closed())
    }

    /// The server, started where it does not run. The error is for the agent.
    pub(crate) async fn connection(self: &Arc<Self>, gate: &Arc<Gate>) -> Result<Arc<Connection>, String> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.running {
            if !connection.is_closed() {
                return Ok(Arc::clone(connection));
            }
            state.running = None;
            state.crashed();
        }
        let name = &self.config.name;
        if state.rests_until.is_some_and(|until| Instant::now() < until) {
            return Err(format!(
                "the server `{name}` failed too often and is left alone for a while"
            ));
        }
        let time = Duration::from_secs(self.config.limits.start_seconds);
        let backing = Arc::clone(&gate.backing);
        let started = timeout(time, Box::pin(start(&self.config, Arc::downgrade(gate), backing))).await;
        let started = started.unwrap_or_else(|_| Err(format!("it did not greet within {} s", time.as_secs())));
        match started {
            Ok(connection) => {
                let connection = Arc::new(connection);
                if let Some(level) = gate.level() {
                    connection.set_level(level).await;
                }
                state.running = Some(Arc::clone(&connection));
                let (upstream, ended) = (Arc::downgrade(self), connection.ended.clone());
                let lost = Arc::downgrade(&connection);
                tokio::spawn(async move {
                    ended.over().await;
                    if let Some(upstream) = upstream.upgrade() {
                        upstream.lost(&lost).await;
                    }
                });
                Ok(connection)
            }
            Err(why) => {
                state.crashed();
                let (backing, server) = (Arc::clone(&gate.backing), name.clone());
                let _ = tokio::task::spawn_blocking(move || backing.end(&server)).await;
                Err(format!("the server `{name}` could not be started: {why}"))
            }
        }
    }

    /// Lets go of a server that has ended, so that what is left of it is ended, too.
    async fn lost(&self, connection: &Weak<Connection>) {
        let mut state = self.state.lock().await;
        if state
            .running
            .as_ref()
            .is_some_and(|running| std::ptr::eq(Arc::as_ptr(running), connection.as_ptr()))
        {
            state.running = None;
            state.crashed();
        }
    }

    /// Notes that a call came back: the server works.
    pub(crate) async fn works(&self) {
        let mut state = self.state.lock().await;
        state.crashes = 0;
    }
}

impl State {
    fn crashed(&mut self) {
        self.crashes = self.crashes.saturating_add(1);
        if self.crashes >= limits::CRASHES {
            self.crashes = 0;
            self.rests_until = Instant::now().checked_add(limits::CRASH_REST);
        }
    }
}

/// Starts a server and greets it.
pub(crate) async fn start(
    config: &ServerConfig,
    gate: Weak<Gate>,
    backing: Arc<dyn Backing>,
) -> Result<Connection, String> {
    let calls = Arc::<Calls>::default();
    let modern = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    // Nearly every server knows the greeting with `initialize`; one that does not is started again and greeted anew.
    let (service, ended) =
        match Box::pin(greet(config, &gate, &backing, &calls, ClientLifecycleMode::Initialize)).await? {
            Ok(greeted) => greeted,
            Err(ClientInitializeError::JsonRpcError(error)) if error.code == ErrorCode::INTERNAL_ERROR => {
                return Err(quoted(&error.message));
            }
            Err(ClientInitializeError::JsonRpcError(error)) => {
                let (ending, server) = (Arc::clone(&backing), config.name.clone());
                let _ = tokio::task::spawn_blocking(move || ending.end(&server)).await;
                let greeted = Box::pin(greet(config, &gate, &backing, &calls, modern)).await?;
                greeted.map_err(|_| quoted(&error.message))?
            }
            Err(fault) => return Err(quoted(&fault.to_string())),
        };
    let offered = match offered_by(service.peer()).await {
        Ok(offered) => offered,
        Err(why) => return Err(ended.why().map_or(why, str::to_owned)),
    };
    Ok(Connection {
        service,
        ended,
        offered: Mutex::new((Arc::new(offered), 0)),
        calls,
        backing,
        server: config.name.clone(),
        places: Arc::new(Semaphore::new(config.limits.pending)),
    })
}

type Greeted = (RunningService<RoleClient, Ear>, Ended);

async fn greet(
    config: &ServerConfig,
    gate: &Weak<Gate>,
    backing: &Arc<dyn Backing>,
    calls: &Arc<Calls>,
    lifecycle: ClientLifecycleMode,
) -> Result<Result<Greeted, ClientInitializeError>, String> {
    let (starting, server) = (Arc::clone(backing), config.name.clone());
    let ends = tokio::task::spawn_blocking(move || starting.start(&server)).await;
    let ends = ends
        .map_err(|fault| fault.to_string())?
        .map_err(|fault| fault.to_string())?;
    let (from, to) = opened(ends).map_err(|fault| fault.to_string())?;
    let (lines, ended) = ServerLines::new(from, to, config.limits.answer_bytes, config.limits.notifications);
    let ear = Ear {
        gate: gate.clone(),
        server: config.name.clone(),
        info: info_for(config),
        calls: Arc::clone(calls),
        open: Semaphore::new(limits::REVERSED),
    };
    match serve_client_with_lifecycle(ear, lines, lifecycle).await {
        Ok(service) => Ok(Ok((service, ended))),
        Err(fault) => match ended.why() {
            Some(why) => Err(why.to_owned()),
            None => Ok(Err(fault)),
        },
    }
}

/// What the gate says of itself to a server: it is able to do what some rule allows the server to ask for.
fn info_for(config: &ServerConfig) -> ClientConfig {
    let mut capabilities = ClientCapabilities::default();
    if config.shows_any(&Verb::Sample) {
        capabilities.sampling = Some(rmcp::model::SamplingCapability::default());
    }
    if config.shows_any(&Verb::Elicit) {
        capabilities.elicitation = Some(rmcp::model::ElicitationCapability::default());
    }
    if config.shows_any(&Verb::Roots) {
        capabilities.roots = Some(rmcp::model::RootsCapabilities::default());
    }
    InitializeRequestParams::new(
        capabilities,
        Implementation::new("bailiwick", env!("CARGO_PKG_VERSION")),
    )
    .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// All that a server offers, within limits.
pub(crate) async fn offered_by(peer: &Peer<RoleClient>) -> Result<Offered, String> {
    let info = peer.peer_info();
    let capabilities = info.as_ref().map(|info| info.capabilities.clone()).unwrap_or_default();
    let mut offered = Offered {
        instructions: info.and_then(|info| info.instructions.clone()),
        ..Offered::default()
    };
    if capabilities.tools.is_none() {
        return Ok(offered);
    }
    let mut cursor = None;
    let mut bytes = 0usize;
    for _ in 0..limits::PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let listed = peer.list_tools(Some(page)).await.map_err(|fault| failed(&fault))?;
        for tool in &listed.tools {
            let definition = Definition::of(tool);
            if offered.tools.len() >= limits::OFFERED {
                return Err(format!("it offers more than {} tools", limits::OFFERED));
            }
            bytes = bytes.saturating_add(definition.value().to_string().len());
            if bytes > limits::LISTED {
                return Err(format!("its definitions have more than {} bytes", limits::LISTED));
            }
            offered.take(Kind::Tool, definition);
        }
        cursor = listed.next_cursor.filter(|cursor| !cursor.is_empty());
        if cursor.is_none() {
            return Ok(offered);
        }
    }
    Err(format!("it lists its tools on more than {} pages", limits::PAGES))
}

/// A failure of a server, in words for the agent.
pub(crate) fn failed(fault: &ServiceError) -> String {
    match fault {
        ServiceError::McpError(error) => format!("it answered with an error: {}", quoted(&error.message)),
        ServiceError::TransportClosed => "it ended".into(),
        other => quoted(&other.to_string()),
    }
}

/// Both ends, for reading and writing without waiting.
pub(crate) fn opened(ends: Ends) -> io::Result<(From, To)> {
    let from: From = match kind(&ends.from)? {
        FileType::Socket => Box::new(socket(ends.from)?),
        _ => Box::new(pipe::Receiver::from_owned_fd(ends.from)?),
    };
    let to: To = match kind(&ends.to)? {
        FileType::Socket => Box::new(socket(ends.to)?),
        _ => Box::new(pipe::Sender::from_owned_fd(ends.to)?),
    };
    Ok((from, to))
}

fn kind(end: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(end)?.st_mode))
}

fn socket(end: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(end);
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}
