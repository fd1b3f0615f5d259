//! The person's keyring, by the Secret Service of their session (`org.freedesktop.secrets`).
//!
//! Promises: P9, P4 (no keyring, a locked one, none or more than one item: a refusal that says so).
//! Trust: the bus is the person's session's, named by the environment of whoever ordered the run.
//! See: <https://specifications.freedesktop.org/secret-service/latest/>.

use bailiwick_policy::LABEL;
use zeroize::Zeroizing;

/// Fetches the one item of this label, or with these attributes.
pub fn find(attributes: &[(String, String)], environment: &[(String, String)]) -> Result<Zeroizing<Vec<u8>>, String> {
    let _ = (attributes, environment, LABEL);
    Err("the keyring is not reached by this build: name a file, a variable or a command".into())
}
