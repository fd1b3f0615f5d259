//! `bailiwick init`: writes a commented rule file that fits the project, for a person to read and then trust.
//!
//! Trust: what lies in the project may be anybody's. Of it only names of profiles, and hosts that git's settings name,
//! go into the file, the latter behind a comment sign.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use bailiwick_model::{AbsPath, Host};

use crate::cli::InitArgs;
use crate::context::{RULE_FILE, find_root};
use crate::failure::{Done, Failure};
use crate::places::Places;
use crate::toolchains;
use bailiwick_model::visible;

/// Largest file of git's settings that is looked at, in bytes.
const MAX_SETTINGS: u64 = 1 << 20;

/// What a rule file is written for.
#[derive(Debug, Default)]
struct Project {
    /// The context's name.
    name: String,
    /// The profiles that were recognized.
    toolchains: Vec<String>,
    /// True for a project in C or C++.
    c: bool,
    /// True for a repository of git.
    git: bool,
    /// The hosts that git's settings name.
    remotes: Vec<String>,
}

/// Runs the command.
pub fn run(args: &InitArgs) -> Done {
    let places = Places::find()?;
    let root = find_root(&super::run::here()?, &places.home)?;
    let project = look_at(&root);
    let text = written(&project);
    if args.print {
        crate::talk::tell(&text);
        return Ok(ExitCode::SUCCESS);
    }
    let path = root.to_path_buf().join(RULE_FILE);
    let file = std::fs::File::options().write(true).create_new(true).open(&path);
    let mut file = file.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::usage(format!("`{}` is there already", visible(&path.display().to_string())))
            .hint("`bailiwick policy check` says whether it is in order; `bailiwick init --print` shows what would be written"),
        _ => Failure::fault(format!("cannot write `{}`: {e}", visible(&path.display().to_string()))),
    })?;
    file.write_all(text.as_bytes())
        .map_err(|e| Failure::fault(format!("cannot write `{}`: {e}", visible(&path.display().to_string()))))?;
    let found = project.found();
    let found = if found.is_empty() {
        String::new()
    } else {
        format!(", for {}", found.join(", "))
    };
    tellln!("wrote {}{found}", visible(&path.display().to_string()));
    tellln!("next: read it, then `bailiwick trust`; from then on it holds, as in `bailiwick run -- claude`");
    Ok(ExitCode::SUCCESS)
}

/// Finds out what the project is.
fn look_at(root: &AbsPath) -> Project {
    let folder = root.to_path_buf();
    let settings = folder.join(".git/config");
    let settings = std::fs::metadata(&settings)
        .ok()
        .filter(|found| found.is_file() && found.len() < MAX_SETTINGS)
        .and_then(|_| std::fs::read_to_string(&settings).ok());
    let mut remotes: Vec<String> = settings
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(remote)
        .collect();
    remotes.sort();
    remotes.dedup();
    let name = root.name().unwrap_or_default();
    Project {
        name: name
            .chars()
            .filter(|c| !c.is_control() && !"\"\\".contains(*c))
            .collect(),
        toolchains: toolchains::found(&folder),
        c: toolchains::is_c(&folder),
        git: folder.join(".git").symlink_metadata().is_ok(),
        remotes,
    }
}

/// The host of a line `url = …` in git's settings (git-config(1); URLs as in gitprotocol and scp's form).
fn remote(line: &str) -> Option<String> {
    let (key, url) = line.split_once('=')?;
    if key.trim() != "url" {
        return None;
    }
    let url = url.trim();
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['/', ':']).next()?;
    let host = rest.rsplit('@').next()?;
    match Host::parse(host).ok()? {
        host @ Host::Name(_) if host.to_string().contains('.') => Some(host.to_string()),
        _ => None,
    }
}

impl Project {
    fn found(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.toolchains.iter().map(String::as_str).collect();
        all.extend(self.c.then_some("C"));
        all.extend(self.git.then_some("git"));
        all
    }

    fn has(&self, toolchain: &str) -> bool {
        self.toolchains.iter().any(|known| known == toolchain)
    }
}

/// The file. Lines that begin with `#` and no space behind it are offers: they become rules when the sign is removed.
fn written(project: &Project) -> String {
    let mut out = String::new();
    let mut put = |text: &str| out.push_str(text);
    put(
        "# What an agent may do in this project. What no rule allows is denied. Every line: docs/policy.md of bailiwick.\n\
         #\n\
         # The file holds once you have said so with `bailiwick trust`; any change takes that back.\n\
         # `bailiwick policy check` finds mistakes; `bailiwick can \"read ~/.ssh/id_ed25519\"` answers for one act.\n\n",
    );
    if !project.name.is_empty() {
        put(&format!("context = \"{}\"\n\n", project.name));
    }
    put(
        "# Read and write this folder, run what is installed, fetch packages. Others: \"install\" (dependencies only),\n\
         # \"offline\" (no network), \"readonly\" (nothing is changed). For one run: `bailiwick run --preset offline -- …`\n\
         extends = [\"coding\"]\n\n",
    );
    put(&profiles(project));
    put("[files]\n\
         # More that may be read, and more that may be written. A folder stands for all in it.\n\
         #read = [\"~/reference\"]\n\
         #write = [\"~/shared-output\"]\n\
         # What may be neither read nor changed, also inside what is granted. Files named `.env` are hidden as it is.\n\
         #deny = [\"secrets\", \"**/*.pem\"]\n\n");
    put(&network(project));
    put(
        "# Commands that do not start, however they are spelled. With `allow`, only those of the list start.\n\
         #[commands]\n\
         #deny = [\"git push\", \"sudo\"]\n\n",
    );
    put(&state(project));
    put(&environment(project));
    put("# The most of this machine that a task may take.\n\
         #[limits]\n\
         #memory = \"8 GiB\"\n\
         #processes = 4096\n");
    out
}

fn profiles(project: &Project) -> String {
    let mut out = String::new();
    if project.toolchains.is_empty() {
        let why = if project.c {
            "C needs none: compilers and headers are the machine's"
        } else {
            "none was recognized here"
        };
        let _ = writeln!(
            out,
            "# Toolchains bring their registries and caches; {why}. Named, they hold whatever lies here:\n#profiles = [\"rust\", \"node\", \"python\", \"go\", \"java\"]\n"
        );
        return out;
    }
    let names: Vec<String> = project.toolchains.iter().map(|name| format!("\"{name}\"")).collect();
    let _ = writeln!(
        out,
        "# Toolchains bring their registries, and caches that are this project's own. They are recognized by what lies\n\
         # here, now {}. Named, they hold whatever lies here; `[]` for none.\n#profiles = [{}]\n",
        project.toolchains.join(", "),
        names.join(", ")
    );
    out
}

fn network(project: &Project) -> String {
    let mut out = String::from(
        "[network]\n\
         # Requests that may be sent, by method and path, over HTTPS or plain HTTP; `fetch` and `push` are git's. Each is judged.\n",
    );
    let mut acts: Vec<String> = Vec::new();
    for (toolchain, what, host) in [
        ("rust", "a registry of your own for crates", "crates.example.com"),
        ("node", "a registry of your own for npm", "npm.example.com"),
        ("python", "an index of your own for pip", "pypi.example.com"),
        ("go", "where modules of your own lie", "go.example.com"),
        (
            "java",
            "a repository of your own for Maven or Gradle",
            "maven.example.com",
        ),
    ] {
        if project.has(toolchain) {
            let _ = writeln!(out, "# {toolchain}: {what} is a host to name here.");
            acts.push(format!("GET https://{host}/**"));
        }
    }
    if project.git {
        if project.remotes.is_empty() {
            out.push_str("# git: commits need no network; fetching and pushing over HTTPS need their host.\n");
        } else {
            let _ = writeln!(
                out,
                "# git: commits need no network; fetching and pushing over HTTPS need {}.",
                project.remotes.join(", ")
            );
        }
        acts.extend(project.remotes.iter().map(|host| format!("fetch https://{host}/**")));
    }
    if acts.is_empty() {
        acts.push("GET https://docs.example.com/**".into());
    }
    acts.push("* http://127.0.0.1:11434/**".into());
    let acts: Vec<String> = acts.iter().map(|act| format!("\"{act}\"")).collect();
    let _ = writeln!(out, "#allow = [{}]", acts.join(", "));
    out.push_str(
        "# Hosts that are passed on unread, told by name alone: whoever can fetch there can send there.\n\
         #tunnel = [\"db.example.com:5432\"]\n\n",
    );
    out
}

fn state(_: &Project) -> String {
    "# Folders of the home that this project has of its own, from one task to the next. The caches of toolchains and the\n\
     # state of known agents are kept as it is.\n\
     #[state]\n\
     #keep = [\"~/.my-agent\"]\n\n"
        .into()
}

fn environment(project: &Project) -> String {
    let mut out = String::from(
        "[environment]\n# Variables that are passed on from yours, by name, and such that are set. All others are absent.\n",
    );
    let mut pass = vec!["DATABASE_URL"];
    for (toolchain, name) in [
        ("rust", "SQLX_OFFLINE"),
        ("node", "NODE_OPTIONS"),
        ("python", "PYTHONPATH"),
        ("go", "CGO_ENABLED"),
        ("java", "JAVA_TOOL_OPTIONS"),
    ] {
        if project.has(toolchain) {
            pass.push(name);
        }
    }
    let names: Vec<String> = pass.iter().map(|name| format!("\"{name}\"")).collect();
    let _ = writeln!(out, "#pass = [{}]\n#set = {{ CI = \"1\" }}\n", names.join(", "));
    out
}

#[cfg(test)]
mod tests {
    use bailiwick_model::Anchors;
    use bailiwick_policy::{SourceFile, Sources, load};

    use super::*;

    fn sources(text: String, toolchains: &[String]) -> Sources {
        Sources {
            machine: Vec::new(),
            person: Vec::new(),
            project: Some(SourceFile {
                name: "bailiwick.toml".into(),
                text,
            }),
            project_trusted: true,
            profiles: Vec::new(),
            toolchains: toolchains.to_vec(),
            found: None,
            preset: None,
            lock: None,
            person_lock: None,
            pinning: false,
            relations: None,
            mandate: None,
            anchors: Anchors {
                root: AbsPath::new("/home/dana/site").ok(),
                home: AbsPath::new("/home/dana").unwrap(),
            },
        }
    }

    #[test]
    fn p4_every_variant_loads_and_so_does_all_that_it_offers() {
        let all: Vec<String> = bailiwick_policy::toolchains()
            .map(|(name, _)| name.to_owned())
            .collect();
        let mut loaded = std::collections::HashSet::new();
        for number in 0..1u32 << (all.len() + 3) {
            let bit = |place: usize| number >> place & 1 == 1;
            let project = Project {
                name: if bit(0) { "a site".into() } else { String::new() },
                c: bit(1),
                git: bit(2),
                remotes: if bit(2) && bit(0) {
                    vec!["git.example.com".into()]
                } else {
                    Vec::new()
                },
                toolchains: all
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| bit(place + 3))
                    .map(|(_, name)| name.clone())
                    .collect(),
            };
            let text = written(&project);
            let offered: Vec<&str> = text
                .lines()
                .map(|line| match line.strip_prefix('#') {
                    Some(offer) if !offer.starts_with(' ') => offer,
                    _ => line,
                })
                .collect();
            for text in [text.clone(), offered.join("\n")] {
                // What differs in comments alone is loaded once.
                let rules: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
                if loaded.insert(rules.join("\n")) {
                    let policy = load(&sources(text.clone(), &project.toolchains), &bailiwick_gate::AsWritten);
                    let policy = policy.unwrap_or_else(|wrong| panic!("{text}\n{wrong:#?}"));
                    assert_eq!(policy.warnings(), [], "{text}");
                }
            }
        }
        assert!(loaded.len() > 64, "{}", loaded.len());
    }

    #[test]
    fn remotes_are_hosts_or_nothing() {
        for (line, want) in [
            ("\turl = https://git.example.com/a/b.git", Some("git.example.com")),
            ("url=git@git.example.com:a/b.git", Some("git.example.com")),
            ("\turl = ssh://git@git.example.com:22/a", Some("git.example.com")),
            ("\turl = /srv/git/a", None),
            ("\turl = \"]\n[network", None),
            ("\tpushurl = https://git.example.com/a", None),
            ("\turl = ../b", None),
        ] {
            assert_eq!(remote(line).as_deref(), want, "{line}");
        }
    }
}
