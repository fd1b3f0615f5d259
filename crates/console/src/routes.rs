//! Which address is which page, and what each form does. Pages are decoded here, then shown or done; GETs change nothing but
//! how far a question was read.
//!
//! Promises: P8 (a yes is taken with the digest of its sentence and the last part's nonce), P11. Trust: paths, queries and
//! forms come from a session's browser by way of `wall`; what does not read is refused.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bailiwick_gate::desk::{Answer, Asked, Closed, DeskFault, Known, Terms};
use bailiwick_model::{Answered, DecisionId, Digest, GrantId, Millis, TaskId, visible};
use maud::Markup;

use crate::assets;
use crate::house::{Open, Seat, Words};
use crate::papers::LogWish;
use crate::reading::{NotYet, Part, content, parts};
use crate::sessions::{Told, secret};
use crate::terms::{Chosen, Fields, LENGTHS, Unclear, exact};
use crate::{live, login, pages, wall};

/// Most records of one page of the log.
const RECORDS: usize = 60;

/// All addresses.
pub fn routes(open: Open) -> Router {
    let session = Router::new()
        .route("/", get(home))
        .route("/questions", get(questions))
        .route("/questions/list", get(questions_list))
        .route("/questions/no", post(no_to_all))
        .route("/question/{id}", get(question))
        .route("/question/{id}/part", get(question_part))
        .route("/question/{id}/offer", get(question_offer))
        .route("/question/{id}/state", get(question_state))
        .route("/question/{id}/yes", post(say_yes))
        .route("/question/{id}/no", post(say_no))
        .route("/question/{id}/more", post(say_more))
        .route("/tasks", get(tasks))
        .route("/tasks/{id}/end", get(task_end).post(end_task))
        .route("/grants", get(grants))
        .route("/grants/{id}/revoke", post(revoke))
        .route("/grants/{id}/narrow", post(narrow))
        .route("/log", get(log))
        .route("/log/verify", post(verify))
        .route("/authority", get(authority))
        .route("/live", get(events))
        .route("/leave", post(login::leave));
    Router::new()
        .route("/", get(login::page))
        .route("/login", get(login::page).post(login::by_link))
        .route("/login/code", post(login::by_code))
        .route(
            "/assets/{name}",
            get(|Path(name): Path<String>| async move { assets::serve(&name) }),
        )
        .nest("/s/{session}", session)
        .fallback(nothing)
        .layer(from_fn_with_state(open.clone(), wall::guard))
        .with_state(open)
}

/// Whoever logs in by a code of their own answers questions: tasks, grants, the log and the rules are the person's.
fn own(seat: &Seat) -> Result<(), Wrong> {
    match seat.approver.by {
        Known::Code => Err(Wrong(
            StatusCode::FORBIDDEN,
            "this page is for the person whose agents these are; questions are for you, too".into(),
        )),
        Known::User | Known::Program => Ok(()),
    }
}

async fn nothing() -> Response {
    (
        StatusCode::NOT_FOUND,
        pages::layout::bare("There is no such page", "it may have been one of another session"),
    )
        .into_response()
}

/// What goes wrong on the way to a page, as a page.
struct Wrong(StatusCode, String);

impl From<Words> for Wrong {
    fn from(words: Words) -> Self {
        Self(StatusCode::BAD_GATEWAY, words.0)
    }
}

impl From<DeskFault> for Wrong {
    fn from(fault: DeskFault) -> Self {
        let status = match fault {
            DeskFault::Unknown(_) | DeskFault::Grant(_) => StatusCode::GONE,
            DeskFault::Refused(_) => StatusCode::FORBIDDEN,
            DeskFault::Offer(_) | DeskFault::Wider(_) => StatusCode::CONFLICT,
            DeskFault::Fault(_) => StatusCode::BAD_GATEWAY,
        };
        Self(status, fault.to_string())
    }
}

impl From<Unclear> for Wrong {
    fn from(unclear: Unclear) -> Self {
        Self(StatusCode::BAD_REQUEST, unclear.to_string())
    }
}

impl Wrong {
    fn unknown() -> Self {
        Self(StatusCode::NOT_FOUND, "there is no such thing".into())
    }

    /// As a page of the session.
    fn page(self, seat: &Seat) -> Response {
        let Self(status, words) = self;
        let body = maud::html! {
            h1 { "That did not work" }
            p.told.wrong role="alert" { (pages::layout::spoken(&words)) }
            p { a href=(seat.to("questions")) { "Questions" } }
        };
        (status, whole(seat, "", "That did not work", None, None, &body)).into_response()
    }
}

/// Runs a page, and shows what goes wrong.
async fn shown(seat: &Seat, page: impl Future<Output = Result<Response, Wrong>>) -> Response {
    match page.await {
        Ok(response) => response,
        Err(wrong) => wrong.page(seat),
    }
}

fn whole(
    seat: &Seat,
    place: &'static str,
    title: &str,
    waiting: Option<usize>,
    told: Option<&Told>,
    body: &Markup,
) -> Markup {
    pages::layout::page(
        &pages::layout::Page {
            seat,
            place,
            title,
            waiting,
            told,
        },
        body,
    )
}

fn fields(query: Option<String>) -> Result<Fields, Wrong> {
    Fields::read(query.unwrap_or_default().as_bytes()).ok_or_else(|| Unclear.into())
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|_| Wrong::unknown())
}

/// The words that the address names.
fn told(open: &Open, seat: &Seat, fields: &Fields) -> Option<Told> {
    let number = fields.number::<u64>("told").ok()??;
    let mut sessions = open.sessions();
    sessions.of(&seat.path, Instant::now())?.told(number).cloned()
}

/// Goes on to a page, with words about what was just done.
fn go(open: &Open, seat: &Seat, place: &str, wrong: bool, words: String) -> Response {
    let mut sessions = open.sessions();
    let number = sessions
        .of(&seat.path, Instant::now())
        .map(|session| session.tell(Told { wrong, words }));
    drop(sessions);
    let query = number.map(|number| format!("?told={number}")).unwrap_or_default();
    (StatusCode::SEE_OTHER, [(header::LOCATION, seat.to(place) + &query)]).into_response()
}

/// A page of a place, with the number of questions that wait and the words of the address.
async fn place(open: &Open, seat: &Seat, name: &'static str, title: &str, fields: &Fields, body: Markup) -> Response {
    let waiting = open.asked().await.ok().map(|asked| asked.len());
    let told = told(open, seat, fields);
    whole(seat, name, title, waiting, told.as_ref(), &body).into_response()
}

async fn home(Extension(seat): Extension<Seat>) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, seat.to("questions"))]).into_response()
}

async fn events(State(open): State<Open>, Extension(seat): Extension<Seat>) -> Response {
    live::stream(&open, &seat)
}

// --- questions ---------------------------------------------------------------------------------------------------------

fn wish(fields: &Fields) -> Result<pages::questions::Wish, Unclear> {
    Ok(pages::questions::Wish {
        kind: fields.get("kind").map(str::to_owned),
        page: fields.number("page")?.unwrap_or(0),
        grouped: fields.number("grouped")?,
    })
}

async fn questions(State(open): State<Open>, Extension(seat): Extension<Seat>, RawQuery(query): RawQuery) -> Response {
    shown(&seat, async {
        let fields = fields(query)?;
        let wish = wish(&fields)?;
        let asked = open.asked().await?;
        let body = pages::questions::body(&seat, &asked, &wish);
        let told = told(&open, &seat, &fields);
        Ok(whole(&seat, "questions", "Questions", Some(asked.len()), told.as_ref(), &body).into_response())
    })
    .await
}

async fn questions_list(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    RawQuery(query): RawQuery,
) -> Response {
    shown(&seat, async {
        let wish = wish(&fields(query)?)?;
        let asked = open.asked().await?;
        Ok(pages::questions::list(&seat, &asked, &wish).into_response())
    })
    .await
}

async fn no_to_all(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Extension(form): Extension<Fields>,
) -> Response {
    shown(&seat, async {
        let ids = form.get("questions").unwrap_or_default().split_whitespace();
        let ids = ids.map(parsed).collect::<Result<Vec<DecisionId>, Wrong>>()?;
        let answer = Answer::No { word: word(&form)? };
        let by = seat.approver.clone();
        let count = ids.len().min(pages::questions::PAGE);
        let answered = open
            .ask(move |house| {
                let said = ids.iter().take(pages::questions::PAGE);
                said.filter(|id| house.desk.answer(**id, &answer, &by).is_ok()).count()
            })
            .await?;
        let mut words = format!("no to {}", pages::layout::number(answered, "question"));
        if answered < count {
            words.push_str(&format!(", {} did not wait any more", count - answered));
        }
        Ok(go(&open, &seat, "questions", false, words))
    })
    .await
}

fn word(form: &Fields) -> Result<Option<String>, Unclear> {
    let word = form
        .get("word")
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty());
    match word {
        Some(word) if word.chars().count() > pages::question::MAX_WORD => Err(Unclear),
        word => Ok(word),
    }
}

/// A question that waits.
async fn find(open: &Open, id: &str) -> Result<Asked, Wrong> {
    let id: DecisionId = parsed(id)?;
    let all = open.asked().await?;
    all.into_iter()
        .find(|asked| asked.id == id)
        .ok_or_else(|| DeskFault::Unknown(id).into())
}

/// What of a question is served now.
struct Served {
    parts: Vec<Part>,
    part: usize,
    nonce: Option<String>,
}

/// Serves a part of a question, the wanted one if those before it were.
fn serve(open: &Open, seat: &Seat, asked: &Asked, wanted: usize) -> Result<Served, Wrong> {
    let parts = parts(&asked.details);
    let fresh = secret(&*open.house.random, 16);
    let mut sessions = open.sessions();
    let session = sessions.of(&seat.path, Instant::now()).ok_or_else(Wrong::unknown)?;
    let reading = session.reading(asked.id, content(asked), parts.len(), fresh);
    let part = reading.serve(wanted, Instant::now());
    let nonce = reading.nonce().map(str::to_owned);
    Ok(Served { parts, part, nonce })
}

fn gone(seat: &Seat, words: &str) -> Response {
    let body = pages::question::gone(seat, words);
    (
        StatusCode::GONE,
        whole(seat, "questions", "It does not wait any more", None, None, &body),
    )
        .into_response()
}

const ENDED: &str =
    "somebody else answered it, or it ended: with its deadline, or with whoever asked. The log says which";

async fn question(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    shown(&seat, async {
        let fields = fields(query)?;
        let wanted = fields.number::<usize>("part")?.unwrap_or(1).saturating_sub(1);
        let asked = open.asked().await?;
        let waiting = asked.len();
        let id: DecisionId = parsed(&id)?;
        let Some(asked) = asked.into_iter().find(|asked| asked.id == id) else {
            return Ok(gone(&seat, ENDED));
        };
        let chosen = Chosen::read(&fields, asked.running, open.house.clock.now())?;
        let served = serve(&open, &seat, &asked, wanted)?;
        let body = pages::question::body(
            &seat,
            &pages::question::Shown {
                asked: &asked,
                parts: &served.parts,
                part: served.part,
                nonce: served.nonce.as_deref(),
                chosen: &chosen,
            },
        );
        let told = told(&open, &seat, &fields);
        Ok(whole(&seat, "questions", "A question", Some(waiting), told.as_ref(), &body).into_response())
    })
    .await
}

async fn question_part(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    shown(&seat, async {
        let wanted = fields(query)?.number::<usize>("part")?.unwrap_or(1).saturating_sub(1);
        let asked = find(&open, &id).await?;
        let served = serve(&open, &seat, &asked, wanted)?;
        let chosen = Chosen::first(asked.running);
        let all = pages::question::Shown {
            asked: &asked,
            parts: &served.parts,
            part: served.part,
            nonce: served.nonce.as_deref(),
            chosen: &chosen,
        };
        let part = served.parts.get(served.part).ok_or_else(Wrong::unknown)?;
        let number = HeaderName::from_static("x-console-part");
        let page = maud::html! { (pages::question::part(part)) (pages::question::end(&seat, &all)) };
        Ok(([(number, served.part.saturating_add(1).to_string())], page).into_response())
    })
    .await
}

async fn question_offer(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    shown(&seat, async {
        let fields = fields(query)?;
        let asked = find(&open, &id).await?;
        let chosen = Chosen::read(&fields, asked.running, open.house.clock.now())?;
        let parts = parts(&asked.details);
        let fresh = secret(&*open.house.random, 16);
        let nonce = {
            let mut sessions = open.sessions();
            let session = sessions.of(&seat.path, Instant::now()).ok_or_else(Wrong::unknown)?;
            let reading = session.reading(asked.id, content(&asked), parts.len(), fresh);
            // Another sentence: the yes below it is a new one.
            reading.show(Instant::now());
            reading.nonce().map(str::to_owned)
        };
        let all = pages::question::Shown {
            asked: &asked,
            parts: &parts,
            part: 0,
            nonce: nonce.as_deref(),
            chosen: &chosen,
        };
        Ok(pages::question::yes(&seat, &all).into_response())
    })
    .await
}

async fn question_state(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    shown(&seat, async {
        let words = fields(query)?.number::<usize>("words")?.unwrap_or(0);
        let id: DecisionId = parsed(&id)?;
        let asked = open.asked().await?;
        let asked = asked.into_iter().find(|asked| asked.id == id);
        let changed = asked.as_ref().is_some_and(|asked| asked.words.len() != words);
        Ok(pages::question::state(asked.is_some(), changed).into_response())
    })
    .await
}

async fn say_yes(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    Extension(form): Extension<Fields>,
) -> Response {
    shown(&seat, async {
        let id: DecisionId = parsed(&id)?;
        let (offer, terms) = exact(&form)?;
        let shown: Digest = parsed(form.get("shown").ok_or(Unclear)?)?;
        let seen = form.get("seen").unwrap_or_default();
        let taken = {
            let now = Instant::now();
            let mut sessions = open.sessions();
            let session = sessions.of(&seat.path, now).ok_or_else(Wrong::unknown)?;
            session.read(id).map_or(Err(NotYet::Unread), |reading| reading.take(seen, now))
        };
        let again = format!("question/{id}");
        match taken {
            Ok(()) => {}
            Err(NotYet::Unread) => {
                let words = "yes was not taken: the question was not shown to its end. Read it to the end, then answer".into();
                return Ok(go(&open, &seat, &again, true, words));
            }
            Err(NotYet::TooSoon) => {
                let words = "yes was not taken: it came within half a second of the question, too soon to have been meant for it".into();
                return Ok(go(&open, &seat, &again, true, words));
            }
        }
        answer(&open, &seat, id, Answer::Yes { offer, terms, shown }).await
    })
    .await
}

async fn say_no(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    Extension(form): Extension<Fields>,
) -> Response {
    shown(&seat, async {
        let answer_no = Answer::No { word: word(&form)? };
        answer(&open, &seat, parsed(&id)?, answer_no).await
    })
    .await
}

async fn say_more(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    Extension(form): Extension<Fields>,
) -> Response {
    shown(&seat, async {
        let word = word(&form)?.ok_or(Unclear)?;
        answer(&open, &seat, parsed(&id)?, Answer::More { word }).await
    })
    .await
}

async fn answer(open: &Open, seat: &Seat, id: DecisionId, answer: Answer) -> Result<Response, Wrong> {
    let by = seat.approver.clone();
    let said = answer.clone();
    match open.ask(move |house| house.desk.answer(id, &said, &by)).await? {
        Ok(closed) => Ok(go(open, seat, "questions", false, came_to(&answer, &closed))),
        Err(DeskFault::Unknown(_)) => {
            let words = format!("{ENDED}. Your answer did not count, and nothing came of it");
            Ok(gone(seat, &words))
        }
        Err(DeskFault::Offer(_)) => {
            let words =
                "your answer was not taken: the question makes no such offer any more. Here it is as it stands now"
                    .into();
            Ok(go(open, seat, &format!("question/{id}"), true, words))
        }
        Err(fault) => Err(fault.into()),
    }
}

fn came_to(answer: &Answer, closed: &Closed) -> String {
    let mut words = match (closed.answer, &closed.grant) {
        (None | Some(Answered::Seconded), _) => "your yes is noted; another person has to say yes too".to_owned(),
        (Some(Answered::Yes), Some(grant)) => format!("yes: {}", visible(&grant.sentence)),
        (Some(Answered::Yes), None) => "yes".to_owned(),
        (Some(Answered::No), _) => "no".to_owned(),
        (Some(Answered::More), _) => "the agent was told to say more".to_owned(),
        (Some(Answered::Lapsed | Answered::Withdrawn), _) => "it had ended before".to_owned(),
    };
    if let Answer::No { word: Some(word) } | Answer::More { word } = answer {
        words.push_str(&format!(" (\"{}\")", visible(word)));
    }
    match closed.released {
        0 => {}
        1 => words.push_str(". It answers 1 other question as well"),
        more => words.push_str(&format!(". It answers {more} other questions as well")),
    }
    words
}

// --- tasks -------------------------------------------------------------------------------------------------------------

async fn tasks(State(open): State<Open>, Extension(seat): Extension<Seat>, RawQuery(query): RawQuery) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let tasks = open.ask(|house| house.desk.at_work()).await??;
        let body = pages::tasks::body(&seat, &tasks);
        Ok(place(&open, &seat, "tasks", "Tasks", &fields(query)?, body).await)
    })
    .await
}

async fn task_end(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let id: TaskId = parsed(&id)?;
        let tasks = open.ask(|house| house.desk.at_work()).await??;
        let task = tasks
            .into_iter()
            .find(|task| task.id == id)
            .ok_or_else(Wrong::unknown)?;
        let body = pages::tasks::end(&seat, &task);
        Ok(place(&open, &seat, "tasks", "End this task?", &Fields::default(), body).await)
    })
    .await
}

async fn end_task(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let id: TaskId = parsed(&id)?;
        open.ask(move |house| house.desk.end(id)).await??;
        Ok(go(&open, &seat, "tasks", false, format!("task {id} ends")))
    })
    .await
}

// --- grants ------------------------------------------------------------------------------------------------------------

async fn grants(State(open): State<Open>, Extension(seat): Extension<Seat>, RawQuery(query): RawQuery) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let grants = open.ask(|house| house.desk.granted()).await??;
        let body = pages::grants::body(&seat, &grants);
        Ok(place(&open, &seat, "grants", "Grants", &fields(query)?, body).await)
    })
    .await
}

async fn revoke(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let id: GrantId = parsed(&id)?;
        match open.ask(move |house| house.desk.revoke(id)).await? {
            Ok(()) => Ok(go(
                &open,
                &seat,
                "grants",
                false,
                format!("grant {id} is revoked, and what went on under it is cut off"),
            )),
            Err(fault) => Ok(go(&open, &seat, "grants", true, fault.to_string())),
        }
    })
    .await
}

async fn narrow(
    State(open): State<Open>,
    Extension(seat): Extension<Seat>,
    Path((_, id)): Path<(String, String)>,
    Extension(form): Extension<Fields>,
) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let id: GrantId = parsed(&id)?;
        let count: Option<u64> = form.number("count")?;
        let until = match form.get("long") {
            None => None,
            Some(long) => {
                let known = LENGTHS.iter().find(|(name, _, _)| *name == long).ok_or(Unclear)?;
                let end = open.house.clock.now().0.saturating_add(known.2);
                Some(Millis(end - end % 1000))
            }
        };
        if count == Some(0) || (count.is_none() && until.is_none()) {
            return Ok(go(
                &open,
                &seat,
                "grants",
                true,
                "say how often, or how long: to end a grant, revoke it".into(),
            ));
        }
        let narrowed = open
            .ask(move |house| {
                let scope = house.desk.granted()?.into_iter().find(|grant| grant.id == id);
                let scope = scope.ok_or(DeskFault::Grant(id))?.terms.scope;
                house.desk.narrow(id, &Terms { count, until, scope })
            })
            .await?;
        match narrowed {
            Ok(grant) => Ok(go(
                &open,
                &seat,
                "grants",
                false,
                format!("narrowed to: {}", visible(&grant.sentence)),
            )),
            Err(fault) => Ok(go(&open, &seat, "grants", true, fault.to_string())),
        }
    })
    .await
}

// --- log and rules -------------------------------------------------------------------------------------------------------

async fn log(State(open): State<Open>, Extension(seat): Extension<Seat>, RawQuery(query): RawQuery) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let fields = fields(query)?;
        let wish = LogWish {
            before: fields.number("before")?,
            task: fields.get("task").map(parsed).transpose()?,
            most: RECORDS,
        };
        let page = open.ask(move |house| house.papers.log(&wish)).await?.map_err(Words)?;
        let body = pages::log::body(&seat, &page, &wish);
        Ok(place(&open, &seat, "log", "Log", &fields, body).await)
    })
    .await
}

async fn verify(State(open): State<Open>, Extension(seat): Extension<Seat>) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let Ok(_turn) = Arc::clone(&open.verifying).try_acquire_owned() else {
            return Ok(go(
                &open,
                &seat,
                "log",
                true,
                "the log is being verified already: wait for that".into(),
            ));
        };
        let verified = open.ask(|house| house.papers.verify()).await?;
        let (wrong, words) = match verified {
            Ok(words) => (false, words),
            Err(words) => (true, words),
        };
        Ok(go(&open, &seat, "log", wrong, words))
    })
    .await
}

async fn authority(State(open): State<Open>, Extension(seat): Extension<Seat>, RawQuery(query): RawQuery) -> Response {
    shown(&seat, async {
        own(&seat)?;
        let fields = fields(query)?;
        let contexts = open.ask(|house| house.papers.contexts()).await?.map_err(Words)?;
        // Those that are known only: what an address names is read from no other folder.
        let chosen = match fields.get("context") {
            Some(wanted) => Some(
                contexts
                    .iter()
                    .find(|context| *context == wanted)
                    .ok_or_else(Wrong::unknown)?
                    .clone(),
            ),
            None => contexts.first().cloned(),
        };
        let rules = match chosen {
            Some(context) => Some(open.ask(move |house| house.papers.rules(&context)).await?),
            None => None,
        };
        let body = pages::authority::body(&seat, &contexts, rules.as_ref());
        Ok(place(&open, &seat, "authority", "Authority", &fields, body).await)
    })
    .await
}
