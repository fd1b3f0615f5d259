//! The command line: what was typed, and which command it means.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use bailiwick_model::Level;

use crate::commands;
use crate::failure::{Done, Exit};

/// What stands below the list of commands.
const EXAMPLES: &str = "\
Examples:
  bailiwick run -- claude               an agent: the project, and little else
  bailiwick run -- bash                 look around in there yourself
  bailiwick can \"read ~/.ssh/id_rsa\"    may it? by which rule? what changes it?
  bailiwick last                        what was refused last, and why
  bailiwick attach                      come back to one that you left running

There is nothing to write first. `bailiwick init` writes a file of rules that fits the project.";

/// Examples of `run`.
const RUN_EXAMPLES: &str = "\
Examples:
  bailiwick run -- claude                          an agent, with its profile
  bailiwick run -p 5173 -- npm run dev             seen at http://127.0.0.1:5173
  bailiwick run --detach -- codex exec \"fix it\"    goes on alone
  bailiwick run --explain-denials -- make test     what was refused, and why
  bailiwick run --status-file run.json -- ./ci     for scripts: JSON of the run

With a terminal, ctrl-\\ ctrl-d leaves the agent running, and so does a closed window. Without one it ends with this command.
Exit codes: the agent's own; 125 not started, 126 its program cannot be started, 127 its program is not there.";

/// Examples of `approve`.
const APPROVE_EXAMPLES: &str = "\
Examples:
  bailiwick approve                        what waits, on the whole screen, to be answered there
  bailiwick approve --list                 what waits, and what a yes to it may cover
  bailiwick approve q-5b0f                 yes: to just that, once
  bailiwick approve q-5b0f --offer 2 --times 3 --for \"10 min\"
  bailiwick approve q-5b0f --no --word \"use the staging host\"
  bailiwick approve q-5b0f --more \"what is this for?\"

Silence is a no when the deadline comes. A yes covers what its sentence says, and nothing else.
Exit codes: 0 answered, or nothing waits; 4 something waits.";

/// Examples of `console`.
const CONSOLE_EXAMPLES: &str = "\
Examples:
  bailiwick console                  serves until ctrl-c, and prints a link to log in by, once
  bailiwick console --open           opens it in your browser
  bailiwick console link             another link to the console that runs

It listens on this machine's loopback only. docs/console.md says how it is kept from agents.";

/// Examples of `give`.
const GIVE_EXAMPLES: &str = "\
Examples:
  bailiwick give ~/Downloads/report.pdf            a copy, at /tmp/handover/report.pdf inside
  bailiwick give --task 5b0f --as spec.md notes    to that task, under that name

The agent gets a copy; your file stays as it is. Symbolic links are not followed. Each copy is on record with its digest.";

/// Examples of `can`.
const CAN_EXAMPLES: &str = "\
Examples:
  bailiwick can \"write src\"                      files: read, write, create, delete
  bailiwick can \"tunnel docs.rs\"                a connection passed on unread (HTTPS)
  bailiwick can \"GET https://docs.rs/serde\"     one request, over TLS or plain HTTP
  bailiwick can --program claude \"tunnel api.anthropic.com\"

Exit codes: 0 yes, 3 no, 4 a person would be asked.";

/// Runs an AI agent with exactly the authority its task needs.
#[derive(Debug, Parser)]
#[command(
    name = "bailiwick",
    version,
    about,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
struct Typed {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program in the bailiwick of this folder
    Run(RunArgs),
    /// Come back to a task that goes on in its own terminal
    Attach(AttachArgs),
    /// End a task, and all that runs in it
    Stop(StopArgs),
    /// Show what waits for you, or answer it
    Approve(ApproveArgs),
    /// Say who else may answer your questions
    #[command(subcommand)]
    Approver(ApproverCommand),
    /// Show, give, narrow or revoke grants: yeses that hold for more than one request
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// Show which tools of servers there are here, and take what servers offer
    #[command(subcommand)]
    Tools(commands::tools::ToolsCommand),
    /// Show what calls of tools have come to
    #[command(subcommand)]
    Budgets(commands::budgets::BudgetsCommand),
    /// Write or check a mandate: what one errand may do
    #[command(subcommand)]
    Mandate(commands::mandate::MandateCommand),
    /// Inside: the tools of all servers, as one server on input and output
    Mcp,
    /// Inside: say something to the person about a question
    Tell(TellArgs),
    /// Show all that waits and runs on a web page of this machine
    Console(ConsoleArgs),
    /// Hand copies of files to a running task
    Give(GiveArgs),
    /// Write a commented bailiwick.toml that fits this project
    Init(InitArgs),
    /// Sign an agent in, once for all its contexts
    Login(LoginArgs),
    /// Say whether an act may be done here, by which rule, and what would change it
    Can(CanArgs),
    /// Tell an agent's harness what the rules say of a tool call, before it tries
    Hook(HookArgs),
    /// Say what was refused last; works inside, too
    Last(LastArgs),
    /// Say why something was decided, by the id that stood in its message
    Explain(ExplainArgs),
    /// Check or show the rules that hold here
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Trust this project's bailiwick.toml as it is now
    Trust(TrustArgs),
    /// Show or verify the log
    #[command(subcommand)]
    Log(LogCommand),
    /// Say what this machine can enforce, promise by promise
    Doctor(DoctorArgs),
    /// Say which tasks run
    Status(JsonArg),
    /// Say where things lie
    Paths(JsonArg),
    /// Remove what bailiwick keeps on this machine, and say what stays
    Uninstall(UninstallArgs),
    /// Print what a shell needs to complete this command line
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands into a folder
    Man(ManArgs),
    /// The background process that decides
    #[command(subcommand)]
    Daemon(DaemonCommand),
}

/// What `run` takes.
#[derive(Debug, Default, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Say nothing but failures
    #[arg(short, long)]
    pub quiet: bool,
    /// A mediator of this run's own, with its own log and key, that ends with it
    #[arg(long)]
    pub standalone: bool,
    /// Show a port of the agent's on this machine's loopback: 5173, or 8080:3000 for its port 3000 at 8080
    #[arg(short, long, value_name = "[OUTSIDE:]INSIDE")]
    pub publish: Vec<bailiwick_policy::Published>,
    /// This preset for this run, in place of what the rules here allow: coding, install, offline, readonly
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Show a device of this machine inside: `gpu`, or a file such as /dev/kvm
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<bailiwick_policy::Device>,
    /// Show the compositor of this screen inside, so that windows can be opened
    #[arg(long)]
    pub wayland: bool,
    /// In a git work tree of this task's own, beside the project; without a name it gets a number
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub worktree: Option<String>,
    /// What the fence is made of: namespace or process; names a weaker one than the rules ask for, too
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub level: Option<Level>,
    /// Start it in a terminal of its own and leave it alone; prints the task's id
    #[arg(short, long, conflicts_with_all = ["standalone", "end_with_terminal", "explain_denials", "status_file"])]
    pub detach: bool,
    /// End the agent when this terminal closes; else it goes on, and `bailiwick attach` comes back to it
    #[arg(long)]
    pub end_with_terminal: bool,
    /// Ask nobody: what a rule would ask is refused at once
    #[arg(long)]
    pub no_ask: bool,
    /// Start again what a task ran that has ended, in the same place: with what its context keeps, and this terminal
    #[arg(long, value_name = "TASK", conflicts_with_all = ["preset", "worktree", "standalone"])]
    pub resume: Option<String>,
    /// Say what was refused, why, and what line would allow it: at once without a terminal, else at the end
    #[arg(long)]
    pub explain_denials: bool,
    /// Under this mandate: of what has effects outside, only what it says
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub mandate: Option<PathBuf>,
    /// With a mandate: a value that it leaves open
    #[arg(long, value_name = "NAME=VALUE", requires = "mandate")]
    pub set: Vec<String>,
    /// Keep this file up to date with how the run does, as JSON
    #[arg(long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required_unless_present = "resume",
        conflicts_with = "resume",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub command: Vec<String>,
}

/// What `attach` takes.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The task, or the beginning of its id; can be left out where there is only one
    pub task: Option<String>,
}

/// What `stop` takes.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The task, or the beginning of its id
    pub task: String,
    /// Do not let it end by itself first
    #[arg(long)]
    pub now: bool,
}

/// What can be said of those who may answer.
#[derive(Debug, Subcommand)]
pub enum ApproverCommand {
    /// Enrol somebody: another user of this machine, or somebody who shows codes on the console
    Add(ApproverAddArgs),
    /// List who is enrolled
    List(JsonArg),
    /// Take somebody from the list
    Remove {
        /// The name
        name: String,
    },
    /// Name the folder in which other users find the socket to answer by
    Socket {
        /// The folder: nobody but you may write there
        #[arg(required_unless_present = "off", conflicts_with = "off")]
        folder: Option<PathBuf>,
        /// No such socket
        #[arg(long)]
        off: bool,
    },
    /// Let the program of `approver = [...]` answer again, after it was suspended
    Again,
}

/// What `approver add` takes.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("how").required(true)))]
pub struct ApproverAddArgs {
    /// The name, as rules have it
    pub name: String,
    /// The user of this machine that they are
    #[arg(long, value_name = "UNIX", group = "how")]
    pub user: Option<String>,
    /// They show codes (RFC 6238): prints once what their program for codes is to be told
    #[arg(long, group = "how")]
    pub totp: bool,
}

/// What `approve` takes.
#[derive(Debug, Args)]
#[command(after_help = APPROVE_EXAMPLES)]
pub struct ApproveArgs {
    /// The question, or the beginning of its id; without one the questions are shown
    pub question: Option<String>,
    /// List the questions, also on a terminal
    #[arg(long, conflicts_with = "question")]
    pub list: bool,
    /// Say no
    #[arg(long, requires = "question")]
    pub no: bool,
    /// Answer the questions of another user, who has enrolled you: by this socket
    #[arg(long, value_name = "SOCKET")]
    pub at: Option<PathBuf>,
    /// With a no: say this to the agent
    #[arg(long, requires = "no", value_name = "WORDS")]
    pub word: Option<String>,
    /// Say neither: have the agent tell more first
    #[arg(long, requires = "question", conflicts_with_all = ["no", "offer"], value_name = "WORDS")]
    pub more: Option<String>,
    /// Say yes to this offer, by its number; without one to the request alone, once
    #[arg(long, requires = "question", conflicts_with = "no", value_name = "N")]
    pub offer: Option<usize>,
    /// With an offer: how often, and how long
    #[command(flatten)]
    pub terms: TermsArgs,
    /// With an offer: where it holds
    #[arg(long, requires = "offer", value_name = "WHERE", value_parser = scope, default_missing_value = "task")]
    pub scope: Option<bailiwick_gate::desk::Scope>,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// The parts of `grants`.
#[derive(Debug, Subcommand)]
pub enum GrantsCommand {
    /// Show the grants that hold
    List(JsonArg),
    /// Let tasks of this folder's context do something that a rule asks about
    Give(GrantsGiveArgs),
    /// Let a grant be used less often, or not as long
    Narrow {
        /// The grant, or the beginning of its id
        grant: String,
        /// What is left of it
        #[command(flatten)]
        terms: TermsArgs,
    },
    /// End a grant; what goes on under it is cut off
    Revoke {
        /// The grant, or the beginning of its id
        grant: String,
    },
}

/// What `grants give` takes.
#[derive(Debug, Args)]
pub struct GrantsGiveArgs {
    /// The act, as rules write it: "GET https://docs.rs/**"
    pub act: String,
    /// How often, and how long
    #[command(flatten)]
    pub terms: TermsArgs,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// How often, and how long.
#[derive(Debug, Default, Args)]
pub struct TermsArgs {
    /// At most so often
    #[arg(long, value_name = "N")]
    pub times: Option<u64>,
    /// For so long: "60 s", "10 min", "2 h"
    #[arg(long = "for", value_name = "TIME", conflicts_with = "until")]
    pub span: Option<String>,
    /// Until the clock here shows this: "18:00"
    #[arg(long, value_name = "HH:MM")]
    pub until: Option<String>,
}

/// What `tell` takes.
#[derive(Debug, Args)]
pub struct TellArgs {
    /// The question
    pub question: String,
    /// The words
    #[arg(required = true)]
    pub words: Vec<String>,
}

/// What `console` takes.
#[derive(Debug, Args)]
#[command(after_help = CONSOLE_EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct ConsoleArgs {
    /// The port on 127.0.0.1; without it any that is free
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Open it in your browser
    #[arg(long)]
    pub open: bool,
    /// What to do with the console that runs
    #[command(subcommand)]
    pub part: Option<ConsoleCommand>,
}

/// The parts of `console`.
#[derive(Debug, Subcommand)]
pub enum ConsoleCommand {
    /// Print another link to log in by, once
    Link {
        /// Open it in your browser
        #[arg(long)]
        open: bool,
    },
}

/// What `give` takes.
#[derive(Debug, Args)]
#[command(after_help = GIVE_EXAMPLES)]
pub struct GiveArgs {
    /// The task, or the beginning of its id; can be left out where there is only one
    #[arg(long, value_name = "ID")]
    pub task: Option<String>,
    /// Give it under this name
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
    /// The files and folders
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// What `init` takes.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Print it, and write nothing
    #[arg(long)]
    pub print: bool,
}

/// What `login` takes.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The agent: claude-code, codex, opencode, gemini-cli, goose
    pub agent: Option<String>,
    /// Say which agents have signed in
    #[arg(long, conflicts_with_all = ["agent", "remove"])]
    pub list: bool,
    /// Take the agent's login away
    #[arg(long, requires = "agent")]
    pub remove: bool,
    /// Say nothing but failures and addresses
    #[arg(short, long)]
    pub quiet: bool,
    /// Answer as JSON
    #[arg(long, requires = "list")]
    pub json: bool,
    /// More words for the agent's own sign-in
    #[arg(last = true, value_name = "WORD")]
    pub more: Vec<String>,
}

/// What `can` takes.
#[derive(Debug, Args)]
#[command(after_help = CAN_EXAMPLES)]
pub struct CanArgs {
    /// The act: VERB RESOURCE, for instance "read ~/.ssh/id_ed25519" or "GET http://localhost:8080/x"
    pub act: String,
    /// Judge as for this program, with its profile
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `hook` takes.
#[derive(Debug, Args)]
pub struct HookArgs {
    /// Whose hook this is: the call comes in on stdin, the answer goes out on stdout
    pub harness: Harness,
}

/// The harnesses whose hooks are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Harness {
    /// Claude Code, `PreToolUse`
    ClaudeCode,
    /// Codex, `PreToolUse`
    Codex,
    /// Gemini CLI, `BeforeTool`
    Gemini,
}

impl Harness {
    /// The program that it is, for its profile.
    pub fn program(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }
}

/// What `last` takes.
#[derive(Debug, Args)]
pub struct LastArgs {
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    pub count: usize,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `explain` takes.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The id: 12 hex digits, or enough of them to be unique
    pub id: String,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// The parts of `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Read all rules, and tell every mistake and overlap
    Check(JsonArg),
    /// Show the rules in force
    Show(ShowArgs),
}

/// What `policy show` takes.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Show layer by layer where each rule came from
    #[arg(long, conflicts_with = "cedar")]
    pub layers: bool,
    /// Show the Cedar policies and their schema
    #[arg(long)]
    pub cedar: bool,
    /// Show as for this program, with its profile
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// Answer as JSON
    #[arg(long, conflicts_with_all = ["layers", "cedar"])]
    pub json: bool,
}

/// What `trust` takes.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Take trust back
    #[arg(long)]
    pub revoke: bool,
}

/// The parts of `log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Show records, one a line
    Show(LogShowArgs),
    /// Verify the whole log, offline
    Verify(LogVerifyArgs),
    /// Print where the log lies
    Path,
    /// Print a fresh signed checkpoint
    Checkpoint,
}

/// What `log show` takes.
#[derive(Debug, Args)]
pub struct LogShowArgs {
    /// Only the last N records
    #[arg(short = 'n', long, value_name = "N")]
    pub last: Option<usize>,
    /// Only records of this task
    #[arg(long, value_name = "ID")]
    pub task: Option<bailiwick_model::TaskId>,
    /// Only what was denied or refused
    #[arg(long)]
    pub denied: bool,
    /// Each record as JSON
    #[arg(long)]
    pub json: bool,
    /// Another log's folder
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// What `log verify` takes.
#[derive(Debug, Args)]
pub struct LogVerifyArgs {
    /// A checkpoint kept elsewhere, that the log must still hold: a file, or `SIZE ROOT` as a run prints it
    #[arg(long, value_name = "CHECKPOINT")]
    pub since: Option<String>,
    /// Another log's folder
    #[arg(long, value_name = "FOLDER", requires = "key")]
    pub folder: Option<PathBuf>,
    /// The public key to verify with: a file, or the key itself
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `uninstall` takes.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Also remove the log and its key, your rules, and what agents keep
    #[arg(long)]
    pub purge: bool,
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `completions` takes.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// What `man` takes.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write the pages; without it the main page is printed
    pub folder: Option<PathBuf>,
}

/// The parts of `daemon`.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// Run it in the foreground
    Run(DaemonRunArgs),
    /// End it, and every task with it
    Stop,
}

/// What `daemon run` takes.
#[derive(Debug, Args)]
pub struct DaemonRunArgs {
    /// Say `ready` on stdout once it can be reached, then go into the background of its own session
    #[arg(long, hide = true)]
    pub detach: bool,
    /// The state folder, where it is not the person's usual one
    #[arg(long, hide = true, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
}

/// What `doctor` takes.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print what to do, as root, so that the strongest fence can be had; changes nothing
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// Whether to answer as JSON.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Answer as JSON
    #[arg(long)]
    pub json: bool,
}

fn scope(word: &str) -> Result<bailiwick_gate::desk::Scope, String> {
    match word {
        "task" => Ok(bailiwick_gate::desk::Scope::Task),
        "context" => Ok(bailiwick_gate::desk::Scope::Context),
        _ => Err("it is `task` (this task) or `context` (every task of this context)".into()),
    }
}

fn level(word: &str) -> Result<Level, String> {
    Level::parse(word).ok_or_else(|| {
        let known = Level::ALL.map(Level::as_str).join(", ");
        format!("there is no such level; this build has: {known}")
    })
}

/// Reads the command line and does what it says.
pub fn run() -> Done {
    let typed = match Typed::try_parse() {
        Ok(typed) => typed,
        Err(told) => {
            let _ = told.print();
            return Ok(if told.use_stderr() {
                Exit::Usage.into()
            } else {
                ExitCode::SUCCESS
            });
        }
    };
    let anywhere = matches!(
        typed.command,
        Command::Last(_)
            | Command::Tell(_)
            | Command::Mcp
            | Command::Hook(_)
            | Command::Completions(_)
            | Command::Man(_)
    );
    if commands::last::is_inside() && !anywhere {
        return Err(commands::last::only_outside());
    }
    match typed.command {
        Command::Run(args) => commands::run::run(&args),
        Command::Attach(args) => commands::attach::attach(&args),
        Command::Stop(args) => commands::attach::stop(&args),
        Command::Approve(args) => commands::approve::run(&args),
        Command::Approver(command) => commands::approver::run(&command),
        Command::Grants(command) => commands::grants::run(&command),
        Command::Tools(command) => commands::tools::run(&command),
        Command::Budgets(command) => commands::budgets::run(&command),
        Command::Mandate(command) => commands::mandate::run(&command),
        Command::Mcp => commands::mcp::run(),
        Command::Tell(args) => commands::tell::run(&args),
        Command::Console(args) => commands::console::run(&args),
        Command::Give(args) => commands::give::run(&args),
        Command::Init(args) => commands::init::run(&args),
        Command::Login(args) => commands::login::run(&args),
        Command::Can(args) => commands::can::run(&args),
        Command::Hook(args) => commands::hook::run(&args),
        Command::Last(args) => commands::last::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Policy(PolicyCommand::Check(args)) => commands::policy::check(&args),
        Command::Policy(PolicyCommand::Show(args)) => commands::policy::show(&args),
        Command::Trust(args) => commands::trust::run(&args),
        Command::Log(LogCommand::Show(args)) => commands::log::show(&args),
        Command::Log(LogCommand::Verify(args)) => commands::log::verify(&args),
        Command::Log(LogCommand::Path) => commands::log::path(),
        Command::Log(LogCommand::Checkpoint) => commands::log::checkpoint(),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Paths(args) => commands::paths::run(&args),
        Command::Uninstall(args) => commands::uninstall::run(&args),
        Command::Completions(args) => commands::pages::completions(args.shell, Typed::command()),
        Command::Man(args) => commands::pages::man(args.folder.as_deref(), Typed::command()),
        Command::Daemon(DaemonCommand::Run(args)) => crate::daemon::run(args.detach, args.state),
        Command::Daemon(DaemonCommand::Stop) => commands::status::stop(),
    }
}
