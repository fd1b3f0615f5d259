//! The program to start: found along the `PATH` of the plan, inside, and run.
//!
//! Promises: P13. A program that is not found and one that cannot be run are told apart.
//! See: execve(2), environ(7).

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use bailiwick_gate::{FencePlan, LaunchFault};
use bailiwick_model::Code;
use rustix::io::Errno;

use crate::fault::{cause, failed};
use crate::supervise::Known;
use crate::sys;

/// Where programs are looked for when the plan's environment does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Who reads a program that does not say who reads it.
const SHELL: &std::ffi::CStr = c"/bin/sh";

/// A program and its arguments, in the kernel's form.
pub(crate) struct Image {
    name: String,
    places: Vec<CString>,
    arguments: Vec<CString>,
}

impl Image {
    /// Brings the command of a plan into the kernel's form.
    pub(crate) fn of(plan: &FencePlan) -> Result<Self, LaunchFault> {
        let name = plan.command.first().cloned().unwrap_or_default();
        let path = plan.environment.iter().find(|(variable, _)| variable == "PATH");
        let path = path.map_or(PATH, |(_, value)| value.as_str());
        let places = if name.contains('/') {
            vec![text(&name)?]
        } else {
            // An empty entry would mean the current folder, which an agent fills.
            let folders = path.split(':').filter(|folder| folder.starts_with('/'));
            folders
                .map(|folder| text(&format!("{folder}/{name}")))
                .collect::<Result<_, _>>()?
        };
        let arguments = plan.command.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        Ok(Self {
            name,
            places,
            arguments,
        })
    }

    /// Becomes the program. Comes back only with the reason why not.
    pub(crate) fn run(&self, environment: &[CString]) -> LaunchFault {
        let mut refused = None;
        for place in &self.places {
            let error = sys::become_program(place, &self.arguments, environment);
            match Errno::from_io_error(&error) {
                // Also what lies in a folder that the person may not enter.
                Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if self.missing(place) => {}
                Some(Errno::NOENT) => {
                    refused = Some("the program that is to read it is not found inside the bailiwick".to_owned());
                }
                Some(Errno::NOEXEC) => {
                    let script = [SHELL.to_owned(), place.clone()];
                    let rest = self.arguments.iter().skip(1).cloned();
                    let arguments: Vec<CString> = script.into_iter().chain(rest).collect();
                    let error = sys::become_program(SHELL, &arguments, environment);
                    return self.fault(Code::ProgramNotExecutable, cause(error));
                }
                _ => refused = Some(cause(error)),
            }
        }
        match refused {
            Some(cause) => self.fault(Code::ProgramNotExecutable, cause),
            None if self.name.contains('/') => {
                self.fault(Code::ProgramNotFound, "not found inside the bailiwick".into())
            }
            None => self.fault(
                Code::ProgramNotFound,
                "not found along PATH inside the bailiwick".into(),
            ),
        }
    }

    fn missing(&self, place: &CString) -> bool {
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(place.to_bytes()));
        std::fs::symlink_metadata(path).is_err()
    }

    fn fault(&self, code: Code, cause: String) -> LaunchFault {
        LaunchFault {
            code,
            ..failed(format!("cannot start `{}`", self.name), cause)
        }
    }
}

/// The programs that rules speak of, where the plan's `PATH` finds them.
pub(crate) fn known(plan: &FencePlan) -> Known {
    let path = plan.environment.iter().find(|(variable, _)| variable == "PATH");
    Known::along(path.map_or(PATH, |(_, value)| value.as_str()), &plan.judged)
}

/// The environment of a plan, in the kernel's form.
pub(crate) fn environment(plan: &FencePlan) -> Result<Vec<CString>, LaunchFault> {
    plan.environment
        .iter()
        .map(|(name, value)| text(&format!("{name}={value}")))
        .collect()
}

fn text(word: &str) -> Result<CString, LaunchFault> {
    CString::new(word).map_err(|_| failed("cannot carry out the order", "a word holds a NUL byte"))
}
