//! `bailiwick approve`: shows what waits for the person, and answers it: on the whole screen, or from the command line.
//!
//! Promises: P8 (what is shown is the question as the mediator has it, whole, with control characters visible; the sentence of a
//! yes is printed before it is said, and the grant that came of it after).
//! Not here: the screen (`tui`), the terminal of a run (`at_terminal`).

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use bailiwick_gate::Clock as _;
use bailiwick_gate::desk::{Answer, Asked, Closed, Desk as _, DeskFault, Scope};
use bailiwick_model::{Millis, visible};

use crate::cli::{ApproveArgs, ScopeArg};
use crate::daemon::SteadyClock;
use crate::desk::{PathDesk, person};
use crate::failure::{Done, Exit, Failure};
use crate::places::Places;
use crate::terms;

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
    let desk = PathDesk::new(Places::find()?);
    let on_screen = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.question.is_none() && !args.list && !args.json && on_screen {
        return on_whole_screen(desk);
    }
    let all = desk.asked().map_err(failed)?;
    let Some(wanted) = &args.question else {
        return list(&all, args.json);
    };
    let waiting = among(&all, wanted)?;
    let (answer, says) = answer(args, waiting)?;
    if !args.json
        && let Some(says) = &says
    {
        tellln!("yes: the agent {}", visible(says));
    }
    let closed = desk.answer(waiting.id, &answer, &person()).map_err(failed)?;
    if args.json {
        tellln!(
            "{}",
            serde_json::json!({ "answered": word(&answer), "says": says, "question": waiting, "closed": closed })
        );
    } else {
        tell(&answer, waiting, &closed);
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

/// What is answered, and what a yes says.
fn answer(args: &ApproveArgs, asked: &Asked) -> Result<(Answer, Option<String>), Failure> {
    if let Some(more) = &args.more {
        return Ok((Answer::More { word: more.clone() }, None));
    }
    if args.no {
        let word = args.word.clone();
        return Ok((Answer::No { word }, None));
    }
    let has_terms = args.terms.times.is_some() || args.terms.span.is_some() || args.terms.until.is_some();
    let answer = match args.offer {
        None if has_terms => {
            return Err(
                Failure::usage("a yes to just what is asked holds once: for more, say to which offer")
                    .hint(format!("`--offer N`; {}", offers(asked))),
            );
        }
        None => Answer::once(asked).ok_or_else(|| {
            Failure::usage("a yes to this cannot be said as an act for the next task")
                .hint("its task has ended: start it again, and answer then")
        })?,
        Some(number) => {
            let place = number
                .checked_sub(1)
                .filter(|place| *place < asked.offers.len())
                .ok_or_else(|| Failure::usage(format!("the question makes no offer {number}")).hint(offers(asked)))?;
            let is_request = asked.offers.get(place).is_some_and(|offer| offer.is_request());
            if is_request && (has_terms || args.scope.is_some()) {
                return Err(Failure::usage("a yes to just what is asked holds once").hint(offers(asked)));
            }
            let scope = match args.scope {
                Some(ScopeArg::Context) => Scope::Context,
                Some(ScopeArg::Task) => Scope::Task,
                None if asked.running => Scope::Task,
                None => Scope::Context,
            };
            let terms = terms::read(&args.terms, scope, now())?;
            Answer::yes(asked, place, terms).ok_or_else(|| unknown(&asked.id.to_string()))?
        }
    };
    let says = said(asked, &answer);
    Ok((answer, says))
}

/// The sentence of a yes.
pub fn said(asked: &Asked, answer: &Answer) -> Option<String> {
    match answer {
        Answer::Yes { offer, terms, .. } => Some(asked.offers.get(*offer)?.sentence(terms)),
        _ => None,
    }
}

fn offers(asked: &Asked) -> String {
    let numbered = asked.offers.iter().enumerate();
    let all: Vec<String> = numbered
        .map(|(place, offer)| format!("{} {}", place.saturating_add(1), visible(&offer.says)))
        .collect();
    format!("its offers: {}", all.join("; "))
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::No { .. } => "no",
        Answer::Yes { .. } => "yes",
        Answer::More { .. } => "more",
    }
}

fn tell(answer: &Answer, waiting: &Asked, closed: &Closed) {
    match answer {
        Answer::No { .. } => tellln!("no: {}", waiting.act),
        Answer::More { .. } => tellln!(
            "the agent is asked, and has to try again with its answer: {}",
            waiting.act
        ),
        Answer::Yes { .. } if closed.answer.is_none() => tellln!("noted: a second person has to say yes too"),
        Answer::Yes { .. } => {
            if let Some(grant) = &closed.grant {
                tellln!("grant {}", grant.id);
            }
        }
    }
    match closed.released {
        0 => {}
        1 => tellln!("it answered one other question, too"),
        several => tellln!("it answered {several} other questions, too"),
    }
}

/// What did not go as it was meant, at the desk.
fn failed(fault: DeskFault) -> Failure {
    Failure::fault(visible(&fault.to_string()))
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
        for minded in one.details.iter().filter_map(|detail| detail.mind.as_ref()) {
            tellln!("    ! {minded}");
        }
        for said in &one.words {
            if let Some(asked) = &said.asked {
                tellln!("    a person wanted to know: {asked}");
            }
            if let Some(answered) = &said.answered {
                tellln!("    the agent says (its own words): {answered}");
            }
        }
        for name in &one.seconded {
            tellln!("    {} has said yes; one more is needed", visible(name));
        }
        if let Some(rule) = &one.rule {
            tellln!(
                "    the like had {} yeses; this line would answer it: {}",
                one.likes.yes,
                visible(rule)
            );
        }
        let ended = if one.running {
            String::new()
        } else {
            format!(" has ended: a yes is for the next one of {}", visible(&one.context.0))
        };
        tellln!(
            "    task {}{ended}, waits since {}, no in {}",
            one.task,
            bailiwick_tui::span(now.0.saturating_sub(one.since.0)),
            bailiwick_tui::span(one.deadline.0.saturating_sub(now.0))
        );
        for (place, offer) in one.offers.iter().enumerate() {
            let once = if offer.is_request() { ", once, in this task" } else { "" };
            tellln!("    {}  {}{once}", place.saturating_add(1), visible(&offer.says));
        }
    }
    Ok(code)
}

fn now() -> Millis {
    SteadyClock::default().now()
}
