//! Who else may answer: other users of this machine, and people who show a code of their own.
//!
//! Promises: P8 (an answer is taken from those alone who have shown who they are: the kernel names a user, a code is good once),
//! P10 (who is enrolled and who no longer is stands on record before it holds).
//! Trust: names and codes come from whoever is at the console; codes are guessed at. The secrets lie in the state folder,
//! for this account alone: whoever can read that can make codes, and can do all else that the account can.
//! Not here: the socket of other users (`colleagues`), who may answer about what (`policy`), showing questions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bailiwick_gate::Random;
use bailiwick_gate::desk::{Approver, Known};
use serde::{Deserialize, Serialize};
use totp_rs::{Builder, Secret, Totp};
use zeroize::Zeroizing;

use super::lock;
use crate::private_file;

/// Seconds for which a code is good (RFC 6238, section 5.2); the one before and the one after it are taken too.
const STEP: u64 = 30;

/// Bytes of a secret: as long as what it is hashed with (RFC 4226, section 4).
const SECRET: usize = 20;

/// So many wrong codes, and no further one is looked at for a while. A million codes, three of them good at a time: who
/// guesses on at this rate for a year has one chance in six.
const TRIES: usize = 5;

/// How long that while is, from the first of them.
const WHILE: Duration = Duration::from_secs(15 * 60);

/// How long somebody stays signed in after their code, or their last answer.
const SIGNED_IN: Duration = Duration::from_secs(60 * 60);

/// Most people.
const MAX: usize = 256;

/// Names that mean somebody else.
const RESERVED: [&str; 2] = ["program", "agent"];

/// How somebody shows who they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Shown {
    /// As a user of this machine, who comes by the socket.
    User {
        /// The user's name, as it was given.
        user: String,
        /// The user's number: what the kernel says.
        uid: u32,
    },
    /// By a code on the console.
    Code {
        /// What codes are made from, in base 32.
        secret: String,
        /// The last step whose code was taken: none before it is good any more.
        last: u64,
    },
}

/// What is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The folder of the socket for other users.
    #[serde(default)]
    folder: Option<PathBuf>,
    people: BTreeMap<String, Shown>,
}

/// Somebody who is enrolled, as the person is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolled {
    /// The name.
    pub name: String,
    /// The user of this machine; none for somebody who shows codes.
    pub user: Option<String>,
    /// True while they are signed in, or watch.
    pub there: bool,
}

/// Puts an enrolment on record, once nothing is left to refuse.
pub type Note<'a> = &'a dyn Fn() -> Result<(), String>;

/// What one name has tried.
#[derive(Default)]
struct Tries(Vec<Instant>);

/// Those who are enrolled, and what is known of them just now.
pub struct Approvers {
    file: PathBuf,
    kept: Mutex<Kept>,
    tries: Mutex<BTreeMap<String, Tries>>,
    signed_in: Mutex<BTreeMap<String, Instant>>,
}

/// Says why somebody cannot be enrolled, or is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApproverFault {
    /// The name will not do.
    #[error(
        "`{0}` cannot be the name of an approver: letters, digits, `-`, `_`, `.` and `@`, and not one that means somebody else"
    )]
    Name(String),
    /// It is taken.
    #[error("`{0}` is enrolled already")]
    Taken(String),
    /// It is the person.
    #[error("`{0}` is you: who is asked by your own tasks needs no enrolment, and is none of four eyes")]
    Own(String),
    /// There is no such user.
    #[error("there is no user `{0}` on this machine")]
    NoUser(String),
    /// The user is enrolled under another name.
    #[error("user `{0}` is enrolled already, as `{1}`: one person is one pair of eyes")]
    Twice(String, String),
    /// Nobody of that name is enrolled.
    #[error("nobody called `{0}` is enrolled")]
    Unknown(String),
    /// Too many.
    #[error("{MAX} people are enrolled already")]
    Full,
    /// The code is wrong, was used, or the name is not known: which of these is not said.
    #[error("the code is not good")]
    Code,
    /// Too many wrong ones.
    #[error("too many wrong codes: wait a while")]
    Often,
    /// What is kept cannot be read or written.
    #[error("what is known of approvers cannot be kept: {0}")]
    Io(String),
}

impl Approvers {
    /// Reads who is enrolled. What cannot be read enrols nobody, and is told.
    pub fn open(state: &Path) -> Self {
        let file = state.join("approvers.json");
        let kept = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|e| {
                talkln!(
                    "bailiwick: `{}` makes no sense, nobody is enrolled: {e}",
                    file.display()
                );
                Kept::default()
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Kept::default(),
            Err(e) => {
                talkln!(
                    "bailiwick: `{}` cannot be read, nobody is enrolled: {e}",
                    file.display()
                );
                Kept::default()
            }
        };
        Self {
            file,
            kept: Mutex::new(kept),
            tries: Mutex::default(),
            signed_in: Mutex::default(),
        }
    }

    /// Writes a new state down, whole or not at all, and takes it.
    fn put(&self, kept: &mut Kept, new: Kept) -> Result<(), ApproverFault> {
        let write = || -> std::io::Result<()> {
            let bytes = Zeroizing::new(serde_json::to_vec_pretty(&new).map_err(std::io::Error::other)?);
            private_file::put(&self.file, &bytes)
        };
        write().map_err(|e| ApproverFault::Io(e.to_string()))?;
        *kept = new;
        Ok(())
    }

    fn enrol(&self, name: &str, person: &str, shown: Shown, note: Note<'_>) -> Result<(), ApproverFault> {
        if !bailiwick_policy::is_name(name) || RESERVED.contains(&name) {
            return Err(ApproverFault::Name(name.into()));
        }
        if name == person {
            return Err(ApproverFault::Own(name.into()));
        }
        let mut kept = lock(&self.kept);
        if kept.people.contains_key(name) {
            return Err(ApproverFault::Taken(name.into()));
        }
        if kept.people.len() >= MAX {
            return Err(ApproverFault::Full);
        }
        if let Shown::User { user, uid } = &shown {
            let same = |other: &Shown| matches!(other, Shown::User { uid: known, .. } if known == uid);
            if let Some((known, _)) = kept.people.iter().find(|(_, other)| same(other)) {
                return Err(ApproverFault::Twice(user.clone(), known.clone()));
            }
        }
        let mut new = kept.clone();
        new.people.insert(name.into(), shown);
        // On record before it holds.
        note().map_err(ApproverFault::Io)?;
        self.put(&mut kept, new)
    }

    /// Enrols a user of this machine. `person` is whose daemon this is.
    pub fn enrol_user(&self, name: &str, user: &str, person: &str, note: Note<'_>) -> Result<(), ApproverFault> {
        let uid = uid_of(user).ok_or_else(|| ApproverFault::NoUser(user.into()))?;
        if uid == rustix::process::geteuid().as_raw() {
            return Err(ApproverFault::Own(user.into()));
        }
        let user = user.to_owned();
        self.enrol(name, person, Shown::User { user, uid }, note)
    }

    /// Enrols somebody who shows codes: what their program for codes is to be told, once.
    pub fn enrol_code(
        &self,
        name: &str,
        person: &str,
        random: &dyn Random,
        note: Note<'_>,
    ) -> Result<Zeroizing<String>, ApproverFault> {
        let mut bytes = Zeroizing::new([0u8; SECRET]);
        random.fill(&mut *bytes);
        let secret = Secret::from(*bytes);
        let totp = totp(&secret.to_base32(), name).ok_or_else(|| ApproverFault::Name(name.into()))?;
        let told = totp.to_url().map_err(|e| ApproverFault::Io(e.to_string()))?;
        let secret = secret.to_base32();
        self.enrol(name, person, Shown::Code { secret, last: 0 }, note)?;
        Ok(Zeroizing::new(told))
    }

    /// Takes somebody from the list; they are signed out.
    pub fn remove(&self, name: &str) -> Result<(), ApproverFault> {
        let mut kept = lock(&self.kept);
        let mut new = kept.clone();
        new.people
            .remove(name)
            .ok_or_else(|| ApproverFault::Unknown(name.into()))?;
        self.put(&mut kept, new)?;
        lock(&self.signed_in).remove(name);
        Ok(())
    }

    /// True when somebody of that name is enrolled.
    pub fn knows(&self, name: &str) -> bool {
        lock(&self.kept).people.contains_key(name)
    }

    /// Those who are enrolled; `there` are those who watch.
    pub fn list(&self, there: &[Approver]) -> Vec<Enrolled> {
        let people = lock(&self.kept).people.clone();
        let is_there = |name: &String| there.iter().any(|by| by.name == *name) || self.is_signed_in(name);
        people
            .into_iter()
            .map(|(name, shown)| Enrolled {
                there: is_there(&name),
                user: match shown {
                    Shown::User { user, .. } => Some(user),
                    Shown::Code { .. } => None,
                },
                name,
            })
            .collect()
    }

    /// The approver that a user of this machine is.
    pub fn of_uid(&self, uid: u32) -> Option<Approver> {
        let kept = lock(&self.kept);
        let same = |shown: &Shown| matches!(shown, Shown::User { uid: known, .. } if *known == uid);
        let (name, _) = kept.people.iter().find(|(_, shown)| same(shown))?;
        Some(Approver {
            name: name.clone(),
            by: Known::User,
        })
    }

    /// The folder of the socket for other users.
    pub fn folder(&self) -> Option<PathBuf> {
        lock(&self.kept).folder.clone()
    }

    /// Names that folder, or none.
    pub fn set_folder(&self, folder: Option<PathBuf>) -> Result<(), ApproverFault> {
        let mut kept = lock(&self.kept);
        let new = Kept { folder, ..kept.clone() };
        self.put(&mut kept, new)
    }

    /// Signs somebody in by a code: it is good once, and only so many are looked at.
    pub fn check(&self, name: &str, code: &str, unix_seconds: u64) -> Result<Approver, ApproverFault> {
        self.may_try(name)?;
        let mut kept = lock(&self.kept);
        let good = match kept.people.get(name) {
            Some(Shown::Code { secret, last }) => {
                let step = totp(secret, name).and_then(|totp| totp.check(code, unix_seconds));
                step.filter(|step| step > last).map(|step| (secret.clone(), step))
            }
            _ => None,
        };
        let (secret, last) = good.ok_or(ApproverFault::Code)?;
        let mut new = kept.clone();
        new.people.insert(name.into(), Shown::Code { secret, last });
        // Used up on disk before it opens anything.
        self.put(&mut kept, new)?;
        lock(&self.tries).remove(name);
        lock(&self.signed_in).insert(name.into(), Instant::now());
        Ok(Approver {
            name: name.into(),
            by: Known::Code,
        })
    }

    /// Counts a try before it is looked at. Names that nobody has are counted too, and together.
    fn may_try(&self, name: &str) -> Result<(), ApproverFault> {
        let known = self.knows(name);
        let mut all = lock(&self.tries);
        let tries = all.entry(if known { name.into() } else { String::new() }).or_default();
        tries.0.retain(|tried| tried.elapsed() < WHILE);
        if tries.0.len() >= TRIES {
            return Err(ApproverFault::Often);
        }
        tries.0.push(Instant::now());
        Ok(())
    }

    /// True while somebody who showed a code is signed in.
    pub fn is_signed_in(&self, name: &str) -> bool {
        let signed_in = lock(&self.signed_in);
        signed_in.get(name).is_some_and(|last| last.elapsed() < SIGNED_IN)
    }

    /// That somebody answers keeps them signed in.
    pub fn stays(&self, by: &Approver) {
        if by.by == Known::Code && self.is_signed_in(&by.name) {
            lock(&self.signed_in).insert(by.name.clone(), Instant::now());
        }
    }

    /// Signs somebody out.
    pub fn sign_out(&self, name: &str) {
        lock(&self.signed_in).remove(name);
    }

    /// Whom to believe that an answer by the person's own socket is by: the person, or somebody who has signed in by a code.
    /// Another user comes by the other socket, and a program is asked, and does not ask.
    pub fn believe(&self, by: Option<Approver>, person: Approver) -> Result<Approver, String> {
        let Some(by) = by else { return Ok(person) };
        let name = bailiwick_model::visible(&by.name);
        match by.by {
            Known::User if by == person => Ok(person),
            Known::User => Err(format!(
                "`{name}` is not the user at this end: other users come by the socket for approvers"
            )),
            Known::Code if self.is_signed_in(&by.name) => Ok(by),
            Known::Code => Err(format!("`{name}` has not signed in with a code, or it is too long ago")),
            Known::Program => Err("a program answers when it is asked, and not by itself".into()),
        }
    }
}

fn totp(secret: &str, name: &str) -> Option<Totp> {
    let secret = Secret::try_from_base32(secret).ok()?;
    Builder::new()
        .with_secret(secret)
        .with_skew(1)
        .with_step_duration(STEP)
        .with_account_name(name)
        .with_issuer(Some("bailiwick"))
        .build()
        .ok()
}

/// The number of a user, from `/etc/passwd` (passwd(5)).
fn uid_of(user: &str) -> Option<u32> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
        (name == user).then(|| uid.parse().ok()).flatten()
    })
}

#[cfg(test)]
#[path = "approvers/tests.rs"]
mod tests;
