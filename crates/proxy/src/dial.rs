//! The one way out: look up, ask, dial.
//!
//! Promises: P1 (a name is looked up, and an address dialled, only under a permit for just that), P5 (the address that
//! was asked about is the address that is dialled). Trust: names and addresses come from the agent and from whoever
//! runs a zone.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use bailiwick_gate::Refusal;
use bailiwick_model::{Code, Host, Obligation, Opened, Request, Resource, Verb};
use tokio::net::TcpStream;

use crate::caller::Caller;
use crate::certificates::Issuer;
use crate::channel::{Channel, Effect};
use crate::limits;
use crate::names::Names;
use crate::refusal::Refused;
use crate::secrets::Secrets;
use crate::synthetic::Synthetic;
use crate::upstream::Upstream;

/// What all services share.
pub(crate) struct Gate {
    pub(crate) channel: Channel,
    pub(crate) names: Names,
    pub(crate) synthetic: Mutex<Synthetic>,
    /// Hosts whose connections are opened.
    pub(crate) opened: Vec<Opened>,
    /// What signs for them; without it none is.
    pub(crate) issuer: Option<Issuer>,
    pub(crate) upstream: Upstream,
    pub(crate) secrets: Secrets,
}

/// A connection that was allowed and made.
pub(crate) struct Reached {
    pub(crate) stream: TcpStream,
    pub(crate) effect: Effect,
    /// True when the TLS greeting must be read and its name compared.
    pub(crate) match_server_name: bool,
}

/// What the obligations of a permit come to for this gate.
struct Duties {
    dial: IpAddr,
    match_server_name: bool,
}

impl Gate {
    /// Reaches `host:port` for an effect: `verb resource`, asked about once for each address that is tried.
    pub(crate) async fn reach(
        &self,
        host: &Host,
        port: u16,
        request: &Request,
        caller: &Caller,
    ) -> Result<Reached, Refused> {
        let act = request.to_string();
        let addresses = self.addresses(host, caller).await.map_err(|refused| refused.of(&act))?;
        let mut last = None;
        for address in addresses {
            let asked = request.clone().dialling(address);
            match self.dial(&asked, address, port, caller).await {
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
                let refusal = Refusal {
                    id: effect.spent().decision(),
                    code: Code::NameUnresolved,
                };
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
            | Obligation::Hide { .. }
            | Obligation::Guard { .. }
            | Obligation::Ask { .. } => true,
        };
        if effect.spent().obligations().iter().any(cannot_keep) {
            return Err(unkept(effect, &request.to_string()));
        }
        Ok(effect)
    }

    async fn dial(&self, asked: &Request, address: IpAddr, port: u16, caller: &Caller) -> Result<Reached, Refused> {
        let effect = self.channel.ask(asked, Some(caller)).await?;
        let Some(duties) = duties_of(effect.spent().obligations(), asked).filter(|duties| duties.dial == address)
        else {
            return Err(unkept(effect, &asked.to_string()));
        };
        let dialled = SocketAddr::new(duties.dial, port);
        let fault = match tokio::time::timeout(limits::DIAL_TIME, TcpStream::connect(dialled)).await {
            Ok(Ok(stream)) => {
                // Without it, small pieces of a stream wait for an acknowledgement. A socket that refuses still works.
                let _ = stream.set_nodelay(true);
                return Ok(Reached {
                    stream,
                    effect,
                    match_server_name: duties.match_server_name,
                });
            }
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => format!("no connection within {} s", limits::DIAL_TIME.as_secs()),
        };
        let refusal = Refusal {
            id: effect.spent().decision(),
            code: Code::UpstreamUnreachable,
        };
        effect.settle(false, format!("{dialled}: {fault}"));
        Err(Refused::new(refusal, asked.to_string()))
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
/// the one that was asked about is dialled.
fn duties_of(obligations: &[Obligation], asked: &Request) -> Option<Duties> {
    let mut duties = Duties {
        dial: asked.address()?,
        match_server_name: false,
    };
    for obligation in obligations {
        match obligation {
            Obligation::DialAddress { address } => duties.dial = *address,
            Obligation::MatchServerName if asked.verb == Verb::Tunnel => duties.match_server_name = true,
            // Kept in the forward path.
            Obligation::Inject { .. } if matches!(asked.verb, Verb::Http(_)) => {}
            Obligation::MatchServerName
            | Obligation::Inject { .. }
            | Obligation::RequestBody { .. }
            | Obligation::Answer { .. }
            | Obligation::PinKey { .. }
            | Obligation::Hide { .. }
            | Obligation::Guard { .. }
            | Obligation::Ask { .. } => return None,
        }
    }
    Some(duties)
}

/// Gives a permit back whose obligations this gate cannot keep.
fn unkept(effect: Effect, act: &str) -> Refused {
    let refusal = Refusal {
        id: effect.spent().decision(),
        code: Code::PermitRefused,
    };
    effect.settle(
        false,
        "the permit carries an obligation that the network gate cannot keep",
    );
    Refused::new(refusal, act)
}
