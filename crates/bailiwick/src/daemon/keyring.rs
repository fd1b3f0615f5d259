//! The person's keyring, by the Secret Service of their session (`org.freedesktop.secrets`).
//!
//! Promises: P9, P4 (no keyring, a locked one, none or more than one item: a refusal that says so).
//! Trust: the bus is the person's session's, named by the environment of whoever ordered the run.
//! The session with the keyring is encrypted, so that who listens on the bus learns nothing. Nothing is unlocked here: that
//! would open a window at a moment that the agent chooses.
//! See: <https://specifications.freedesktop.org/secret-service/latest/>.

use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::time::Duration;

use bailiwick_policy::LABEL;
use secret_service::EncryptionType;
use secret_service::blocking::{Item, SecretService};
use zeroize::Zeroizing;

/// How long a keyring may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Fetches the one item of this label, or with these attributes.
pub fn find(attributes: &[(String, String)], environment: &[(String, String)]) -> Result<Zeroizing<Vec<u8>>, String> {
    let address = address_of(environment)
        .ok_or("there is no session bus, and so no keyring: log in, or name a file or a command")?;
    let attributes = attributes.to_vec();
    let (say, said) = channel();
    // What the bus does is not bounded by its own limits alone.
    std::thread::spawn(move || {
        let _ = say.send(look_up(&address, &attributes));
    });
    said.recv_timeout(PATIENCE)
        .unwrap_or_else(|_| Err("the keyring does not answer".into()))
}

/// The session bus of whoever ordered the run.
pub fn address_of(environment: &[(String, String)]) -> Option<String> {
    let of = |wanted: &str| {
        let found = environment.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    of("DBUS_SESSION_BUS_ADDRESS").or_else(|| {
        let bus = std::path::PathBuf::from(of("XDG_RUNTIME_DIR")?).join("bus");
        bus.exists().then(|| format!("unix:path={}", bus.display()))
    })
}

fn look_up(address: &str, attributes: &[(String, String)]) -> Result<Zeroizing<Vec<u8>>, String> {
    let connection = zbus::blocking::connection::Builder::address(address)
        .and_then(|builder| builder.method_timeout(PATIENCE).build())
        .map_err(|e| format!("the session bus cannot be reached: {e}"))?;
    let service = SecretService::connect_with_existing(EncryptionType::Dh, connection)
        .map_err(|e| format!("there is no keyring on the session bus: {e}"))?;
    let unreadable = |e: secret_service::Error| format!("the keyring cannot be read: {e}");
    let found: Vec<Item> = match attributes {
        [(key, label)] if key == LABEL => {
            let mut paths = HashSet::new();
            for collection in service.get_all_collections().map_err(unreadable)? {
                for item in collection.get_all_items().map_err(unreadable)? {
                    // An item may be listed under two names of its collection.
                    if item.get_label().map_err(unreadable)? == *label {
                        paths.insert(item.item_path.clone());
                    }
                }
            }
            let items = paths.into_iter().map(|path| service.get_item_by_path(path));
            items.collect::<Result<_, _>>().map_err(unreadable)?
        }
        all => {
            let wanted = all.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let both = service.search_items(wanted.collect()).map_err(unreadable)?;
            both.unlocked.into_iter().chain(both.locked).collect()
        }
    };
    let item = match found.as_slice() {
        [item] => item,
        [] => return Err("the keyring has no such item".into()),
        _ => return Err("the keyring has more than one such item: name it by its attributes".into()),
    };
    if item.is_locked().map_err(unreadable)? {
        return Err("the keyring is locked: unlock it".into());
    }
    item.get_secret().map(Zeroizing::new).map_err(unreadable)
}
