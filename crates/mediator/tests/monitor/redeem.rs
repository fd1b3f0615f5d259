//! Secrets that permits name: handed out once, on record first, and to nobody else.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, atomic::Ordering};
use std::time::Duration;

use bailiwick_gate::{
    Answer, Call, GateKind, PROTOCOL, Passed, PermitTerms, Redeemed, Redemption, SecretValue, Settlement, ToSign, Use,
    Vault, decode, encode,
};
use bailiwick_mediator::Session;
use bailiwick_model::{Code, Durability, Event, Nonce, Obligation, Place, SecretName, Verdict};

use crate::house::{House, Mood, Saying, TASK, request, says, spec};

fn name(text: &str) -> SecretName {
    SecretName::parse(text).unwrap()
}

/// A vault that knows one secret, and keeps what it was asked.
#[derive(Default)]
struct One(Mutex<Vec<Use>>);

impl Vault for One {
    fn redeem(&self, wanted: Use, then: Redemption) {
        let known = wanted.secret == name("github");
        self.0.lock().unwrap().push(wanted);
        then(match known {
            true => Ok(Redeemed::Value(SecretValue::new(b"real-value".to_vec().into()))),
            false => Err("it is not there".into()),
        });
    }
}

struct Desk {
    house: House,
    vault: Arc<One>,
}

impl Desk {
    /// Every GET has two secrets put in, of which the vault has one.
    fn new() -> Self {
        let rules = Saying::new(|request| {
            let mut decision = says(Verdict::Allow, 1);
            if request.verb.as_str() == "GET" {
                decision.obligations = ["github", "other"]
                    .map(|secret| Obligation::Inject {
                        secret: name(secret),
                        place: Place::Bearer,
                    })
                    .into();
            }
            decision
        });
        Self {
            house: House::new(spec(rules)),
            vault: Arc::default(),
        }
    }

    /// A gate's channel: what it answers to each call.
    fn gate(&self) -> impl FnMut(Call) -> Answer {
        let (tell, heard) = channel();
        let tell = Mutex::new(tell);
        let reply: bailiwick_mediator::Reply = Arc::new(move |frame| {
            let _ = tell.lock().unwrap().send(decode(&frame[4..]).unwrap());
        });
        let mut session = Session::new(self.house.mediator.clone(), TASK).with_vault(self.vault.clone());
        let mut say = move |call: Call| -> Answer {
            session.receive(&encode(&call).unwrap()[4..], &reply).unwrap();
            heard.recv_timeout(Duration::from_secs(5)).expect("an answer")
        };
        say(Call::Hello {
            protocol: PROTOCOL,
            build: "test".into(),
            gate: GateKind::Network,
        });
        say
    }
}

fn decide(act: &str) -> Call {
    Call::Decide {
        call: 1,
        request: Box::new(request(act)),
        patient: false,
    }
}

fn terms(answer: Answer) -> PermitTerms {
    match answer {
        Answer::Allow { terms, .. } => *terms,
        other => panic!("allowed, not {other:?}"),
    }
}

fn redeem(nonce: Nonce, secret: &str) -> Call {
    Call::Redeem {
        call: 2,
        nonce,
        secret: name(secret),
        sign: None,
        unwelcome: false,
    }
}

fn value(answer: Answer) -> Result<Vec<u8>, Code> {
    match answer {
        Answer::Redeemed {
            redeemed: Redeemed::Value(value),
            ..
        } => Ok(value.bytes().to_vec()),
        Answer::Deny { refusal, .. } => Err(refusal.code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn p9_a_secret_is_redeemed_once_for_its_permit_and_on_record_first() {
    let desk = Desk::new();
    let mut gate = desk.gate();
    let terms = terms(gate(decide("GET https://api.test/x")));
    assert_eq!(value(gate(redeem(terms.nonce, "github"))), Ok(b"real-value".to_vec()));
    let (event, durability) = desk.house.ledger.last();
    assert_eq!(durability, Durability::Durable);
    let Event::Redeemed { id, secret, place } = event else {
        panic!("{event:?}")
    };
    assert_eq!((id, secret.as_str(), place), (terms.decision, "github", Place::Bearer));
    let asked = desk.vault.0.lock().unwrap()[0].clone();
    assert_eq!(
        (asked.method.as_str(), asked.url.to_string()),
        ("GET", "https://api.test/x".into())
    );
    // Not twice, not another one, not one that cannot be had.
    assert_eq!(value(gate(redeem(terms.nonce, "github"))), Err(Code::PermitRefused));
    assert_eq!(value(gate(redeem(terms.nonce, "third"))), Err(Code::PermitRefused));
    assert_eq!(value(gate(redeem(terms.nonce, "other"))), Err(Code::SecretUnavailable));
    assert_eq!(value(gate(redeem(Nonce([9; 16]), "github"))), Err(Code::PermitRefused));
    let written = format!("{:?}", desk.house.ledger.all());
    assert!(!written.contains("real-value"));
}

#[test]
fn p9_nothing_is_redeemed_without_an_open_permit_that_names_it() {
    let desk = Desk::new();
    let mut gate = desk.gate();
    let without = terms(gate(decide("POST https://api.test/x")));
    assert_eq!(value(gate(redeem(without.nonce, "github"))), Err(Code::PermitRefused));
    let settled = terms(gate(decide("GET https://api.test/x")));
    gate(Call::Settle {
        call: 3,
        settlement: Settlement {
            nonce: settled.nonce,
            done: false,
            note: String::new(),
            passed: Passed::default(),
        },
    });
    assert_eq!(value(gate(redeem(settled.nonce, "github"))), Err(Code::PermitRefused));
    let lapsed = terms(gate(decide("GET https://api.test/x")));
    desk.house.clock.0.store(lapsed.deadline.0, Ordering::SeqCst);
    assert_eq!(value(gate(redeem(lapsed.nonce, "github"))), Err(Code::PermitRefused));
    let fresh = terms(gate(decide("GET https://api.test/x")));
    desk.house.mediator.end(TASK, 0).unwrap();
    assert_eq!(value(gate(redeem(fresh.nonce, "github"))), Err(Code::PermitRefused));
    assert!(desk.vault.0.lock().unwrap().is_empty());
}

#[test]
fn p10_a_use_that_cannot_be_recorded_hands_nothing_out() {
    for mood in [Mood::LosesDurable, Mood::RefusesRecords] {
        let desk = Desk::new();
        let mut gate = desk.gate();
        let terms = terms(gate(decide("GET https://api.test/x")));
        desk.house.ledger.set(mood);
        assert_eq!(
            value(gate(redeem(terms.nonce, "github"))),
            Err(Code::LogUnavailable),
            "{mood:?}"
        );
        assert!(desk.vault.0.lock().unwrap().is_empty());
    }
}

#[test]
fn p4_what_is_to_be_signed_is_bounded() {
    let desk = Desk::new();
    let mut gate = desk.gate();
    let terms = terms(gate(decide("GET https://api.test/x")));
    let sign = Some(Box::new(ToSign {
        headers: vec![("x".into(), "y".into()); 65],
        body: String::new(),
    }));
    let answer = gate(Call::Redeem {
        call: 2,
        nonce: terms.nonce,
        secret: name("github"),
        sign,
        unwelcome: false,
    });
    assert_eq!(value(answer), Err(Code::SecretUnavailable));
    assert!(desk.vault.0.lock().unwrap().is_empty());
}
