//! Normal forms as data: `vectors/argv/*.toml` at the top of the repository, readable without Rust. Its `README.md` says
//! how a form is written.

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::path::Path;

use bailiwick_commands::{Grammars, Part, Place};
use bailiwick_gate::Start;
use bailiwick_model::{Command, NormalForm};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    promises: Vec<String>,
    #[serde(default)]
    differs: Vec<[Vec<String>; 2]>,
    #[serde(rename = "case")]
    cases: Vec<Case>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Case {
    argv: Vec<String>,
    line: Option<String>,
    file: Option<String>,
    called: Option<String>,
    own: bool,
    like: Vec<String>,
    variables: BTreeMap<String, String>,
    begins_with: BTreeMap<String, String>,
    forms: Vec<String>,
    licensed: Option<Vec<String>>,
    does: Vec<String>,
}

fn written(form: &NormalForm) -> String {
    let usual = |names: &[String]| names.first().cloned().unwrap_or_default();
    let mut options: Vec<String> = form
        .options
        .iter()
        .map(|given| match &given.value {
            Some(value) => format!("{}={value}", usual(&given.names)),
            None => usual(&given.names),
        })
        .collect();
    options.sort();
    let mut parts: Vec<String> = Vec::new();
    parts.extend(form.only_against.then(|| "against".to_owned()));
    parts.extend(form.steering.iter().map(|(name, value)| format!("{name}={value}")));
    parts.push(form.names.iter().cloned().collect::<Vec<_>>().join("|"));
    parts.extend(form.subcommand.iter().map(|names| usual(names)));
    parts.push(format!("{{{}}}", options.join(", ")));
    parts.push(format!("[{}]", form.operands.join(" ")));
    parts.extend(form.read_only.then(|| "read-only".to_owned()));
    parts.extend((!form.known).then(|| "unread".to_owned()));
    parts.extend(form.unknown.iter().map(|option| format!("unknown {option}")));
    parts.extend(form.doubtful.then(|| "doubtful".to_owned()));
    parts.extend(form.cut.then(|| "cut".to_owned()));
    parts.join(" ")
}

fn forms(command: &Command) -> Vec<String> {
    command.forms().iter().map(written).collect()
}

impl Case {
    fn command(&self) -> Command {
        let typed = Start::named(self.argv.clone(), self.variables.clone().into_iter().collect(), "/p");
        let file = self.file.clone().unwrap_or(typed.file.clone());
        let grammars = Grammars::shipped(self.begins_with.clone().into_iter().collect());
        grammars.command(&Start {
            called: self.called.clone().unwrap_or(file.clone()),
            own: self.own || (self.file.is_none() && typed.own),
            like: self.like.clone(),
            file,
            ..typed
        })
    }

    fn wrong(&self) -> Option<String> {
        if let Some(line) = &self.line {
            let place = Place {
                directory: "/p".into(),
                home: "/home/dana".into(),
            };
            let said = |part: Part| match part {
                Part::Start(command) => format!("run {}", written(&command.forms()[0])),
                Part::Builtin(command) => format!("shell {command}"),
                Part::Read(path) => format!("read {path}"),
                Part::Write(path) => format!("write {path}"),
                Part::Unread(_) => "unread".into(),
            };
            let parts = Grammars::shipped(Vec::new()).line(line, &place);
            // A part's carried commands stand as forms of it, and are shown by the cases of argv.
            let does: Vec<String> = parts.into_iter().map(said).collect();
            return (does != self.does).then(|| format!("`{line}` does {does:#?}"));
        }
        let command = self.command();
        let list = |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
        let form = &command.forms()[0];
        if forms(&command) != self.forms {
            return Some(format!("{:?} is {:#?}", self.argv, forms(&command)));
        }
        let licensed = self.licensed.as_ref().is_none_or(|want| *want == list(&form.licensed));
        (!licensed).then(|| format!("{:?} may be allowed by {:?}", self.argv, form.licensed))
    }
}

#[test]
fn p5_the_vectors_come_to_what_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/argv");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut wrong = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with(&format!("{:03}-", number + 1)), "{name}: out of order");
        let vector: Vector = toml_edit::de::from_str(&std::fs::read_to_string(file).unwrap())
            .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert!(!vector.promises.is_empty() && !vector.cases.is_empty(), "{name}");
        wrong.extend(
            vector
                .cases
                .iter()
                .filter_map(Case::wrong)
                .map(|what| format!("{name}: {what}")),
        );
        for [one, other] in &vector.differs {
            let of = |argv: &[String]| {
                let case = Case {
                    argv: argv.to_vec(),
                    ..Case::default()
                };
                forms(&case.command())
            };
            if of(one) == of(other) {
                wrong.push(format!("{name}: {one:?} is the same as {other:?}"));
            }
        }
    }
    assert!(files.len() >= 7 && wrong.is_empty(), "{}", wrong.join("\n"));
}
