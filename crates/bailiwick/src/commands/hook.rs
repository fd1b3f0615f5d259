//! `bailiwick hook`: tells an agent's harness, before it tries, what the rules say of a tool call. A courtesy: the fence
//! decides, whatever is said here.
//!
//! Promises: P8 (what the agent is told names the part and a code, never a rule). Trust: what comes in was written by the
//! agent's harness and holds the agent's words. An allow is said only where a rule that names the very command or file
//! allows it: it lets the harness pass its own question over.
//! See: the pages of Claude Code, Codex and Gemini CLI on hooks, as docs/hooks.md names them.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick_commands::Grammars;
use bailiwick_model::{AbsPath, Code, Request, Resource, TaskId, Verb, Verdict};
use bailiwick_policy::Policy;
use serde_json::{Value, json};

use crate::cli::{Harness, HookArgs};
use crate::context::Context;
use crate::failure::{Done, Failure};
use crate::line::{self, Judged};
use crate::places::Places;
use bailiwick_model::visible;

/// Longest input, in bytes.
const LONGEST: u64 = 1024 * 1024;

/// What exit code stops a tool call in all three harnesses, with what is said on stderr.
const STOPS: u8 = 2;

/// What is said of a tool call.
struct Said {
    verdict: Verdict,
    text: String,
    /// False where nothing is to be said, so that the harness goes on as it would.
    speaks: bool,
}

/// Runs the command.
pub fn run(args: &HookArgs) -> Done {
    // Inside, neither rules nor trust can be read. Whatever is tried is judged by the fence.
    if super::last::is_inside() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    let read = std::io::stdin().take(LONGEST).read_to_string(&mut text);
    let call: Option<Value> = read.ok().and_then(|_| serde_json::from_str(&text).ok());
    let Some(call) = call else {
        talkln!("bailiwick: this is no tool call that a harness would tell a hook");
        return Ok(STOPS.into());
    };
    let said = match judged(args.harness, &call) {
        Ok(parts) => said(&parts),
        Err(failure) => Said {
            verdict: Verdict::Ask,
            text: format!("bailiwick: the rules cannot be read: {}", visible(&failure.message)),
            speaks: true,
        },
    };
    if let Some(answer) = told(args.harness, &said) {
        tellln!("{answer}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What the rules say of each part of a call.
fn judged(harness: Harness, call: &Value) -> Result<Vec<Judged>, Failure> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let here = text(call, "cwd").and_then(|path| line::reached(&path));
    let here = match here {
        Some(here) => here,
        None => super::run::here()?,
    };
    let places = Places::find()?;
    let store = super::trust::store_if_there(&places)?;
    let context = Context::find(
        &here,
        &places,
        Some(harness.program()),
        store.as_ref().map(|store| store as _),
    )?;
    let policy = Arc::new(context.load()?);
    let name = text(call, "tool_name").unwrap_or_default();
    let empty = Value::Null;
    let input = call.get("tool_input").unwrap_or(&empty);
    let desk = Desk {
        policy,
        grammars: context.grammars()?,
        here,
        home: places.home,
    };
    Ok(desk.judge(&name, input))
}

/// Where calls are judged.
struct Desk {
    policy: Arc<Policy>,
    grammars: Grammars,
    here: AbsPath,
    home: AbsPath,
}

impl Desk {
    fn judge(&self, tool: &str, input: &Value) -> Vec<Judged> {
        match tool {
            "Bash" | "run_shell_command" | "shell" | "shell_command" | "exec_command" | "local_shell" => {
                self.line(input)
            }
            "Read" | "read_file" | "view_image" => self.files(input, &["file_path", "absolute_path", "path"], false),
            "NotebookRead" => self.files(input, &["notebook_path"], false),
            "Glob" | "Grep" | "LS" | "glob" | "grep_search" | "search_file_content" | "list_directory" => {
                self.files(input, &["path", "dir_path"], false)
            }
            "Write" | "Edit" | "MultiEdit" | "write_file" | "replace" => {
                self.files(input, &["file_path", "absolute_path"], true)
            }
            "NotebookEdit" => self.files(input, &["notebook_path"], true),
            "apply_patch" => self.patch(input),
            _ => Vec::new(),
        }
    }

    fn line(&self, input: &Value) -> Vec<Judged> {
        let folder = ["directory", "dir_path", "workdir"]
            .iter()
            .find_map(|key| input.get(*key).and_then(Value::as_str));
        let here = folder.map_or_else(|| self.here.as_str().to_owned(), |folder| self.path(folder));
        let here = line::reached(&here).unwrap_or_else(|| self.here.clone());
        let line = ["command", "cmd"].iter().find_map(|key| input.get(*key));
        let words: Option<Vec<&str>> = line
            .and_then(Value::as_array)
            .map(|words| words.iter().filter_map(Value::as_str).collect());
        let line = match (line.and_then(Value::as_str), words.as_deref()) {
            (Some(line), _) => line.to_owned(),
            // The harness's own shell round the line is no part of what the agent asks for.
            (None, Some([shell, flags, line])) if is_shell(shell) && flags.starts_with('-') && flags.ends_with('c') => {
                (*line).to_owned()
            }
            (None, Some(words)) => {
                let quoted = |word: &&str| format!("'{}'", word.replace('\'', "'\\''"));
                words.iter().map(quoted).collect::<Vec<_>>().join(" ")
            }
            (None, None) => return Vec::new(),
        };
        line::judge(&self.policy, &self.grammars, &line, &here, &self.home)
    }

    fn path(&self, text: &str) -> String {
        match text.strip_prefix("~/") {
            _ if text.starts_with('/') => text.to_owned(),
            Some(rest) => format!("{}/{rest}", self.home.as_str()),
            None => format!("{}/{text}", self.here.as_str()),
        }
    }

    fn file(&self, text: &str, writes: bool) -> Option<Judged> {
        let path = line::reached(&self.path(text))?;
        let verb = if writes { line::writes(&path) } else { Verb::Read };
        let request = Request::new(TaskId([0; 8]), verb, Resource::File(path));
        Some(Judged {
            decision: line::answer(&self.policy, &request),
            request: Some(request),
        })
    }

    fn files(&self, input: &Value, keys: &[&str], writes: bool) -> Vec<Judged> {
        let named = keys.iter().find_map(|key| input.get(*key).and_then(Value::as_str));
        named.and_then(|path| self.file(path, writes)).into_iter().collect()
    }

    /// The files that a patch of Codex names.
    fn patch(&self, input: &Value) -> Vec<Judged> {
        let text = ["command", "input", "patch"]
            .iter()
            .find_map(|key| input.get(*key).and_then(Value::as_str));
        let heads = [
            "*** Add File: ",
            "*** Update File: ",
            "*** Delete File: ",
            "*** Move to: ",
        ];
        let named = |line: &str| {
            heads
                .iter()
                .find_map(|head| line.trim_end().strip_prefix(head).map(str::to_owned))
        };
        let files = text.unwrap_or("").lines().filter_map(named);
        files.filter_map(|path| self.file(&path, true)).collect()
    }
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    matches!(name, "sh" | "bash" | "zsh" | "dash")
}

/// One answer for all parts.
fn said(parts: &[Judged]) -> Said {
    let Some(part) = line::strictest(parts) else {
        return Said {
            verdict: Verdict::Allow,
            text: String::new(),
            speaks: false,
        };
    };
    let (what, code) = (visible(&part.text()), part.decision.code);
    let text = match code {
        Code::NoRule => format!("bailiwick: no rule allows `{what}` ({code})"),
        Code::LineUnread => format!("bailiwick: {what} ({code})"),
        Code::AskedByRule => format!("bailiwick: a person must say about `{what}` ({code})"),
        _ if part.decision.verdict == Verdict::Allow => "bailiwick: the rules allow each part of this".into(),
        _ => format!("bailiwick: `{what}` is denied ({code})"),
    };
    let named = parts.iter().all(Judged::is_named);
    let files_only = parts
        .iter()
        .all(|part| !matches!(&part.request, Some(Request { verb: Verb::Run, .. })));
    Said {
        verdict: part.decision.verdict,
        text,
        speaks: part.decision.verdict != Verdict::Allow || (named && !files_only),
    }
}

/// The answer as the harness reads it; none where there is nothing to say.
fn told(harness: Harness, said: &Said) -> Option<Value> {
    if !said.speaks {
        return None;
    }
    let decision = |word: &str, text: &str| {
        json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": word,
            "permissionDecisionReason": text,
        }})
    };
    // Where a harness cannot ask, it takes the word for a fault of the hook, and goes on: a no is the stricter.
    let unasked = format!("{}; nobody can be asked from here", said.text);
    match (harness, said.verdict) {
        (Harness::ClaudeCode, verdict) => Some(decision(verdict.as_str(), &said.text)),
        (Harness::Codex, Verdict::Allow) => None,
        (Harness::Codex, Verdict::Ask) => Some(decision("deny", &unasked)),
        (Harness::Codex, Verdict::Deny) => Some(decision("deny", &said.text)),
        (Harness::Gemini, Verdict::Allow) => Some(json!({ "decision": "allow" })),
        (Harness::Gemini, Verdict::Ask) => Some(json!({ "decision": "deny", "reason": unasked })),
        (Harness::Gemini, Verdict::Deny) => Some(json!({ "decision": "deny", "reason": said.text })),
    }
}
