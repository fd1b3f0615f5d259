//! Commands that run outside: what keeps their place inside never runs, waits, and ends as they do.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bailiwick_fence::{Channel, Outcome, Wanted};
use bailiwick_gate::Judged;
use bailiwick_model::{Resource, Verb};

use crate::desk::{Desk, Judge, Setting};

/// A command that ran: its words, and the folder it was started in.
type Started = (Vec<String>, String);

/// Runs outside what it is handed, and keeps what it heard.
#[derive(Clone, Default)]
struct Outside {
    ran: Arc<Mutex<Vec<Started>>>,
    /// Commands that were ended since nobody waited any more.
    gone: Arc<Mutex<usize>>,
}

impl Outside {
    fn sit(&self) -> std::os::fd::OwnedFd {
        let (here, there) = Channel::pair().unwrap();
        let outside = self.clone();
        std::thread::spawn(move || {
            let mut from = Channel::over(here);
            let to = Arc::new(Mutex::new(from.second().unwrap()));
            let running: Arc<Mutex<BTreeMap<u64, i32>>> = Arc::default();
            while let Ok(Some(wanted)) = from.receive::<Wanted>() {
                match wanted {
                    Wanted::Gone { call } => {
                        *outside.gone.lock().unwrap() += 1;
                        running.lock().unwrap().get(&call).copied().into_iter().for_each(kill);
                    }
                    Wanted::Run {
                        call,
                        request,
                        directory,
                        ..
                    } => {
                        let [input, output, errors] = [(); 3].map(|()| Stdio::from(from.take().unwrap()));
                        let Resource::Command(command) = &request.resource else {
                            panic!("{request}")
                        };
                        let words = command.words()[4..].to_vec();
                        outside.ran.lock().unwrap().push((words.clone(), directory));
                        let mut child = Command::new(&words[0])
                            .args(&words[1..])
                            .stdin(input)
                            .stdout(output)
                            .stderr(errors)
                            .spawn()
                            .unwrap();
                        running.lock().unwrap().insert(call, child.id().cast_signed());
                        let (to, running) = (Arc::clone(&to), Arc::clone(&running));
                        std::thread::spawn(move || {
                            let status = child.wait().unwrap().code().unwrap_or(137);
                            running.lock().unwrap().remove(&call);
                            let _ = to.lock().unwrap().send(&Outcome::Ended { call, status }, &[]);
                        });
                    }
                }
            }
            // The fence has ended: so does what ran for it.
            running.lock().unwrap().values().copied().for_each(kill);
        });
        there
    }
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A desk where a program runs outside.
fn desk(setting: Setting, program: &str) -> (Desk, Judge, Outside) {
    let judge = Judge::of(|request| {
        let refused = |command: &bailiwick_model::Command| command.words().iter().any(|word| word == "no");
        matches!(&request.resource, Resource::Command(command) if !refused(command))
    });
    let mut desk = Desk::of(setting);
    desk.plan.judged = Judged::Programs(BTreeSet::from([program.to_owned()]));
    desk.plan.brokered = vec![program.to_owned()];
    desk.judge = Some(judge.clone());
    let outside = Outside::default();
    let line = outside.clone();
    desk.brokers = Some(Box::new(move || line.sit()));
    (desk, judge, outside)
}

#[test]
fn p1_a_brokered_command_runs_outside_with_the_input_and_output_of_its_place() {
    for setting in Setting::all() {
        let (desk, judge, outside) = desk(setting, "tr");
        let ran = desk.sh("echo hello | tr a-z A-Z | cat; echo more >in; tr a-z A-Z <in >out; cat out; cd /usr && tr no x || echo refused $?");
        assert_eq!(ran.good(), "HELLO\nMORE\nrefused 126", "{setting:?} {ran:?}");
        let asked = judge.asked.lock().unwrap();
        let verbs: Vec<_> = asked
            .iter()
            .map(|(request, allowed)| (&request.verb, *allowed))
            .collect();
        assert_eq!(
            verbs,
            [(&Verb::Broker, true), (&Verb::Broker, true), (&Verb::Broker, false)]
        );
        let ran = outside.ran.lock().unwrap();
        let project = desk.at("project").display().to_string();
        let words = |word: &str| vec!["tr".to_owned(), "a-z".into(), word.into()];
        assert_eq!(*ran, [(words("A-Z"), project.clone()), (words("A-Z"), project)]);
        assert!(judge.settled.lock().unwrap().is_empty(), "whoever runs it settles it");
    }
}

#[test]
fn p1_its_exit_status_comes_back_and_it_never_runs_inside() {
    for setting in Setting::all() {
        let (mut desk, _, outside) = desk(setting, "test");
        for status in ["0", "1"] {
            let ran = desk.sh(&format!("/usr/bin/test {status} = 0; echo $?"));
            assert_eq!(ran.good(), status, "{setting:?}");
        }
        assert_eq!(outside.ran.lock().unwrap().len(), 2);
        // Run inside, it would leave a file: with nobody outside it leaves none.
        desk.plan.judged = Judged::Programs(BTreeSet::from(["touch".to_owned()]));
        desk.plan.brokered = vec!["touch".into()];
        desk.brokers = None;
        let ran = desk.sh("touch made; echo $?; ls");
        assert_eq!(ran.good(), "126", "{ran:?}");
        desk.plan.brokered.clear();
        assert_eq!(desk.sh("touch made; echo $?; ls").good(), "0\nmade");
    }
}

#[test]
fn p1_every_way_to_start_a_program_waits_for_it() {
    for setting in Setting::all() {
        let (desk, _, outside) = desk(setting, "tr");
        // posix_spawn and vfork: the parent stands still until the child has another program.
        let script = r#"
import os, subprocess, sys, threading
def upper(text):
    return subprocess.run(['tr', 'a-z', 'A-Z'], input=text, capture_output=True, text=True)
print(upper('spawned').stdout)
pid = os.posix_spawn('/usr/bin/tr', ['tr', 'x', 'y'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, '/dev/null', os.O_RDONLY, 0)])
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
all = [threading.Thread(target=lambda n=n: done.append(upper('n%d' % n).stdout)) for n in range(20)]
done = []
[t.start() for t in all]; [t.join() for t in all]
print(sorted(done) == sorted('N%d' % n for n in range(20)))
sys.stdout.flush()
os.execv('/usr/bin/tr', ['tr', 'a-z', 'A-Z'])
"#;
        let ran = desk.run(&["bash", "-c", "echo last | python3 -c \"$0\"", script]);
        assert_eq!(ran.good(), "SPAWNED\n0\nTrue\nLAST", "{setting:?} {ran:?}");
        assert_eq!(outside.ran.lock().unwrap().len(), 23);
    }
}

#[test]
fn p11_a_command_ends_with_its_place() {
    for setting in Setting::all() {
        let (desk, _, outside) = desk(setting, "sleep");
        let begun = Instant::now();
        let ran = desk.sh(
            "timeout 0.3 sleep 60; echo $?; sleep 60 & sleep_pid=$!; read -t 0.3 x <> <(:); kill -INT $sleep_pid; kill $sleep_pid; wait $sleep_pid; echo $?; \
             sleep 60 & read -t 0.5 x <> <(:); exit 3",
        );
        assert_eq!(ran.status, 3, "{ran:?}");
        assert!(ran.out.starts_with("124\n"), "{setting:?} {ran:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{ran:?}");
        assert_eq!(outside.ran.lock().unwrap().len(), 3, "{ran:?}");
        let until = Instant::now() + Duration::from_secs(2);
        while *outside.gone.lock().unwrap() < 2 {
            assert!(Instant::now() < until, "{:?}", outside.gone);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
