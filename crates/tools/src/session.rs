//! One client of the agent's: what it may say, and how it is answered.
//!
//! Promises: P4 (a revision of the protocol that is not known is refused by name), P8 (what a server says to people goes
//! out under the server's name). Trust: the client is the agent's.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bailiwick_model::{Code, Verb};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, GetPromptRequestParams,
    GetPromptResponse, Implementation, InputRequest, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, progress_for, response};
use crate::gate::Gate;
use crate::held::{Needed, Ride, digest_of};
use crate::limits;
use crate::offers;
use crate::results::quoted;
use crate::reversed::may_ask;

/// A client.
pub(crate) struct Session {
    gate: Arc<Gate>,
    client: u64,
    /// Cancelled when its connection has gone.
    gone: CancellationToken,
    _place: Option<OwnedSemaphorePermit>,
}

impl Session {
    pub(crate) fn new(gate: Arc<Gate>, gone: CancellationToken, place: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            client: gate.client(),
            gate,
            gone,
            _place: place,
        }
    }

    fn asker(&self, context: RequestContext<RoleServer>) -> Asker {
        let both = CancellationToken::new();
        let asker = Asker {
            client: self.client,
            version: context.protocol_version(),
            token: context.meta.get_progress_token(),
            beats: AtomicU32::new(0),
            peer: context.peer,
            input: None,
            gone: both.clone(),
            _ends: both.clone().drop_guard(),
        };
        let (request, connection) = (context.ct, self.gone.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = request.cancelled() => both.cancel(),
                () = connection.cancelled() => both.cancel(),
                () = both.cancelled() => {}
            }
        });
        asker
    }

    /// A call of a client that cannot be asked: where something is needed of it, it is told so, and calls again.
    async fn ride(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let request_gone = context.ct.clone();
        let digest = digest_of(&request.name, request.arguments.as_ref());
        let mut ride = match request.request_state {
            Some(state) => match self.gate.held.resume(&state, digest, request.input_responses) {
                Ok(ride) => ride,
                Err(why) => {
                    let what = format!("call {}", quoted(&request.name));
                    let refused = self.gate.channel.refuse(Code::ArgumentsMalformed, &what, why).await;
                    return Ok(response(refused.result()));
                }
            },
            None => {
                let gone = CancellationToken::new();
                let (said, result) = oneshot::channel();
                let (input, needs) = mpsc::channel(1);
                let asker = Asker {
                    client: self.client,
                    version: context.protocol_version(),
                    token: context.meta.get_progress_token(),
                    beats: AtomicU32::new(0),
                    peer: context.peer,
                    input: Some(input),
                    gone: gone.clone(),
                    _ends: gone.clone().drop_guard(),
                };
                let (gate, name) = (Arc::clone(&self.gate), request.name);
                tokio::spawn(async move {
                    let call = Call::new(&gate, &asker, &name, request.arguments);
                    let _ = said.send(Box::pin(call.make()).await);
                });
                let ends = gone.clone().drop_guard();
                Ride {
                    result,
                    needs,
                    gone,
                    _ends: ends,
                    digest,
                }
            }
        };
        tokio::select! {
            biased;
            result = &mut ride.result => match result {
                Ok(result) => Ok(response(result)),
                Err(_) => Err(ErrorData::internal_error("the call broke off", None)),
            },
            Some(needed) = ride.needs.recv() => {
                self.gate.held.keep(ride, needed).map(CallToolResponse::InputRequired)
            }
            () = request_gone.cancelled() => {
                ride.gone.cancel();
                // What was begun is settled; the answer goes nowhere.
                let _ = ride.result.await;
                Err(ErrorData::internal_error("the call was given up", None))
            }
        }
    }

    fn shows(&self, verb: &Verb) -> bool {
        self.gate
            .servers
            .values()
            .any(|upstream| upstream.config.shows_any(verb))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.gate.leave(self.client);
        self.gone.cancel();
    }
}

/// Whoever made one request.
pub(crate) struct Asker {
    client: u64,
    peer: Peer<RoleServer>,
    version: Option<ProtocolVersion>,
    token: Option<ProgressToken>,
    /// How often it has heard that its request waits.
    beats: AtomicU32,
    /// Where what is needed of a client goes that cannot be asked.
    input: Option<mpsc::Sender<Needed>>,
    gone: CancellationToken,
    _ends: tokio_util::sync::DropGuard,
}

impl Asker {
    pub(crate) fn client(&self) -> u64 {
        self.client
    }

    pub(crate) fn peer(&self) -> &Peer<RoleServer> {
        &self.peer
    }

    /// Cancelled when it waits no more.
    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// True for a client that can be asked, or told what is needed of it.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.input.is_some() || may_ask(self.version.as_ref())
    }

    /// Tells a client that cannot be asked what is needed of it, and waits until it comes back. None for one that can.
    pub(crate) async fn need(&self, request: InputRequest) -> Option<Result<Value, ErrorData>> {
        let input = self.input.as_ref()?;
        let (answer, answered) = oneshot::channel();
        let gone = || ErrorData::invalid_request("the client did not come back", None);
        Some(match input.send(Needed { request, answer }).await {
            Ok(()) => answered.await.map_err(|_| gone()),
            Err(_) => Err(gone()),
        })
    }

    /// Waits, and lets the client know that it is not forgotten.
    pub(crate) async fn alive<T>(&self, what: impl Future<Output = T>) -> T {
        if self.token.is_none() {
            return what.await;
        }
        let first = Instant::now()
            .checked_add(limits::KEEP_ALIVE)
            .unwrap_or_else(Instant::now);
        let mut beat = interval_at(first, limits::KEEP_ALIVE);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return done,
                _ = beat.tick() => self.beat().await,
            }
        }
    }

    /// Says that the request still waits. A step so small that the server's own steps come after it.
    pub(crate) async fn beat(&self) {
        if let Some(token) = &self.token {
            let step = f64::from(self.beats.fetch_add(1, Ordering::Relaxed)) / 1.0e9;
            let mut said = ProgressNotificationParam::new(token.clone(), step);
            said.message = Some("waiting".into());
            let _ = self.peer.notify_progress(said).await;
        }
    }

    /// Passes on how far a server is.
    pub(crate) async fn progress(&self, progress: ProgressNotificationParam) {
        if let Some(token) = &self.token {
            let _ = self.peer.notify_progress(progress_for(token.clone(), progress)).await;
        }
    }

    /// Passes on what a server says for a log, under its name.
    pub(crate) async fn log(&self, server: &str, message: LoggingMessageNotificationParam) {
        let logger = match message.logger {
            Some(logger) => format!("{server}/{}", quoted(&logger)),
            None => server.to_owned(),
        };
        let said = LoggingMessageNotificationParam::new(message.level, message.data).with_logger(logger);
        let _ = self.peer.notify_logging_message(said).await;
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_logging()
            .build();
        if self.shows(&Verb::Open) {
            let resources = ServerCapabilities::builder()
                .enable_resources()
                .enable_resources_list_changed()
                .enable_resources_subscribe()
                .build();
            capabilities.resources = resources.resources;
        }
        if self.shows(&Verb::Prompt) {
            let prompts = ServerCapabilities::builder()
                .enable_prompts()
                .enable_prompts_list_changed()
                .build();
            capabilities.prompts = prompts.prompts;
        }
        if self.shows(&Verb::Open) || self.shows(&Verb::Prompt) {
            capabilities.completions = Some(serde_json::Map::new());
        }
        let mut info = ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("bailiwick", env!("CARGO_PKG_VERSION")));
        let instructions = self.gate.instructions();
        info.instructions = (!instructions.is_empty()).then_some(instructions);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.gate.listen_session(self.client, context.peer);
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        // To hear of a resource is to read when it changes: that is asked about one by one, in a session.
        accepted.resource_subscriptions = None;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let number = self.gate.listen_sink(context.sink().clone());
        context.cancelled().await;
        self.gate.leave(number);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.gate.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let version = context.protocol_version();
        if version.is_some() && !may_ask(version.as_ref()) {
            return self.ride(request, context).await;
        }
        let asker = self.asker(context);
        let call = Call::new(&self.gate, &asker, &request.name, request.arguments);
        // On the heap: what a call goes through is large.
        Ok(response(Box::pin(call.make()).await))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let asker = self.asker(context);
        let all = Box::pin(offers::resources(&self.gate, &asker)).await;
        Ok(ListResourcesResult::with_all_items(all))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let asker = self.asker(context);
        let all = Box::pin(offers::templates(&self.gate, &asker)).await;
        Ok(ListResourceTemplatesResult::with_all_items(all))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let asker = self.asker(context);
        Box::pin(offers::read(&self.gate, &asker, &request.uri))
            .await
            .map(ReadResourceResponse::Complete)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asker = self.asker(context);
        Box::pin(offers::subscribe(&self.gate, &asker, &request.uri, true)).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asker = self.asker(context);
        Box::pin(offers::subscribe(&self.gate, &asker, &request.uri, false)).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let asker = self.asker(context);
        let all = Box::pin(offers::prompts(&self.gate, &asker)).await;
        Ok(ListPromptsResult::with_all_items(all))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let asker = self.asker(context);
        Box::pin(offers::prompt(&self.gate, &asker, request))
            .await
            .map(GetPromptResponse::Complete)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let asker = self.asker(context);
        Box::pin(offers::complete(&self.gate, &asker, request)).await
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.gate.set_level(request.level).await;
        Ok(())
    }
}
