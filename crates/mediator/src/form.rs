//! Is the request well formed: does its verb fit its resource, does it say what its effect depends on?
//!
//! Promises: P4. Trust: a request comes from a gate that hostile bytes may have taken over; it wants a request that
//! the rules read as one thing and the gate does as another.

use std::net::IpAddr;

use bailiwick_model::{Argument, Code, Decision, Host, Request, Resource, Verb, argument};

use crate::snapshot::Purpose;

/// The denial of a request that is not well formed.
pub(crate) fn refuse(request: &Request, purpose: Purpose) -> Option<Decision> {
    let malformed = |text: String| Some(Decision::deny(Code::MalformedRequest, text));
    if !verb_fits(request) {
        return malformed(format!("`{}` does not go with `{}`", request.verb, request.resource));
    }
    if let Some((name, _)) = request
        .arguments
        .iter()
        .find(|(name, value)| !argument_fits(&request.resource, name, value))
    {
        return malformed(format!("`{name}` is not an argument of this request"));
    }
    let connects = matches!(
        request.resource,
        Resource::Url(_) | Resource::Repository { .. } | Resource::Endpoint { .. }
    );
    match (connects, request.address(), purpose) {
        (true, Some(address), _) => refuse_other_address(request, address),
        (true, None, Purpose::Effect | Purpose::Order) => {
            malformed("it does not say which address will be dialled".into())
        }
        (true, None, Purpose::Question) | (false, None, _) => None,
        (false, Some(_), _) => malformed(format!("`{request}` dials no address")),
    }
}

fn verb_fits(request: &Request) -> bool {
    match (&request.resource, &request.verb) {
        (Resource::File(_) | Resource::Tree(_), verb) => verb.is_file(),
        (Resource::Url(url), verb) => matches!(verb, Verb::Http(_)) && url.port != 0,
        (Resource::Repository { url, .. }, verb) => matches!(verb, Verb::Fetch | Verb::Push) && url.port != 0,
        (Resource::Endpoint { port, .. }, verb) => *verb == Verb::Tunnel && *port != 0,
        (Resource::Name(_), verb) => *verb == Verb::Resolve,
        (Resource::Command(_), verb) => verb.is_command(),
        (Resource::Secret(_), verb) => *verb == Verb::Use,
        (Resource::Tool(tool), verb) => tool.fits(verb),
    }
}

/// True for what a gate says of a request beside its resource. A length is never negative.
fn argument_fits(resource: &Resource, name: &str, value: &Argument) -> bool {
    if let Resource::Tool(_) = resource {
        return tool_argument_fits(name, value);
    }
    let is_http = matches!(resource, Resource::Url(_) | Resource::Repository { .. });
    match value {
        Argument::Address(_) => name == argument::ADDRESS,
        Argument::Text(_) if name == argument::REFERENCES => matches!(resource, Resource::Url(_)),
        Argument::Text(_) => is_http && name == argument::CONTENT_TYPE,
        Argument::Whole(length) => is_http && name == argument::CONTENT_LENGTH && *length >= 0,
        Argument::Flag(_) => is_http && name == argument::CREDENTIAL,
        Argument::Number(_) | Argument::Null | Argument::List(_) | Argument::Fields(_) => false,
    }
}

/// True for what the tool gate says of a call: what the caller gives stands in fields of its own.
fn tool_argument_fits(name: &str, value: &Argument) -> bool {
    match value {
        Argument::Fields(_) => name == argument::ARGS || name == argument::CHOSEN,
        Argument::Text(_) => {
            let known = [
                argument::DEFINITION,
                argument::REASON,
                argument::CHOICE,
                argument::OLD,
                argument::NEW,
            ];
            known.contains(&name)
        }
        Argument::Whole(count) => name == argument::TOKENS && *count >= 0,
        _ => false,
    }
}

/// A host that is an address is dialled at that address and no other.
fn refuse_other_address(request: &Request, address: IpAddr) -> Option<Decision> {
    let Some(Host::Address(named)) = request.resource.host() else {
        return None;
    };
    (*named != address).then(|| {
        Decision::deny(
            Code::NameMismatch,
            format!("`{named}` is named but `{address}` would be dialled"),
        )
    })
}
