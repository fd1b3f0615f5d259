//! The one way out: look up, ask, dial.
//!
//! Promises: P1 (a name is looked up, and an address dialled, only under a permit for just that), P5 (the address that
//! was asked about is the address that is dialled). Trust: names and addresses come from the agent and from whoever
//! runs a zone.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use bailiwick_gate::Refusal;
use bailiwick_line::Effect;
use bailiwick_model::{Code, Digest, Host, Obligation, Request, Resource, Scheme, Verb};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::caller::Caller;
use crate::certificates::Issuer;
use crate::channel::Channel;
use crate::exchange::Bounds;
use crate::intercept::Openings;
use crate::limits;
use crate::links::{Destination, Link, Links};
use crate::names::Names;
use crate::refusal::Refused;
use crate::secrets::Secrets;
use crate::synthetic::Synthetic;
use crate::upstream::{Upstream, UpstreamFault};

/// What all services share.
pub(crate) struct Gate {
    pub(crate) channel: Channel,
    pub(crate) names: Names,
    pub(crate) synthetic: Mutex<Synthetic>,
    /// Hosts whose connections are opened.
    pub(crate) opened: Openings,
    /// What signs for them; without it none is.
    pub(crate) issuer: Option<Issuer>,
    pub(crate) upstream: Upstream,
    pub(crate) links: Arc<Links>,
    /// Places for requests on HTTP/2, of which one connection carries many.
    pub(crate) exchanges: Semaphore,
    pub(crate) secrets: Secrets,
}

/// What was allowed and reached.
pub(crate) struct Reached<W> {
    pub(crate) way: W,
    pub(crate) effect: Effect,
    /// What the way leads to.
    pub(crate) to: Destination,
    /// What holds for a request and its answer.
    pub(crate) bounds: Bounds,
    /// True when the TLS greeting must be read and its name compared.
    pub(crate) match_server_name: bool,
}

/// What an address is wanted for.
pub(crate) trait Purpose: Sync {
    /// What comes of it.
    type Way: Send;

    /// The scheme and whether HTTP/2 will do; none for bytes that are passed on.
    fn requests(&self) -> Option<(Scheme, bool)>;

    /// Opens a way to where the permit allows it.
    fn open(&self, gate: &Gate, to: &Destination) -> impl Future<Output = Result<Self::Way, UpstreamFault>> + Send;
}

/// A stream whose bytes are passed on.
pub(crate) struct Passed;

impl Purpose for Passed {
    type Way = TcpStream;

    fn requests(&self) -> Option<(Scheme, bool)> {
        None
    }

    async fn open(&self, _: &Gate, to: &Destination) -> Result<TcpStream, UpstreamFault> {
        connect(to).await
    }
}

/// A connection for a request.
pub(crate) struct Asked {
    pub(crate) scheme: Scheme,
    /// True where HTTP/2 is spoken if the server can.
    pub(crate) many: bool,
}

impl Purpose for Asked {
    type Way = Link;

    fn requests(&self) -> Option<(Scheme, bool)> {
        Some((self.scheme, self.many))
    }

    async fn open(&self, gate: &Gate, to: &Destination) -> Result<Link, UpstreamFault> {
        if let Some(link) = gate.links.take(to) {
            return Ok(link);
        }
        let _alone = gate.links.alone(to).await;
        match gate.links.take(to) {
            Some(link) => Ok(link),
            None => gate.fresh(to).await,
        }
    }
}

/// Dials the address of a destination.
pub(crate) async fn connect(to: &Destination) -> Result<TcpStream, UpstreamFault> {
    let dialled = SocketAddr::new(to.address, to.port);
    let fault = match tokio::time::timeout(limits::DIAL_TIME, TcpStream::connect(dialled)).await {
        Ok(Ok(stream)) => {
            // Without it, small pieces of a stream wait for an acknowledgement. A socket that refuses still works.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Ok(Err(fault)) => fault.to_string(),
        Err(_) => format!("no connection within {} s", limits::DIAL_TIME.as_secs()),
    };
    Err(UpstreamFault::unreachable(format!("{dialled}: {fault}")))
}

/// What the obligations of a permit come to for this gate.
struct Duties {
    dial: IpAddr,
    match_server_name: bool,
    bounds: Bounds,
    pins: Vec<Vec<Digest>>,
}

impl Gate {
    /// Reaches `host:port` for an effect: `verb resource`, asked about once for each address that is tried.
    pub(crate) async fn reach<P: Purpose>(
        &self,
        host: &Host,
        port: u16,
        request: &Request,
        caller: &Caller,
        purpose: P,
    ) -> Result<Reached<P::Way>, Refused> {
        let act = request.to_string();
        let addresses = self.addresses(host, caller).await.map_err(|refused| refused.of(&act))?;
        let mut last = None;
        for address in addresses {
            let asked = request.clone().dialling(address);
            match self.dial(&asked, (host, address, port), caller, &purpose).await {
                Ok(reached) => return Ok(reached),
                Err(refused) if may_try_another(refused.code) => last = Some(refused),
                Err(refused) => return Err(refused),
            }
        }
        match last {
            Some(refused) => Err(refused),
            None => Err(self
                .channel
                .refuse(Code::NameUnresolved, &act, "the name has no address")
                .await),
        }
    }

    /// The addresses of a host. A name is looked up only when `resolve NAME` is allowed.
    async fn addresses(&self, host: &Host, caller: &Caller) -> Result<Vec<IpAddr>, Refused> {
        if let Some(addresses) = self.names.known(host).or_else(|| caller.recall(host)) {
            return Ok(addresses);
        }
        let effect = self.ask_resolve(host, Some(caller)).await?;
        match self.names.addresses(host).await {
            Ok(addresses) => {
                let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
                effect.settle(true, list.join(" "));
                caller.remember(host, &addresses);
                Ok(addresses)
            }
            Err(why) => {
                let refusal = Refusal::new(effect.spent().decision(), Code::NameUnresolved);
                effect.settle(false, why);
                Err(Refused::new(refusal, format!("resolve {host}")))
            }
        }
    }

    /// Asks whether a name may be looked up, on behalf of a caller that can wait for a person, or of one that cannot.
    pub(crate) async fn ask_resolve(&self, host: &Host, caller: Option<&Caller>) -> Result<Effect, Refused> {
        let request = Request::new(self.channel.task(), Verb::Resolve, Resource::Name(host.clone()));
        let effect = self.channel.ask(&request, caller).await?;
        // A look-up has nothing to dial and no greeting: no obligation could be kept here.
        let cannot_keep = |obligation: &Obligation| match obligation {
            Obligation::DialAddress { .. }
            | Obligation::MatchServerName
            | Obligation::Inject { .. }
            | Obligation::RequestBody { .. }
            | Obligation::Answer { .. }
            | Obligation::PinKey { .. }
            | Obligation::Tool(_)
            | Obligation::Hide { .. }
            | Obligation::Guard { .. }
            | Obligation::Ask { .. } => true,
        };
        if effect.spent().obligations().iter().any(cannot_keep) {
            return Err(unkept(effect, &request.to_string()));
        }
        Ok(effect)
    }

    async fn dial<P: Purpose>(
        &self,
        asked: &Request,
        (host, address, port): (&Host, IpAddr, u16),
        caller: &Caller,
        purpose: &P,
    ) -> Result<Reached<P::Way>, Refused> {
        let effect = self.channel.ask(asked, Some(caller)).await?;
        let requests = purpose.requests();
        let Some(duties) = duties_of(effect.spent().obligations(), asked, requests.map(|(scheme, _)| scheme))
            .filter(|duties| duties.dial == address)
        else {
            return Err(unkept(effect, &asked.to_string()));
        };
        let (scheme, many) = requests.unwrap_or((Scheme::Http, false));
        let to = Destination {
            scheme,
            host: host.clone(),
            port,
            address: duties.dial,
            pins: duties.pins,
            many,
        };
        let opened = tokio::select! {
            biased;
            opened = purpose.open(self, &to) => opened,
            () = effect.cut().off() => Err(UpstreamFault { code: Code::PermitRefused, why: "not reached".into() }),
        };
        match opened {
            Ok(way) => Ok(Reached {
                way,
                effect,
                to,
                bounds: duties.bounds,
                match_server_name: duties.match_server_name,
            }),
            Err(UpstreamFault { code, why }) => {
                let id = effect.spent().decision();
                effect.settle(false, why.as_str());
                let refused = Refused::new(Refusal::new(id, code), asked.to_string());
                // What the server showed is no secret of this machine's; the address that was dialled may be.
                Err(match code {
                    Code::UpstreamUntrusted => refused.because(&why),
                    _ => refused,
                })
            }
        }
    }

    /// A connection that is made for a request.
    pub(crate) async fn fresh(&self, to: &Destination) -> Result<Link, UpstreamFault> {
        let stream = connect(to).await?;
        self.links.make(&self.upstream, to, stream).await
    }
}

/// Another address of the same name may be reachable, or not be of a kind that is refused.
fn may_try_another(code: Code) -> bool {
    matches!(
        code,
        Code::UpstreamUnreachable | Code::AddressLoopback | Code::AddressPrivate | Code::AddressLinkLocal
    )
}

/// Sorts the obligations; none when one of them is not for this gate to keep. Without an obligation about the address
/// the one that was asked about is dialled. `scheme` is that of a request; a tunnel has none.
fn duties_of(obligations: &[Obligation], asked: &Request, scheme: Option<Scheme>) -> Option<Duties> {
    let mut duties = Duties {
        dial: asked.address()?,
        match_server_name: false,
        bounds: Bounds::default(),
        pins: Vec::new(),
    };
    for obligation in obligations {
        match obligation {
            Obligation::DialAddress { address } => duties.dial = *address,
            Obligation::MatchServerName if asked.verb == Verb::Tunnel => duties.match_server_name = true,
            // Kept in the forward path.
            Obligation::Inject { .. } if matches!(asked.verb, Verb::Http(_)) => {}
            Obligation::RequestBody { .. } | Obligation::Answer { .. } if scheme.is_some() => {
                duties.bounds.add(obligation);
            }
            // Of a certificate's key, or of an SSH server's where the connection is passed on.
            Obligation::PinKey { sha256 } if scheme == Some(Scheme::Https) || asked.verb == Verb::Tunnel => {
                duties.pins.push(sha256.clone());
            }
            Obligation::MatchServerName
            | Obligation::Inject { .. }
            | Obligation::RequestBody { .. }
            | Obligation::Answer { .. }
            | Obligation::PinKey { .. }
            | Obligation::Tool(_)
            | Obligation::Hide { .. }
            | Obligation::Guard { .. }
            | Obligation::Ask { .. } => return None,
        }
    }
    Some(duties)
}

/// Gives a permit back whose obligations this gate cannot keep.
fn unkept(effect: Effect, act: &str) -> Refused {
    let refusal = Refusal::new(effect.spent().decision(), Code::PermitRefused);
    effect.settle(
        false,
        "the permit carries an obligation that the network gate cannot keep",
    );
    Refused::new(refusal, act)
}
