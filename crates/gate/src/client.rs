//! A gate's end of a task's channel, without the channel: frames in, frames out.
//!
//! Promises: P1: besides the mediator this is the only place where a permit is made, and only from its answer.
//! The client checks that the permit is for the request it asked about.

use std::collections::BTreeMap;

use bailiwick_model::{Code, DecisionId, Digest, Nonce, Request, TaskId};

use crate::mediator::{Outcome, Question, Refusal, Settlement};
use crate::permit::Permit;
use crate::secret::{Redeemed, ToRedeem};
use crate::wire::{Answer, Call, GateKind, PROTOCOL, WireFault, decode, encode, encode_decide};
use crate::written::Written;

/// Most calls that may wait for an answer at once.
const MAX_OPEN: usize = 4096;

/// Says why the channel cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// The frames do not fit.
    #[error(transparent)]
    Wire(#[from] WireFault),
    /// Too many calls wait.
    #[error("{MAX_OPEN} calls wait for an answer already")]
    Busy,
    /// The answer fits no call, or another request than was asked about.
    #[error("the mediator answered something that was not asked")]
    Stray,
}

/// What an answer frame means.
#[derive(Debug)]
pub enum Reply {
    /// The greeting: nothing waits for it.
    Ready,
    /// A person is asked about this call; its answer follows.
    Waits(u64, Question),
    /// The answer to [`Client::decide`].
    Decided(u64, Outcome),
    /// The answer to [`Client::settle`].
    Settled(u64, Result<(), Refusal>),
    /// The answer to [`Client::redeem`].
    Redeemed(u64, Result<Redeemed, Refusal>),
    /// The answer to [`Client::refused`].
    Noted(u64, Refusal),
    /// What was refused to the task by way of another gate.
    Told(Refusal),
    /// What goes on under this permit is to be cut off.
    Revoked(Nonce),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Decide(Digest),
    Settle,
    Redeem,
    Refused,
}

/// The state of one channel.
#[derive(Debug, Default)]
pub struct Client {
    calls: u64,
    greeted: bool,
    open: BTreeMap<u64, Open>,
}

impl Client {
    /// The first frame to send.
    pub fn hello(&self, build: &str, gate: GateKind) -> Result<Vec<u8>, WireFault> {
        encode(&Call::Hello {
            protocol: PROTOCOL,
            build: build.into(),
            gate,
        })
    }

    /// Asks about a request: the call's number, and the frame to send. What a person must say is held until they have
    /// said it.
    pub fn decide(&mut self, request: &Request) -> Result<(u64, Vec<u8>), ClientFault> {
        self.ask(&Written::of(request), true)
    }

    /// Asks about a request for somebody who cannot wait for a person: what one must say is a no.
    pub fn decide_now(&mut self, request: &Request) -> Result<(u64, Vec<u8>), ClientFault> {
        self.ask(&Written::of(request), false)
    }

    /// Asks about a request that is written already, for somebody who can wait for a person or for one who cannot.
    pub fn ask(&mut self, request: &Written, patient: bool) -> Result<(u64, Vec<u8>), ClientFault> {
        let call = self.call(Open::Decide(request.digest().value()))?;
        let framed = encode_decide(call, request, patient);
        self.framed(call, framed)
    }

    /// Says that nobody waits for the answer to a call any more; none when it has been answered. The answer comes all
    /// the same: a permit in it must be given back.
    pub fn withdraw(&self, call: u64) -> Result<Option<Vec<u8>>, ClientFault> {
        match self.open.get(&call) {
            Some(Open::Decide(_)) => Ok(Some(encode(&Call::Withdraw { call })?)),
            _ => Ok(None),
        }
    }

    /// Says what became of an effect.
    pub fn settle(&mut self, settlement: &Settlement) -> Result<(u64, Vec<u8>), ClientFault> {
        let call = self.call(Open::Settle)?;
        self.frame(
            call,
            &Call::Settle {
                call,
                settlement: settlement.clone(),
            },
        )
    }

    /// Asks for what an open permit obliges the gate to put in.
    pub fn redeem(&mut self, nonce: Nonce, wanted: ToRedeem) -> Result<(u64, Vec<u8>), ClientFault> {
        let call = self.call(Open::Redeem)?;
        let (secret, sign) = (wanted.secret, wanted.sign.map(Box::new));
        self.frame(
            call,
            &Call::Redeem {
                call,
                nonce,
                secret,
                sign,
                unwelcome: wanted.unwelcome,
            },
        )
    }

    /// Passes on what the agent says about a question of its own.
    pub fn tell(&self, question: DecisionId, words: &str) -> Result<Vec<u8>, WireFault> {
        let words = words.chars().take(2048).collect();
        encode(&Call::Tell { question, words })
    }

    /// Says that somebody is served about whom there may be more to say at the task's end.
    pub fn attending(&self) -> Result<Vec<u8>, WireFault> {
        encode(&Call::Attending)
    }

    /// Puts on record what the gate refused by itself.
    pub fn refused(&mut self, task: TaskId, code: Code, what: &str) -> Result<(u64, Vec<u8>), ClientFault> {
        let call = self.call(Open::Refused)?;
        let what = what.chars().take(2048).collect();
        self.frame(call, &Call::Refused { call, task, code, what })
    }

    fn call(&mut self, open: Open) -> Result<u64, ClientFault> {
        if self.open.len() >= MAX_OPEN {
            return Err(ClientFault::Busy);
        }
        self.calls = self.calls.wrapping_add(1);
        self.open.insert(self.calls, open);
        Ok(self.calls)
    }

    fn frame(&mut self, call: u64, say: &Call) -> Result<(u64, Vec<u8>), ClientFault> {
        self.framed(call, encode(say))
    }

    fn framed(&mut self, call: u64, framed: Result<Vec<u8>, WireFault>) -> Result<(u64, Vec<u8>), ClientFault> {
        framed.map(|frame| (call, frame)).map_err(|fault| {
            self.open.remove(&call);
            fault.into()
        })
    }

    /// Reads one answer frame's JSON. After a fault the channel is of no more use.
    pub fn receive(&mut self, body: &[u8]) -> Result<Reply, ClientFault> {
        let answer: Answer = decode(body)?;
        if let Answer::Hello { protocol, .. } = answer {
            if protocol != PROTOCOL {
                return Err(WireFault::Version(protocol).into());
            }
            self.greeted = true;
            return Ok(Reply::Ready);
        }
        // It answers nothing, and may come before the greeting.
        if let Answer::Told { refusal } = answer {
            return Ok(Reply::Told(refusal));
        }
        if let Answer::Revoked { nonce } = answer {
            return Ok(Reply::Revoked(nonce));
        }
        if !self.greeted {
            return Err(WireFault::OutOfTurn("an answer before the greeting").into());
        }
        if let Answer::Question { call, question } = answer {
            return match self.open.get(&call) {
                Some(Open::Decide(_)) => Ok(Reply::Waits(call, question)),
                _ => Err(ClientFault::Stray),
            };
        }
        let (call, open) = match &answer {
            Answer::Allow { call, .. }
            | Answer::Deny { call, .. }
            | Answer::Settled { call }
            | Answer::Redeemed { call, .. } => (*call, self.open.remove(call).ok_or(ClientFault::Stray)?),
            Answer::Hello { .. } | Answer::Question { .. } | Answer::Told { .. } | Answer::Revoked { .. } => {
                return Err(ClientFault::Stray);
            }
        };
        match (answer, open) {
            (Answer::Allow { terms, .. }, Open::Decide(digest)) if terms.digest == digest => {
                Ok(Reply::Decided(call, Outcome::Allow(Permit::issued_by_mediator(*terms))))
            }
            (Answer::Deny { refusal, .. }, Open::Decide(_)) => Ok(Reply::Decided(call, Outcome::Deny(refusal))),
            (Answer::Settled { .. }, Open::Settle) => Ok(Reply::Settled(call, Ok(()))),
            (Answer::Deny { refusal, .. }, Open::Settle) => Ok(Reply::Settled(call, Err(refusal))),
            (Answer::Redeemed { redeemed, .. }, Open::Redeem) => Ok(Reply::Redeemed(call, Ok(redeemed))),
            (Answer::Deny { refusal, .. }, Open::Redeem) => Ok(Reply::Redeemed(call, Err(refusal))),
            (Answer::Deny { refusal, .. }, Open::Refused) => Ok(Reply::Noted(call, refusal)),
            _ => Err(ClientFault::Stray),
        }
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::{AbsPath, DecisionId, Millis, Nonce, Resource, Verb};

    use super::*;
    use crate::permit::{PermitFault, PermitTerms};
    use crate::wire::{FrameReader, digest_of};

    fn request(path: &str) -> Request {
        Request::new(TaskId([1; 8]), Verb::Read, Resource::File(AbsPath::new(path).unwrap()))
    }

    fn terms(request: &Request) -> PermitTerms {
        PermitTerms {
            decision: DecisionId([2; 6]),
            digest: digest_of(request),
            task: request.task,
            nonce: Nonce([3; 16]),
            deadline: Millis(100),
            obligations: Vec::new(),
        }
    }

    fn body(message: &Answer) -> Vec<u8> {
        encode(message).unwrap().split_off(4)
    }

    fn greeted() -> Client {
        let mut client = Client::default();
        client
            .receive(&body(&Answer::Hello {
                protocol: PROTOCOL,
                build: "test".into(),
            }))
            .unwrap();
        client
    }

    #[test]
    fn p1_a_permit_comes_only_for_the_request_that_was_asked() {
        let mut client = greeted();
        let (call, _) = client.decide(&request("/a")).unwrap();
        let other = Answer::Allow {
            call,
            terms: Box::new(terms(&request("/b"))),
        };
        assert_eq!(client.receive(&body(&other)).unwrap_err(), ClientFault::Stray);
        assert_eq!(
            client.receive(&body(&other)).unwrap_err(),
            ClientFault::Stray,
            "a call is answered once"
        );
    }

    #[test]
    fn what_is_asked_reads_as_it_was_meant() {
        let asked = request("/a\"\u{1}b").dialling([127, 0, 0, 1].into());
        for patient in [true, false] {
            let (call, frame) = Client::default().ask(&Written::of(&asked), patient).unwrap();
            let request = Box::new(asked.clone());
            let meant = Call::Decide { call, request, patient };
            assert_eq!(frame, encode(&meant).unwrap());
            assert_eq!(decode::<Call>(&frame[4..]).unwrap(), meant);
        }
    }

    #[test]
    fn p1_a_permit_fits_its_request_and_its_time() {
        let permit = || Permit::issued_by_mediator(terms(&request("/a")));
        assert!(permit().spend(&request("/a"), Millis(99)).is_ok());
        assert_eq!(
            permit().spend(&request("/b"), Millis(99)).unwrap_err(),
            PermitFault::OtherRequest
        );
        assert_eq!(
            permit().spend(&request("/a"), Millis(100)).unwrap_err(),
            PermitFault::Lapsed
        );
    }

    #[test]
    fn p4_frames_that_do_not_fit_are_refused() {
        let mut client = Client::default();
        assert!(
            client.receive(&body(&Answer::Settled { call: 1 })).is_err(),
            "before the greeting"
        );
        assert!(
            client
                .receive(&body(&Answer::Hello {
                    protocol: 99,
                    build: String::new()
                }))
                .is_err(),
            "other version"
        );
        assert!(
            decode::<Answer>(br#"{"settled":{"call":1,"extra":2}}"#).is_err(),
            "unknown field"
        );
        assert!(
            decode::<Answer>(br#"{"allowed":{"call":1}}"#).is_err(),
            "unknown message"
        );
        let mut reader = FrameReader::default();
        reader.push(&u32::MAX.to_be_bytes());
        assert!(reader.next_frame().is_err(), "too long");
    }

    proptest::proptest! {
        #[test]
        fn frames_survive_any_cutting(cuts in proptest::collection::vec(1usize..9, 1..40)) {
            let frames: Vec<Vec<u8>> = (0..5u64).map(|call| encode(&Answer::Settled { call }).unwrap()).collect();
            let all = frames.concat();
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            let mut rest = all.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                reader.push(now);
                rest = later;
                while let Some(frame) = reader.next_frame().unwrap() { seen.push(frame.to_vec()); }
            }
            let want: Vec<Vec<u8>> = frames.iter().map(|frame| frame[4..].to_vec()).collect();
            proptest::prop_assert_eq!(seen, want);
        }

        #[test]
        fn receive_never_panics(bytes in proptest::collection::vec(0u8..255, 0..200)) {
            let _ = greeted().receive(&bytes);
        }
    }
}
