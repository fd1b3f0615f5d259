//! A task's secrets for requests: what stands for them, and their values when its gate redeems them.
//!
//! Promises: P9 (values are here, in this process, and go to the gate one by one, each for an open permit; a signing key goes
//! nowhere), P4 (a value that cannot be had is a refusal).
//! Trust: where values come from is said by the person, or by a project's file that they trust.
//! Not here: who may redeem what (`mediator`), where a value comes from (`secret`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bailiwick_gate::{MAX_SECRET, Random, Redeemed, Redemption, SecretValue, Use, Vault};
use bailiwick_model::{Place, SecretName};
use bailiwick_policy::{Policy, Secret};
use bailiwick_proxy::{SHORTEST, StandIn};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use zeroize::Zeroizing;

use super::fetcher::For;
use super::{Daemon, lock, secret, signature, standin};

/// One secret.
struct Held {
    secret: Secret,
    value: Mutex<Option<Zeroizing<Vec<u8>>>>,
    /// The number of the value that was handed out last, where it is one that is renewed.
    last: Mutex<Option<u64>>,
}

/// All secrets of one task.
pub struct TaskVault {
    held: BTreeMap<SecretName, Arc<Held>>,
    surroundings: Arc<Surroundings>,
}

/// What values are fetched with.
struct Surroundings {
    daemon: Arc<Daemon>,
    policy: Arc<Policy>,
    environment: Vec<(String, String)>,
}

/// What a task begins with.
pub struct Prepared {
    /// Hands values out.
    pub vault: Arc<TaskVault>,
    /// What the gate is told.
    pub stand_ins: Vec<StandIn>,
    /// The variables in which the agent finds the stand-ins.
    pub variables: Vec<(String, String)>,
    /// What could not be had, for the person.
    pub warnings: Vec<String>,
}

/// Finds out what a task may have put into its requests. `environment` is the person's. From the first secret on this
/// process leaves no core file, and no other program of the person's reads its memory.
pub fn prepare(
    daemon: &Arc<Daemon>,
    policy: &Arc<Policy>,
    environment: &[(String, String)],
    random: &dyn Random,
) -> Prepared {
    let mut vault = TaskVault {
        held: BTreeMap::new(),
        surroundings: Arc::new(Surroundings {
            daemon: Arc::clone(daemon),
            policy: Arc::clone(policy),
            environment: environment.to_vec(),
        }),
    };
    let (mut stand_ins, mut variables, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for (name, secret, requests) in policy.secrets_for_requests() {
        // What is asked for at its first use need not be looked up before.
        let value = secret::value(&secret.from, environment).and_then(fitting);
        let text = match &value {
            // What is put in is had when it is first needed: here lies what it is had for.
            Ok(_) if secret.renewal.is_some() => standin::make(None, requests.shape.as_deref(), random),
            Ok(value) => standin::make(Some(value), requests.shape.as_deref(), random),
            Err(cause) => {
                warnings.push(format!("secret:{name} cannot be had: {cause}"));
                standin::make(None, requests.shape.as_deref(), random)
            }
        };
        if let Some(pattern) = requests.unopened(policy.settings()) {
            warnings.push(format!(
                "secret:{name} is for {pattern}, and no rule lets that be requested (through a tunnel nothing is put in): \
                 add `allow = [\"GET {pattern}\"]` under [network]"
            ));
        }
        for variable in &requests.variables {
            variables.push((variable.clone(), text.clone()));
        }
        stand_ins.push(StandIn {
            secret: name.clone(),
            text,
            urls: requests.urls.clone(),
            place: requests.place.clone(),
            session: requests.session,
        });
        let held = Held {
            value: Mutex::new(value.ok().filter(|_| secret.renewal.is_none())),
            secret: secret.clone(),
            last: Mutex::default(),
        };
        vault.held.insert(name, Arc::new(held));
    }
    if !stand_ins.is_empty()
        && let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable)
    {
        warnings.push(format!(
            "the daemon's memory, where secrets are, can be read by your other programs: {e}"
        ));
    }
    Prepared {
        vault: Arc::new(vault),
        stand_ins,
        variables,
        warnings,
    }
}

/// A value that can be put into requests, and told from other text in answers.
fn fitting(value: Zeroizing<Vec<u8>>) -> Result<Zeroizing<Vec<u8>>, String> {
    match value.len() {
        length if length < SHORTEST => Err(format!(
            "it is shorter than {SHORTEST} bytes, and could not be told from other text"
        )),
        length if length > MAX_SECRET => Err(format!("it is longer than {MAX_SECRET} bytes")),
        _ => Ok(value),
    }
}

impl Held {
    /// The value that is here already.
    fn here(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.value.try_lock().ok().and_then(|value| value.clone())
    }

    /// The value, fetched or renewed.
    fn fetch(&self, wanted: &Use, with: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
        let Some(renewal) = &self.secret.renewal else {
            return secret::value(&self.secret.from, &with.environment).and_then(fitting);
        };
        let whom = For {
            purpose: &format!("secret:{}", wanted.secret),
            task: Some(wanted.task),
            policy: &with.policy,
            environment: &with.environment,
        };
        let unwelcome = lock(&self.last).filter(|_| wanted.unwelcome);
        let renewals = &with.daemon.renewals;
        let (value, number) = renewals.access(&with.daemon, &whom, &self.secret, renewal, unwelcome)?;
        *lock(&self.last) = Some(number);
        fitting(value)
    }
}

/// What a use gets of a value.
fn redeemed(wanted: &Use, value: Zeroizing<Vec<u8>>) -> Result<Redeemed, String> {
    match (&wanted.place, &wanted.sign) {
        (Place::Signature { service, region, key }, Some(sign)) => {
            signature::sign(wanted, sign, &value, (service, region, key)).map(Redeemed::Signed)
        }
        (Place::Signature { .. }, None) => Err("it signs, and is not handed out".into()),
        (_, Some(_)) => Err("it signs nothing".into()),
        (_, None) => Ok(Redeemed::Value(SecretValue::new(value))),
    }
}

impl Vault for TaskVault {
    fn redeem(&self, wanted: Use, then: Redemption) {
        let Some(held) = self.held.get(&wanted.secret) else {
            return then(Err("there is no such secret".into()));
        };
        if let Some(value) = held.here() {
            return then(redeemed(&wanted, value));
        }
        // A command, a keyring that is asked, or a login that is renewed, takes its time.
        let (held, with) = (Arc::clone(held), Arc::clone(&self.surroundings));
        std::thread::spawn(move || {
            let done = held.fetch(&wanted, &with).and_then(|value| redeemed(&wanted, value));
            if let Err(cause) = &done {
                talkln!(
                    "bailiwick: secret:{} of task {} cannot be had: {cause}",
                    wanted.secret,
                    wanted.task
                );
            }
            then(done);
        });
    }
}
