//! The task's channel to the mediator, as this gate uses it: refusals are remembered for the agent to ask for, and a client
//! that waits for a person is watched.
//!
//! Promises: P4, P10, P11, as `bailiwick_line` keeps them. Trust: the other end is the mediator.
//! Not here: the channel itself (`bailiwick_line`), what a refusal looks like (`refusal`).

use std::sync::Arc;

use bailiwick_gate::{GateKind, Refusal};
use bailiwick_line::{Attending, ChannelFault, Effect, Hears};
use bailiwick_model::{Code, DecisionId, Request, TaskId};
use tokio::net::UnixStream;

use crate::caller::Caller;
use crate::last::Last;
use crate::refusal::Refused;

impl Hears for Last {
    fn greeted(&self) {
        self.begin();
    }

    fn refused(&self, refusal: &Refusal) {
        self.remember(refusal.clone());
    }
}

/// A cheap handle on the channel.
#[derive(Clone)]
pub(crate) struct Channel {
    line: bailiwick_line::Channel,
    /// What was refused last.
    pub(crate) last: Arc<Last>,
}

impl Channel {
    /// Takes over the socket. The future runs the channel until it ends.
    pub(crate) fn open(
        task: TaskId,
        build: &str,
        socket: UnixStream,
    ) -> Result<(Self, impl Future<Output = Result<(), ChannelFault>> + use<>), ChannelFault> {
        let last = Arc::<Last>::default();
        let hears = Arc::<Last>::clone(&last);
        let (line, run) = bailiwick_line::Channel::open(task, build, GateKind::Network, socket, hears)?;
        Ok((Self { line, last }, run))
    }

    /// Passes on what the agent has to say about a question.
    pub(crate) fn tell(&self, question: DecisionId, words: String) {
        self.line.tell(question, words);
    }

    /// Notes that somebody is served whose leaving is something to put on record.
    pub(crate) fn attend(&self) -> Attending {
        self.line.attend()
    }

    /// The task on whose behalf the channel asks.
    pub(crate) fn task(&self) -> TaskId {
        self.line.task()
    }

    /// Asks about a request and, when it is allowed, uses the permit at once. Where a person must say, the caller waits,
    /// until it goes away; where there is no caller that could wait, that is a no.
    pub(crate) async fn ask(&self, request: &Request, caller: Option<&Caller>) -> Result<Effect, Refused> {
        let client = caller.and_then(Caller::socket);
        let asked = self.line.ask(request, caller.map(Caller::gone), client).await;
        asked.map_err(|denied| Refused::of_denied(denied, request.to_string()))
    }

    /// Puts on record what the gate refuses by itself.
    pub(crate) async fn refuse(&self, code: Code, what: &str, why: &str) -> Refused {
        Refused::of_denied(self.line.refuse(code, what, why).await, what)
    }
}
