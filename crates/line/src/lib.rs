//! A gate's asynchronous end of what the daemon hands it.
//!
//! Answers: where do a fence's connections come from, and how does a gate ask, and say what became of it? Both gates that
//! serve a fence, the network's and the tools', take connections by the same door and ask over the same kind of channel.
//! Promises: P1, P4, P10, P11, as `channel`, `effect` and `cuts` say.
//! Trust: whoever connects is hostile; the channels are the supervisor's and the daemon's.
//! Not here: the frames of the task's channel (`gate`), what a connection may do (`proxy`, `tools`).

mod attended;
mod channel;
mod cuts;
mod door;
mod effect;
mod speaker;

pub use attended::Attending;
pub use channel::{Channel, Denied, Hears};
pub use cuts::{Cut, REVOKED};
pub use door::{Came, Door};
pub use effect::Effect;
pub use speaker::ChannelFault;
