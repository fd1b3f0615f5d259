//! Logins that end and are renewed: access tokens, had for refresh tokens.
//!
//! Answers: which access token holds now? Promises: P9 (tokens are in this process, in one file where a service hands out a
//! new refresh token, and in the process that renews; none has a printed form), P10 (each renewal is on record, before it
//! and after it), P4 (a login that is refused is asked about no more until the person puts another in its place).
//! Many that wait for the same login share one renewal: two with the same refresh token would end the login where services
//! look for that (RFC 9700, section 4.14).
//! Trust: where a refresh token comes from and goes to is the person's word; what the service answers is read elsewhere.
//! Not here: the request (`fetcher`), who may use the secret (`mediator`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_gate::{MAX_SECRET, SecretValue};
use bailiwick_policy::{Renewal, Secret, SecretSource};
use bailiwick_proxy::{Fetched, Wish};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::fetcher::For;
use super::{Daemon, lock, secret};
use crate::private_file;

/// How long before its end an access token is renewed; a quarter of its time where that is less.
const MARGIN: Duration = Duration::from_secs(60);

/// How long a failure is told again before another try.
const REST: Duration = Duration::from_secs(2);

/// How often at most a token is renewed because a server does not take it.
const UNWELCOME: Duration = Duration::from_secs(60);

/// Longest file of a kept refresh token.
const MAX_FILE: u64 = 64 * 1024;

type Value = Zeroizing<Vec<u8>>;

/// The logins that are renewed.
pub struct Renewals {
    /// Where refresh tokens lie that took the place of the person's.
    folder: PathBuf,
    logins: Mutex<BTreeMap<String, Arc<Mutex<Login>>>>,
}

/// One login.
#[derive(Default)]
struct Login {
    access: Option<Access>,
    /// How many access tokens there have been.
    number: u64,
    /// The digest of the refresh token that the service refused, and its word.
    refused: Option<(String, String)>,
    /// The last failure.
    failed: Option<(Instant, String)>,
    /// When it was last renewed because a server did not take the token.
    unwelcome: Option<Instant>,
}

struct Access {
    value: Value,
    /// When it is renewed; none where the service does not say how long it holds.
    until: Option<Instant>,
}

/// A refresh token that took the place of the person's.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The digest of the person's: with another one there, this one is of no use.
    of: String,
    token: SecretValue,
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl Access {
    fn holds(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Renewals {
    /// Keeps what must be kept in this folder.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self {
            folder,
            logins: Mutex::default(),
        }
    }

    /// The access token that holds now, with its number. `unwelcome` is the number of one that a server did not take.
    pub fn access(
        &self,
        daemon: &Daemon,
        whom: &For<'_>,
        of: &Secret,
        renewal: &Renewal,
        unwelcome: Option<u64>,
    ) -> Result<(Value, u64), String> {
        let name = name_of(&of.from, renewal, whom.environment);
        let login = Arc::clone(lock(&self.logins).entry(name.clone()).or_default());
        // Whoever comes while it is renewed waits here, and has what came of it.
        let mut login = lock(&login);
        let is_unwelcome = unwelcome == Some(login.number);
        let may_again = login.unwelcome.is_none_or(|last| last.elapsed() > UNWELCOME);
        if let Some(access) = login.access.as_ref().filter(|access| access.holds())
            && !(is_unwelcome && may_again)
        {
            return Ok((access.value.clone(), login.number));
        }
        if let Some((_, why)) = login.failed.as_ref().filter(|(when, _)| when.elapsed() < REST) {
            return Err(why.clone());
        }
        login.access = None;
        if is_unwelcome {
            login.unwelcome = Some(Instant::now());
        }
        match self.renew(daemon, whom, of, renewal, &name, &mut login) {
            Ok(access) => {
                login.failed = None;
                login.number = login.number.saturating_add(1);
                let value = access.value.clone();
                login.access = Some(access);
                Ok((value, login.number))
            }
            Err(why) => {
                login.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    fn renew(
        &self,
        daemon: &Daemon,
        whom: &For<'_>,
        of: &Secret,
        renewal: &Renewal,
        name: &str,
        login: &mut Login,
    ) -> Result<Access, String> {
        let own = secret::value(&of.from, whom.environment)?;
        let client_secret = renewal.client_secret.as_ref();
        let client_secret = client_secret
            .map(|source| secret::value(source, whom.environment))
            .transpose()
            .map_err(|cause| format!("the client's password: {cause}"))?;
        // Other daemons of the person's renew with the same token.
        let _alone = self.alone(name)?;
        let of = digest(&own);
        let token = match self.kept(name)?.filter(|kept| kept.of == of) {
            Some(kept) => kept.token,
            None => SecretValue::new(own),
        };
        let used = digest(token.bytes());
        let place = &renewal.url.host;
        let refusal = |word: &str| match word {
            "invalid_grant" => {
                format!(
                    "`{place}` does not take the refresh token any more (invalid_grant): sign in again, and put the new one where `from` says"
                )
            }
            word => format!("`{place}` refuses to renew it ({word})"),
        };
        if let Some((_, word)) = login.refused.as_ref().filter(|(refused, _)| *refused == used) {
            return Err(refusal(word));
        }
        let begun = Instant::now();
        let wish = Wish::Renew {
            client: renewal.client.clone(),
            client_secret: client_secret.map(SecretValue::new),
            token,
            scope: renewal.scope.clone(),
        };
        let (access, next, seconds) = match daemon.fetch(whom, &renewal.url, wish)?.0 {
            Fetched::Renewed { access, token, seconds } => (access, token, seconds),
            Fetched::Refused { word } => {
                let told = refusal(&word);
                if word == "invalid_grant" {
                    login.refused = Some((used, word));
                }
                return Err(told);
            }
            Fetched::Failed { why } => return Err(format!("it could not be renewed at `{place}`: {why}")),
            Fetched::Read {} => return Err(format!("it could not be renewed at `{place}`")),
        };
        if let Some(token) = next.filter(|next| digest(next.bytes()) != used)
            && let Err(e) = self.keep(name, &Kept { of, token })
        {
            // The one before it is spent: without this file the person must sign in again when this process ends.
            return Err(format!("the new refresh token cannot be kept: {e}"));
        }
        let until = seconds.map(|seconds| {
            let whole = Duration::from_secs(seconds);
            begun
                .checked_add(whole.saturating_sub(MARGIN.min(whole / 4)))
                .unwrap_or(begun)
        });
        Ok(Access {
            value: Zeroizing::new(access.bytes().to_vec()),
            until,
        })
    }

    fn alone(&self, name: &str) -> Result<std::fs::File, String> {
        let fault = |e: std::io::Error| format!("the folder of renewed logins cannot be used: {e}");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(fault)?;
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.folder.join(format!("{name}.lock")))
            .map_err(fault)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| fault(e.into()))?;
        Ok(file)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn kept(&self, name: &str) -> Result<Option<Kept>, String> {
        let path = self.file(name);
        let fault = |cause: String| format!("the kept refresh token in `{}`: {cause}", path.display());
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fault(e.to_string())),
        };
        let mut text = Zeroizing::new(String::with_capacity(2 * MAX_SECRET));
        file.take(MAX_FILE)
            .read_to_string(&mut text)
            .map_err(|e| fault(e.to_string()))?;
        // What is wrong with it is not repeated: a token stands in it.
        let kept = serde_json::from_str(&text).map_err(|_| fault("it is not as it was written".into()))?;
        Ok(Some(kept))
    }

    /// Puts a refresh token in the place of the one before it: whole, or not at all.
    fn keep(&self, name: &str, kept: &Kept) -> std::io::Result<()> {
        let text = Zeroizing::new(serde_json::to_string(kept)?);
        private_file::put(&self.file(name), text.as_bytes())
    }
}

/// The same for all that is renewed with the same token, at the same place, as the same client.
fn name_of(from: &SecretSource, renewal: &Renewal, environment: &[(String, String)]) -> String {
    let mut sum = Sha256::new();
    let own = match from {
        // Each run may have another one.
        SecretSource::Variable(name) => environment
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str()),
        _ => None,
    };
    let scope = renewal.scope.as_deref().unwrap_or("");
    let parts = [
        from.to_string(),
        renewal.url.to_string(),
        renewal.client.clone(),
        scope.to_owned(),
    ];
    for part in parts.iter().map(String::as_str).chain(own) {
        sum.update(part.len().to_be_bytes());
        sum.update(part);
    }
    let mut name = hex::encode(sum.finalize());
    name.truncate(32);
    name
}

impl Daemon {
    /// The value of a secret, renewed where it must be.
    pub fn value_of(&self, whom: &For<'_>, of: &Secret) -> Result<Value, String> {
        match &of.renewal {
            None => secret::value(&of.from, whom.environment),
            Some(renewal) => self
                .renewals
                .access(self, whom, of, renewal, None)
                .map(|(value, _)| value),
        }
    }
}
