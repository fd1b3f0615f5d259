//! `bailiwick login`: an agent signs in once, in a fence with nothing but the hosts of its sign-in; its contexts share
//! what it then has.
//!
//! Promises: P9, as its stated exception. Trust: what the agent would open in a browser comes as text from inside. Only
//! an `https` address of one of the sign-in's hosts is opened, and every one is printed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bailiwick_model::{AbsPath, HttpUrl, Scheme};
use bailiwick_policy::{Login, Published, agents};

use crate::cli::{LoginArgs, RunArgs};
use crate::context::Context;
use crate::daemon::kept::content;
use crate::daemon::logins::Shared;
use crate::failure::{Done, Exit, Failure};
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall};
use bailiwick_model::visible;

/// The preset that an agent signs in with.
const PRESET: &str = "sign-in";

/// Where the agent's wishes for a browser are found, below the home that its context keeps.
const WISHES: &str = ".local/share/bailiwick/browser/urls";

/// How often they are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Most addresses that are opened for one sign-in.
const MOST: usize = 16;

/// Longest address that is opened, in bytes.
const MAX_ADDRESS: usize = 8192;

/// Runs the command.
pub fn run(args: &LoginArgs) -> Done {
    let places = Places::find()?;
    if args.list {
        return list(&places, args.json);
    }
    let Some(agent) = &args.agent else {
        return Err(Failure::usage("which agent is to sign in?").hint(known()));
    };
    let found = agents().find(|(profile, programs)| profile == agent || programs.contains(&agent.as_str()));
    let Some((profile, programs)) = found else {
        return Err(Failure::usage(format!("there is no profile of an agent `{}`", visible(agent))).hint(known()));
    };
    if args.remove {
        return remove(&places, profile);
    }
    let program = programs.first().copied().unwrap_or(profile);
    sign_in(&places, program, args)
}

fn known() -> String {
    let names: Vec<&str> = agents().map(|(profile, _)| profile).collect();
    format!("known here: {}", names.join(", "))
}

/// The agents that have signed in.
fn list(places: &Places, json: bool) -> Done {
    let mut names: Vec<String> = agents()
        .map(|(profile, _)| profile.to_owned())
        .filter(|profile| !left(&places.login(profile)).is_empty())
        .collect();
    names.sort();
    if json {
        tellln!("{}", serde_json::json!({ "logins": names }));
    } else if names.is_empty() {
        tellln!("no agent has signed in: `bailiwick login AGENT`; {}", known());
    }
    if !json {
        names.iter().for_each(|name| tellln!("{name}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What an agent's sign-in has left: names, and when each was written. An empty file, such as a lock, is no login.
fn left(login: &Path) -> Vec<(OsString, SystemTime)> {
    let mut all: Vec<(OsString, SystemTime)> = std::fs::read_dir(login)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let found = entry
                .metadata()
                .ok()
                .filter(|found| found.is_file() && found.len() > 0)?;
            Some((entry.file_name(), found.modified().ok()?))
        })
        .collect();
    all.sort();
    all
}

fn remove(places: &Places, profile: &str) -> Done {
    let login = places.login(profile);
    match std::fs::remove_dir_all(&login) {
        Ok(()) => {
            tellln!("removed: the login of {profile}; its provider may know it until you sign out there");
            Ok(ExitCode::SUCCESS)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::usage(format!("{profile} has not signed in here")))
        }
        Err(e) => Err(Failure::fault(format!("cannot remove `{}`: {e}", login.display()))),
    }
}

/// The folder in which an agent signs in: empty, and no project.
fn desk(places: &Places, agent: &str) -> Result<AbsPath, Failure> {
    let desk = AbsPath::new(places.sign_ins().join(agent)).map_err(|e| Failure::usage(e.to_string()))?;
    std::fs::create_dir_all(desk.to_path_buf())
        .map_err(|e| Failure::fault(format!("cannot make the folder `{desk}` to sign in: {e}")))?;
    let whole = desk.to_path_buf().canonicalize().ok();
    Ok(whole.and_then(|path| AbsPath::new(path).ok()).unwrap_or(desk))
}

fn sign_in(places: &Places, program: &str, args: &LoginArgs) -> Done {
    use std::os::unix::fs::DirBuilderExt;
    let name = bailiwick_policy::profile_for(program).unwrap_or(program);
    let desk = desk(places, name)?;
    let context = Context::find(&desk, places, Some(program), None)?.with_preset(Some(PRESET.into()));
    if context.root != desk {
        return Err(
            Failure::usage(format!("`{desk}` lies in the project {}", context.root)).hint(format!(
                "a `.git` or `bailiwick.toml` in {} is none of an agent's that signs in",
                context.root
            )),
        );
    }
    let policy = context.load()?;
    let login = policy.settings().login.clone();
    let login = login.ok_or_else(|| Failure::usage(format!("{program} has no sign-in of its own")))?;
    places.make_state()?;
    let kept = places.login(&login.agent);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&kept)
        .map_err(|e| Failure::fault(format!("cannot make `{}`: {e}", kept.display())))?;
    let before = left(&kept);
    let own = places.context(&desk);
    let wishes = own.join("home").join(WISHES);
    let _ = std::fs::remove_file(&wishes);
    std::env::set_current_dir(desk.to_path_buf()).map_err(|e| Failure::fault(format!("cannot go to `{desk}`: {e}")))?;
    let mut command = vec![program.to_owned()];
    command.extend(login.command.iter().cloned());
    command.extend(args.more.iter().cloned());
    let order = RunArgs {
        quiet: args.quiet,
        preset: Some(PRESET.into()),
        end_with_terminal: true,
        command,
        ..RunArgs::default()
    };
    if !args.quiet {
        let hosts: Vec<String> = login.hosts.iter().map(ToString::to_string).collect();
        talkln!(
            "bailiwick: {} signs in, with nothing but {} in reach; the addresses it opens are opened for it",
            login.agent,
            hosts.join(", ")
        );
    }
    let over = Arc::new(AtomicBool::new(false));
    let browser = Browser {
        wishes,
        login: login.clone(),
        places: places.clone(),
        root: desk.clone(),
        over: Arc::clone(&over),
    };
    let watcher = std::thread::spawn(move || browser.serve());
    let done = super::run::run(&order);
    over.store(true, Ordering::Relaxed);
    let _ = watcher.join();
    let code = done?;
    if let Some(shared) = Shared::of(&login, &places.home, &own, &kept) {
        shared
            .settle()
            .map_err(|e| Failure::fault(format!("the login could not be kept: {}", std::io::Error::from(e))))?;
    }
    let now = left(&kept);
    let failed = |what: &str| {
        let hint = format!("`bailiwick login {}` tries again", login.agent);
        Failure::new(Exit::Fault, format!("{} {what}", login.agent)).hint(hint)
    };
    if now.is_empty() {
        let _ = std::fs::remove_dir_all(&kept);
        return Err(failed("has not signed in: it left no login"));
    }
    if now == before && code != ExitCode::SUCCESS {
        return Err(failed("has not signed in anew: the login from before stays"));
    }
    tellln!(
        "signed in: {}, kept in {} and shared by its contexts; `bailiwick login --remove {}` takes it away",
        login.agent,
        visible(&kept.display().to_string()),
        login.agent
    );
    Ok(code)
}

/// Opens for the agent what it would open in a browser.
struct Browser {
    wishes: PathBuf,
    login: Login,
    places: Places,
    root: AbsPath,
    over: Arc<AtomicBool>,
}

impl Browser {
    /// Serves until the agent has ended.
    fn serve(&self) {
        let mut served = 0;
        let mut open: Vec<u16> = Vec::new();
        let Ok(wishes) = AbsPath::new(&self.wishes) else {
            return;
        };
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let text = content(&wishes).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            // The last line may still be written.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            for line in whole.lines().take(MOST).skip(served) {
                served = served.saturating_add(1);
                if !self.may_open(line) {
                    talkln!(
                        "bailiwick: not opened, it is no address of the sign-in: {}",
                        visible(line)
                    );
                    continue;
                }
                talkln!("bailiwick: opens {}", visible(line));
                if let Some(port) = answered_at(line)
                    && !open.contains(&port)
                {
                    open.push(port);
                    if let Err(failure) = self.publish(port) {
                        talkln!("{failure}");
                    }
                }
                browse(line);
            }
        }
    }

    /// True for an address of one of the sign-in's hosts, in signs that mean nothing to a program that is given it.
    fn may_open(&self, address: &str) -> bool {
        let plain = address.len() <= MAX_ADDRESS
            && address
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"\"'`\\<>{}|^$;()*!".contains(&byte));
        let hosts = &self.login.hosts;
        plain
            && address.starts_with("https://")
            && HttpUrl::parse(address).is_ok_and(|url| {
                url.scheme == Scheme::Https && url.port == 443 && hosts.iter().any(|known| known.covers(&url.host))
            })
    }

    /// Shows the port at which the agent waits for the browser's answer.
    fn publish(&self, port: u16) -> Result<(), Failure> {
        let unexpected = || Failure::fault("the daemon answered something that was not asked");
        let mut link = Link::open(&self.places)?;
        link.say(&PersonCall::Status)?;
        let PersonAnswer::Status(status) = link.hear()? else {
            return Err(unexpected());
        };
        let own = |task: &&crate::protocol::RunningTask| task.context == self.root.as_str();
        let task = status.tasks.iter().find(own).map(|task| task.id);
        let task = task.ok_or_else(|| Failure::fault("the agent that signs in has ended"))?;
        let same = Published {
            outside: port,
            inside: port,
        };
        link.say(&PersonCall::Publish {
            task,
            port: same.into(),
        })?;
        match link.hear()? {
            PersonAnswer::Done => Ok(()),
            PersonAnswer::Failed(fault) => Err(Failure::fault(fault.to_string())),
            _ => Err(unexpected()),
        }
    }
}

/// The port of this machine that an address asks to be answered at (RFC 8252, section 7.3).
fn answered_at(address: &str) -> Option<u16> {
    let (_, query) = address.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("redirect_uri="))?;
    let url = HttpUrl::parse(&decoded(value)?).ok()?;
    let loops = url.host.is_localhost() || url.host.address().is_some_and(|address| address.is_loopback());
    (url.scheme == Scheme::Http && loops && url.port >= 1024).then_some(url.port)
}

/// A text without percent-encoding (RFC 3986, section 2.1).
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let pair = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Opens an address in the person's browser, as the desktop does; without one it stands on the screen.
fn browse(address: &str) {
    let chosen = std::env::var("BROWSER")
        .ok()
        .filter(|program| Path::new(program).is_absolute());
    let program = chosen.as_deref().unwrap_or("xdg-open");
    let started = Command::new(program)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(mut child) => {
            std::thread::spawn(move || child.wait());
        }
        Err(_) => talkln!("bailiwick: `{program}` cannot be started here: open the address yourself"),
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_model::HostPattern;

    use super::*;

    fn browser() -> Browser {
        Browser {
            wishes: PathBuf::new(),
            login: Login {
                agent: "a".into(),
                command: Vec::new(),
                files: Vec::new(),
                hosts: vec![HostPattern::parse("auth.example.com").unwrap()],
                place: AbsPath::root(),
            },
            places: Places {
                home: AbsPath::root(),
                state: PathBuf::new(),
                config: PathBuf::new(),
            },
            root: AbsPath::root(),
            over: Arc::default(),
        }
    }

    #[test]
    fn p8_only_addresses_of_the_sign_in_are_opened() {
        let browser = browser();
        for (address, want) in [
            (
                "https://auth.example.com/authorize?client=1&redirect_uri=http%3A%2F%2Flocalhost%3A1455%2Fcb",
                true,
            ),
            ("https://AUTH.example.com/", true),
            ("https://auth.example.com.evil.test/", false),
            ("https://evil.test/?x=auth.example.com", false),
            ("https://auth.example.com@evil.test/", false),
            ("https://evil.test\\@auth.example.com/", false),
            ("https://auth.example.com:8443/", false),
            ("http://auth.example.com/", false),
            ("file:///etc/passwd", false),
            ("--incognito", false),
            ("https://auth.example.com/$(id)", false),
            ("https://auth.example.com/a b", false),
            ("https://auth.example.com/\u{202e}x", false),
        ] {
            assert_eq!(browser.may_open(address), want, "{address}");
        }
    }

    #[test]
    fn the_answer_is_waited_for_on_this_machine() {
        for (query, want) in [
            (
                "redirect_uri=http%3A%2F%2Flocalhost%3A1455%2Fauth%2Fcallback",
                Some(1455),
            ),
            ("a=b&redirect_uri=http://127.0.0.1:54545/x&c=d", Some(54545)),
            ("redirect_uri=http%3A%2F%2Flocalhost%3A80%2F", None),
            ("redirect_uri=https%3A%2F%2Fevil.test%3A1455%2F", None),
            ("redirect_uri=%zz", None),
            ("a=b", None),
        ] {
            assert_eq!(
                answered_at(&format!("https://auth.example.com/?{query}")),
                want,
                "{query}"
            );
        }
    }
}
