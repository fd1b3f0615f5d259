//! What everything in the tool gate shares: the servers, what was accepted of them, who listens.
//!
//! Promises: P8 (a definition that is new or has changed is withheld until a person has seen it). Trust: what servers say
//! of their tools reaches clients only from what was accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bailiwick_model::{Argument, Code, Request, Resource, ToolName, Verb, argument};
use rmcp::model::{LoggingLevel, ResourceUpdatedNotificationParam};
use rmcp::service::{Peer, SubscriptionSink};
use rmcp::{ErrorData, RoleServer};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::backing::Backing;
use crate::catalog::{Catalog, Entry};
use crate::channel::Channel;
use crate::config::{Config, ServerConfig};
use crate::definition::{Definition, Kind};
use crate::handles::Handles;
use crate::held::Held;
use crate::limits;
use crate::lock::{Lock, LockFault};
use crate::offers::outer_uri;
use crate::refusal::Refused;
use crate::upstream::{Changed, Connection, Upstream};

pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one client wants to hear.
enum Listener {
    /// One that greeted with `initialize`: its session tells it what changes.
    Session {
        peer: Peer<RoleServer>,
        /// Resources, as it names them.
        resources: BTreeSet<String>,
    },
    /// One that asked to be told.
    Subscription(SubscriptionSink),
}

/// Shared by all sessions of a task.
pub(crate) struct Gate {
    pub(crate) channel: Channel,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) servers: BTreeMap<String, Arc<Upstream>>,
    pub(crate) handles: Handles,
    /// Calls that wait for clients of the newest revision.
    pub(crate) held: Held,
    /// Places for calls that are under way.
    pub(crate) calls: Semaphore,
    /// Places for calls that wait for one of those.
    pub(crate) waiting: Semaphore,
    lock: Mutex<Lock>,
    /// Counts what is accepted: what was held against the lock before is held against it anew.
    accepted: AtomicU64,
    catalog: Mutex<Arc<Catalog>>,
    /// Accepted tools of which the running server says something else now, or nothing.
    changed: Mutex<BTreeMap<String, BTreeSet<String>>>,
    listeners: Mutex<BTreeMap<u64, Listener>>,
    level: Mutex<Option<LoggingLevel>>,
    clients: AtomicU64,
}

impl Gate {
    pub(crate) fn new(config: &Config, channel: Channel, backing: Arc<dyn Backing>) -> Result<Self, LockFault> {
        let lock = Lock::read(&config.lock)?;
        let by_name = |server: &ServerConfig| (server.name.clone(), server.clone());
        let configs: BTreeMap<String, ServerConfig> = config.servers.iter().map(by_name).collect();
        let catalog = Catalog::of(&lock, &configs);
        let upstream = |(name, config)| (name, Arc::new(Upstream::new(config)));
        Ok(Self {
            channel,
            backing,
            servers: configs.into_iter().map(upstream).collect(),
            handles: Handles::default(),
            held: Held::default(),
            calls: Semaphore::new(limits::CALLS),
            waiting: Semaphore::new(limits::CALLS),
            lock: Mutex::new(lock),
            accepted: AtomicU64::new(1),
            catalog: Mutex::new(Arc::new(catalog)),
            changed: Mutex::default(),
            listeners: Mutex::default(),
            level: Mutex::default(),
            clients: AtomicU64::new(1),
        })
    }

    /// A number for one client.
    pub(crate) fn client(&self) -> u64 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// What clients may name.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&guard(&self.catalog))
    }

    /// What a server said of itself when it was accepted.
    pub(crate) fn instructions(&self) -> String {
        let lock = guard(&self.lock);
        let mut all = String::new();
        for (server, pinned) in &lock.servers {
            let shown = self
                .servers
                .get(server)
                .is_some_and(|upstream| !upstream.config.visible.is_empty());
            if let (true, Some(text)) = (shown, &pinned.instructions)
                && !crate::definition::hides(text)
                && all.len().saturating_add(text.len()) < limits::INSTRUCTIONS
            {
                all.push_str(&format!("# {server}\n\n{text}\n\n"));
            }
        }
        all
    }

    /// What clients are told of tools.
    pub(crate) fn tools(&self) -> Vec<rmcp::model::Tool> {
        let changed = guard(&self.changed).clone();
        let withheld = |tool: &ToolName| {
            let of_server = changed.get(tool.server());
            of_server.is_some_and(|tools| tools.contains(tool.name()))
        };
        self.catalog().listed(&withheld)
    }

    /// The accepted definition of a tool, as text.
    pub(crate) fn accepted(&self, tool: &ToolName) -> Option<Definition> {
        guard(&self.lock).get(tool.server(), tool.name()).cloned()
    }

    /// True for a prompt or a template that a person has taken as it is now.
    pub(crate) fn took(&self, server: &str, kind: Kind, now: &Definition) -> bool {
        guard(&self.lock).pinned(server, kind, now.key(kind)) == Some(now)
    }

    /// The server, running.
    pub(crate) async fn running(self: &Arc<Self>, upstream: &Arc<Upstream>) -> Result<Arc<Connection>, String> {
        let connection = upstream.connection(self).await?;
        self.compare(&upstream.config.name, &connection).await;
        Ok(connection)
    }

    /// Holds what a server offers against what was accepted, and tells clients where the list is another now.
    async fn compare(&self, server: &str, connection: &Connection) {
        let Some(offered) = connection.not_compared(self.accepted.load(Ordering::Acquire)) else {
            return;
        };
        let differs: BTreeSet<String> = {
            let lock = guard(&self.lock);
            let pinned = lock.servers.get(server);
            let tools = pinned.iter().flat_map(|pinned| &pinned.tools);
            tools
                .filter(|(name, pin)| {
                    let now = offered.tools.get(*name);
                    now.is_none_or(|now| now != pin.definition())
                })
                .map(|(name, _)| name.clone())
                .collect()
        };
        let is_new = {
            let mut changed = guard(&self.changed);
            let before = changed.insert(server.to_owned(), differs.clone());
            before.unwrap_or_default() != differs
        };
        if is_new {
            self.tell(Changed::Tools).await;
        }
    }

    /// Asks a person about a definition that is new or has changed. When they take it, it is written down and the tool
    /// can be called.
    pub(crate) async fn accept(
        &self,
        tool: &ToolName,
        definition: &Definition,
        gone: &CancellationToken,
    ) -> Result<Arc<Entry>, Refused> {
        let mut request = Request::new(self.channel.task(), Verb::Accept, Resource::Tool(tool.clone()));
        let old = self.accepted(tool).map(|old| old.text());
        let new = definition.text();
        let length = old.as_deref().unwrap_or_default().len().saturating_add(new.len());
        if length > limits::ARGUMENTS {
            let why = format!("its old and new definition have {length} bytes: too many to be shown");
            return Err(self
                .channel
                .refuse(Code::ToolUnreadable, &format!("accept {tool}"), &why)
                .await);
        }
        let digest = hex::encode(definition.digest().0);
        for (name, text) in [
            (argument::OLD, old),
            (argument::NEW, Some(new)),
            (argument::DEFINITION, Some(digest)),
        ] {
            if let Some(text) = text {
                request.arguments.insert(name.into(), Argument::Text(text));
            }
        }
        let mut effect = self.channel.ask(&request, gone).await?;
        effect.begin();
        let nonce = effect.spent().nonce();
        let (backing, taken) = (Arc::clone(&self.backing), definition.clone());
        let written = tokio::task::spawn_blocking(move || backing.accept(&request, &nonce, &taken)).await;
        let fault = match written {
            Ok(Ok(())) => None,
            Ok(Err(fault)) => Some(fault.to_string()),
            Err(fault) => Some(fault.to_string()),
        };
        if let Some(fault) = fault {
            effect.settle(false, format!("not written down: {fault}"));
            let why = "what was accepted could not be written down";
            return Err(self.channel.refuse(Code::Fault, &format!("accept {tool}"), why).await);
        }
        effect.settle(true, "accepted");
        {
            let mut lock = guard(&self.lock);
            lock.accept(tool.server(), definition.clone());
            self.accepted.fetch_add(1, Ordering::AcqRel);
            let configs = self
                .servers
                .iter()
                .map(|(name, upstream)| (name.clone(), upstream.config.clone()));
            *guard(&self.catalog) = Arc::new(Catalog::of(&lock, &configs.collect()));
        }
        if let Some(tools) = guard(&self.changed).get_mut(tool.server()) {
            tools.remove(tool.name());
        }
        self.tell(Changed::Tools).await;
        let wants_reason = self
            .servers
            .get(tool.server())
            .is_some_and(|upstream| upstream.config.wants_reason(tool));
        Ok(Arc::new(Entry::new(tool.clone(), definition.clone(), wants_reason)))
    }

    /// Refuses what a server asks for while no call is under way that it could be for.
    pub(crate) async fn refuse_reversed(&self, verb: &Verb, server: &str) -> ErrorData {
        let why = "it was asked for outside a call, or while calls of several clients were under way";
        let refused = self
            .channel
            .refuse(Code::NoRule, &format!("{verb} {server}"), why)
            .await;
        refused.error("request")
    }

    /// A server says that a list of its has changed.
    pub(crate) async fn server_changed(&self, server: &str, what: Changed) {
        let Some(upstream) = self.servers.get(server) else {
            return;
        };
        if what != Changed::Tools {
            let verb = if what == Changed::Prompts {
                Verb::Prompt
            } else {
                Verb::Open
            };
            if upstream.config.shows_any(&verb) {
                self.tell(what).await;
            }
            return;
        }
        // One look at a time; who comes meanwhile has it looked again once.
        if upstream.looks.swap(2, Ordering::AcqRel) != 0 {
            return;
        }
        loop {
            upstream.looks.store(1, Ordering::Release);
            if let Some(connection) = upstream.running().await
                && connection.look_again().await.is_ok()
            {
                self.compare(server, &connection).await;
            }
            if upstream
                .looks
                .compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return;
            }
        }
    }

    /// How much servers are to say for a log.
    pub(crate) async fn set_level(&self, level: LoggingLevel) {
        *guard(&self.level) = Some(level);
        for upstream in self.servers.values() {
            if let Some(connection) = upstream.running().await {
                connection.set_level(level).await;
            }
        }
    }

    /// What a client said of that last.
    pub(crate) fn level(&self) -> Option<LoggingLevel> {
        *guard(&self.level)
    }

    /// A resource has changed.
    pub(crate) async fn resource_updated(&self, server: &str, uri: &str) {
        let uri = outer_uri(server, uri);
        let mut peers = Vec::new();
        let mut sinks = Vec::new();
        for listener in guard(&self.listeners).values() {
            match listener {
                Listener::Session { peer, resources } if resources.contains(&uri) => peers.push(peer.clone()),
                Listener::Session { .. } => {}
                Listener::Subscription(sink) => sinks.push(sink.clone()),
            }
        }
        for peer in peers {
            let _ = peer
                .notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.clone()))
                .await;
        }
        for sink in sinks {
            // One that did not ask for this resource says no by itself.
            let _ = sink.notify_resource_updated(uri.clone()).await;
        }
    }

    /// Tells every client that listens.
    async fn tell(&self, what: Changed) {
        let mut peers = Vec::new();
        let mut sinks = Vec::new();
        for listener in guard(&self.listeners).values() {
            match listener {
                Listener::Session { peer, .. } => peers.push(peer.clone()),
                Listener::Subscription(sink) => sinks.push(sink.clone()),
            }
        }
        for peer in peers {
            let told = match what {
                Changed::Tools => peer.notify_tool_list_changed().await,
                Changed::Prompts => peer.notify_prompt_list_changed().await,
                Changed::Resources => peer.notify_resource_list_changed().await,
            };
            // One that has gone is taken off the list by its session.
            let _ = told;
        }
        for sink in sinks {
            let told = match what {
                Changed::Tools => sink.notify_tool_list_changed().await,
                Changed::Prompts => sink.notify_prompt_list_changed().await,
                Changed::Resources => sink.notify_resource_list_changed().await,
            };
            let _ = told;
        }
    }

    /// A session begins to listen.
    pub(crate) fn listen_session(&self, client: u64, peer: Peer<RoleServer>) {
        let resources = BTreeSet::new();
        guard(&self.listeners).insert(client, Listener::Session { peer, resources });
    }

    /// A client that asked to be told begins to listen; what ends it.
    pub(crate) fn listen_sink(&self, sink: SubscriptionSink) -> u64 {
        let number = self.client();
        guard(&self.listeners).insert(number, Listener::Subscription(sink));
        number
    }

    /// A client wants to hear of a resource, or no more. False where it hears of too many.
    pub(crate) fn subscribe(&self, client: u64, uri: &str, wanted: bool) -> bool {
        match guard(&self.listeners).get_mut(&client) {
            Some(Listener::Session { resources, .. }) if wanted => {
                resources.len() < limits::SUBSCRIPTIONS && {
                    resources.insert(uri.to_owned());
                    true
                }
            }
            Some(Listener::Session { resources, .. }) => {
                resources.remove(uri);
                true
            }
            Some(Listener::Subscription(_)) | None => false,
        }
    }

    /// Nobody listens any more.
    pub(crate) fn leave(&self, client: u64) {
        guard(&self.listeners).remove(&client);
    }
}
