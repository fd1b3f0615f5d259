//! `bailiwick console`: serves the web page for the person, and makes links to log in by.
//!
//! Promises: P8 (a link is given to the person alone: it is printed, or handed out on a socket in the state folder that turns away
//! whoever lives in a fence). Trust: the browser is the person's; what connects to the port is anybody (`console`).
//! Not here: pages, sessions (`console`); the daemon, which parses no HTTP and knows of no console.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bailiwick_console::{Console, Door, House, LINK_LIFE};
use rustix::fs::{FlockOperation, flock};

use crate::cli::{ConsoleArgs, ConsoleCommand};
use crate::daemon::person::is_person;
use crate::daemon::surroundings::{KernelRandom, SteadyClock};
use crate::desk::{PathDesk, person};
use crate::failure::{Done, Failure};
use crate::papers::{Codes, OwnPapers};
use crate::places::Places;

/// How long a console may take to hand out a link.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a browser may take to read the page that sends it on.
const TO_OPEN: Duration = Duration::from_secs(5);

/// Longest link, in bytes.
const MAX_LINK: u64 = 512;

/// Runs the command.
pub fn run(args: &ConsoleArgs) -> Done {
    let places = Places::find()?;
    match &args.part {
        None => serve(&places, args),
        Some(ConsoleCommand::Link { open }) => {
            let link = link_of_running(&places)?.ok_or_else(|| {
                Failure::usage("no console runs").hint("`bailiwick console` starts one, and prints a link")
            })?;
            tellln!("{link}");
            if *open {
                open_in_browser(&places, &link)?;
                std::thread::sleep(TO_OPEN);
                let _ = std::fs::remove_file(places.console_page());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(places: &Places, args: &ConsoleArgs) -> Done {
    places.make_state()?;
    let Some(_lock) = lock(places)? else {
        return Err(Failure::usage("a console runs already").hint("`bailiwick console link` makes a link to that one"));
    };
    let desk = Arc::new(PathDesk::new(places.clone()));
    let house = House {
        desk: desk.clone(),
        papers: Arc::new(OwnPapers::new(places.clone(), desk)),
        logins: Some(Arc::new(Codes::new(places.clone()))),
        clock: Arc::new(SteadyClock::default()),
        random: Arc::new(KernelRandom),
    };
    let console = Console::listen(args.port.unwrap_or(0), house).map_err(|fault| {
        Failure::fault(fault.to_string()).hint("`--port` names another; without it, any that is free")
    })?;
    let door = console.door();
    listen_for_links(places, door.clone())?;
    end_on_signal(places)?;
    talkln!(
        "bailiwick: the console listens at http://{}; the link below logs in once, within {} minutes; ctrl-c ends it",
        console.address(),
        LINK_LIFE.as_secs() / 60
    );
    let link = door.link(person());
    tellln!("{link}");
    if args.open {
        open_in_browser(places, &link)?;
    }
    console.serve().map_err(|fault| Failure::fault(fault.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// The lock of the one console; none where another has it.
fn lock(places: &Places) -> Result<Option<File>, Failure> {
    let path = places.console_lock();
    let refuse = |cause: &dyn std::fmt::Display| Failure::fault(format!("cannot use `{}`: {cause}", path.display()));
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|e| refuse(&e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(refuse(&e)),
    }
}

/// Hands out links on a socket in the state folder, to the person alone.
fn listen_for_links(places: &Places, door: Door) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    let path = places.console_socket();
    // Left by a console before this one, which has ended: the lock says so.
    let _ = std::fs::remove_file(&path);
    let refuse = |e: std::io::Error| Failure::fault(format!("cannot listen at `{}`: {e}", path.display()));
    let listener = places
        .at_console_socket(|path| UnixListener::bind(path))
        .map_err(refuse)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(refuse)?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if is_person(&stream).is_ok() {
                let _ = stream.set_write_timeout(Some(PATIENCE));
                // Whoever has gone away meanwhile asks again.
                let _ = stream.write_all(door.link(person()).as_bytes());
            }
        }
    });
    Ok(())
}

/// Takes socket and page away at the end.
fn end_on_signal(places: &Places) -> Result<(), Failure> {
    let signals = [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ];
    let mut signals = signal_hook::iterator::Signals::new(signals)
        .map_err(|e| Failure::fault(format!("cannot wait for signals: {e}")))?;
    let (socket, page) = (places.console_socket(), places.console_page());
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = std::fs::remove_file(socket);
            let _ = std::fs::remove_file(page);
            std::process::exit(0);
        }
    });
    Ok(())
}

/// A link to the console that runs; none where none does.
fn link_of_running(places: &Places) -> Result<Option<String>, Failure> {
    let Ok(stream) = places.at_console_socket(|path| UnixStream::connect(path)) else {
        return Ok(None);
    };
    let refuse = |e: std::io::Error| Failure::fault(format!("the console gives no link: {e}"));
    stream.set_read_timeout(Some(PATIENCE)).map_err(refuse)?;
    let mut link = String::new();
    stream.take(MAX_LINK).read_to_string(&mut link).map_err(refuse)?;
    if link.is_empty() {
        return Err(Failure::fault("the console gives no link"));
    }
    Ok(Some(link))
}

/// Opens a link by a page that lies in the state folder: the arguments of a program are seen by every program of the machine.
fn open_in_browser(places: &Places, link: &str) -> Result<(), Failure> {
    let path = places.console_page();
    let refuse = |e: std::io::Error| Failure::fault(format!("cannot write `{}`: {e}", path.display()));
    let _ = std::fs::remove_file(&path);
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>Bailiwick</title><a href=\"{link}\">Bailiwick</a>\n"
    );
    let mut options = File::options();
    let file = options.create_new(true).write(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(page.as_bytes()))
        .map_err(refuse)?;
    let mut command = Command::new("xdg-open");
    command
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if command.spawn().is_err() {
        let _ = std::fs::remove_file(&path);
        talkln!("bailiwick: `xdg-open` is not there: open the link yourself");
    }
    Ok(())
}
