//! The network gate: HTTP, CONNECT by name, DNS.
//!
//! Answers: what leaves a fence that has no network, and how? Sockets made inside the fence, and connections that its
//! supervisor hands over, are served here, outside;
//! every effect is asked of the mediator over the task's channel, and only what it allowed is dialled.
//! Promises: P1 (each request, tunnel and look-up has a permit of its own, spent before the effect and settled after
//! it), P4 (what cannot be read in one way, or passes a limit, is refused; without the mediator nothing goes), P5 (one
//! name from CONNECT, Host and the TLS greeting; one form of host and path, and that form is what is sent), P11
//! (when the channel closes, every stream does).
//! Trust: every byte from inside the fence is hostile, and so is every byte from a server. The process is taken to be
//! lost to either: it holds no secret, decides nothing, and what it may ask for is judged by the mediator.
//! Not here: deciding (`mediator`), making the sockets (`fence`), telling public addresses from private (`model`).
//! See: RFC 9110, 9112 (HTTP), RFC 6066 section 3 (server name), RFC 1035 (DNS); `docs/design/network.md`.

mod bodies;
mod busy;
mod caller;
mod certificates;
mod channel;
mod config;
mod dial;
mod dns;
mod exchange;
mod fetch;
mod forward;
mod greeting;
mod gulp;
mod heads;
mod inject;
mod intercept;
mod jar;
mod last;
pub mod limits;
mod links;
mod names;
mod prompt;
mod publish;
mod push;
mod refusal;
mod road;
mod scrub;
mod secrets;
mod serve;
mod ssh;
mod standin;
mod straight;
mod strays;
mod synthetic;
mod tunnel;
mod upstream;
mod watched;

pub use certificates::{Authority, CertificateFault, der_of};
pub use config::{Config, Service};
pub use fetch::{FetchFrom, Fetched, Wish, fetch};
pub use last::OWN_HOST;
pub use names::{Resolve, SystemResolver};
pub use publish::{Pair, PairSender, Pairs, pairs};
pub use scrub::SHORTEST;
pub use serve::{GateFault, run};
pub use standin::StandIn;
pub use synthetic::SYNTHETIC;
pub use upstream::{BUNDLES, ROOTS};
