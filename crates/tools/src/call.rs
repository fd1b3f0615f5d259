//! One call of a tool, from its name to its settlement.
//!
//! Answers: may this tool be called with this, and what comes of it? Decode, ask, spend, call, settle, in this order.
//! Promises: P1 (the permit is spent before the server hears anything, and settled however the call ends), P5 (what is
//! sent is written from the value that was judged), P6 (handles are opened only where the permit says so), P8 (a tool of
//! which the server says something else than what was accepted is not called).
//! Trust: name and arguments are the agent's; the answer is the server's.

use std::sync::Arc;
use std::time::Duration;

use bailiwick_line::{Cut, Effect};
use bailiwick_model::{Argument, Code, Digest, Request, Resource, ToolName, Verb, argument};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult, JsonObject,
    ProgressNotificationParam, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::arguments::fields_of;
use crate::catalog::{ANSWER, CHOOSE, Entry, REASON};
use crate::choice;
use crate::chosen::look_behind;
use crate::gate::Gate;
use crate::handles::{fill, handles_in};
use crate::limits;
use crate::names::wire_name;
use crate::offers::outer_links;
use crate::refusal::Refused;
use crate::results::{Duties, length, quoted};
use crate::reversed;
use crate::session::Asker;
use crate::upstream::{Connection, Event, Given, Giving, Upstream, Wanted, failed};

/// What a call came to at a server.
enum Came {
    /// A result.
    Result(CallToolResult),
    /// An error of the protocol: it was not done.
    Error(String),
    /// The server ended, or said something else: it may have been done.
    Broken(String),
    /// It took too long.
    TooLong,
    /// Nobody waits any more.
    Gone,
    /// What allowed it was revoked.
    Cut,
}

/// One call, as a client makes it.
pub(crate) struct Call<'a> {
    gate: &'a Arc<Gate>,
    asker: &'a Asker,
    /// As the client names it.
    wire: String,
    arguments: Map<String, Value>,
    reason: Option<String>,
    /// What it has in common with the others of which a person is to choose one.
    choice: Option<String>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(gate: &'a Arc<Gate>, asker: &'a Asker, name: &str, arguments: Option<JsonObject>) -> Self {
        Self {
            gate,
            asker,
            wire: name.to_owned(),
            arguments: arguments.unwrap_or_default(),
            reason: None,
            choice: None,
        }
    }

    /// The same, as one of several of which a person is to choose.
    pub(crate) fn chosen_as(mut self, choice: &str) -> Self {
        self.choice = Some(choice.to_owned());
        self
    }

    fn what(&self) -> String {
        format!("call {}", quoted(&self.wire))
    }

    async fn refuse(&self, code: Code, why: &str) -> Refused {
        self.gate.channel.refuse(code, &self.what(), why).await
    }

    /// Makes the call. Always a result: a refusal is one, too.
    pub(crate) async fn make(mut self) -> CallToolResult {
        let made = self.try_make().await;
        made.unwrap_or_else(|refused| refused.result())
    }

    pub(crate) async fn try_make(&mut self) -> Result<CallToolResult, Refused> {
        let Some(_place) = self.place().await else {
            let why = format!("{} calls are under way", limits::CALLS);
            return Err(self.refuse(Code::LimitReached, &why).await);
        };
        if self.wire == ANSWER {
            return self.answer().await;
        }
        if self.wire == CHOOSE {
            return Box::pin(self.choose()).await;
        }
        let length = serde_json::to_string(&self.arguments).map_or(usize::MAX, |text| text.len());
        if length > limits::ARGUMENTS {
            let why = format!("its arguments have {length} bytes: at most {}", limits::ARGUMENTS);
            return Err(self.refuse(Code::LimitReached, &why).await);
        }
        self.reason = match self.arguments.remove(REASON) {
            None => None,
            Some(Value::String(reason)) if reason.chars().count() <= limits::REASON => Some(reason),
            Some(_) => {
                let why = format!("`{REASON}` is a text of at most {} characters", limits::REASON);
                return Err(self.refuse(Code::ArgumentsMalformed, &why).await);
            }
        };
        let mut entry = self.gate.catalog().get(&self.wire);
        // Once as it was accepted, once more when a person has taken what changed since.
        for _ in 0..3 {
            let (upstream, known) = match entry.take() {
                Some(known) => (self.upstream(&known.tool).await?, known),
                None => Box::pin(self.unknown()).await?,
            };
            let request = self.judged(&known).await?;
            let effect = self.ask(&request).await?;
            let connection = match self.asker.alive(self.gate.running(&upstream)).await {
                Ok(connection) => connection,
                Err(why) => {
                    effect.settle(false, why.clone());
                    return Err(self.refuse(Code::ServerFailed, &why).await);
                }
            };
            let offered = connection.offered();
            match offered.tools.get(known.tool.name()) {
                Some(now) if *now == known.definition => {
                    return Box::pin(self.run(effect, &connection, &upstream, &known)).await;
                }
                Some(now) => {
                    effect.settle(false, "not called: its definition has changed");
                    let accepted = self.gate.accept(&known.tool, now, self.asker.gone());
                    entry = Some(self.asker.alive(Box::pin(accepted)).await?);
                }
                None => {
                    effect.settle(false, "not called: the server does not offer it any more");
                    return Err(self.gone(&offered.withheld, known.tool.name()).await);
                }
            }
        }
        Err(self.refuse(Code::ToolChanged, "its definition keeps changing").await)
    }

    /// A tool that its server does not offer, or only in a way that can never be taken.
    async fn gone(&self, withheld: &std::collections::BTreeMap<String, String>, name: &str) -> Refused {
        match withheld.get(name) {
            Some(why) => self.refuse(Code::ToolUnreadable, why).await,
            None => self.refuse(Code::ToolUnknown, "the server offers no such tool").await,
        }
    }

    /// A place among the calls that are under way; none where all are taken, and stay so, or nobody waits any more.
    async fn place(&self) -> Option<SemaphorePermit<'a>> {
        if let Ok(place) = self.gate.calls.try_acquire() {
            return Some(place);
        }
        let _waiting = self.gate.waiting.try_acquire().ok()?;
        tokio::select! {
            biased;
            () = self.asker.gone().cancelled() => None,
            place = self.gate.calls.acquire() => place.ok(),
            () = tokio::time::sleep(limits::PLACE_TIME) => None,
        }
    }

    async fn upstream(&self, tool: &ToolName) -> Result<Arc<Upstream>, Refused> {
        match self.gate.servers.get(tool.server()) {
            Some(upstream) => Ok(Arc::clone(upstream)),
            None => Err(self.refuse(Code::ToolUnknown, "there is no such server").await),
        }
    }

    /// A tool that nobody has accepted yet. Where no rule could let it be called, that is the answer; else its server is
    /// started, and a person is asked about it.
    async fn unknown(&self) -> Result<(Arc<Upstream>, Arc<Entry>), Refused> {
        let unknown = async || self.refuse(Code::ToolUnknown, "there is no such tool").await;
        let Some((server, plain)) = self.wire.split_once("__") else {
            return Err(unknown().await);
        };
        let Some(upstream) = self.gate.servers.get(server) else {
            return Err(unknown().await);
        };
        let Ok(tool) = ToolName::new(server, plain) else {
            return Err(unknown().await);
        };
        if !upstream.config.shows(&Verb::Call, &tool) && wire_name(server, plain) == self.wire {
            // The mediator says what it says of any call; no server is started for it.
            let entry = Entry::new(tool, crate::definition::Definition::from_value(Value::Null), false);
            let request = self.request(&entry, None).await?;
            let effect = self.ask(&request).await?;
            effect.settle(false, "not called: nobody has accepted it");
            return Err(unknown().await);
        }
        let connection = match self.asker.alive(self.gate.running(upstream)).await {
            Ok(connection) => connection,
            Err(why) => return Err(self.refuse(Code::ServerFailed, &why).await),
        };
        let offered = connection.offered();
        let Some(definition) = offered
            .tools
            .values()
            .find(|tool| wire_name(server, tool.name()) == self.wire)
        else {
            return Err(self.gone(&offered.withheld, plain).await);
        };
        let tool = match ToolName::new(server, definition.name()) {
            Ok(tool) if upstream.config.shows(&Verb::Call, &tool) => tool,
            Ok(_) => return Err(unknown().await),
            Err(fault) => return Err(self.refuse(Code::ToolUnreadable, &fault.to_string()).await),
        };
        let accepted = self.gate.accept(&tool, definition, self.asker.gone());
        let entry = self.asker.alive(Box::pin(accepted)).await?;
        Ok((Arc::clone(upstream), entry))
    }

    /// Holds the arguments against the schema; the request to be judged.
    async fn judged(&self, entry: &Entry) -> Result<Request, Refused> {
        let schema = match entry.schema() {
            Ok(schema) => schema,
            Err(why) => {
                let why = format!("its schema cannot be used: {why}");
                return Err(self.refuse(Code::ToolUnreadable, &why).await);
            }
        };
        let arguments = Value::Object(self.arguments.clone());
        let handles = match handles_in(&arguments) {
            Ok(handles) => handles,
            Err(why) => return Err(self.refuse(Code::HandleRefused, &why).await),
        };
        // What stands for a value has not its type; what is opened is held against the schema later.
        let paths: Vec<Vec<String>> = handles.iter().map(|(path, _)| path.clone()).collect();
        if let Err(why) = schema.check_but(&arguments, &paths) {
            return Err(self.refuse(Code::ArgumentsMalformed, &why).await);
        }
        let mut request = self.request(entry, Some(entry.digest)).await?;
        // What stands behind a handle carries its own tags to wherever it is opened.
        request.label = self.gate.handles.label_of(handles.iter().map(|(_, name)| name));
        let server = self.gate.servers.get(entry.tool.server());
        let choosing = server.map_or(&[][..], |server| server.config.choosing.as_slice());
        match look_behind(&mut request, &entry.tool, choosing, &handles, &self.gate.handles) {
            Ok(()) => Ok(request),
            Err((code, why)) => Err(self.refuse(code, &why).await),
        }
    }

    async fn request(&self, entry: &Entry, digest: Option<Digest>) -> Result<Request, Refused> {
        let fields = match fields_of(&self.arguments) {
            Ok(fields) => fields,
            Err(why) => return Err(self.refuse(Code::ArgumentsMalformed, &why).await),
        };
        let resource = Resource::Tool(entry.tool.clone());
        let mut request = Request::new(self.gate.channel.task(), Verb::Call, resource);
        request.arguments.insert(argument::ARGS.into(), fields);
        if let Some(digest) = digest {
            let digest = Argument::Text(hex::encode(digest.0));
            request.arguments.insert(argument::DEFINITION.into(), digest);
        }
        if let Some(reason) = &self.reason {
            let reason = Argument::Text(reason.clone());
            request.arguments.insert(argument::REASON.into(), reason);
        }
        if let Some(choice) = &self.choice {
            let choice = Argument::Text(choice.clone());
            request.arguments.insert(argument::CHOICE.into(), choice);
        }
        Ok(request)
    }

    async fn ask(&self, request: &Request) -> Result<Effect, Refused> {
        self.asker
            .alive(self.gate.channel.ask(request, self.asker.gone()))
            .await
    }

    /// Puts in what the handles stand for, where the permit says so. An error where there is one elsewhere.
    fn opened(&self, duties: &Duties, entry: &Entry) -> Result<Map<String, Value>, String> {
        let mut arguments = Value::Object(self.arguments.clone());
        let handles = handles_in(&arguments)?;
        if handles.is_empty() {
            return Ok(self.arguments.clone());
        }
        for (path, name) in handles {
            let at = path.join(".");
            if !duties.reveal.iter().any(|place| place.is(&path)) {
                return Err(format!("`{at}`: a handle is not opened there"));
            }
            let (value, _) = self
                .gate
                .handles
                .open(&name)
                .ok_or(format!("`{at}`: there is no such handle"))?;
            let mut slot = Some(&mut arguments);
            for step in &path {
                slot = slot.and_then(|value| match value {
                    Value::Object(fields) => fields.get_mut(step),
                    Value::Array(all) => all.get_mut(step.parse::<usize>().ok()?),
                    _ => None,
                });
            }
            if let Some(slot) = slot {
                *slot = value;
            }
        }
        // What is wrong with it may not be said: it would say something of the value.
        let fits = entry.schema().is_ok_and(|schema| schema.check(&arguments).is_ok());
        match arguments {
            Value::Object(arguments) if fits => Ok(arguments),
            _ => Err("what a handle stands for is not what the tool takes".into()),
        }
    }

    /// Calls the server under a permit.
    async fn run(
        &self,
        mut effect: Effect,
        connection: &Arc<Connection>,
        upstream: &Arc<Upstream>,
        entry: &Entry,
    ) -> Result<CallToolResult, Refused> {
        let duties = match Duties::of(effect.spent().obligations()) {
            Ok(duties) => duties,
            Err(why) => {
                effect.settle(false, format!("not called: {why}"));
                return Err(self
                    .refuse(Code::Fault, "the permit asks for what this gate cannot do")
                    .await);
            }
        };
        let arguments = match self.opened(&duties, entry) {
            Ok(arguments) => arguments,
            Err(why) => {
                effect.settle(false, format!("not called: {why}"));
                return Err(self.refuse(Code::HandleRefused, &why).await);
            }
        };
        let places = connection.places();
        let place = tokio::select! {
            place = places.acquire() => place.ok(),
            () = self.asker.gone().cancelled() => None,
            () = effect.cut().off() => None,
        };
        if place.is_none() {
            effect.settle(false, "not called: nobody waited any more");
            return Err(Refused::unavailable().because("the call was given up"));
        }
        let mut params = CallToolRequestParams::new(entry.tool.name().to_owned());
        effect.sent(serde_json::to_string(&arguments).map_or(0, |text| text.len()));
        params.arguments = Some(arguments);
        effect.begin();
        let cut = Arc::clone(effect.cut());
        let most = Duration::from_secs(upstream.config.limits.call_seconds);
        let under = (most, &*cut, duties.keeps_back());
        match self.reach(connection, entry.tool.server(), params, under).await {
            Came::Result(mut result) => {
                upstream.works().await;
                effect.received(length(&result));
                let is_error = result.is_error == Some(true);
                let tool = entry.tool.to_string();
                outer_links(entry.tool.server(), &mut result.content);
                if let Err(why) = duties.apply(&mut result, &self.gate.handles, &tool) {
                    effect.settle(true, format!("done; its result is not shown: {why}"));
                    return Err(self.refuse(Code::LimitReached, &why).await);
                }
                let note = if is_error {
                    "the tool says that it failed"
                } else {
                    "answered"
                };
                effect.settle(!is_error, note);
                Ok(result)
            }
            Came::Error(why) => {
                upstream.works().await;
                effect.settle(false, why.clone());
                // What the server says of it may hold what is to be kept back.
                let why = match duties.keeps_back() {
                    true => "the tool failed".to_owned(),
                    false => why,
                };
                Ok(CallToolResult::error(vec![ContentBlock::text(why)]))
            }
            Came::Broken(why) => {
                effect.settle(true, format!("may have been done: {why}"));
                Err(self.refuse(Code::ServerFailed, &why).await)
            }
            Came::TooLong => {
                let why = format!("the server did not answer within {} s", most.as_secs());
                effect.settle(true, format!("may have been done: {why}"));
                Err(self.refuse(Code::LimitReached, &why).await)
            }
            Came::Gone => {
                effect.settle(true, "may have been done: the client gave it up");
                Err(Refused::unavailable().because("the call was given up"))
            }
            Came::Cut => {
                let id = effect.spent().decision();
                effect.settle(true, "may have been done");
                let refusal = bailiwick_gate::Refusal::new(id, Code::PermitRefused);
                Err(Refused::new(refusal).because("what allowed it was revoked"))
            }
        }
    }

    /// Sends it, and again with what the server asks for, until there is a result.
    async fn reach(
        &self,
        connection: &Connection,
        server: &str,
        mut params: CallToolRequestParams,
        (most, cut, quiet): (Duration, &Cut, bool),
    ) -> Came {
        let until = Instant::now().checked_add(most).unwrap_or_else(Instant::now);
        for _ in 0..limits::ROUNDS {
            let request = Connection::call_of(params.clone());
            let under = match connection.send(self.asker.client(), request).await {
                Ok(under) => under,
                Err(why) => return Came::Broken(why),
            };
            let asked = Under {
                until,
                cut,
                server,
                quiet,
            };
            let response = match asked.wait(self.gate, self.asker, under).await {
                Ok(response) => response,
                Err(came) => return came,
            };
            let wanted = match response {
                Ok(ServerResult::CallToolResult(result)) => return Came::Result(result),
                Ok(ServerResult::InputRequiredResult(wanted)) => wanted,
                Ok(_) => return Came::Broken("its answer is none to a call of a tool".into()),
                Err(ServiceError::McpError(error)) => {
                    return Came::Error(format!("the tool failed: {}", quoted(&error.message)));
                }
                Err(ServiceError::TransportClosed) => return Came::Broken(connection.end()),
                Err(fault) => return Came::Broken(failed(&fault)),
            };
            match self.input(server, wanted).await {
                Ok((responses, state)) => {
                    params.input_responses = Some(responses);
                    params.request_state = state;
                }
                Err(why) => return Came::Error(why),
            }
        }
        Came::Error(format!("the server asked for more input {} times", limits::ROUNDS))
    }

    /// What a server of the newest revision asks for in place of a result.
    async fn input(
        &self,
        server: &str,
        wanted: InputRequiredResult,
    ) -> Result<(rmcp::model::InputResponses, Option<String>), String> {
        use rmcp::model::InputRequest;
        let requests = wanted.input_requests.unwrap_or_default();
        if requests.len() > limits::REVERSED {
            return Err(format!("the server asked for {} things at once", requests.len()));
        }
        let mut responses = rmcp::model::InputResponses::new();
        for (name, request) in requests {
            let wanted = match request {
                InputRequest::CreateMessage(request) => Wanted::Sample(Box::new(request.params)),
                InputRequest::Elicitation(request) => Wanted::Elicit(Box::new(request.params)),
                InputRequest::ListRoots(_) => Wanted::Roots,
                _ => return Err("the server asked for something that is not known".into()),
            };
            let given = reversed::answer(self.gate, self.asker, server, wanted).await;
            let given = given.map_err(|error| quoted(&error.message))?;
            let value = match given {
                Given::Sample(result) => serde_json::to_value(result),
                Given::Elicit(result) => serde_json::to_value(result),
                Given::Roots(result) => serde_json::to_value(result),
            };
            responses.insert(name, value.map_err(|fault| fault.to_string())?);
        }
        Ok((responses, wanted.request_state))
    }

    /// The gate's own tool.
    /// Has a person choose one of several calls, and makes that.
    async fn choose(&self) -> Result<CallToolResult, Refused> {
        let options = match choice::options(&self.arguments) {
            Ok(options) if self.choice.is_none() => options,
            Ok(_) => {
                return Err(self
                    .refuse(Code::ArgumentsMalformed, "an option is a call of a server's tool")
                    .await);
            }
            Err(why) => return Err(self.refuse(Code::ArgumentsMalformed, &why).await),
        };
        let mut random = [0u8; 8];
        if fill(&mut random).is_err() {
            return Err(self.refuse(Code::Fault, "there is no randomness").await);
        }
        let (choice, count) = (hex::encode(random), options.len());
        let mut calls: FuturesUnordered<_> = options
            .into_iter()
            .enumerate()
            .map(|(place, (tool, arguments))| {
                let mut call = Call::new(self.gate, self.asker, &tool, Some(arguments)).chosen_as(&choice);
                async move { (place, tool, call.try_make().await) }
            })
            .collect();
        let mut refused = None;
        while let Some((place, tool, made)) = calls.next().await {
            match made {
                Ok(mut result) => {
                    let said = format!(
                        "option {} of {count} was chosen: {}",
                        place.saturating_add(1),
                        quoted(&tool)
                    );
                    result.content.insert(0, ContentBlock::text(said));
                    return Ok(result);
                }
                // What was said to the last one is said of all.
                Err(own) => refused = Some(own),
            }
        }
        Err(match refused {
            Some(refused) => refused,
            None => self.refuse(Code::ArgumentsMalformed, "there is no option").await,
        })
    }

    async fn answer(&self) -> Result<CallToolResult, Refused> {
        let text = |name: &str| self.arguments.get(name).and_then(Value::as_str);
        let question = text("question").and_then(|text| text.trim_matches(['(', ')', '`', ' ']).parse().ok());
        let (Some(question), Some(words), 2) = (question, text("words"), self.arguments.len()) else {
            let why = "`question` is the id in the refusal, `words` is a text";
            return Err(self.refuse(Code::ArgumentsMalformed, why).await);
        };
        self.gate.channel.tell(question, words.to_owned());
        let said = "Passed on. Try the call again.";
        Ok(CallToolResult::success(vec![ContentBlock::text(said)]))
    }
}

/// How a request to a server is waited for.
pub(crate) struct Under<'a> {
    pub(crate) until: Instant,
    pub(crate) cut: &'a Cut,
    pub(crate) server: &'a str,
    /// True where parts of its answer are kept back: its words meanwhile are not passed on.
    pub(crate) quiet: bool,
}

type Response = Result<ServerResult, ServiceError>;

impl Under<'_> {
    /// Waits for the answer, and gives the server meanwhile what it asks for and may have.
    async fn wait(&self, gate: &Arc<Gate>, asker: &Asker, mut under: crate::upstream::Under) -> Result<Response, Came> {
        let mut given = FuturesUnordered::new();
        let mut further = -1.0f64;
        let mut beat = interval_at(
            Instant::now()
                .checked_add(limits::KEEP_ALIVE)
                .unwrap_or_else(Instant::now),
            limits::KEEP_ALIVE,
        );
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                biased;
                response = &mut under.handle.rx => {
                    // What the server said right before its answer may still be on its way here.
                    tokio::task::yield_now().await;
                    while let Ok(event) = under.events.try_recv() {
                        self.pass_on(asker, event, &mut further).await;
                    }
                    return Ok(response.unwrap_or(Err(ServiceError::TransportClosed)));
                }
                () = self.cut.off() => {
                    under.cancel("what allowed it was revoked").await;
                    return Err(Came::Cut);
                }
                () = asker.gone().cancelled() => {
                    under.cancel("the client gave it up").await;
                    return Err(Came::Gone);
                }
                () = sleep_until(self.until), if given.is_empty() => {
                    under.cancel("it took too long").await;
                    return Err(Came::TooLong);
                }
                Some(()) = given.next(), if !given.is_empty() => continue,
                _ = beat.tick() => {
                    asker.beat().await;
                    continue;
                }
                Some(event) = under.events.recv() => event,
            };
            if let Some((wanted, answer)) = self.pass_on(asker, event, &mut further).await {
                given.push(async move {
                    let _ = answer.send(reversed::answer(gate, asker, self.server, wanted).await);
                });
            }
        }
    }

    /// Passes on what is for the client to hear; hands back what the server asks for.
    async fn pass_on(&self, asker: &Asker, event: Event, further: &mut f64) -> Option<(Wanted, Giving)> {
        match event {
            Event::Progress(mut progress) => {
                if progress.progress > *further {
                    *further = progress.progress;
                    progress.message = progress.message.filter(|_| !self.quiet);
                    asker.progress(progress).await;
                }
                None
            }
            Event::Log(_) if self.quiet => None,
            Event::Log(message) => {
                asker.log(self.server, message).await;
                None
            }
            Event::Wants(wanted, answer) => Some((wanted, answer)),
        }
    }

    /// The same for what is no call of a tool. The error is for the agent.
    pub(crate) async fn answer(
        &self,
        gate: &Arc<Gate>,
        asker: &Asker,
        under: crate::upstream::Under,
    ) -> Result<Response, String> {
        match self.wait(gate, asker, under).await {
            Ok(response) => Ok(response),
            Err(Came::TooLong) => Err("the server did not answer in time".into()),
            Err(Came::Cut) => Err("what allowed it was revoked".into()),
            Err(_) => Err("it was given up".into()),
        }
    }
}

/// A result as the protocol's library wants it.
pub(crate) fn response(result: CallToolResult) -> CallToolResponse {
    CallToolResponse::Complete(result)
}

/// Progress under the client's own token.
pub(crate) fn progress_for(
    token: rmcp::model::ProgressToken,
    progress: ProgressNotificationParam,
) -> ProgressNotificationParam {
    let mut own = ProgressNotificationParam::new(token, progress.progress);
    own.total = progress.total;
    own.message = progress.message.map(|message| quoted(&message));
    own
}
