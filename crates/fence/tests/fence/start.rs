//! Starting and ending: programs run, statuses come back, nothing is left behind.

use bailiwick_model::Code;

use crate::desk::{Desk, Setting};

#[test]
fn p13_true_and_bash_run_and_the_report_names_the_parts() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        let ran = desk.run(&["true"]);
        ran.good();
        assert!(
            ran.report.parts.iter().any(|part| part.starts_with("landlock-")),
            "{:?}",
            ran.report
        );
        assert!(ran.report.parts.iter().any(|part| part == "seccomp"));
        let ran = desk.sh(
            "echo hello; echo there >&2; pwd; ls -la / /dev /proc/self/ns; id; mount; cat /proc/self/status; exit 7",
        );
        println!("{}\n{}", ran.out, ran.err);
        assert_eq!(ran.status, 7);
    }
}

#[test]
fn p13_programs_that_cannot_be_started_are_told_apart() {
    for setting in Setting::all() {
        let desk = Desk::of(setting);
        assert_eq!(
            desk.try_run(&["no-such-program"]).unwrap_err().code,
            Code::ProgramNotFound
        );
        desk.file("project/plain", "text");
        assert_eq!(desk.try_run(&["./plain"]).unwrap_err().code, Code::ProgramNotExecutable);
    }
}
