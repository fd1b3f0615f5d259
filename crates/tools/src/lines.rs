//! Messages as lines of JSON, each read strictly before the protocol's library sees it.
//!
//! Answers: what may an agent's client, and what may a server, put on a line?
//! Promises: P4 (a line that is too long, is no message, or can be read in two ways goes no further), P5.
//! Trust: both ends are hostile. The agent's is answered and told what is wrong; a server's is counted, slowed down, and
//! ended when it says nothing that can be read, or says more than may be held.
//! See: MCP, "Transports", stdio.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleClient, RoleServer};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits;
use crate::message;
use crate::objection::{Objection, Objections};
use crate::strict;

/// What is read from.
pub(crate) type From = Box<dyn AsyncRead + Send + Unpin>;

/// What is written to.
pub(crate) type To = Box<dyn AsyncWrite + Send + Unpin>;

/// Cuts bytes into lines, none longer than a limit. What was read of a line is kept when the reading is broken off.
struct Reader {
    from: From,
    held: Vec<u8>,
    /// How far there is no end of a line in what is held.
    searched: usize,
    most: usize,
}

enum Got {
    Line(Vec<u8>),
    TooLong,
    End,
}

impl Reader {
    fn new(from: From, most: usize) -> Self {
        Self {
            from,
            held: Vec::new(),
            searched: 0,
            most,
        }
    }

    async fn next(&mut self) -> Got {
        loop {
            let fresh = self.held.get(self.searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let end = self.searched.saturating_add(at);
                if end > self.most {
                    return Got::TooLong;
                }
                let rest = self.held.split_off(end.saturating_add(1).min(self.held.len()));
                let mut line = std::mem::replace(&mut self.held, rest);
                self.searched = 0;
                line.pop();
                return Got::Line(line);
            }
            self.searched = self.held.len();
            if self.held.len() > self.most {
                return Got::TooLong;
            }
            if self.held.capacity().saturating_sub(self.held.len()) < 4096 {
                self.held.reserve(self.held.len().clamp(16 * 1024, 1024 * 1024));
            }
            match self.from.read_buf(&mut self.held).await {
                Ok(0) | Err(_) => return Got::End,
                Ok(_) => {}
            }
        }
    }
}

impl Reader {
    /// Passes over the rest of a line that is too long.
    async fn skip(&mut self) {
        loop {
            let fresh = self.held.get(self.searched..).unwrap_or_default();
            if fresh.contains(&b'\n') {
                return;
            }
            self.held.clear();
            self.searched = 0;
            if !matches!(self.from.read_buf(&mut self.held).await, Ok(1..)) {
                return;
            }
        }
    }
}

/// Writes messages, each on a line of its own.
#[derive(Clone)]
struct Writer(Arc<AsyncMutex<Option<To>>>);

impl Writer {
    fn new(to: To) -> Self {
        Self(Arc::new(AsyncMutex::new(Some(to))))
    }

    async fn write(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut slot = self.0.lock().await;
        // Taken out while it is written: a message that is broken off half-way leaves nothing to write to.
        let mut to = slot.take().ok_or(io::ErrorKind::NotConnected)?;
        to.write_all(&line).await?;
        to.flush().await?;
        *slot = Some(to);
        Ok(())
    }

    async fn close(&self) {
        if let Some(mut to) = self.0.lock().await.take() {
            let _ = tokio::time::timeout(limits::LAST_WORDS, to.shutdown()).await;
        }
    }
}

/// The requests of a client that have no answer yet.
#[derive(Clone, Default)]
struct Open(Arc<(Mutex<Vec<RequestId>>, Notify)>);

impl Open {
    fn lock(&self) -> MutexGuard<'_, Vec<RequestId>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message of the client. A request that it takes back is not answered.
    fn note(&self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                self.lock().push(request.id.clone());
            }
            ClientJsonRpcMessage::Notification(notice) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notice.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.over(id);
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
    }

    fn over(&self, id: &RequestId) {
        {
            let mut open = self.lock();
            // One of them only: a client may use a number twice.
            if let Some(at) = open.iter().position(|other| other == id) {
                open.swap_remove(at);
            }
        }
        self.0.1.notify_one();
    }

    /// Waits until there is room for one more.
    async fn room(&self) {
        while self.lock().len() >= limits::OPEN {
            self.0.1.notified().await;
        }
    }
}

/// The gate's end of a line to an agent's client.
pub(crate) struct AgentLines {
    reader: Reader,
    writer: Writer,
    objections: Objections,
    gone: CancellationToken,
    open: Open,
    /// The answer to a line that was too long, after which there is no more.
    last: Option<JoinHandle<()>>,
}

impl AgentLines {
    /// A line; what is cancelled when there is nobody at the other end any more.
    pub(crate) fn new(from: From, to: To, objections: Objections, gone: CancellationToken) -> Self {
        Self {
            reader: Reader::new(from, limits::MESSAGE),
            writer: Writer::new(to),
            objections,
            gone,
            open: Open::default(),
            last: None,
        }
    }

    /// Answers on its own: reading may be broken off at any time.
    fn object(&self, objection: Objection) -> JoinHandle<()> {
        let (objections, writer) = (self.objections.clone(), self.writer.clone());
        tokio::spawn(async move {
            if let Some(answer) = objections.answer(objection).await {
                let _ = writer.write(&answer).await;
            }
        })
    }
}

impl Transport<RoleServer> for AgentLines {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (writer, open) = (self.writer.clone(), self.open.clone());
        async move {
            let written = writer.write(&item).await;
            match &item {
                ServerJsonRpcMessage::Response(answer) => open.over(&answer.id),
                ServerJsonRpcMessage::Error(answer) => answer.id.iter().for_each(|id| open.over(id)),
                ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {}
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(last) = &mut self.last {
                self.reader.skip().await;
                let _ = last.await;
                self.gone.cancel();
                return None;
            }
            // A client that asks and does not read its answers is not heard until it does.
            self.open.room().await;
            let line = match self.reader.next().await {
                Got::Line(line) if line.trim_ascii().is_empty() => continue,
                Got::Line(line) => line,
                Got::TooLong => {
                    self.last = Some(self.object(Objections::too_long()));
                    continue;
                }
                Got::End => {
                    self.gone.cancel();
                    return None;
                }
            };
            match Objections::read(&line) {
                Ok(message) => {
                    self.open.note(&message);
                    return Some(message);
                }
                Err(objection) => drop(self.object(objection)),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.close().await;
        Ok(())
    }
}

/// Why a server's line ended, where the gate ended it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ended(Arc<Cause>);

#[derive(Debug, Default)]
struct Cause {
    why: OnceLock<String>,
    ended: CancellationToken,
}

impl Ended {
    fn because(&self, why: impl Into<String>) {
        let _ = self.0.why.set(why.into());
        self.0.ended.cancel();
    }

    /// Returns when the line has ended, whoever ended it.
    pub(crate) async fn over(&self) {
        self.0.ended.cancelled().await;
    }

    /// The cause.
    pub(crate) fn why(&self) -> Option<&str> {
        self.0.why.get().map(String::as_str)
    }
}

/// What a server may say unasked, by the second.
struct Pace {
    most: u32,
    second: Instant,
    said: u32,
}

impl Pace {
    /// Counts one thing that was said.
    fn count(&mut self) {
        let now = Instant::now();
        if now >= self.over() {
            self.second = now;
            self.said = 0;
        }
        self.said = self.said.saturating_add(1);
    }

    fn over(&self) -> Instant {
        self.second.checked_add(Duration::from_secs(1)).unwrap_or(self.second)
    }

    /// Waits while it has said more than it may. May be broken off and waited for again.
    async fn wait(&self) {
        if self.said > self.most {
            tokio::time::sleep_until(self.over()).await;
        }
    }
}

/// The gate's end of a line to a server.
pub(crate) struct ServerLines {
    reader: Reader,
    writer: Writer,
    /// What was asked of it and has no answer yet.
    asked: Arc<Mutex<HashSet<RequestId>>>,
    /// Lines in a row that are no messages, or answers to nothing.
    garbage: u32,
    pace: Pace,
    /// What was read and may not be said yet.
    ready: Option<ServerJsonRpcMessage>,
    ended: Ended,
}

impl ServerLines {
    pub(crate) fn new(from: From, to: To, most: usize, per_second: u32) -> (Self, Ended) {
        let ended = Ended::default();
        let lines = Self {
            reader: Reader::new(from, most),
            writer: Writer::new(to),
            asked: Arc::default(),
            garbage: 0,
            pace: Pace {
                most: per_second,
                second: Instant::now(),
                said: 0,
            },
            ready: None,
            ended: ended.clone(),
        };
        (lines, ended)
    }

    /// A message, where the line is one, and one that may be said now.
    fn message(&self, line: &[u8]) -> Option<ServerJsonRpcMessage> {
        let read = strict::read(line).ok()?;
        // A name that stands twice could be read otherwise by whoever gets it. Numbers are the server's own affair.
        if read.flaw.is_some_and(|flaw| flaw.what == strict::TWICE) {
            return None;
        }
        let message = message::of_server(read.value).ok()?;
        let answers = match &message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => return Some(message),
        };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.remove(answers?).then_some(message)
    }
}

impl Transport<RoleClient> for ServerLines {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &item {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.insert(request.id.clone());
        }
        let (writer, ended) = (self.writer.clone(), self.ended.clone());
        async move {
            let written = tokio::time::timeout(limits::WRITE_TIME, writer.write(&item)).await;
            written.unwrap_or_else(|_| {
                ended.because("it does not read what it is sent");
                Err(io::ErrorKind::TimedOut.into())
            })
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            self.pace.wait().await;
            if let Some(message) = self.ready.take() {
                return Some(message);
            }
            let got = tokio::select! {
                got = self.reader.next() => got,
                () = self.ended.0.ended.cancelled() => return None,
            };
            let line = match got {
                Got::Line(line) => line,
                Got::TooLong => {
                    self.ended
                        .because(format!("it sent a message of more than {} bytes", self.reader.most));
                    return None;
                }
                Got::End => {
                    self.ended.0.ended.cancel();
                    return None;
                }
            };
            if line.trim_ascii().is_empty() {
                self.pace.count();
                continue;
            }
            let Some(message) = self.message(&line) else {
                self.pace.count();
                self.garbage = self.garbage.saturating_add(1);
                if self.garbage >= limits::GARBAGE {
                    let said = format!("it sent {} lines in a row that are no messages", self.garbage);
                    self.ended.because(said);
                    return None;
                }
                continue;
            };
            self.garbage = 0;
            if matches!(
                message,
                ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_)
            ) {
                self.pace.count();
            }
            self.ready = Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a reader makes of bytes that come in pieces: lines, and whether one was too long.
    fn lines_of(pieces: &[Vec<u8>], most: usize) -> (Vec<Vec<u8>>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut to, from) = tokio::io::duplex(16);
            let pieces = pieces.to_vec();
            tokio::spawn(async move {
                for piece in pieces {
                    if to.write_all(&piece).await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            });
            let mut reader = Reader::new(Box::new(from), most);
            let mut lines = Vec::new();
            loop {
                // Broken off at every turn, as the protocol's library does.
                let got = tokio::select! {
                    biased;
                    got = reader.next() => got,
                    () = tokio::task::yield_now() => continue,
                };
                match got {
                    Got::Line(line) => lines.push(line),
                    Got::TooLong => return (lines, true),
                    Got::End => return (lines, false),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn lines_survive_any_cutting(lines in proptest::collection::vec("[a-z]{0,40}", 0..12), cut in 1usize..20) {
            let all: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let pieces: Vec<Vec<u8>> = all.as_bytes().chunks(cut).map(<[u8]>::to_vec).collect();
            let (got, too_long) = lines_of(&pieces, 40);
            prop_assert!(!too_long);
            let want: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
            prop_assert_eq!(got, want);
        }

        #[test]
        fn p4_a_line_that_is_too_long_is_one_wherever_it_is_cut(before in 0usize..3, over in 1usize..200, cut in 1usize..64) {
            let all = format!("{}{}\n", "ab\n".repeat(before), "x".repeat(40 + over));
            let pieces: Vec<Vec<u8>> = all.as_bytes().chunks(cut).map(<[u8]>::to_vec).collect();
            let (got, too_long) = lines_of(&pieces, 40);
            prop_assert!(too_long);
            prop_assert_eq!(got.len(), before);
        }
    }
}
