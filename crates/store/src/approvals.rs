//! Questions that wait, grants, how often the like was asked, and what calls have come to.
//!
//! A question and a grant are kept whole, as JSON: they are read back whole or not at all. What is looked for or changed by
//! itself stands in a column.
//! Promises: P4 (a row that cannot be read is a fault), P8 (a grant is read back as just what was given).

use bailiwick_gate::desk::Likes;
use bailiwick_gate::{Counted, CountedKey, GrantRow, StoreFault, Waiting};
use bailiwick_model::{Answered, ContextId, DecisionId, GrantId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::whole;
use crate::worker::Worker;

fn text_of<T: Serialize>(worker: &Worker, row: &T) -> Result<String, StoreFault> {
    serde_json::to_string(row).map_err(|error| worker.damaged(format!("a row cannot be written: {error}")))
}

fn read<T: DeserializeOwned>(worker: &Worker, what: &str, id: &str, text: &str) -> Result<T, StoreFault> {
    serde_json::from_str(text).map_err(|error| {
        let id = id.escape_debug();
        worker.damaged(format!("the row of {what} `{id}` makes no sense: {error}"))
    })
}

pub(crate) fn put_question(worker: &Worker, waiting: &Waiting) -> Result<(), StoreFault> {
    let (id, since, text) = (waiting.id.to_string(), whole(waiting.since), text_of(worker, waiting)?);
    worker.run(async move |connection| {
        let sql = "INSERT INTO question (id, since, waiting) VALUES ($1, $2, $3)
            ON CONFLICT (id) DO UPDATE SET since = excluded.since, waiting = excluded.waiting";
        let query = sqlx::query(sql).bind(id).bind(since).bind(text);
        query.execute(connection).await?;
        Ok(())
    })
}

pub(crate) fn drop_question(worker: &Worker, id: DecisionId) -> Result<(), StoreFault> {
    drop_row(worker, "DELETE FROM question WHERE id = $1", id.to_string())
}

pub(crate) fn questions(worker: &Worker) -> Result<Vec<Waiting>, StoreFault> {
    let rows: Vec<(String, String)> = worker.run(async |connection| {
        let sql = "SELECT id, waiting FROM question ORDER BY since, id";
        sqlx::query_as(sql).fetch_all(connection).await
    })?;
    rows.iter()
        .map(|(id, text)| read(worker, "question", id, text))
        .collect()
}

pub(crate) fn put_grant(worker: &Worker, row: &GrantRow) -> Result<(), StoreFault> {
    let (id, since, text) = (
        row.granted.id.to_string(),
        whole(row.granted.given),
        text_of(worker, row)?,
    );
    let used = count_of(row.granted.used);
    worker.run(async move |connection| {
        let sql = "INSERT INTO given (id, since, used, row) VALUES ($1, $2, $3, $4)
            ON CONFLICT (id) DO UPDATE SET since = excluded.since, used = max(given.used, excluded.used), row = excluded.row";
        let query = sqlx::query(sql).bind(id).bind(since).bind(used).bind(text);
        query.execute(connection).await?;
        Ok(())
    })
}

pub(crate) fn use_grant(worker: &Worker, id: GrantId, used: u64) -> Result<(), StoreFault> {
    let (id, used) = (id.to_string(), count_of(used));
    worker.run(async move |connection| {
        // Two uses may come here in the other order than they were taken in.
        let sql = "UPDATE given SET used = max(used, $2) WHERE id = $1";
        sqlx::query(sql).bind(id).bind(used).execute(connection).await?;
        Ok(())
    })
}

pub(crate) fn drop_grant(worker: &Worker, id: GrantId) -> Result<(), StoreFault> {
    drop_row(worker, "DELETE FROM given WHERE id = $1", id.to_string())
}

pub(crate) fn grants(worker: &Worker) -> Result<Vec<GrantRow>, StoreFault> {
    let rows: Vec<(String, i64, String)> = worker.run(async |connection| {
        let sql = "SELECT id, used, row FROM given ORDER BY since, id";
        sqlx::query_as(sql).fetch_all(connection).await
    })?;
    let grant = |(id, used, text): &(String, i64, String)| {
        let mut row: GrantRow = read(worker, "grant", id, text)?;
        let used = u64::try_from(*used)
            .map_err(|_| worker.damaged(format!("grant {} was used {used} times", row.granted.id)))?;
        row.granted.used = used;
        Ok(row)
    };
    rows.iter().map(grant).collect()
}

pub(crate) fn count(worker: &Worker, context: &ContextId, kind: &str, answer: Answered) -> Result<(), StoreFault> {
    let (context, kind, answer) = (context.0.clone(), kind.to_owned(), answer.as_str());
    worker.run(async move |connection| {
        let sql = "INSERT INTO liked (context, kind, answer, times) VALUES ($1, $2, $3, 1)
            ON CONFLICT (context, kind, answer) DO UPDATE SET times = liked.times + 1";
        let query = sqlx::query(sql).bind(context).bind(kind).bind(answer);
        query.execute(connection).await?;
        Ok(())
    })
}

pub(crate) fn likes(worker: &Worker, context: &ContextId, kind: &str) -> Result<Likes, StoreFault> {
    let (context, kind) = (context.0.clone(), kind.to_owned());
    let rows: Vec<(String, i64)> = worker.run(async move |connection| {
        let sql = "SELECT answer, times FROM liked WHERE context = $1 AND kind = $2";
        sqlx::query_as(sql).bind(context).bind(kind).fetch_all(connection).await
    })?;
    let mut likes = Likes::default();
    for (answer, times) in rows {
        let times = u64::try_from(times).unwrap_or(0);
        likes.asked = likes.asked.saturating_add(times);
        match answer.as_str() {
            "yes" => likes.yes = likes.yes.saturating_add(times),
            "no" => likes.no = likes.no.saturating_add(times),
            _ => {}
        }
    }
    Ok(likes)
}

pub(crate) fn put_counted(worker: &Worker, key: &CountedKey, counted: &Counted) -> Result<(), StoreFault> {
    let (key, text) = (key.clone(), text_of(worker, counted)?);
    worker.run(async move |connection| {
        let sql = "INSERT INTO counted (scope, rule, value) VALUES ($1, $2, $3)
            ON CONFLICT (scope, rule) DO UPDATE SET value = excluded.value";
        let query = sqlx::query(sql).bind(key.scope).bind(key.rule).bind(text);
        query.execute(connection).await?;
        Ok(())
    })
}

pub(crate) fn drop_counted(worker: &Worker, key: &CountedKey) -> Result<(), StoreFault> {
    let key = key.clone();
    worker.run(async move |connection| {
        let sql = "DELETE FROM counted WHERE scope = $1 AND rule = $2";
        sqlx::query(sql)
            .bind(key.scope)
            .bind(key.rule)
            .execute(connection)
            .await?;
        Ok(())
    })
}

pub(crate) fn counted(worker: &Worker) -> Result<Vec<(CountedKey, Counted)>, StoreFault> {
    let rows: Vec<(String, String, String)> = worker.run(async |connection| {
        let sql = "SELECT scope, rule, value FROM counted ORDER BY scope, rule";
        sqlx::query_as(sql).fetch_all(connection).await
    })?;
    let read_row = |(scope, rule, text): (String, String, String)| {
        let counted = read(worker, "a total", &rule, &text)?;
        Ok((CountedKey { scope, rule }, counted))
    };
    rows.into_iter().map(read_row).collect()
}

fn count_of(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn drop_row(worker: &Worker, sql: &'static str, id: String) -> Result<(), StoreFault> {
    worker.run(async move |connection| {
        sqlx::query(sql).bind(id).execute(connection).await?;
        Ok(())
    })
}
