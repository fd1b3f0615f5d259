//! The log's key: where it is kept, and its public half.
//!
//! Answers: with which key is this log signed, and who else could read it?
//! Promises: P9 (the secret half is never printed, is wiped from memory, and a file that others can read is refused),
//! P10.
//! Trust: the file is the person's own; a folder or file that others can write or read is not taken.
//! Not here: what is signed (`note`).
//! See: C2SP signed-note (both spellings of a key).

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer};
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// The signature type of a plain Ed25519 key.
const ED25519: u8 = 1;
/// How the text of a secret key begins.
const SECRET: &str = "PRIVATE+KEY+";
/// More than any key file has.
const MAX_KEY: u64 = 1024;

/// The secret half. It cannot be printed; it is wiped when dropped.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    verifier: VerifierKey,
}

/// The public half. Written as `name+hash+base64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: ed25519_dalek::VerifyingKey,
    id: [u8; 4],
}

/// Says why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// The file or its folder cannot be read or written.
    #[error("the log key `{path}` cannot be used: {cause}")]
    Unusable {
        /// The file.
        path: String,
        /// What was found.
        cause: String,
    },
    /// Others can get at it.
    #[error("the log key `{path}` is not safe: {cause}")]
    Exposed {
        /// The file or folder.
        path: String,
        /// Who can get at it.
        cause: &'static str,
    },
    /// The text is not a key.
    #[error("`{text}` is not a verifier key: {cause}")]
    Malformed {
        /// The text.
        text: String,
        /// What is wrong with it.
        cause: &'static str,
    },
    /// The origin cannot name a log.
    #[error("`{0}` cannot name a log: it must not be empty or have spaces, `+` or control characters")]
    Origin(String),
}

impl SigningKey {
    /// Reads the key, or makes one where there is none: file mode 0600, its folder 0700.
    ///
    /// Refused: a file that is a link, that others own or can read, a folder that others can write, and the key of
    /// another origin.
    pub fn load_or_create(path: &Path, origin: &str) -> Result<Self, KeyFault> {
        let unusable = |cause: &dyn fmt::Display| KeyFault::Unusable {
            path: path.display().to_string(),
            cause: cause.to_string(),
        };
        check_name(origin)?;
        prepare_folder(path)?;
        if let Err(error) = fs::symlink_metadata(path) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(unusable(&error));
            }
            create(path, origin).map_err(|error| unusable(&error))?;
        }
        let key = Self::load(path)?;
        if key.verifier.name != origin {
            return Err(unusable(&format!(
                "it is the key of `{}`, not of `{origin}`",
                key.verifier.name
            )));
        }
        Ok(key)
    }

    fn load(path: &Path) -> Result<Self, KeyFault> {
        let shown = || path.display().to_string();
        let unusable = |cause: String| KeyFault::Unusable { path: shown(), cause };
        let exposed = |cause| KeyFault::Exposed { path: shown(), cause };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(path);
        let file = file.map_err(|error| unusable(error.to_string()))?;
        let metadata = file.metadata().map_err(|error| unusable(error.to_string()))?;
        if !metadata.is_file() {
            return Err(unusable("it is not a plain file".into()));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(exposed("another user owns it"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(exposed("others can read it"));
        }
        // Room for all of it at once: a buffer that grows would leave copies of the secret behind.
        let mut text = Zeroizing::new(String::with_capacity(MAX_KEY as usize + 1));
        file.take(MAX_KEY)
            .read_to_string(&mut text)
            .map_err(|error| unusable(error.to_string()))?;
        decode(text.trim_end()).ok_or_else(|| unusable("it is not a log key".into()))
    }

    /// A key from its seed.
    pub(crate) fn from_seed(seed: &[u8; 32], origin: &str) -> Result<Self, KeyFault> {
        check_name(origin)?;
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        let verifier = VerifierKey::new(origin, key.verifying_key());
        Ok(Self { key, verifier })
    }

    /// The public half.
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs.
    pub(crate) fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.key.sign(text).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.verifier)
    }
}

impl VerifierKey {
    fn new(name: &str, key: ed25519_dalek::VerifyingKey) -> Self {
        let hash = Sha256::new()
            .chain_update(name)
            .chain_update([b'\n', ED25519])
            .chain_update(key.as_bytes());
        let hash: [u8; 32] = hash.finalize().into();
        let id = hash.first_chunk().copied().unwrap_or_default();
        Self {
            name: name.into(),
            key,
            id,
        }
    }

    /// The name: the origin of the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The four bytes that say in a signature line whose it is.
    pub(crate) fn id(&self) -> [u8; 4] {
        self.id
    }

    /// Says whether the signature is of this text and key.
    pub(crate) fn verifies(&self, text: &[u8], signature: &Signature) -> bool {
        self.key.verify_strict(text, signature).is_ok()
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ED25519];
        bytes.extend_from_slice(self.key.as_bytes());
        write!(
            f,
            "{}+{:08x}+{}",
            self.name,
            u32::from_be_bytes(self.id),
            STANDARD.encode(bytes)
        )
    }
}

impl FromStr for VerifierKey {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<Self, KeyFault> {
        let malformed = |cause| KeyFault::Malformed {
            text: text.into(),
            cause,
        };
        let (name, rest) = text.split_once('+').ok_or(malformed("`name+hash+base64` expected"))?;
        let (id, key) = rest.split_once('+').ok_or(malformed("`name+hash+base64` expected"))?;
        check_name(name)?;
        let key = STANDARD
            .decode(key)
            .map_err(|_| malformed("its last part is not base64"))?;
        let key = match key.split_first() {
            Some((&ED25519, key)) => <&[u8; 32]>::try_from(key).map_err(|_| malformed("it has the wrong length"))?,
            _ => return Err(malformed("it is not an ed25519 key")),
        };
        let key = ed25519_dalek::VerifyingKey::from_bytes(key).map_err(|_| malformed("it is not an ed25519 key"))?;
        let verifier = Self::new(name, key);
        if id != format!("{:08x}", u32::from_be_bytes(verifier.id)) {
            return Err(malformed("its hash does not match the rest"));
        }
        Ok(verifier)
    }
}

fn check_name(name: &str) -> Result<(), KeyFault> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    if name.is_empty() || name.len() > 255 || name.contains(odd) {
        return Err(KeyFault::Origin(name.escape_debug().to_string()));
    }
    Ok(())
}

/// Makes the folder of the key, or checks that nobody else can put another key there.
fn prepare_folder(path: &Path) -> Result<(), KeyFault> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let unusable = |error: io::Error| KeyFault::Unusable {
        path: path.display().to_string(),
        cause: error.to_string(),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(unusable)?;
    let metadata = fs::metadata(folder).map_err(unusable)?;
    if metadata.mode() & 0o022 != 0 {
        return Err(KeyFault::Exposed {
            path: folder.display().to_string(),
            cause: "others can write to the folder",
        });
    }
    Ok(())
}

/// Writes a new key beside its place and links it in, so that of two that start at once one key wins, whole.
fn create(path: &Path, origin: &str) -> io::Result<()> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(seed.as_mut()).map_err(|error| io::Error::other(error.to_string()))?;
    let mut secret = Zeroizing::new(vec![ED25519]);
    secret.reserve_exact(seed.len());
    secret.extend_from_slice(seed.as_ref());
    let verifier = VerifierKey::new(origin, ed25519_dalek::SigningKey::from_bytes(&seed).verifying_key());
    let id = u32::from_be_bytes(verifier.id);
    let encoded = Zeroizing::new(STANDARD.encode(secret.as_slice()));
    let text = Zeroizing::new(format!("{SECRET}{origin}+{id:08x}+{}\n", encoded.as_str()));

    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = Path::new(&name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match fs::hard_link(beside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    fs::remove_file(beside)?;
    linked?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn decode(text: &str) -> Option<SigningKey> {
    let (name, rest) = text.strip_prefix(SECRET)?.split_once('+')?;
    let (id, secret) = rest.split_once('+')?;
    let secret = Zeroizing::new(STANDARD.decode(secret).ok()?);
    let (&ED25519, seed) = secret.split_first()? else {
        return None;
    };
    let key = SigningKey::from_seed(seed.try_into().ok()?, name).ok()?;
    (id == format!("{:08x}", u32::from_be_bytes(key.verifier.id))).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn p9_a_key_is_made_once_for_its_owner_alone_and_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys/log.key");
        let first = SigningKey::load_or_create(&path, "log.example/dana").unwrap();
        let again = SigningKey::load_or_create(&path, "log.example/dana").unwrap();
        assert_eq!(first.verifier(), again.verifier());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

        let text = fs::read_to_string(&path).unwrap();
        // What it is called stands in front; the key itself may hold a `+`.
        let secret = text.trim_end().splitn(5, '+').nth(4).unwrap();
        assert!(secret.len() > 40);
        assert!(!format!("{first:?} {}", first.verifier()).contains(secret));
    }

    #[test]
    fn p9_a_key_that_others_can_read_or_replace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.key");
        SigningKey::load_or_create(&path, "log").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            SigningKey::load_or_create(&path, "log"),
            Err(KeyFault::Exposed { .. })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(matches!(
            SigningKey::load_or_create(&path, "log"),
            Err(KeyFault::Exposed { .. })
        ));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let link = folder.path().join("link.key");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(
            SigningKey::load_or_create(&link, "log"),
            Err(KeyFault::Unusable { .. })
        ));
    }

    #[test]
    fn a_key_of_another_log_or_a_damaged_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.key");
        SigningKey::load_or_create(&path, "log").unwrap();
        let error = SigningKey::load_or_create(&path, "other").unwrap_err().to_string();
        assert!(error.contains("it is the key of `log`, not of `other`"), "{error}");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("+log+", "+lot+")).unwrap();
        assert!(matches!(
            SigningKey::load_or_create(&path, "lot"),
            Err(KeyFault::Unusable { .. })
        ));
        for origin in ["", "a b", "a+b", "a\nb"] {
            assert!(matches!(
                SigningKey::load_or_create(&path, origin),
                Err(KeyFault::Origin(_))
            ));
        }
    }

    #[test]
    fn the_verifier_key_of_the_go_checksum_database_is_read_and_written_back() {
        let text = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8";
        let key: VerifierKey = text.parse().unwrap();
        assert_eq!((key.name(), key.to_string().as_str()), ("sum.golang.org", text));
        for bad in [
            "",
            "a",
            "a+b",
            "sum.golang.org+033de0af+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
            "a+1+AA==",
        ] {
            assert!(bad.parse::<VerifierKey>().is_err(), "{bad}");
        }
    }
}
