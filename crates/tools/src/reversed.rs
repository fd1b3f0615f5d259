//! What a server asks for: something that the agent's model writes, input of whoever works with the agent, the folders it
//! works in.
//!
//! Answers: may this server have that, and how much of it?
//! Promises: P1, P4 (where no rule says so, it may not; each has a permit of its own), P8 (what is shown to whoever works
//! with the agent names the server that asks). Trust: every word is the server's, and it would like to be taken for
//! somebody else. What is given is the client's.

use std::sync::Arc;

use bailiwick_line::Effect;
use bailiwick_model::{
    Argument, Code, Obligation, Request, Resource, ToolDuty, ToolName, Verb, argument, visible_lines,
};
use rmcp::ErrorData;
use rmcp::model::{
    CreateMessageRequest, CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, InputRequest,
    ListRootsRequest, ProtocolVersion,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value, json};

use crate::arguments::fields_of;
use crate::gate::Gate;
use crate::limits;
use crate::results::STRANGE;
use crate::session::Asker;
use crate::upstream::{Given, Wanted};

/// Asks whether a server may have what it wants, and gets it from the client where it may.
pub(crate) async fn answer(gate: &Arc<Gate>, asker: &Asker, server: &str, wanted: Wanted) -> Result<Given, ErrorData> {
    let (verb, fields, tokens) = match &wanted {
        Wanted::Sample(params) => (Verb::Sample, sampled(params), Some(i64::from(params.max_tokens))),
        Wanted::Elicit(params) => (Verb::Elicit, elicited(params), None),
        Wanted::Roots => (Verb::Roots, Map::new(), None),
    };
    let what = format!("{verb} {server}");
    let length = Value::Object(fields.clone()).to_string().len();
    let arguments = match fields_of(&fields) {
        Ok(arguments) if length <= limits::ARGUMENTS => arguments,
        Ok(_) => {
            let why = format!("it has {length} bytes: at most {}", limits::ARGUMENTS);
            return Err(gate
                .channel
                .refuse(Code::LimitReached, &what, &why)
                .await
                .error("request"));
        }
        Err(why) => {
            let refused = gate.channel.refuse(Code::ArgumentsMalformed, &what, &why).await;
            return Err(refused.error("request"));
        }
    };
    let Ok(name) = ToolName::new(server, "") else {
        return Err(ErrorData::internal_error("no such server", None));
    };
    let mut request = Request::new(gate.channel.task(), verb, Resource::Tool(name));
    request.arguments.insert(argument::ARGS.into(), arguments);
    if let Some(tokens) = tokens {
        let tokens = Argument::Whole(tokens);
        request.arguments.insert(argument::TOKENS.into(), tokens);
    }
    let asked = gate.channel.ask(&request, asker.gone()).await;
    let mut effect = asked.map_err(|refused| refused.error("request"))?;
    let most = match most_tokens(&effect) {
        Ok(most) => most,
        Err(why) => {
            effect.settle(false, format!("not asked: {why}"));
            let refused = gate.channel.refuse(Code::Fault, &what, STRANGE).await;
            return Err(refused.error("request"));
        }
    };
    if !asker.may_be_asked() {
        effect.settle(false, "not asked: the client cannot be");
        return Err(ErrorData::invalid_request("the client cannot be asked", None));
    }
    effect.begin();
    let cut = Arc::clone(effect.cut());
    let given = tokio::select! {
        given = give(asker, server, wanted, most) => given,
        () = asker.gone().cancelled() => Err(ErrorData::invalid_request("it was given up", None)),
        () = cut.off() => Err(ErrorData::invalid_request("what allowed it was revoked", None)),
    };
    match &given {
        Ok(_) => effect.settle(true, "given"),
        Err(fault) => effect.settle(false, format!("not given: {}", crate::results::quoted(&fault.message))),
    }
    given
}

/// The duties of a permit for what a server asks for.
fn most_tokens(effect: &Effect) -> Result<Option<u32>, &'static str> {
    let mut most = None;
    for obligation in effect.spent().obligations() {
        let Obligation::Tool(duty) = obligation else {
            return Err(STRANGE);
        };
        match duty {
            ToolDuty::Tokens { most: tokens } => {
                let tokens = u32::try_from(*tokens).unwrap_or(u32::MAX);
                most = Some(most.map_or(tokens, |most: u32| most.min(tokens)));
            }
            ToolDuty::Notify => {}
            ToolDuty::Redact { .. }
            | ToolDuty::Cap { .. }
            | ToolDuty::Present { .. }
            | ToolDuty::Label { .. }
            | ToolDuty::Reveal { .. } => {
                return Err(STRANGE);
            }
        }
    }
    Ok(most)
}

/// What is judged of a request for something written: all of it but the protocol's own.
fn sampled(params: &CreateMessageRequestParams) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(params) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.remove("_meta");
    fields.remove("maxTokens");
    fields
}

fn elicited(params: &ElicitRequestParams) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(params) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.remove("_meta");
    let schema = fields.remove("requestedSchema");
    if let Some(schema) = schema {
        fields.insert("schema".into(), schema);
    }
    fields.entry("mode").or_insert(json!("form"));
    fields
}

/// Gets it from the client.
async fn give(asker: &Asker, server: &str, wanted: Wanted, most: Option<u32>) -> Result<Given, ErrorData> {
    let request = match wanted {
        Wanted::Sample(mut params) => {
            if let Some(most) = most {
                params.max_tokens = params.max_tokens.min(most);
            }
            params.meta = None;
            InputRequest::CreateMessage(CreateMessageRequest::new(*params))
        }
        Wanted::Elicit(params) => InputRequest::Elicitation(ElicitRequest::new(named(server, *params))),
        Wanted::Roots => InputRequest::ListRoots(ListRootsRequest::default()),
    };
    if let Some(given) = asker.need(request.clone()).await {
        return read(&request, given?);
    }
    let peer = asker.peer();
    let failed = |fault: ServiceError| match fault {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(other.to_string(), None),
    };
    match request {
        InputRequest::CreateMessage(request) => {
            let written = peer.create_message(request.params).await.map_err(failed)?;
            Ok(Given::Sample(Box::new(written)))
        }
        InputRequest::Elicitation(request) => {
            let input = peer.create_elicitation(request.params).await.map_err(failed)?;
            Ok(Given::Elicit(Box::new(input)))
        }
        InputRequest::ListRoots(_) => Ok(Given::Roots(peer.list_roots().await.map_err(failed)?)),
        _ => Err(ErrorData::internal_error("something that is not known", None)),
    }
}

/// What a client came back with.
fn read(request: &InputRequest, given: Value) -> Result<Given, ErrorData> {
    let odd = |_| ErrorData::invalid_params("what the client gave is of another kind", None);
    match request {
        InputRequest::CreateMessage(_) => serde_json::from_value(given)
            .map(|written| Given::Sample(Box::new(written)))
            .map_err(odd),
        InputRequest::Elicitation(_) => serde_json::from_value(given)
            .map(|input| Given::Elicit(Box::new(input)))
            .map_err(odd),
        _ => serde_json::from_value(given).map(Given::Roots).map_err(odd),
    }
}

/// Names the server that asks, before its own words.
fn named(server: &str, params: ElicitRequestParams) -> ElicitRequestParams {
    let say = |message: String| format!("The tool server `{server}` asks: {}", visible_lines(&message));
    match params {
        ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } => ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: say(message),
            requested_schema,
        },
        ElicitRequestParams::UrlElicitationParams {
            message,
            url,
            elicitation_id,
            ..
        } => ElicitRequestParams::UrlElicitationParams {
            meta: None,
            message: say(message),
            url,
            elicitation_id,
        },
        other => other,
    }
}

/// True for revisions in which a server may ask a client of its own accord.
pub(crate) fn may_ask(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str())
}
