//! `bailiwick approve`: shows what waits for the person, and answers it: on the whole screen, or from the command line.
//!
//! Promises: P8 (what is shown is the question as the mediator has it, whole, with control characters visible; the sentence of a
//! yes is told before it is said).
//! Not here: the screen (`tui`), the terminal of a run (`at_terminal`).

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick_gate::Clock;
use bailiwick_gate::desk::{Answer, Asked, Desk as _, DeskFault, Offer, Scope};
use bailiwick_model::{Answered, Millis};

use crate::cli::ApproveArgs;
use crate::daemon::SteadyClock;
use crate::desk::{PathDesk, person};
use crate::failure::{Done, Exit, Failure};
use crate::places::Places;
use crate::terms;
use bailiwick_model::visible;

/// What stands before the id of a question.
const HEAD: &str = "q-";

/// The line that tells of a question, and how to answer it.
pub fn waits(waiting: &Asked) -> String {
    format!(
        "bailiwick: waits for you: `bailiwick approve {HEAD}{}`: {}\n",
        waiting.id, waiting.act
    )
}

/// Runs the command.
pub fn run(args: &ApproveArgs) -> Done {
    let desk = match &args.at {
        Some(socket) => PathDesk::at(Places::find()?, socket),
        None => PathDesk::new(Places::find()?),
    };
    let on_screen = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.question.is_none() && !args.list && !args.json && on_screen {
        return on_whole_screen(desk);
    }
    let all = desk.asked().map_err(failed)?;
    let Some(wanted) = &args.question else {
        return list(&all, args.json);
    };
    let waiting = among(&all, wanted)?;
    let answer = answer(args, waiting)?;
    if let Some(says) = said(waiting, &answer) {
        talkln!("bailiwick: yes says: the agent {}", visible(&says));
    }
    let closed = desk.answer(waiting.id, &answer, &person()).map_err(failed)?;
    if args.json {
        let answered = closed.answer.map(Answered::as_str);
        tellln!(
            "{}",
            serde_json::json!({ "answered": answered, "question": waiting, "grant": closed.grant, "released": closed.released })
        );
        return Ok(ExitCode::SUCCESS);
    }
    match (&answer, &closed.grant) {
        (Answer::No { .. }, _) => tellln!("no: {}", waiting.act),
        (Answer::More { .. }, _) => tellln!("more is to be told first: {}", waiting.act),
        (Answer::Yes { .. }, None) => tellln!("yes, and one more is needed: {}", waiting.act),
        (Answer::Yes { offer, .. }, Some(grant)) => {
            let is_request = waiting.offers.get(*offer).is_some_and(Offer::is_request);
            if is_request {
                tellln!("yes, once: {}", waiting.act);
            } else {
                tellln!("yes: {} (grant {})", grant.sentence, grant.id);
            }
        }
    }
    if closed.released > 0 {
        tellln!("other questions that this answered as well: {}", closed.released);
    }
    Ok(ExitCode::SUCCESS)
}

fn on_whole_screen(desk: PathDesk) -> Done {
    let kind = std::env::var("TERM").unwrap_or_default();
    if kind.is_empty() || kind == "dumb" {
        let named = if kind.is_empty() { "not set" } else { "`dumb`" };
        return Err(
            Failure::usage(format!("nothing can be drawn on this terminal: TERM is {named}"))
                .hint("`bailiwick approve --list` lists what waits, and `bailiwick approve ID` answers it"),
        );
    }
    bailiwick_tui::run(Arc::new(desk), person())
        .map_err(|e| Failure::fault(format!("the terminal cannot be used: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

/// The sentence of a yes.
pub fn said(asked: &Asked, answer: &Answer) -> Option<String> {
    match answer {
        Answer::Yes { offer, terms, .. } => Some(asked.offers.get(*offer)?.sentence(terms)),
        _ => None,
    }
}

fn failed(fault: DeskFault) -> Failure {
    Failure::fault(fault.to_string())
}

fn answer(args: &ApproveArgs, waiting: &Asked) -> Result<Answer, Failure> {
    if args.no {
        return Ok(Answer::No {
            word: args.word.clone(),
        });
    }
    if let Some(word) = args.more.clone() {
        return Ok(Answer::More { word });
    }
    let Some(offer) = args.offer else {
        let in_terms = args.terms.times.is_some() || args.terms.span.is_some() || args.terms.until.is_some();
        if in_terms {
            return Err(Failure::usage(
                "how often and how long go with `--offer N`: the request itself is granted once",
            )
            .hint("`bailiwick approve --list` lists the offers with their numbers"));
        }
        return Answer::once(waiting).ok_or_else(|| {
            Failure::usage("a yes to this cannot be said as an act for the next task")
                .hint("its task has ended: start it again, and answer then")
        });
    };
    let usual = if waiting.running { Scope::Task } else { Scope::Context };
    let terms = terms::read(&args.terms, args.scope.unwrap_or(usual), now())?;
    Answer::yes(waiting, offer, terms).ok_or_else(|| {
        Failure::usage(format!("there is no offer {offer}"))
            .hint("`bailiwick approve --list` lists the offers with their numbers")
    })
}

fn unknown(wanted: &str) -> Failure {
    Failure::usage(format!("no question `{}` waits", visible(wanted))).hint(
        "`bailiwick approve --list` lists those that do; a question ends with its deadline, or with whoever asked",
    )
}

fn among<'a>(all: &'a [Asked], wanted: &str) -> Result<&'a Asked, Failure> {
    let id = wanted.strip_prefix(HEAD).unwrap_or(wanted).to_ascii_lowercase();
    let mut found = all
        .iter()
        .filter(|one| !id.is_empty() && one.id.to_string().starts_with(&id));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "`{}` is the beginning of several questions",
            visible(wanted)
        ))
        .hint("`bailiwick approve --list` lists them")),
        (None, _) => Err(unknown(wanted)),
    }
}

fn list(all: &[Asked], json: bool) -> Done {
    let code = if all.is_empty() {
        ExitCode::SUCCESS
    } else {
        Exit::Waiting.into()
    };
    if json {
        tellln!("{}", serde_json::json!({ "waiting": all }));
        return Ok(code);
    }
    if all.is_empty() {
        tellln!("nothing waits for you");
    }
    let now = now();
    for one in all {
        tellln!("{HEAD}{}  {}", one.id, one.act);
        for line in &one.because {
            tellln!("    {line}");
        }
        for detail in &one.details {
            if let Some(mind) = &detail.mind {
                tellln!("    mind the {}: {mind}", detail.name);
            }
        }
        for said in &one.words {
            if let Some(asked) = &said.asked {
                tellln!("    you wanted to know: {asked}");
            }
            if let Some(answered) = &said.answered {
                tellln!("    the agent says (its own words): {answered}");
            }
        }
        for name in &one.seconded {
            tellln!("    {name} has said yes; one more is needed");
        }
        for (number, offer) in one.offers.iter().enumerate() {
            match offer.is_request() {
                true => tellln!("    offer {number}: {}, once", offer.says),
                false => tellln!("    offer {number}: {}", offer.says),
            }
        }
        if let Some(rule) = &one.rule {
            tellln!(
                "    the like had {} yeses: a rule would answer it: {rule}",
                one.likes.yes
            );
        }
        let task = match one.running {
            true => format!("task {}", one.task),
            false => format!(
                "task {}, which has ended: a yes is for the next one of {}",
                one.task,
                visible(&one.context.0)
            ),
        };
        tellln!(
            "    {task}, waits since {}, no in {}",
            bailiwick_tui::span(now.0.saturating_sub(one.since.0)),
            bailiwick_tui::span(one.deadline.0.saturating_sub(now.0))
        );
    }
    Ok(code)
}

fn now() -> Millis {
    Clock::now(&SteadyClock::default())
}
