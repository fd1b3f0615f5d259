//! A place to test a fence at: a project, a home with secrets, and a plan that grants the project alone.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

use bailiwick_fence::{Launcher, Started};
use bailiwick_gate::{
    Answer, Bind, BindMode, Call, Client, FencePlan, FenceReport, FrameReader, IdMap, Judged, LaunchFault, Limits,
    PROTOCOL, PermitTerms, Protected, Protection, Refusal, Reply, Spent, Stdio, encode,
};
use bailiwick_model::{AbsPath, Code, DecisionId, Level, Millis, Nonce, PathPattern, Request, Resource, TaskId, Verb};
use rustix::process::geteuid;

/// The ordinary user that root's tests become.
const ORDINARY: u32 = 4242;

/// Whose fence it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The one who runs the tests.
    Own,
    /// An ordinary user, when root runs the tests.
    Ordinary,
}

impl Who {
    /// Everyone whose fences can be tested here.
    pub fn all() -> Vec<Self> {
        if geteuid().is_root() {
            vec![Self::Own, Self::Ordinary]
        } else {
            vec![Self::Own]
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Own => geteuid().as_raw(),
            Self::Ordinary => ORDINARY,
        }
    }

    fn identity(self) -> IdMap {
        match self {
            Self::Own => bailiwick_fence::identity().unwrap(),
            Self::Ordinary => IdMap {
                inside: (ORDINARY, ORDINARY),
                outside: (ORDINARY, ORDINARY),
                owner: None,
            },
        }
    }
}

/// Whose fence it is, and of which level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub who: Who,
    pub level: Level,
}

impl Setting {
    /// Every setting that can be tested here.
    pub fn all() -> Vec<Self> {
        let levels = |who| {
            Level::ALL
                .into_iter()
                .filter(move |level| who != Who::Own || !geteuid().is_root() || *level == Level::Namespace)
                .map(move |level| Self { who, level })
        };
        Who::all().into_iter().flat_map(levels).collect()
    }

    /// Those with a root, a network and a process table of their own.
    pub fn with_namespaces() -> Vec<Self> {
        let mut all = Self::all();
        all.retain(|setting| setting.level == Level::Namespace);
        all
    }

    pub fn is_process(self) -> bool {
        self.level == Level::Process
    }
}

/// What a program in a fence did.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
    pub report: FenceReport,
}

impl Ran {
    /// Its output, when it ended well.
    #[track_caller]
    pub fn good(&self) -> &str {
        assert_eq!(self.status, 0, "{self:?}");
        self.out.trim()
    }

    /// Insists that it ended badly, by itself.
    #[track_caller]
    pub fn bad(&self) {
        assert!((1..126).contains(&self.status), "{self:?}");
    }
}

/// Removes what runs that have ended left behind.
fn clear_old_shelves() {
    for entry in std::fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(run) = name.strip_prefix("bailiwick-fence-tests-")
            && !Path::new("/proc").join(run).exists()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        clear_old_shelves();
        // Where everybody can read them: the build folder may be the builder's alone.
        let shelf = std::env::temp_dir().join(format!("bailiwick-fence-tests-{}", std::process::id()));
        std::fs::create_dir_all(&shelf).unwrap();
        std::fs::set_permissions(&shelf, PermissionsExt::from_mode(0o755)).unwrap();
        for (name, built) in [
            ("probe", option_env!("CARGO_BIN_EXE_fence-probe")),
            ("launcher", option_env!("CARGO_BIN_EXE_fence-launcher")),
        ] {
            // A measurement is no test, and finds them beside its own folder.
            let beside = || {
                std::env::current_exe()
                    .unwrap()
                    .ancestors()
                    .nth(2)
                    .unwrap()
                    .join(format!("fence-{name}"))
            };
            let from = built.map_or_else(beside, PathBuf::from);
            assert!(
                from.exists(),
                "`{}` is missing: a missing probe is a failure",
                from.display()
            );
            std::fs::copy(from, shelf.join(name)).unwrap();
        }
        shelf
    })
}

/// The probe program.
pub fn probe() -> PathBuf {
    programs().join("probe")
}

fn path(path: impl AsRef<Path>) -> AbsPath {
    AbsPath::new(path).unwrap()
}

/// A spent permit, from a mediator that allows.
pub fn grant() -> Spent {
    let request = Request::new(TaskId([1; 8]), Verb::Read, Resource::File(path("/")));
    let mut client = Client::default();
    let frame = |answer: &Answer| encode(answer).unwrap().split_off(4);
    let hello = Answer::Hello {
        protocol: PROTOCOL,
        build: "test".into(),
    };
    client.receive(&frame(&hello)).unwrap();
    let (call, _) = client.decide(&request).unwrap();
    let terms = PermitTerms {
        decision: DecisionId([2; 6]),
        digest: bailiwick_gate::digest_of(&request),
        task: request.task,
        nonce: Nonce([3; 16]),
        deadline: Millis(100),
        obligations: Vec::new(),
    };
    let allow = Answer::Allow {
        call,
        terms: Box::new(terms),
    };
    match client.receive(&frame(&allow)).unwrap() {
        Reply::Decided(_, bailiwick_gate::Outcome::Allow(permit)) => permit.spend(&request, Millis(1)).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Answers what a supervisor asks.
#[derive(Clone)]
pub struct Judge {
    allows: Arc<dyn Fn(&Request) -> bool + Send + Sync>,
    /// What was asked, and whether it was allowed, in order.
    pub asked: Arc<Mutex<Vec<(Request, bool)>>>,
    /// What was told of what was allowed: whether it was done.
    pub settled: Arc<Mutex<Vec<bool>>>,
}

impl Judge {
    pub fn of(allows: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Self {
            allows: Arc::new(allows),
            asked: Arc::default(),
            settled: Arc::default(),
        }
    }

    /// Answers at the other end of this descriptor.
    fn sit(&self) -> OwnedFd {
        let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let judge = self.clone();
        std::thread::spawn(move || {
            let mut frames = FrameReader::default();
            let mut bytes = [0u8; 16 * 1024];
            while let Ok(got @ 1..) = here.read(&mut bytes) {
                frames.push(&bytes[..got]);
                while let Some(body) = frames.next_frame().unwrap() {
                    let answer = judge.answer(bailiwick_gate::decode(body).unwrap());
                    let _ = here.write_all(&encode(&answer).unwrap());
                }
            }
        });
        there.into()
    }

    fn answer(&self, call: Call) -> Answer {
        let refusal = Refusal::new(DecisionId([2; 6]), Code::DeniedByRule);
        match call {
            Call::Hello { .. } => Answer::Hello {
                protocol: PROTOCOL,
                build: "test".into(),
            },
            Call::Withdraw { call } => Answer::Deny { call, refusal },
            Call::Decide { call, request, .. } => {
                let allowed = (self.allows)(&request);
                let digest = bailiwick_gate::digest_of(&request);
                self.asked.lock().unwrap().push((*request, allowed));
                if !allowed {
                    return Answer::Deny { call, refusal };
                }
                let terms = PermitTerms {
                    decision: DecisionId([2; 6]),
                    digest,
                    task: TaskId([1; 8]),
                    nonce: Nonce([3; 16]),
                    deadline: Millis(u64::MAX),
                    obligations: Vec::new(),
                };
                Answer::Allow {
                    call,
                    terms: Box::new(terms),
                }
            }
            Call::Settle { call, settlement } => {
                self.settled.lock().unwrap().push(settlement.done);
                Answer::Settled { call }
            }
            Call::Refused { call, .. } | Call::Redeem { call, .. } => Answer::Deny { call, refusal },
            // No answer comes to it, and nothing here says anything.
            Call::Tell { .. } | Call::Attending => Answer::Told { refusal },
        }
    }

    /// The commands that were asked about, as the launcher for tests reads them.
    pub fn commands(&self) -> Vec<(Vec<String>, bool)> {
        let asked = self.asked.lock().unwrap();
        let command = |(request, allowed): &(Request, bool)| match &request.resource {
            Resource::Command(command) => Some((command.words().to_vec(), *allowed)),
            _ => None,
        };
        asked.iter().filter_map(command).collect()
    }
}

/// A desk.
pub struct Desk {
    pub who: Who,
    pub plan: FencePlan,
    /// Answers what the supervisor asks; without it, nobody does.
    pub judge: Option<Judge>,
    /// Makes the line on which commands are handed outside.
    pub brokers: Option<Box<dyn Fn() -> OwnedFd + Send + Sync>>,
    room: tempfile::TempDir,
}

impl Desk {
    pub fn of(setting: Setting) -> Self {
        let Setting { who, level } = setting;
        let room = tempfile::Builder::new().prefix("bailiwick-desk-").tempdir().unwrap();
        let top = room.path().canonicalize().unwrap();
        std::fs::set_permissions(&top, PermissionsExt::from_mode(0o755)).unwrap();
        let scratch = top.with_extension("scratch");
        let read = |place: &str| Bind {
            source: path(place),
            target: path(place),
            mode: BindMode::Read,
            own: false,
            optional: true,
        };
        let mut binds: Vec<Bind> = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"].map(read).into();
        binds.push(read(programs().to_str().unwrap()));
        let mut desk = Self {
            who,
            plan: FencePlan {
                task: TaskId([1; 8]),
                asked: Vec::new(),
                sought: None,
                level,
                command: Vec::new(),
                environment: vec![
                    ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                    ("SCRATCH".into(), scratch.display().to_string()),
                    // Where nothing is mounted, `/tmp` is the machine's.
                    (
                        if level == Level::Process { "TMPDIR" } else { "UNUSED" }.into(),
                        scratch.display().to_string(),
                    ),
                ],
                directory: path(top.join("project")),
                binds,
                files: Vec::new(),
                handed: 0,
                scratch: vec![path(&scratch)],
                handover: None,
                links: Vec::new(),
                protected: Vec::new(),
                strict: false,
                judged: Judged::Nothing,
                brokered: Vec::new(),
                secret: false,
                tables: Vec::new(),
                identity: who.identity(),
                listen: Vec::new(),
                ports: None,
                limits: Limits::default(),
                stdio: Stdio::Pipes,
                hostname: "desk".into(),
            },
            judge: None,
            brokers: None,
            room,
        };
        desk.folder("project");
        desk.folder("home");
        desk.bind("project", BindMode::Write);
        desk
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.room.path().canonicalize().unwrap().join(name)
    }

    /// Grants a place of the desk.
    pub fn bind(&mut self, name: &str, mode: BindMode) {
        let place = path(self.at(name));
        self.plan.binds.push(Bind {
            source: place.clone(),
            target: place,
            mode,
            own: true,
            optional: false,
        });
    }

    pub fn protect(&mut self, pattern: &str, protection: Protection) {
        let pattern = PathPattern::parse(pattern).unwrap();
        self.plan.protected.push(Protected { pattern, protection });
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let place = self.at(name);
        let mut missing: Vec<&Path> = place.ancestors().take_while(|place| !place.exists()).collect();
        missing.reverse();
        for place in missing {
            std::fs::create_dir(place).unwrap();
            self.own(place);
        }
        place
    }

    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let place = self.at(name);
        self.folder(Path::new(name).parent().unwrap().to_str().unwrap());
        std::fs::write(&place, content).unwrap();
        self.own(&place);
        place
    }

    fn own(&self, place: &Path) {
        if geteuid().is_root() {
            chown(place, Some(self.who.number()), Some(self.who.number())).unwrap();
        }
    }

    pub fn launcher(&self) -> Launcher {
        let user = ORDINARY.to_string();
        let args = match self.who {
            Who::Own => vec![],
            Who::Ordinary => vec!["--as", user.as_str()],
        };
        Launcher::spawn(&programs().join("launcher"), &args).unwrap()
    }

    pub fn start(
        &self,
        command: &[&str],
    ) -> Result<(Started, [std::io::PipeReader; 2], std::io::PipeWriter), LaunchFault> {
        let mut plan = self.plan.clone();
        plan.command = command.iter().map(|word| (*word).into()).collect();
        // A fence whose launcher was killed empties its scratch folder, and whoever made the plan removes it.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let scratch = plan.scratch[0].to_path_buf();
        while plan.level == Level::Process && scratch.exists() && std::fs::remove_dir(&scratch).is_err() {
            assert!(std::time::Instant::now() < until, "the scratch folder was not emptied");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (input, into) = std::io::pipe().unwrap();
        let (out, output) = std::io::pipe().unwrap();
        let (err, errors) = std::io::pipe().unwrap();
        let three: [OwnedFd; 3] = [input.into(), output.into(), errors.into()];
        let lines = bailiwick_fence::Lines {
            supervisor: self.judge.as_ref().map(Judge::sit),
            files: None,
            brokers: self.brokers.as_ref().map(|take| take()),
            secret: None,
            contents: Vec::new(),
        };
        let started = self.launcher().launch(vec![grant()], &plan, Some(three), lines)?;
        Ok((started, [out, err], into))
    }

    /// Runs a command in the fence.
    #[track_caller]
    pub fn run(&self, command: &[&str]) -> Ran {
        self.try_run(command)
            .unwrap_or_else(|fault| panic!("{fault} ({}; {:?})", fault.hint, fault.code))
    }

    pub fn try_run(&self, command: &[&str]) -> Result<Ran, LaunchFault> {
        let (mut started, [mut out, mut err], into) = self.start(command)?;
        drop(into);
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            err.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut text = Vec::new();
        out.read_to_end(&mut text).unwrap();
        Ok(Ran {
            status: started.child.wait(),
            out: String::from_utf8_lossy(&text).into_owned(),
            err: errors.join().unwrap(),
            report: started.report,
        })
    }

    #[track_caller]
    pub fn sh(&self, script: &str) -> Ran {
        self.run(&["bash", "-c", script])
    }

    /// Runs a command outside, as the same person, in the project.
    pub fn outside(&self, command: &[&str]) -> Output {
        use std::os::unix::process::CommandExt;
        let mut outside = Command::new(command[0]);
        outside.args(&command[1..]).current_dir(self.at("project"));
        if self.who == Who::Ordinary {
            outside.uid(ORDINARY).gid(ORDINARY);
        }
        outside
            .output()
            .unwrap_or_else(|error| panic!("`{}` is missing: {error}", command[0]))
    }

    /// Insists that a script works outside and not inside.
    #[track_caller]
    pub fn only_outside(&self, script: &str) {
        let outside = self.outside(&["bash", "-c", script]);
        assert!(
            outside.status.success(),
            "the probe must work outside: `{script}`: {outside:?}"
        );
        self.sh(script).bad();
    }
}

/// Says aloud that something could not be shown here, past the capture of the test harness.
pub fn skipped(number: usize, what: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED {number}: {what}");
}
