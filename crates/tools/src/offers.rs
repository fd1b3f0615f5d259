//! What servers offer beside tools: resources, prompts, and completions for both.
//!
//! Promises: P1 (each reading of a resource and each prompt has a permit of its own), P8 (a prompt or a template is shown and
//! used only as a person took it), P5 (an address that a client names
//! means one server's; one that can be written in two ways is refused).
//! Trust: addresses and names are the servers'; what is asked for is the agent's.

use std::sync::Arc;
use std::time::Duration;

use bailiwick_line::Effect;
use bailiwick_model::{Code, Request, Resource, ToolName, Verb, argument};
use rmcp::ErrorData;
use rmcp::model::{
    ClientRequest, CompleteRequestParams, CompleteResult, ContentBlock, GetPromptRequestParams, GetPromptResult,
    PaginatedRequestParams, Prompt, ReadResourceRequestParams, ReadResourceResult, Reference, ResourceContents,
    ResourceTemplate, ServerResult, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use crate::arguments::fields_of;
use crate::call::Under;
use crate::definition::{Definition, Kind, plain_length};
use crate::gate::Gate;
use crate::limits;
use crate::names::wire_name;
use crate::refusal::Refused;
use crate::results::{Duties, quoted};
use crate::session::Asker;
use crate::upstream::{Connection, Upstream, failed};

/// Between a server's name and an address, in an address that clients see. No server's name holds one.
const BETWEEN: char = '+';

/// A server's address, as clients see it: the server's name becomes a part of the scheme.
pub(crate) fn outer_uri(server: &str, uri: &str) -> String {
    format!("{server}{BETWEEN}{uri}")
}

/// The server and its own address.
fn inner_uri(uri: &str) -> Option<(&str, &str)> {
    uri.split_once(BETWEEN)
}

/// True for an address that leads to another place than it seems to.
fn is_crooked(uri: &str) -> bool {
    let plain = uri
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "\\");
    plain.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")) || uri.chars().any(crate::strict::is_hidden)
}

/// Rewrites addresses in a result, so that a client can ask for them.
pub(crate) fn outer_links(server: &str, content: &mut [ContentBlock]) {
    for block in content {
        match block {
            ContentBlock::ResourceLink(link) => link.uri = outer_uri(server, &link.uri),
            ContentBlock::Resource(resource) => outer_contents(server, &mut resource.resource),
            _ => {}
        }
    }
}

fn outer_contents(server: &str, contents: &mut ResourceContents) {
    match contents {
        ResourceContents::TextResourceContents { uri, .. } | ResourceContents::BlobResourceContents { uri, .. } => {
            *uri = outer_uri(server, uri);
        }
        _ => {}
    }
}

/// The servers of which some rule shows something with this verb, running. One that fails is left out, and so is one whose
/// lists carry tags.
async fn servers(gate: &Arc<Gate>, asker: &Asker, verb: &Verb) -> Vec<(Arc<Upstream>, Arc<Connection>)> {
    let mut all = Vec::new();
    let listed = |upstream: &&Arc<Upstream>| upstream.config.shows_any(verb) && !upstream.config.unlisted;
    for upstream in gate.servers.values().filter(listed) {
        if let Ok(connection) = asker.alive(gate.running(upstream)).await {
            all.push((Arc::clone(upstream), connection));
        }
    }
    all
}

/// All pages of a list, within limits, but for what holds characters that do not show. A server that fails has none.
macro_rules! all_of {
    ($connection:expr, $list:ident, $field:ident) => {{
        let mut all = Vec::new();
        let mut cursor = None;
        let mut bytes = 0usize;
        for _ in 0..limits::PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let listed = timeout(limits::START_TIME, $connection.peer().$list(Some(page))).await;
            let Ok(Ok(listed)) = listed else { break };
            for one in listed.$field {
                if let Some(length) = plain_length(&one) {
                    bytes = bytes.saturating_add(length);
                    all.push(one);
                }
            }
            if bytes > limits::LISTED {
                break;
            }
            cursor = listed.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || all.len() >= limits::OFFERED {
                break;
            }
        }
        all.truncate(limits::OFFERED);
        all
    }};
}

/// All prompts that a server offers, as it says them.
pub(crate) async fn prompts_of(connection: &Connection) -> Vec<Prompt> {
    all_of!(connection, list_prompts, prompts)
}

/// All templates of addresses, likewise.
pub(crate) async fn templates_of(connection: &Connection) -> Vec<ResourceTemplate> {
    all_of!(connection, list_resource_templates, resource_templates)
}

/// All resources, likewise.
pub(crate) async fn resources_of(connection: &Connection) -> Vec<rmcp::model::Resource> {
    all_of!(connection, list_resources, resources)
}

/// The resources that some rule shows.
pub(crate) async fn resources(gate: &Arc<Gate>, asker: &Asker) -> Vec<rmcp::model::Resource> {
    let mut all = Vec::new();
    for (upstream, connection) in servers(gate, asker, &Verb::Open).await {
        let server = &upstream.config.name;
        for mut resource in resources_of(&connection).await {
            let name = ToolName::new(server, &resource.uri);
            if name.is_ok_and(|name| upstream.config.shows(&Verb::Open, &name)) && !is_crooked(&resource.uri) {
                resource.uri = outer_uri(server, &resource.uri);
                all.push(resource);
            }
        }
    }
    all
}

/// The templates that a person has taken, of servers of which some rule shows resources.
pub(crate) async fn templates(gate: &Arc<Gate>, asker: &Asker) -> Vec<ResourceTemplate> {
    let mut all = Vec::new();
    for (upstream, connection) in servers(gate, asker, &Verb::Open).await {
        let server = &upstream.config.name;
        for mut template in templates_of(&connection).await {
            if gate.took(server, Kind::Template, &Definition::of(&template)) {
                template.uri_template = outer_uri(server, &template.uri_template);
                all.push(template);
            }
        }
    }
    all
}

/// The prompts that some rule shows and a person has taken.
pub(crate) async fn prompts(gate: &Arc<Gate>, asker: &Asker) -> Vec<Prompt> {
    let mut all: Vec<Prompt> = Vec::new();
    for (upstream, connection) in servers(gate, asker, &Verb::Prompt).await {
        let server = &upstream.config.name;
        for mut prompt in prompts_of(&connection).await {
            let shown = ToolName::new(server, &prompt.name);
            let shown = shown.is_ok_and(|name| upstream.config.shows(&Verb::Prompt, &name));
            if shown && gate.took(server, Kind::Prompt, &Definition::of(&prompt)) {
                prompt.name = wire_name(server, &prompt.name);
                all.push(prompt);
            }
        }
    }
    all
}

/// One request for something that is no tool, judged.
struct Asked {
    upstream: Arc<Upstream>,
    connection: Arc<Connection>,
    effect: Effect,
    name: ToolName,
    duties: Duties,
}

/// Asks about it, starts the server, reads the duties.
async fn ask(
    gate: &Arc<Gate>,
    asker: &Asker,
    verb: Verb,
    (server, name): (&str, &str),
    fields: &Map<String, Value>,
) -> Result<Asked, ErrorData> {
    let what = format!("{verb} {}", quoted(&format!("{server}/{name}")));
    let refuse = async |code, why: &str| gate.channel.refuse(code, &what, why).await.error("request");
    let (Ok(name), Some(upstream)) = (ToolName::new(server, name), gate.servers.get(server)) else {
        return Err(refuse(Code::ToolUnknown, "there is no such server, or nothing of this name").await);
    };
    let arguments = match fields_of(fields) {
        Ok(arguments) if Value::Object(fields.clone()).to_string().len() <= limits::ARGUMENTS => arguments,
        Ok(_) => return Err(refuse(Code::LimitReached, "its arguments are too long").await),
        Err(why) => return Err(refuse(Code::ArgumentsMalformed, &why).await),
    };
    let mut request = Request::new(gate.channel.task(), verb, Resource::Tool(name.clone()));
    request.arguments.insert(argument::ARGS.into(), arguments);
    let effect = asker.alive(gate.channel.ask(&request, asker.gone())).await;
    let effect = effect.map_err(|refused: Refused| refused.error("request"))?;
    let duties = match Duties::of(effect.spent().obligations()) {
        Ok(duties) => duties,
        Err(why) => {
            effect.settle(false, format!("not asked: {why}"));
            return Err(refuse(Code::Fault, "the permit asks for what this gate cannot do").await);
        }
    };
    match asker.alive(gate.running(upstream)).await {
        Ok(connection) => Ok(Asked {
            upstream: Arc::clone(upstream),
            connection,
            effect,
            name,
            duties,
        }),
        Err(why) => {
            effect.settle(false, why.clone());
            Err(refuse(Code::ServerFailed, &why).await)
        }
    }
}

impl Asked {
    /// Goes on with a prompt that its server offers as a person took it, and refuses any other.
    async fn only_taken(self, gate: &Gate) -> Result<Self, ErrorData> {
        let (server, name) = (self.name.server(), self.name.name());
        let mut all = prompts_of(&self.connection).await.into_iter();
        let now = all.find(|prompt| prompt.name == name);
        let (code, why) = match now.map(|now| gate.took(server, Kind::Prompt, &Definition::of(&now))) {
            Some(true) => return Ok(self),
            Some(false) => (
                Code::ToolChanged,
                "nobody has taken it as it is now: a person can, by `bailiwick tools pin`",
            ),
            None => (Code::ToolUnknown, "the server offers no such prompt"),
        };
        let what = format!("prompt {}", self.name);
        self.effect.settle(false, format!("not asked for: {why}"));
        Err(gate.channel.refuse(code, &what, why).await.error("request"))
    }

    /// Sends it; the answer, and the effect, which is still to be settled where there is one.
    async fn send(
        mut self,
        gate: &Arc<Gate>,
        asker: &Asker,
        request: ClientRequest,
    ) -> Result<(ServerResult, Effect, Duties, ToolName), ErrorData> {
        self.effect.begin();
        let what = format!("ask {}", self.name);
        let under = match self.connection.send(asker.client(), request).await {
            Ok(under) => under,
            Err(why) => {
                self.effect.settle(true, why.clone());
                return Err(gate
                    .channel
                    .refuse(Code::ServerFailed, &what, &why)
                    .await
                    .error("request"));
            }
        };
        let most = Duration::from_secs(self.upstream.config.limits.call_seconds);
        let cut = Arc::clone(self.effect.cut());
        let asked = Under {
            until: Instant::now().checked_add(most).unwrap_or_else(Instant::now),
            cut: &cut,
            server: self.name.server(),
            quiet: false,
        };
        match asked.answer(gate, asker, under).await {
            Ok(Ok(result)) => {
                self.upstream.works().await;
                Ok((result, self.effect, self.duties, self.name))
            }
            Ok(Err(ServiceError::McpError(error))) => {
                self.upstream.works().await;
                self.effect.settle(false, "the server answered with an error");
                Err(error)
            }
            Ok(Err(fault)) => {
                let why = match fault {
                    ServiceError::TransportClosed => self.connection.end(),
                    other => failed(&other),
                };
                self.effect.settle(true, why.clone());
                Err(gate
                    .channel
                    .refuse(Code::ServerFailed, &what, &why)
                    .await
                    .error("request"))
            }
            Err(why) => {
                self.effect.settle(true, why.clone());
                Err(gate
                    .channel
                    .refuse(Code::LimitReached, &what, &why)
                    .await
                    .error("request"))
            }
        }
    }
}

fn odd(effect: Effect) -> ErrorData {
    effect.settle(true, "its answer is of another kind");
    ErrorData::internal_error("the server's answer is of another kind", None)
}

/// The server and the address that a client means.
async fn meant<'u>(gate: &Gate, uri: &'u str) -> Result<(&'u str, &'u str), ErrorData> {
    let what = format!("open {}", quoted(uri));
    let Some((server, inner)) = inner_uri(uri) else {
        let why = "no address of a server: they begin with its name and `+`";
        return Err(gate
            .channel
            .refuse(Code::ToolUnknown, &what, why)
            .await
            .error("request"));
    };
    if is_crooked(inner) {
        let why = "the address can be read in more than one way";
        return Err(gate
            .channel
            .refuse(Code::ArgumentsMalformed, &what, why)
            .await
            .error("request"));
    }
    Ok((server, inner))
}

/// Reads a resource.
pub(crate) async fn read(gate: &Arc<Gate>, asker: &Asker, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let (server, inner) = meant(gate, uri).await?;
    let asked = ask(gate, asker, Verb::Open, (server, inner), &Map::new()).await?;
    let params = ReadResourceRequestParams::new(inner.to_owned());
    let request = ClientRequest::ReadResourceRequest(rmcp::model::ReadResourceRequest::new(params));
    let (result, mut effect, duties, name) = asked.send(gate, asker, request).await?;
    let ServerResult::ReadResourceResult(mut read) = result else {
        return Err(odd(effect));
    };
    let contents = std::mem::take(&mut read.contents);
    let blocks = contents.into_iter().map(ContentBlock::resource).collect();
    let mut result = rmcp::model::CallToolResult::success(blocks);
    effect.received(crate::results::length(&result));
    if let Err(why) = duties.apply(&mut result, &gate.handles, &name.to_string()) {
        effect.settle(true, format!("read; not shown: {why}"));
        let refused = gate
            .channel
            .refuse(Code::LimitReached, &format!("open {name}"), &why)
            .await;
        return Err(refused.error("request"));
    }
    read.contents = result
        .content
        .into_iter()
        .map(|block| match block {
            ContentBlock::Resource(resource) => resource.resource,
            ContentBlock::Text(text) => ResourceContents::text(text.text, inner),
            _ => ResourceContents::text("", inner),
        })
        .collect();
    for contents in &mut read.contents {
        outer_contents(server, contents);
    }
    effect.settle(true, "read");
    Ok(read)
}

/// Wants to hear of a resource, or no more.
pub(crate) async fn subscribe(gate: &Arc<Gate>, asker: &Asker, uri: &str, wanted: bool) -> Result<(), ErrorData> {
    let (server, inner) = meant(gate, uri).await?;
    if !gate.subscribe(asker.client(), uri, wanted) {
        return Err(ErrorData::invalid_request(
            "too many resources, or no session to tell",
            None,
        ));
    }
    let asked = ask(gate, asker, Verb::Open, (server, inner), &Map::new()).await;
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            gate.subscribe(asker.client(), uri, false);
            return Err(error);
        }
    };
    let request = if wanted {
        let params = SubscribeRequestParams::new(inner.to_owned());
        ClientRequest::SubscribeRequest(rmcp::model::SubscribeRequest::new(params))
    } else {
        let params = UnsubscribeRequestParams::new(inner.to_owned());
        ClientRequest::UnsubscribeRequest(rmcp::model::UnsubscribeRequest::new(params))
    };
    let (_, effect, ..) = asked.send(gate, asker, request).await?;
    effect.settle(true, "told");
    Ok(())
}

/// The prompt that a client's name means: by its parts, or by looking through what the server offers.
async fn prompt_meant(gate: &Arc<Gate>, asker: &Asker, wire: &str) -> Option<(String, String)> {
    let (server, plain) = wire.split_once("__")?;
    if wire_name(server, plain) == wire {
        return Some((server.to_owned(), plain.to_owned()));
    }
    let upstream = gate
        .servers
        .get(server)
        .filter(|upstream| upstream.config.shows_any(&Verb::Prompt))?;
    let connection = asker.alive(gate.running(upstream)).await.ok()?;
    let all = prompts_of(&connection).await;
    let found = all.into_iter().find(|prompt| wire_name(server, &prompt.name) == wire)?;
    Some((server.to_owned(), found.name))
}

async fn no_prompt(gate: &Gate, wire: &str) -> ErrorData {
    let what = format!("prompt {}", quoted(wire));
    gate.channel
        .refuse(Code::ToolUnknown, &what, "there is no such prompt")
        .await
        .error("request")
}

/// Has a server make a prompt.
pub(crate) async fn prompt(
    gate: &Arc<Gate>,
    asker: &Asker,
    params: GetPromptRequestParams,
) -> Result<GetPromptResult, ErrorData> {
    let Some((server, name)) = prompt_meant(gate, asker, &params.name).await else {
        return Err(no_prompt(gate, &params.name).await);
    };
    let arguments = params.arguments.unwrap_or_default();
    let asked = ask(gate, asker, Verb::Prompt, (&server, &name), &arguments).await?;
    let asked = asked.only_taken(gate).await?;
    let mut inner = GetPromptRequestParams::new(name);
    inner.arguments = Some(arguments);
    let request = ClientRequest::GetPromptRequest(rmcp::model::GetPromptRequest::new(inner));
    let (result, effect, ..) = asked.send(gate, asker, request).await?;
    let ServerResult::GetPromptResult(mut made) = result else {
        return Err(odd(effect));
    };
    for message in &mut made.messages {
        outer_links(&server, std::slice::from_mut(&mut message.content));
    }
    effect.settle(true, "made");
    Ok(made)
}

/// Completes an argument of a prompt or of an address.
pub(crate) async fn complete(
    gate: &Arc<Gate>,
    asker: &Asker,
    mut params: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let (verb, server, name) = match &mut params.r#ref {
        Reference::Prompt(prompt) => {
            let Some((server, name)) = prompt_meant(gate, asker, &prompt.name).await else {
                return Err(no_prompt(gate, &prompt.name).await);
            };
            prompt.name.clone_from(&name);
            (Verb::Prompt, server, name)
        }
        Reference::Resource(resource) => {
            let (server, inner) = meant(gate, &resource.uri).await?;
            let (server, inner) = (server.to_owned(), inner.to_owned());
            resource.uri.clone_from(&inner);
            (Verb::Open, server, inner)
        }
        _ => return Err(ErrorData::invalid_params("no such reference", None)),
    };
    let mut fields = Map::new();
    fields.insert(params.argument.name.clone(), Value::from(params.argument.value.clone()));
    let of_prompt = verb == Verb::Prompt;
    let mut asked = ask(gate, asker, verb, (&server, &name), &fields).await?;
    if of_prompt {
        asked = asked.only_taken(gate).await?;
    }
    params.meta = None;
    let request = ClientRequest::CompleteRequest(rmcp::model::CompleteRequest::new(params));
    let (result, effect, ..) = asked.send(gate, asker, request).await?;
    let ServerResult::CompleteResult(completed) = result else {
        return Err(odd(effect));
    };
    effect.settle(true, "completed");
    Ok(completed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_an_address_means_one_server_s_and_one_place() {
        let outer = outer_uri("notes", "file:///a/b");
        assert_eq!(outer, "notes+file:///a/b");
        assert_eq!(inner_uri(&outer), Some(("notes", "file:///a/b")));
        assert_eq!(inner_uri("notes+svn+ssh://x"), Some(("notes", "svn+ssh://x")));
        for crooked in [
            "file:///a/../b",
            "file:///a/%2e%2E/b",
            "file:///a/..",
            "x:\\..\\y",
            "a/./b",
            "a%2f..%2fb",
            "a\u{202e}b",
        ] {
            assert!(is_crooked(crooked), "{crooked}");
        }
        for plain in [
            "file:///a/b.txt",
            "demo://resource/static/1",
            "file:///a..b/c",
            "test://x?y=.z",
        ] {
            assert!(!is_crooked(plain), "{plain}");
        }
    }
}
