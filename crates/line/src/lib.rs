//! A gate's asynchronous end of what the daemon hands it.
//!
//! Answers: where do a fence's connections come from? Both gates that serve a fence, the network's and the tools', take
//! them by the same door.
//! Trust: whoever connects is hostile; the channels are the supervisor's and the daemon's.
//! Not here: the frames of the task's channel (`gate`), what a connection may do (`proxy`, `tools`).

mod door;

pub use door::{Came, Door};
