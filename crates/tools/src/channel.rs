//! The task's channel to the mediator, as this gate uses it.
//!
//! Promises: P4, P10, P11, as `bailiwick_line` keeps them. Trust: the other end is the mediator.
//! Not here: the channel itself (`bailiwick_line`), what a refusal looks like (`refusal`).

use std::sync::Arc;

use bailiwick_gate::GateKind;
use bailiwick_line::{ChannelFault, Effect};
use bailiwick_model::{Code, DecisionId, Request, TaskId};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::refusal::Refused;

/// A cheap handle on the channel.
#[derive(Clone)]
pub(crate) struct Channel(bailiwick_line::Channel);

impl Channel {
    /// Takes over the socket. The future runs the channel until it ends.
    pub(crate) fn open(
        task: TaskId,
        build: &str,
        socket: UnixStream,
    ) -> Result<(Self, impl Future<Output = Result<(), ChannelFault>> + use<>), ChannelFault> {
        // This gate keeps no list of what was refused.
        let (line, run) = bailiwick_line::Channel::open(task, build, GateKind::Tools, socket, Arc::new(()))?;
        Ok((Self(line), run))
    }

    /// Passes on what the agent has to say about a question.
    pub(crate) fn tell(&self, question: DecisionId, words: String) {
        self.0.tell(question, words);
    }

    /// The task on whose behalf the channel asks.
    pub(crate) fn task(&self) -> TaskId {
        self.0.task()
    }

    /// Asks about a request and, when it is allowed, uses the permit at once. Where a person must say, the caller waits
    /// until it goes away.
    pub(crate) async fn ask(&self, request: &Request, gone: &CancellationToken) -> Result<Effect, Refused> {
        let asked = self.0.ask(request, Some(gone.cancelled()), None).await;
        asked.map_err(Refused::of)
    }

    /// Puts on record what the gate refuses by itself. The cause may be told to the agent.
    pub(crate) async fn refuse(&self, code: Code, what: &str, why: &str) -> Refused {
        Refused::of(self.0.refuse(code, what, why).await)
    }
}
