//! Tells pages that are open what has changed: server-sent events.
//!
//! Promises: P8 (a session whose page is open is a person who is there: the desk is told so, and no longer than that).

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc;

use crate::house::{Open, Seat};

/// The longest wait for a change: as long, a person counts as there who has closed the page.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two events: so many changes at once are one.
const PAUSE: Duration = Duration::from_millis(40);

/// After the daemon could not be asked.
const AGAIN: Duration = Duration::from_secs(1);

/// Most streams that wait to be taken off by the browser, in events.
const BEHIND: usize = 4;

/// Gives a stream's place back.
struct Place {
    open: Open,
    path: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(session) = self.open.sessions().of(&self.path, Instant::now()) {
            session.close_stream();
        }
    }
}

/// Opens a stream.
pub fn stream(open: &Open, seat: &Seat) -> Response {
    let taken = open
        .sessions()
        .of(&seat.path, Instant::now())
        .is_some_and(|session| session.open_stream());
    if !taken {
        return (StatusCode::TOO_MANY_REQUESTS, "too many pages of this session are open").into_response();
    }
    let place = Place {
        open: open.clone(),
        path: seat.path.clone(),
    };
    let (sender, receiver) = mpsc::channel(BEHIND);
    tokio::spawn(tell(place, seat.clone(), sender));
    let events = futures_util::stream::unfold(receiver, |mut receiver| async {
        let event: String = receiver.recv().await?;
        Some((Ok::<_, Infallible>(event), receiver))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

/// Tells one page, until it is closed or its session has ended.
async fn tell(place: Place, seat: Seat, sender: mpsc::Sender<String>) {
    let mut seen = None;
    loop {
        let is_there = place.open.sessions().of(&seat.path, Instant::now()).is_some();
        if !is_there {
            let _ = sender.send("event: ended\ndata: -\n\n".into()).await;
            return;
        }
        let by = seat.approver.clone();
        // The first moment is whatever it is now: the page may be older.
        let wait = if seen.is_some() { PATIENCE } else { Duration::ZERO };
        let known = seen.unwrap_or(0);
        let now = place.open.ask(move |house| house.desk.changed(known, wait, &by));
        let now = tokio::select! {
            now = now => now,
            () = sender.closed() => return,
        };
        let event = match now {
            Ok(Ok(now)) if seen == Some(now) => ": still here\n\n".into(),
            Ok(Ok(now)) => match place.open.asked().await {
                Ok(asked) => {
                    seen = Some(now);
                    let newest = asked
                        .last()
                        .map_or_else(|| "-".to_owned(), |newest| newest.id.to_string());
                    format!("event: changed\ndata: {} {newest}\n\n", asked.len())
                }
                Err(_) => away(&mut seen).await,
            },
            Ok(Err(_)) | Err(_) => away(&mut seen).await,
        };
        if sender.send(event).await.is_err() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn away(seen: &mut Option<u64>) -> String {
    *seen = None;
    tokio::time::sleep(AGAIN).await;
    "event: away\ndata: -\n\n".into()
}
