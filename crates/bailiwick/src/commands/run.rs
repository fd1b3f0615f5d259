//! `bailiwick run`: says what will hold, starts the agent through the daemon, and stands between it and the terminal.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use bailiwick_gate::LaunchFault;
use bailiwick_model::{AbsPath, Code, Level};

use super::at_terminal::Asker;
use super::company::{Company, Left, Pipes, say_alone};
use super::refused::Refused;
use super::status_file::StatusFile;
use crate::cli::RunArgs;
use crate::daemon::Standalone;
use crate::desk::PathDesk;
use crate::failure::{Done, Exit, Failure};
use crate::git::settings::GitSettings;
use crate::git::worktree::Worktree;
use crate::link::Link;
use crate::places::Places;
use crate::protocol::{PersonAnswer, PersonCall, Planned, RunOrder};
use crate::terminal;

/// The size of a terminal that nobody looks at yet.
const UNSEEN: (u16, u16) = (24, 80);

/// Runs the command.
pub fn run(args: &RunArgs) -> Done {
    let not_started = |mut failure: Failure| {
        // Whatever went wrong, the agent's own exit codes stay free.
        if !matches!(failure.exit, Exit::NotFound | Exit::NotExecutable) {
            failure.exit = Exit::NotStarted;
        }
        failure
    };
    let mut status = StatusFile::begin(args.status_file.as_deref(), &args.command).map_err(not_started)?;
    let done = start(args, &mut status).map_err(not_started);
    if let Err(failure) = &done {
        status.failed(failure);
    }
    done
}

fn start(args: &RunArgs, status: &mut StatusFile) -> Done {
    let places = Places::find()?;
    let directory = here()?;
    let worktree = args
        .worktree
        .as_deref()
        .map(|name| Worktree::make(&directory, Some(name)))
        .transpose()?;
    let directory = worktree
        .as_ref()
        .map_or(directory, |worktree| worktree.directory.clone());
    let resumed = args.resume.as_deref().map(|task| ordered(&places, task)).transpose()?;
    let directory = resumed.as_ref().map_or(directory, |order| order.directory.clone());
    let git = GitSettings::ask(&directory);
    let seen = terminal::size();
    let size = seen.or(args.detach.then_some(UNSEEN));
    let tied = args.end_with_terminal || args.standalone || size.is_none();
    let order = RunOrder {
        level: args.level,
        command: args.command.clone(),
        preset: args.preset.clone(),
        git: GitSettings::default(),
        environment: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        directory,
        terminal: size,
        checkpoint: !args.quiet || args.status_file.is_some(),
        publish: args.publish.iter().map(|port| (*port).into()).collect(),
        devices: (args.device.iter().map(ToString::to_string))
            .chain(args.wayland.then(|| "wayland".to_owned()))
            .collect(),
        tied,
        detached: args.detach,
        explain: args.explain_denials,
        ask: !args.no_ask && !args.standalone,
        mandate: args
            .mandate
            .as_deref()
            .map(|file| super::mandate::read(file, &args.set))
            .transpose()?,
    };
    let order = match &resumed {
        Some(before) => again(before, order),
        None => order,
    };
    let program = order.command.first().cloned().unwrap_or_default();
    let standalone = args.standalone.then(|| Standalone::begin(&places)).transpose()?;
    let mut link = Link::open(standalone.as_ref().map_or(&places, Standalone::places))?;
    if link.is_other_build() && !args.quiet {
        talkln!(
            "bailiwick: the daemon is of another build and goes on, since tasks run in it; when they have ended, the next run replaces it"
        );
    }
    let pipes = if size.is_some() { None } else { Some(Pipes::make()?) };
    let company = Company::keep(&link, !tied)?;
    match &pipes {
        Some(pipes) => {
            let theirs: Vec<_> = pipes.theirs().iter().map(AsFd::as_fd).collect();
            link.say_with(&PersonCall::Run(order), &theirs)?;
        }
        None => link.say(&PersonCall::Run(order))?,
    }
    // A daemon that has closed the line meanwhile has said why.
    let _ = link.say(&PersonCall::Git(git.heard()));
    if let Some(worktree) = worktree.as_ref().filter(|_| !args.quiet) {
        crate::talk::talk(&worktree.begun());
    }
    let mut told = Told {
        args,
        status,
        program,
        refused: Refused::new(args.explain_denials && seen.is_none()),
        lasting: !tied,
        task: None,
        level: Level::Process,
        has_terminal: size.is_some(),
        asker: match size {
            None => Asker::begin(PathDesk::new(places.clone()), company.hold()),
            Some(_) => None,
        },
    };
    let code = match company.accompany(&mut link, pipes, &mut told)? {
        Left::Ended {
            status,
            checkpoint,
            denied,
            made,
        } => {
            told.ended(status, checkpoint.as_deref(), denied, &made);
            if let Some(worktree) = worktree.as_ref().filter(|_| !args.quiet) {
                crate::talk::talk(&worktree.ended());
            }
            ExitCode::from(u8::try_from(status.clamp(0, 255)).unwrap_or(255))
        }
        left => {
            if let Some(task) = told.task {
                match left {
                    Left::TakenOver => talkln!("bailiwick: task {task} is attended from elsewhere now"),
                    _ if args.detach => tellln!("{task}"),
                    _ => {}
                }
                if matches!(left, Left::Alone) && !(args.detach && args.quiet) {
                    say_alone(task);
                }
            }
            told.status.left_alone();
            ExitCode::SUCCESS
        }
    };
    drop(link);
    drop(standalone);
    Ok(code)
}

/// What a task was ordered by that has ended.
fn ordered(places: &Places, task: &str) -> Result<RunOrder, Failure> {
    let id = task.parse().map_err(|_| {
        Failure::usage(format!("`{}` is not the id of a task", bailiwick_model::visible(task)))
            .hint("it stood in the first line of the run, and stands in `bailiwick log show`")
    })?;
    let mut link = Link::open(places)?;
    link.say(&PersonCall::Ordered { task: id })?;
    match link.hear()? {
        PersonAnswer::Ordered(order) => Ok(*order),
        PersonAnswer::Failed(fault) => Err(Failure::usage(fault.to_string())),
        _ => Err(Failure::fault("the daemon answered something that was not asked")),
    }
}

/// The same again: what is done and where is as before, the surroundings are those of now.
fn again(before: &RunOrder, now: RunOrder) -> RunOrder {
    RunOrder {
        command: before.command.clone(),
        preset: before.preset.clone(),
        level: now.level.or(before.level),
        publish: if now.publish.is_empty() {
            before.publish.clone()
        } else {
            now.publish
        },
        devices: if now.devices.is_empty() {
            before.devices.clone()
        } else {
            now.devices
        },
        ask: now.ask && before.ask,
        ..now
    }
}

/// What the person is told of a run, and what is kept to be told at its end.
struct Told<'a> {
    args: &'a RunArgs,
    status: &'a mut StatusFile,
    /// The program.
    program: String,
    refused: Refused,
    /// True when the agent goes on when the person goes.
    lasting: bool,
    task: Option<bailiwick_model::TaskId>,
    /// The level that was said.
    level: Level,
    /// True when the agent has the person's terminal.
    has_terminal: bool,
    /// Asks at the terminal of this command, where the agent has none.
    asker: Option<Asker>,
}

impl super::company::Hears for Told<'_> {
    fn hears(&mut self, answer: PersonAnswer) -> Result<(), Failure> {
        match answer {
            PersonAnswer::Planned(planned) => self.planned(&planned),
            PersonAnswer::Started(report) => {
                if !self.args.quiet {
                    crate::talk::talk(&super::summary::started(&report, self.level));
                    if self.lasting && !self.args.detach {
                        crate::talk::talk(&super::summary::lasting());
                    }
                }
                self.status.started(&report);
            }
            PersonAnswer::Refused(refused) => self.refused.hear(*refused),
            // An agent that has the terminal draws on it: there `status` and `approve` tell.
            PersonAnswer::Waits(waiting) if !self.has_terminal => {
                let asks = self.asker.as_ref().is_some_and(|asker| asker.ask(&waiting));
                // Where talk goes to the same terminal, the question stands there already.
                if !asks || !std::io::stderr().is_terminal() {
                    crate::talk::talk(&super::approve::waits(&waiting));
                }
            }
            PersonAnswer::Noticed(what) if !self.has_terminal => {
                crate::talk::talk(&format!("bailiwick: it did: {what}\n"))
            }
            PersonAnswer::Waits(_) | PersonAnswer::Noticed(_) => {}
            PersonAnswer::Failed(fault) => {
                return Err(not_started(&fault, &self.program));
            }
            _ => return Err(Failure::fault("the daemon answered something that was not asked")),
        }
        Ok(())
    }

    fn is_left_alone(&self) -> bool {
        self.args.detach
    }
}

impl Told<'_> {
    fn planned(&mut self, planned: &Planned) {
        self.task = Some(planned.task);
        self.level = planned.level;
        self.status.planned(planned);
        if !self.args.quiet {
            crate::talk::talk(&super::summary::planned(planned));
        }
    }

    fn ended(&mut self, status: i32, checkpoint: Option<&str>, denied: u64, made: &[String]) {
        for told in made {
            crate::talk::talk(told);
        }
        if self.args.explain_denials {
            crate::talk::talk(&self.refused.told(denied));
        }
        if let (Some(checkpoint), false) = (checkpoint, self.args.quiet) {
            crate::talk::talk(&super::summary::ended(status, checkpoint));
        }
        self.status.ended(status, checkpoint, denied);
    }
}

/// The current folder.
pub fn here() -> Result<AbsPath, Failure> {
    let folder = std::env::current_dir().map_err(|e| {
        Failure::usage(format!("the current folder cannot be read: {e}")).hint("go to a folder that exists")
    })?;
    AbsPath::new(folder).map_err(|e| Failure::usage(e.to_string()))
}

fn not_started(fault: &LaunchFault, program: &str) -> Failure {
    let exit = Exit::of_launch(fault.code);
    let failure = Failure::new(exit, bailiwick_model::visible_lines(&fault.to_string())).coded(fault.code);
    match (exit, fault.hint.is_empty()) {
        (Exit::NotFound, true) => failure.hint(where_outside(program)),
        (Exit::NotExecutable, true) => match why_not_executable(program) {
            Some(hint) => failure.hint(hint),
            None => failure,
        },
        (_, true) if matches!(fault.code, Code::FenceFailed | Code::FencePartial) => {
            failure.hint("`bailiwick doctor` says what this machine can do, and what to change")
        }
        (_, true) => failure,
        (_, false) => failure.hint(fault.hint.clone()),
    }
}

/// What to do about a program that is not there inside: it may well be there outside.
fn where_outside(program: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    match found.filter(|_| !program.contains('/')) {
        Some(file) => {
            let whole = std::fs::canonicalize(&file).unwrap_or(file);
            let folder = whole.parent().unwrap_or(&whole).display().to_string();
            format!(
                "it lies in `{folder}` outside; grant that: `read = [\"{folder}\"]` under [files] in bailiwick.toml"
            )
        }
        None if program.contains('/') && Path::new(program).exists() => {
            "it lies outside of what is granted: `bailiwick policy show` lists the rules".into()
        }
        None => "it is not there outside either: is it spelled right, and installed?".into(),
    }
}

/// What to do about a program that is there and cannot be started.
fn why_not_executable(program: &str) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let file = std::fs::metadata(program).ok().filter(|_| program.contains('/'))?;
    if file.is_dir() {
        return Some("it is a folder, not a program".into());
    }
    (file.permissions().mode() & 0o111 == 0).then(|| format!("it is not marked executable: `chmod +x {program}`"))
}
