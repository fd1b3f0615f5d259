//! What programs in a fence believe of servers: the machine's roots and the person's, and the task's own authority.
//!
//! Answers: which bundles are shown inside where connections are opened, and which variables name them?
//! Promises: P9 (of a file that a variable of the person's names, certificates come in and nothing else). What is shown has all
//! that the person's own programs believe, and one more: the authority is added, and put in no other's place.
//! Trust: the machine's bundles and what the person's variables name are the person's.
//! Not here: the authority and its key (`bailiwick_proxy`), whom the gate itself believes (there, by the same roots).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bailiwick_model::AbsPath;
use bailiwick_proxy::{Authority, BUNDLES};
use rustix::fs::{MemfdFlags, memfd_create};

use super::key_store::KeyStore;
use super::lock;

/// Largest bundle that is read, in bytes.
const MAX: u64 = 8 << 20;

/// Variables by which programs are told a bundle in place of their own: they name all roots.
pub const WHOLE: [&str; 16] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "BUNDLE_SSL_CA_CERT",
    "HTTPLIB2_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "HEX_CACERTS_PATH",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "YARN_HTTPS_CA_FILE_PATH",
    "NPM_CONFIG_CAFILE",
];

/// Variables by which programs are told what to believe beside their own.
pub const BESIDE: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// Where machines keep the key stores that Java believes.
const KEY_STORES: [&str; 3] = [
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
];

/// Where Java lies on most machines.
const JAVA: &str = "/usr/lib/jvm";

/// Where a Java keeps its own key store.
const OWN_KEY_STORE: &str = "lib/security/cacerts";

/// What is shown inside. Contents are named by their number.
#[derive(Debug, Default)]
pub struct Believed {
    /// What comes along with the order to the launcher.
    pub contents: Vec<Arc<OwnedFd>>,
    /// All roots and the authority.
    pub whole: usize,
    /// The authority, and what the person's programs believe beside their own.
    pub beside: usize,
    /// Where a content is shown over a file of the machine's.
    pub over: Vec<(AbsPath, usize)>,
    /// Certificates that the machine does not believe and the person does, for the gate.
    pub roots: String,
    /// What could not be done, for the person.
    pub notes: Vec<String>,
}

/// What the machine believes.
fn machines() -> Arc<String> {
    let machine = BUNDLES.iter().find_map(|path| known_text(Path::new(path)).ok());
    machine.unwrap_or_default()
}

/// Certificates that the person believes and the machine does not: PEM.
pub fn persons_roots(named: &[AbsPath], environment: &[(String, String)]) -> Result<String, String> {
    persons(&machines(), named, environment)
}

fn persons(machine: &str, named: &[AbsPath], environment: &[(String, String)]) -> Result<String, String> {
    let mut texts = Vec::new();
    for path in named {
        let text = read(&path.to_path_buf()).map_err(|e| format!("the roots in `{path}`: {e}"))?;
        if certificates(&text).is_empty() {
            return Err(format!("the roots in `{path}`: there is no certificate in it"));
        }
        texts.push(Arc::new(text));
    }
    // Several variables often name one bundle, and that the machine's.
    let machines = real(&BUNDLES.map(PathBuf::from)).into_iter().next();
    let variables = environment.iter().filter(|(name, _)| is_bundle(name));
    let named: Vec<PathBuf> = variables.map(|(_, value)| PathBuf::from(value)).collect();
    for path in real(&named).iter().filter(|path| Some(*path) != machines.as_ref()) {
        // A variable that names nothing says nothing to the person's own programs either.
        texts.extend(known_text(path).ok());
    }
    let mut roots = String::new();
    if !texts.is_empty() {
        let mut known: BTreeSet<String> = certificates(machine).into_iter().collect();
        for certificate in texts.iter().flat_map(|text| certificates(text)) {
            if known.insert(certificate.clone()) {
                roots.push_str(&certificate);
            }
        }
    }
    Ok(roots)
}

impl Believed {
    /// Gathers it. `named` are files of roots that settings name; `environment` is the person's.
    pub fn gather(authority: &Authority, named: &[AbsPath], environment: &[(String, String)]) -> Result<Self, String> {
        let mut all = Self::default();
        let machine = machines();
        all.roots = persons(&machine, named, environment)?;
        let between = if machine.is_empty() || machine.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let (roots, own) = (all.roots.clone(), authority.certificate());
        all.whole = all.add(&[machine.as_str(), between, roots.as_str(), own].map(str::as_bytes))?;
        all.beside = all.add(&[own, roots.as_str()].map(str::as_bytes))?;
        for bundle in real(&BUNDLES.map(PathBuf::from)) {
            all.show(&bundle, all.whole);
        }
        all.add_key_stores(authority, environment)?;
        Ok(all)
    }

    /// Keeps a content, to be handed to the launcher.
    fn add(&mut self, parts: &[&[u8]]) -> Result<usize, String> {
        let keep = || -> std::io::Result<OwnedFd> {
            let file = memfd_create("roots", MemfdFlags::CLOEXEC)?;
            let mut file = std::fs::File::from(file);
            for part in parts {
                std::io::Write::write_all(&mut file, part)?;
            }
            Ok(file.into())
        };
        let kept = keep().map_err(|e| format!("a bundle of roots cannot be kept: {e}"))?;
        self.contents.push(Arc::new(kept));
        Ok(self.contents.len().saturating_sub(1))
    }

    /// Shows the authority, and what the person believes besides the machine, in the key stores that Java believes.
    fn add_key_stores(&mut self, authority: &Authority, environment: &[(String, String)]) -> Result<(), String> {
        let mut found: Vec<PathBuf> = KEY_STORES.iter().map(PathBuf::from).collect();
        let installed = std::fs::read_dir(JAVA).into_iter().flatten().flatten();
        found.extend(installed.map(|java| java.path().join(OWN_KEY_STORE)));
        let home = environment.iter().find(|(name, _)| name == "JAVA_HOME");
        found.extend(home.map(|(_, home)| Path::new(home).join(OWN_KEY_STORE)));
        let own = certificates(&self.roots);
        let own = own.iter().enumerate().map(|(number, certificate)| {
            let name = format!("bailiwick root {number}");
            (name, bailiwick_proxy::der_of(certificate))
        });
        let authority = (
            authority.name().to_owned(),
            bailiwick_proxy::der_of(authority.certificate()),
        );
        let more: Vec<(String, Vec<u8>)> = std::iter::once(authority)
            .chain(own)
            .filter(|(_, der)| !der.is_empty())
            .collect();
        for path in real(&found) {
            match known_store(&path).and_then(|store| store.with(&more)) {
                Ok(store) => {
                    let content = self.add(&[&store])?;
                    self.show(&path, content);
                }
                Err(why) => self.notes.push(format!(
                    "Java programs that believe `{}` do not believe the task's authority: {why}",
                    path.display()
                )),
            }
        }
        Ok(())
    }

    /// Shows a content over a file.
    fn show(&mut self, path: &Path, content: usize) {
        self.over.extend(AbsPath::new(path).ok().map(|path| (path, content)));
    }
}

/// True for a variable that names a bundle of roots.
fn is_bundle(name: &str) -> bool {
    WHOLE.contains(&name) || BESIDE.contains(&name) || name == "npm_config_cafile"
}

/// The files that names lead to, each once: the links to them are inside what they are outside.
fn real(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths.iter().filter_map(|path| path.canonicalize().ok()) {
        if path.is_file() && !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

/// Which content of a file was read: where the kernel says the same of it again, it holds the same. Whoever can write to the
/// machine's own bundles without that decides what it believes anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp([i64; 7]);

impl Stamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = path.metadata()?;
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Ok(Self([
            whole(found.dev()),
            whole(found.ino()),
            whole(found.size()),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ]))
    }

    /// True where the file has not changed for long enough that a change would show.
    fn is_settled(&self) -> bool {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
        let Self([.., modified, _, changed, _]) = self;
        now.saturating_sub(*modified.max(changed)) > 2
    }
}

/// What was read of the machine's files, for the next task.
struct Known<T>(Mutex<BTreeMap<PathBuf, (Stamp, Arc<T>)>>);

/// Most files of which it is kept what was in them.
const MAX_KNOWN: usize = 16;

impl<T> Known<T> {
    const fn nothing() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// What a file holds: as it was read before, where it is unchanged.
    fn of(&self, path: &Path, read: impl FnOnce() -> Result<T, String>) -> Result<Arc<T>, String> {
        let stamp = Stamp::of(path).map_err(|e| e.to_string())?;
        if let Some((known, content)) = lock(&self.0).get(path)
            && *known == stamp
        {
            return Ok(Arc::clone(content));
        }
        let content = Arc::new(read()?);
        let mut all = lock(&self.0);
        if stamp.is_settled() && all.len() < MAX_KNOWN {
            all.insert(path.to_owned(), (stamp, Arc::clone(&content)));
        }
        Ok(content)
    }
}

/// The text of one of the machine's bundles.
fn known_text(path: &Path) -> Result<Arc<String>, String> {
    static KNOWN: Known<String> = Known::nothing();
    KNOWN.of(path, || read(path).map_err(|e| e.to_string()))
}

/// One of the machine's key stores.
fn known_store(path: &Path) -> Result<Arc<KeyStore>, String> {
    static KNOWN: Known<KeyStore> = Known::nothing();
    KNOWN.of(path, || KeyStore::read(bytes_of(path).map_err(|e| e.to_string())?))
}

fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX {
        return Err(std::io::Error::other(format!("it is longer than {MAX} bytes")));
    }
    Ok(bytes)
}

fn read(path: &Path) -> std::io::Result<String> {
    let bytes = bytes_of(path)?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("it is no text"))
}

/// The certificates in a text, each from its first to its last line. Keys and all else are left out.
fn certificates(text: &str) -> Vec<String> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(from) = rest.find(BEGIN) {
        rest = rest.get(from..).unwrap_or_default();
        let Some(length) = rest.find(END).map(|end| end.saturating_add(END.len())) else {
            break;
        };
        let (certificate, after) = rest.split_at_checked(length).unwrap_or_default();
        all.push(format!("{}\n", certificate.replace('\r', "")));
        rest = after;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(believed: &Believed, number: usize) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::from(believed.contents[number].try_clone().unwrap());
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn the_authority_is_added_and_nothing_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, task) = (Authority::make("mine").unwrap(), Authority::make("x").unwrap());
        let own = folder.path().join("own.pem");
        let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        std::fs::write(&own, format!("# ours\n{key}{}", mine.certificate())).unwrap();
        let environment = [("REQUESTS_CA_BUNDLE".to_owned(), own.display().to_string())];
        let believed = Believed::gather(&task, &[], &environment).unwrap();
        let whole = String::from_utf8(content(&believed, believed.whole)).unwrap();
        let beside = String::from_utf8(content(&believed, believed.beside)).unwrap();
        for text in [&whole, &beside] {
            assert!(text.contains(mine.certificate()) && text.contains(task.certificate()));
            assert!(!text.contains("PRIVATE KEY"), "only certificates come in");
        }
        assert_eq!(believed.roots, mine.certificate());
        if let Some(machine) = BUNDLES.iter().find_map(|path| read(Path::new(path)).ok()) {
            assert!(whole.starts_with(&machine));
            assert!(!believed.over.is_empty());
        }
        let named = [AbsPath::new(own).unwrap()];
        let believed = Believed::gather(&task, &named, &environment).unwrap();
        assert_eq!(believed.roots, mine.certificate(), "each once");
        let missing = [AbsPath::new("/nonexistent/x.pem").unwrap()];
        let fault = Believed::gather(&task, &missing, &[]).unwrap_err();
        assert!(fault.starts_with("the roots in `/nonexistent/x.pem`: "), "{fault}");
    }
}
