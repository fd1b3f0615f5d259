//! A gate that talks to the mediator without a socket, and a person who answers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use bailiwick_gate::desk::{self, Approver, Asked, Closed, DeskFault, Known};
use bailiwick_gate::{Answer, Call, PROTOCOL, PermitTerms, Refusal, Waiting, decode, encode};
use bailiwick_mediator::{Session, TaskSpec};
use bailiwick_model::{Code, Request, TaskId};

use crate::house::{House, TASK, plain_rules, spec};

pub fn watched() -> House {
    House::new(TaskSpec {
        approver_present: true,
        ..spec(plain_rules())
    })
}

/// A gate's channel without its socket.
pub struct Gate {
    session: Session,
    reply: bailiwick_mediator::Reply,
    heard: Receiver<Answer>,
    pub calls: u64,
}

impl Gate {
    pub fn new(house: &House) -> Self {
        Self::of(house, TASK)
    }

    pub fn of(house: &House, task: TaskId) -> Self {
        let (tell, heard): (Sender<Answer>, _) = channel();
        let tell = std::sync::Mutex::new(tell);
        let reply: bailiwick_mediator::Reply = Arc::new(move |frame| {
            let _ = tell.lock().unwrap().send(decode(&frame[4..]).unwrap());
        });
        let mut gate = Self {
            session: Session::new(house.mediator.clone(), task),
            reply,
            heard,
            calls: 0,
        };
        gate.say(&Call::Hello {
            protocol: PROTOCOL,
            build: "test".into(),
            gate: bailiwick_gate::GateKind::Files,
        });
        assert!(matches!(gate.hears(), Answer::Hello { .. }));
        gate
    }

    pub fn say(&mut self, call: &Call) {
        self.session.receive(&encode(call).unwrap()[4..], &self.reply).unwrap();
    }

    pub fn hears(&self) -> Answer {
        self.heard.recv_timeout(Duration::from_secs(5)).expect("an answer")
    }

    pub fn decide(&mut self, request: &Request, patient: bool) -> u64 {
        self.calls += 1;
        self.say(&Call::Decide {
            call: self.calls,
            request: Box::new(request.clone()),
            patient,
        });
        self.calls
    }

    /// Asks, and waits until the question waits.
    pub fn asks(&mut self, house: &House, request: &Request) -> Waiting {
        let call = self.decide(request, true);
        let Answer::Question { call: of, question } = self.hears() else {
            panic!("a question");
        };
        assert_eq!(of, call);
        for _ in 0..5000 {
            if let Some(waiting) = house.mediator.waiting().into_iter().find(|one| one.id == question.id) {
                return waiting;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the question does not wait");
    }

    pub fn is_allowed(&self) -> PermitTerms {
        match self.hears() {
            Answer::Allow { terms, .. } => *terms,
            other => panic!("allowed, not {other:?}"),
        }
    }

    pub fn is_refused(&self) -> Refusal {
        match self.hears() {
            Answer::Deny { refusal, .. } => refusal,
            other => panic!("denied, not {other:?}"),
        }
    }

    pub fn is_denied(&self) -> Code {
        self.is_refused().code
    }
}

pub fn dana() -> Approver {
    Approver {
        name: "dana".into(),
        by: Known::User,
    }
}

impl House {
    pub fn asked(&self, waiting: &Waiting) -> Asked {
        self.mediator.shown(waiting.clone())
    }

    pub fn yes(&self, waiting: &Waiting) -> Result<Closed, DeskFault> {
        let answer = desk::Answer::once(&self.asked(waiting)).unwrap();
        self.mediator.answer(waiting.id, &answer, &dana())
    }

    pub fn no(&self, waiting: &Waiting) -> Result<Closed, DeskFault> {
        self.mediator
            .answer(waiting.id, &desk::Answer::No { word: None }, &dana())
    }
}
