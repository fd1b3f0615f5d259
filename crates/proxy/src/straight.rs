//! Connections of programs that know no proxy: which host do they mean, and what do they speak?
//!
//! Answers: an address that DNS gave out inside stands for its name; behind any other, the TLS greeting or the Host line
//! says which host is meant, and where neither does, the address itself is the host. From there on it is a request or a
//! tunnel like any other.
//! Promises: P1, P5 (one host from address, greeting and Host line, or refusal; an address of the world's is never dialled
//! because the agent named it, but because a rule does, or because the host that was named is there), P10.
//! Trust: address and bytes are the agent's.
//! Not here: making such connections (`fence`), deciding.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bailiwick_model::{Code, Host, Scheme};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::caller::Caller;
use crate::dial::Gate;
use crate::greeting::{self, names_host};
use crate::limits;
use crate::road::Road;
use crate::serve::{Seat, reset};
use crate::synthetic::Synthetic;
use crate::tunnel::of_greeting;

/// Longest method of a request whose first words are looked at.
const METHOD: usize = 20;

/// What a client begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// A request of HTTP.
    Http,
    /// A TLS greeting.
    Tls,
    /// Something else, or nothing yet: the server may be the one to speak first.
    Other,
    /// It has nothing to say.
    Gone,
}

/// Tells first bytes apart; none while they may become either.
fn of_bytes(bytes: &[u8]) -> Option<Opening> {
    let word = bytes
        .iter()
        .position(|byte| !byte.is_ascii_uppercase() && *byte != b'-');
    match (bytes, word) {
        ([0x16, 0x03, ..], _) => Some(Opening::Tls),
        ([0x16], _) => None,
        (_, Some(end)) if (1..METHOD).contains(&end) && bytes.get(end) == Some(&b' ') => Some(Opening::Http),
        (_, None) if bytes.len() < METHOD => None,
        _ => Some(Opening::Other),
    }
}

/// Looks at what a client says first, and leaves it where it is. It may be silent for so long before it is taken for one
/// that lets the server speak first.
async fn opening_of(stream: &TcpStream, mut patience: Duration) -> Opening {
    let mut bytes = [0u8; METHOD + 1];
    let mut begun = None;
    loop {
        match timeout(patience, stream.peek(&mut bytes)).await {
            Ok(Ok(0) | Err(_)) => return Opening::Gone,
            Err(_) => return Opening::Other,
            Ok(Ok(count)) => match of_bytes(bytes.get(..count).unwrap_or_default()) {
                Some(opening) => return opening,
                None if begun.get_or_insert_with(Instant::now).elapsed() > limits::OPENING_TIME => {
                    return Opening::Other;
                }
                // The rest of a word that came in pieces.
                None => sleep(Duration::from_millis(5)).await,
            },
        }
        patience = limits::OPENING_TIME;
    }
}

impl Gate {
    /// The host that an address stands for. None for one that was given out once, or never.
    fn host_at(&self, address: IpAddr) -> Option<Host> {
        if Synthetic::holds(address) {
            return self.synthetic.lock().ok()?.name_of(address).cloned();
        }
        // In its one form, whatever way it is written inside IPv6.
        let address = address.to_canonical();
        Some(Host::parse(&address.to_string()).unwrap_or(Host::Address(address)))
    }

    /// What was refused, with the name that its address stands for.
    pub(crate) fn with_name(&self, what: String) -> String {
        let meant = what
            .strip_prefix("connect ")
            .and_then(|text| text.parse::<SocketAddr>().ok());
        match meant.and_then(|meant| self.host_at(meant.ip())) {
            Some(Host::Name(name)) => format!("{what} ({name})"),
            Some(Host::Address(_)) | None => what,
        }
    }

    /// Serves a connection that was made to an address which is not the fence's own.
    pub(crate) async fn serve_elsewhere(
        self: Arc<Self>,
        meant: SocketAddr,
        streams: &BTreeSet<(Host, u16)>,
        stream: TcpStream,
        seat: Seat,
    ) {
        let port = meant.port();
        let Some(host) = self.host_at(meant.ip()) else {
            let what = format!("connect {meant}");
            let why = "the address stands for no name any more: look the name up again";
            self.channel.refuse(Code::NameMismatch, &what, why).await;
            return reset(stream);
        };
        if streams.contains(&(host.clone(), port)) {
            return self.serve_stream(&host, port, stream).await;
        }
        // Where TLS is opened it is the client that begins, however long it takes to: some connect long before they greet.
        let patience = if self.may_open(&host, port) {
            limits::HEAD_TIME
        } else {
            limits::SILENCE
        };
        match (opening_of(&stream, patience).await, host) {
            (Opening::Http, Host::Address(address)) => {
                self.serve_http(Road::Address { address, port }, stream, seat).await
            }
            (Opening::Http, host) => {
                let road = Road::Straight {
                    scheme: Scheme::Http,
                    host,
                    port,
                };
                self.serve_http(road, stream, seat).await;
            }
            (Opening::Tls, Host::Address(address)) => self.serve_greeting(address, port, stream, seat).await,
            (Opening::Tls, host) if self.opens(&host, port) => {
                let caller = Caller::at(&stream);
                self.serve_opened(host, port, stream, &[], caller, seat).await;
            }
            // A host with a name that is left without a word was asked for nothing: browsers connect ahead of need.
            (Opening::Gone, Host::Name(_)) => {}
            (Opening::Tls | Opening::Other | Opening::Gone, host) => self.serve_stream(&host, port, stream).await,
        }
    }

    /// Serves a client that greets an address with TLS: the name in the greeting is the host.
    async fn serve_greeting(self: Arc<Self>, address: IpAddr, port: u16, mut stream: TcpStream, seat: Seat) {
        let act = |host: &Host| self.tunnel_request(host, port).to_string();
        let caller = Caller::at(&stream);
        let greeting = match greeting::read(&mut stream, &[]).await {
            Ok(greeting) => greeting,
            Err(fault) => {
                let (code, why) = of_greeting(fault);
                self.channel.refuse(code, &act(&Host::Address(address)), &why).await;
                return reset(stream);
            }
        };
        let name = greeting.name.as_deref();
        let host = match name.map(Host::parse) {
            Some(Ok(host @ Host::Name(_))) if !host.is_localhost() => host,
            _ => Host::Address(address),
        };
        if let Err(why) = names_host(name, &host) {
            self.channel.refuse(Code::NameMismatch, &act(&host), &why).await;
            return reset(stream);
        }
        if self.opens(&host, port) {
            return self
                .serve_opened(host, port, stream, &greeting.bytes, caller, seat)
                .await;
        }
        match self.open_tunnel(&host, port, &caller).await {
            Ok(reached) => self.join(stream, &greeting.bytes, &host, port, reached).await,
            Err(_) => reset(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_what_a_client_speaks_is_told_by_its_first_bytes() {
        for (bytes, want) in [
            (&b"GET / HTTP/1.1"[..], Some(Opening::Http)),
            (b"M-SEARCH * HTTP/1.1", Some(Opening::Http)),
            (b"GE", None),
            (b"", None),
            (b"\x16", None),
            (b"\x16\x03\x01", Some(Opening::Tls)),
            (b"\x16\x00\x00\x00", Some(Opening::Other)),
            (b"SSH-2.0-x\r\n", Some(Opening::Other)),
            (b" GET /", Some(Opening::Other)),
            (b"get / HTTP/1.1", Some(Opening::Other)),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", Some(Opening::Other)),
            (b"ABCDEFGHIJKLMNOPQRST", Some(Opening::Other)),
        ] {
            assert_eq!(of_bytes(bytes), want, "{bytes:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn p4_more_bytes_never_turn_one_thing_into_another(bytes in proptest::collection::vec(0u8..=255, 0..40), cut in 0usize..40) {
            let cut = cut.min(bytes.len());
            if let Some(first) = of_bytes(&bytes[..cut]) {
                proptest::prop_assert_eq!(of_bytes(&bytes), Some(first));
            }
        }
    }
}
