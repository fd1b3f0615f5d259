//! The context of a folder: its root, and the rules that hold there.
//!
//! Promises: P2 (the person's ceiling is always among the layers). Trust: a project's file may come from anyone: it
//! only narrows until its very content is trusted.
//! See: DESIGN, "Rules people write": nearest `bailiwick.toml`, else the top of the git work tree, else the folder.

use std::path::{Path, PathBuf};

use bailiwick_commands::Grammars;
use bailiwick_gate::Store;
use bailiwick_model::{AbsPath, Anchors, ContextId, Digest, Layer};
use bailiwick_policy::{Diagnostic, MandateText, Policy, SourceFile, Sources};

use crate::failure::{Exit, Failure};
use crate::git::repository::Repository;
use crate::places::{MACHINE_RULES, Places};

/// The name of a project's rule file.
pub const RULE_FILE: &str = "bailiwick.toml";

/// The file beside it in which is pinned what servers say of their tools.
pub const LOCK_FILE: &str = "bailiwick.lock";

/// Largest lock file, in bytes.
const MAX_LOCK_FILE: u64 = 4 * 1024 * 1024;

/// Largest rule file, in bytes.
const MAX_RULE_FILE: u64 = 1024 * 1024;

/// A place of work, with what its rules are read from.
#[derive(Debug, Clone)]
pub struct Context {
    /// The root folder.
    pub root: AbsPath,
    /// What the rules are read from.
    pub sources: Sources,
    /// The person's own tables of commands.
    pub tables: Vec<SourceFile>,
    /// Where git keeps what belongs to this place.
    pub repository: Repository,
    /// The folder of the person's own rules.
    config: PathBuf,
}

impl Context {
    /// Finds the context of a folder and reads its rule files. `program` names the agent, for its profile.
    pub fn find(
        directory: &AbsPath,
        places: &Places,
        program: Option<&str>,
        store: Option<&dyn Store>,
    ) -> Result<Self, Failure> {
        let root = find_root(directory, &places.home)?;
        let project = read_rule_file(
            &root
                .join(RULE_FILE)
                .map_err(|e| Failure::usage(e.to_string()))?
                .to_path_buf(),
        )?;
        let repository = Repository::of(&root);
        let lock = read_text_file(&root.to_path_buf().join(LOCK_FILE), MAX_LOCK_FILE)?;
        let person_lock = read_text_file(&places.config.join(LOCK_FILE), MAX_LOCK_FILE)?;
        // A linked work tree is trusted with the rules of the one that it is linked to, when they are the same.
        let main = repository.main.as_ref().and_then(|main| main.join(RULE_FILE).ok());
        let mut trusted = false;
        if let (Some(file), Some(store)) = (&project, store) {
            let digest = bailiwick_policy::trust_digest(file, lock.as_ref());
            for name in std::iter::once(file.name.as_str()).chain(main.as_ref().map(AbsPath::as_str)) {
                trusted |= store.is_trusted(name, &digest).map_err(|fault| store_failure(&fault))?;
            }
        }
        // A program that lies in the project is the project's, whatever it is called.
        let own = |program: &&str| program.contains('/') && directory.join(program).is_ok_and(|path| root.holds(&path));
        let name = program
            .filter(|program| !own(program))
            .map(|program| program.rsplit('/').next().unwrap_or(program));
        let profiles = name
            .and_then(bailiwick_policy::profile_for)
            .map(str::to_owned)
            .into_iter()
            .collect();
        let mut person = read_rule_folder(&places.config)?;
        person.extend(crate::own::denies(places)?);
        let sources = Sources {
            machine: read_rule_folder(Path::new(MACHINE_RULES))?,
            person,
            project,
            project_trusted: trusted,
            lock,
            person_lock,
            pinning: false,
            relations: None,
            mandate: None,
            profiles,
            preset: None,
            found: repository.rules.clone(),
            toolchains: crate::toolchains::recognized(&root.to_path_buf()),
            anchors: Anchors {
                root: Some(root.clone()),
                home: places.home.clone(),
            },
        };
        let mut context = Self {
            root,
            tables: read_rule_folder(&places.config.join("commands"))?,
            sources,
            repository,
            config: places.config.clone(),
        };
        context.sources.relations = crate::people::known(&context, places)?;
        Ok(context)
    }

    /// The same place with one preset for this run, in place of what its rules allow.
    #[must_use]
    pub fn with_preset(mut self, preset: Option<String>) -> Self {
        self.sources.preset = preset;
        self
    }

    /// The same place while what servers offer is being accepted: that rules are about tools that were not is no mistake then.
    #[must_use]
    pub fn surveying(mut self) -> Self {
        self.sources.pinning = true;
        self
    }

    /// The same place under a mandate.
    #[must_use]
    pub fn under(mut self, mandate: Option<MandateText>) -> Self {
        self.sources.mandate = mandate;
        self
    }

    /// What was accepted of the servers of a layer, the project's or the person's; empty where there is none.
    pub fn lock_text(&self, layer: Layer) -> &str {
        let lock = match layer {
            Layer::Context => &self.sources.lock,
            _ => &self.sources.person_lock,
        };
        lock.as_ref().map_or("", |lock| &lock.text)
    }

    /// The lock file of a layer.
    pub fn lock_place(&self, layer: Layer) -> PathBuf {
        match layer {
            Layer::Context => self.root.to_path_buf().join(LOCK_FILE),
            _ => self.config.join(LOCK_FILE),
        }
    }

    /// The same place with another lock file.
    #[must_use]
    pub fn with_lock(&self, layer: Layer, text: String) -> Self {
        let mut again = self.clone();
        let name = self.lock_place(layer).display().to_string();
        let lock = Some(SourceFile { name, text });
        match layer {
            Layer::Context => again.sources.lock = lock,
            _ => again.sources.person_lock = lock,
        }
        again
    }

    /// Writes a lock file: whole, in the place of what was there.
    pub fn write_lock(&self, layer: Layer, text: &str) -> Result<(), Failure> {
        use std::io::Write as _;
        let place = self.lock_place(layer);
        let fault = |e: std::io::Error| {
            Failure::fault(format!("{} cannot be written: {e}", place.display()))
                .hint("see that the folder is yours and has room")
        };
        // Never through a link that somebody has put there.
        let temporary = place.with_file_name(format!(".{LOCK_FILE}.{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(fault)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.and_then(|()| std::fs::rename(&temporary, &place)).map_err(|e| {
            let _ = std::fs::remove_file(&temporary);
            fault(e)
        })
    }

    /// What trust in the project's rules stands on: the file, and the digest of it and of what it names.
    pub fn trusted_by(&self) -> Option<(String, Digest)> {
        let file = self.sources.project.as_ref()?;
        let digest = bailiwick_policy::trust_digest(file, self.sources.lock.as_ref());
        Some((file.name.clone(), digest))
    }

    /// Compiles the rules; every mistake in them is told.
    pub fn load(&self) -> Result<Policy, Failure> {
        bailiwick_policy::load(&self.sources, &self.grammars()?).map_err(|diagnostics| rule_failure(&diagnostics))
    }

    /// The grammars that commands are read with: the shipped ones and the person's.
    pub fn grammars(&self) -> Result<Grammars, Failure> {
        let mut grammars = Grammars::shipped(std::env::vars().collect());
        for table in &self.tables {
            let wrong = |fault: bailiwick_commands::GrammarFault| {
                Failure::usage(fault.to_string())
                    .hint("docs/design/commands.md says how a table of commands is written")
            };
            grammars = grammars.with(&table.name, &table.text).map_err(wrong)?;
        }
        Ok(grammars)
    }

    /// The context's id: its root.
    pub fn id(&self) -> ContextId {
        ContextId(self.root.as_str().into())
    }
}

/// The failure that mistakes in rules are: the first one is the message, the rest follow.
pub fn rule_failure(diagnostics: &[Diagnostic]) -> Failure {
    let diagnostics: Vec<&Diagnostic> = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).collect();
    let mut lines = Vec::new();
    let mut hint = None;
    for diagnostic in &diagnostics {
        match (&diagnostic.hint, lines.is_empty()) {
            (Some(text), true) if diagnostics.len() == 1 => hint = Some(text.clone()),
            _ => {}
        }
        lines.push(diagnostic.to_string());
        if diagnostics.len() > 1 {
            lines.extend(diagnostic.hint.as_ref().map(|text| format!("  hint: {text}")));
        }
    }
    Failure {
        code: None,
        exit: Exit::Usage,
        message: lines.join("\n"),
        hint,
    }
}

/// The failure that a store's fault is.
pub fn store_failure(fault: &bailiwick_gate::StoreFault) -> Failure {
    use bailiwick_gate::StoreFault::{Damaged, Newer, Unusable};
    let hint = match fault {
        Newer { .. } => "use the newer build, or set XDG_STATE_HOME to a fresh folder for this one",
        Damaged { .. } => "nothing was changed; move the file aside to begin a new one: trust must then be given again",
        Unusable { .. } => "see that the folder exists, is yours, and has room",
    };
    Failure::fault(fault.to_string()).hint(hint)
}

/// What is nobody's project: the folders of the system, as they stand in the root folder (hier(7)).
const SYSTEM_FOLDERS: [&str; 24] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "lost+found",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "snap",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "var/tmp",
];

/// Why a folder is too wide to be a context's root; none when it is not.
fn too_wide(folder: &str, homes: &[AbsPath]) -> Option<&'static str> {
    let path = AbsPath::new(folder).ok()?;
    if folder == "/" {
        Some("is the root folder")
    } else if homes.contains(&path) {
        Some("is your home folder")
    } else if homes.iter().any(|home| path.holds(home)) {
        Some("holds your home folder")
    } else if SYSTEM_FOLDERS
        .iter()
        .any(|system| folder.strip_prefix('/') == Some(system))
    {
        Some("is one of the system's folders")
    } else {
        None
    }
}

/// The root of the context that a folder belongs to: never `/`, never one of the system's folders, never the home folder
/// nor one that holds it. Where anybody may put files, a mark says nothing.
pub fn find_root(directory: &AbsPath, home: &AbsPath) -> Result<AbsPath, Failure> {
    // The current folder comes without links, the home folder may be named by one.
    let whole = home.to_path_buf().canonicalize().ok();
    let homes: Vec<AbsPath> = [Some(home.clone()), whole.and_then(|home| AbsPath::new(home).ok())]
        .into_iter()
        .flatten()
        .collect();
    let has = |folder: &str, name: &str| {
        Path::new(folder).join(name).symlink_metadata().is_ok() && !is_anybodys(Path::new(folder))
    };
    let folders = || {
        directory
            .ancestors()
            .map(|folder| (folder, AbsPath::new(folder)))
            .take_while(|(folder, _)| too_wide(folder, &homes).is_none())
    };
    if directory.as_str().contains('*') {
        return Err(Failure::usage(format!(
            "the folder `{directory}` has a `*` in its name, which rules cannot name"
        ))
        .hint("rename the folder"));
    }
    for mark in [RULE_FILE, ".git"] {
        if let Some((_, Ok(root))) = folders().find(|(folder, _)| has(folder, mark)) {
            return Ok(root);
        }
    }
    if let Some(what) = too_wide(directory.as_str(), &homes) {
        return Err(
            Failure::usage(format!("`{directory}` {what}: all in it would be the agent's"))
                .hint("go to the project's folder, or make one: `mkdir project && cd project`"),
        );
    }
    Ok(directory.clone())
}

/// True for a folder like `/tmp`: everybody may write in it, each only their own.
fn is_anybodys(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o1002 == 0o1002)
}

fn read_rule_folder(folder: &Path) -> Result<Vec<SourceFile>, Failure> {
    let refuse = |e: std::io::Error| Failure::fault(format!("cannot read the rules in `{}`: {e}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(refuse(e).hint("rules that cannot be read are never taken for absent")),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(refuse)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .iter()
        .filter_map(|path| read_rule_file(path).transpose())
        .collect()
}

/// Reads one rule file; none when it does not exist.
pub fn read_rule_file(path: &Path) -> Result<Option<SourceFile>, Failure> {
    read_text_file(path, MAX_RULE_FILE)
}

/// Reads a file of at most so many bytes; none where there is none.
pub fn read_text_file(path: &Path, most: u64) -> Result<Option<SourceFile>, Failure> {
    let refuse = |cause: String| {
        Failure::usage(format!("cannot read `{}`: {cause}", path.display()))
            .hint("a rule file that cannot be read is never taken for absent")
    };
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(refuse("it is not a file".into())),
        Ok(found) if found.len() > most => {
            return Err(refuse(format!("it is larger than {most} bytes")));
        }
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && path.symlink_metadata().is_err() => return Ok(None),
        Err(e) => return Err(refuse(e.to_string())),
    }
    let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    Ok(Some(SourceFile {
        name: path.display().to_string(),
        text,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_nearest_mark_and_never_the_home() {
        let folder = tempfile::tempdir().unwrap();
        let home = AbsPath::new(folder.path()).unwrap();
        let at = |path: &str| home.join(path).unwrap();
        std::fs::create_dir_all(folder.path().join("p/.git")).unwrap();
        std::fs::create_dir_all(folder.path().join("p/sub/deep")).unwrap();
        std::fs::create_dir_all(folder.path().join("plain")).unwrap();
        assert_eq!(find_root(&at("p/sub/deep"), &home).unwrap(), at("p"));
        std::fs::write(folder.path().join("p/sub/bailiwick.toml"), "").unwrap();
        assert_eq!(find_root(&at("p/sub/deep"), &home).unwrap(), at("p/sub"));
        assert_eq!(find_root(&at("plain"), &home).unwrap(), at("plain"));
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        assert_eq!(
            find_root(&at("plain"), &home).unwrap(),
            at("plain"),
            "a mark in the home is not one"
        );
        assert_eq!(find_root(&home, &home).unwrap_err().exit, Exit::Usage);
        assert_eq!(find_root(&AbsPath::root(), &home).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn p2_the_root_holds_no_home_and_no_system() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let room = tempfile::tempdir().unwrap();
        let room = AbsPath::new(room.path().canonicalize().unwrap()).unwrap();
        let at = |path: &str| room.join(path).unwrap();
        std::fs::create_dir_all(at("homes/me/p").to_path_buf()).unwrap();
        std::fs::create_dir(at("homes/.git").to_path_buf()).unwrap();
        symlink("homes/me", at("link").to_path_buf()).unwrap();
        assert!(find_root(&at("homes"), &at("homes/me")).is_err());
        assert!(find_root(&room, &at("homes/me")).is_err());
        assert!(find_root(&at("homes/me"), &at("link")).is_err(), "by its other name");
        assert_eq!(find_root(&at("homes/me/p"), &at("homes/me")).unwrap(), at("homes/me/p"));
        for system in ["/etc", "/usr", "/home", "/tmp", "/var/tmp", "/root"] {
            assert!(
                find_root(&AbsPath::new(system).unwrap(), &at("homes/me")).is_err(),
                "{system}"
            );
        }
        std::fs::create_dir_all(at("open/mine").to_path_buf()).unwrap();
        std::fs::write(at("open/bailiwick.toml").to_path_buf(), "").unwrap();
        assert_eq!(find_root(&at("open/mine"), &at("homes/me")).unwrap(), at("open"));
        std::fs::set_permissions(at("open").to_path_buf(), PermissionsExt::from_mode(0o1777)).unwrap();
        assert_eq!(find_root(&at("open/mine"), &at("homes/me")).unwrap(), at("open/mine"));
    }

    #[test]
    fn a_rule_file_that_cannot_be_read_is_not_absent() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_rule_file(&folder.path().join("none.toml")).unwrap().is_none());
        std::fs::create_dir(folder.path().join("folder.toml")).unwrap();
        assert!(read_rule_file(&folder.path().join("folder.toml")).is_err());
        std::os::unix::fs::symlink("nowhere", folder.path().join("link.toml")).unwrap();
        assert!(read_rule_file(&folder.path().join("link.toml")).is_err());
    }
}
