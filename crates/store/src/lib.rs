//! What outlives a process: trust, tasks, questions that wait, grants and counts, on SQLite.
//!
//! Answers: is this content of a rule file trusted, which tasks were there, what waits for a person, what did one grant?
//! Promises: P4 (a store that cannot be read trusts nothing: every failure is a fault, never an answer).
//! Trust: the file is the person's own, mode 0600; it may have been damaged, or written by a newer build: then it is
//! refused and left as it is.
//! Not here: what is done with a fault (`mediator`, `bailiwick`), what was decided (`ledger`).
//! See: `schema` for the tables; `tests/contract.rs` for what any other backend has to do too.

mod approvals;
mod schema;
mod worker;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use bailiwick_gate::desk::Likes;
use bailiwick_gate::{Counted, CountedKey, GrantRow, Store, StoreFault, TaskRow, TaskState, Waiting};
use bailiwick_model::{Answered, ContextId, DecisionId, Digest, GrantId, Millis, TaskId};

use worker::Worker;

/// The size of the smallest SQLite file that is not empty: one page of the smallest size.
const SMALLEST: u64 = 512;

/// How many orders are kept.
const ORDERS: i64 = 256;

/// A store in one SQLite file. Several processes may have the same file open.
#[derive(Debug)]
pub struct SqliteStore {
    worker: Worker,
}

impl SqliteStore {
    /// Opens the store, or makes one: its folder with mode 0700, the file with mode 0600.
    ///
    /// A damaged file, one of another program, and one that a newer build wrote are refused, and left as they are.
    pub fn open(path: &Path) -> Result<Self, StoreFault> {
        let unusable = |error: io::Error| StoreFault::Unusable {
            path: path.display().to_string(),
            cause: error.to_string(),
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(unusable)?;
        }
        // Made here, for its owner alone; SQLite would let others read it. One that is there is never opened here:
        // closing it again would take away the locks of another connection of this process.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(unusable(error)),
            _ => {}
        }
        // SQLite takes a file that is too short for its header for a new one, and writes over what is left of an old one.
        let len = fs::metadata(path).map_err(unusable)?.len();
        if (1..SMALLEST).contains(&len) {
            let cause = format!("it has {len} bytes left");
            return Err(StoreFault::Damaged {
                path: path.display().to_string(),
                cause,
            });
        }
        Ok(Self {
            worker: Worker::start(path)?,
        })
    }
}

/// A task's row as it stands in the table: id, context, command, started, state, at, status.
type Columns = (String, String, String, i64, String, Option<i64>, Option<i64>);

impl Store for SqliteStore {
    fn is_trusted(&self, file: &str, digest: &Digest) -> Result<bool, StoreFault> {
        let (file, digest) = (file.to_owned(), digest.to_string());
        self.worker.run(async move |connection| {
            let sql = "SELECT 1 FROM trust WHERE file = $1 AND digest = $2";
            let row = sqlx::query_as::<_, (i64,)>(sql)
                .bind(file)
                .bind(digest)
                .fetch_optional(connection)
                .await?;
            Ok(row.is_some())
        })
    }

    fn trust(&self, file: &str, digest: &Digest, trusted: bool, now: Millis) -> Result<(), StoreFault> {
        let (file, digest) = (file.to_owned(), digest.to_string());
        self.worker.run(async move |connection| {
            if trusted {
                let sql = "INSERT INTO trust (file, digest, since) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
                sqlx::query(sql)
                    .bind(file)
                    .bind(digest)
                    .bind(whole(now))
                    .execute(connection)
                    .await?;
            } else {
                let sql = "DELETE FROM trust WHERE file = $1 AND digest = $2";
                sqlx::query(sql).bind(file).bind(digest).execute(connection).await?;
            }
            Ok(())
        })
    }

    fn put_task(&self, row: &TaskRow) -> Result<(), StoreFault> {
        let (state, at, status) = match row.state {
            TaskState::Running => ("running", None, None),
            TaskState::Ended { at, status } => ("ended", Some(whole(at)), Some(i64::from(status))),
            TaskState::Lost { at } => ("lost", Some(whole(at)), None),
        };
        let command = serde_json::Value::from(row.command.clone()).to_string();
        let (id, context, started) = (row.id.to_string(), row.context.0.clone(), whole(row.started));
        self.worker.run(async move |connection| {
            let sql = "INSERT INTO task (id, context, command, started, state, at, status)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
                ON CONFLICT (id) DO UPDATE SET context = excluded.context, command = excluded.command,
                started = excluded.started, state = excluded.state, at = excluded.at, status = excluded.status";
            let query = sqlx::query(sql).bind(id).bind(context).bind(command).bind(started);
            query.bind(state).bind(at).bind(status).execute(connection).await?;
            Ok(())
        })
    }

    fn put_order(&self, task: TaskId, order: &str) -> Result<(), StoreFault> {
        let (task, order) = (task.to_string(), order.to_owned());
        self.worker.run(async move |connection| {
            let sql = "INSERT INTO ordered (task, text) VALUES ($1, $2) ON CONFLICT (task) DO UPDATE SET text = excluded.text";
            sqlx::query(sql).bind(task).bind(order).execute(&mut *connection).await?;
            let sql = "DELETE FROM ordered WHERE place <= (SELECT max(place) FROM ordered) - $1";
            sqlx::query(sql).bind(ORDERS).execute(connection).await?;
            Ok(())
        })
    }

    fn order(&self, task: TaskId) -> Result<Option<String>, StoreFault> {
        let task = task.to_string();
        self.worker.run(async move |connection| {
            let sql = "SELECT text FROM ordered WHERE task = $1";
            let row = sqlx::query_as::<_, (String,)>(sql)
                .bind(task)
                .fetch_optional(connection)
                .await?;
            Ok(row.map(|(text,)| text))
        })
    }

    fn tasks(&self, limit: u32) -> Result<Vec<TaskRow>, StoreFault> {
        let rows: Vec<Columns> = self.worker.run(async move |connection| {
            let sql = "SELECT id, context, command, started, state, at, status FROM task
                ORDER BY started DESC, id DESC LIMIT $1";
            sqlx::query_as(sql).bind(i64::from(limit)).fetch_all(connection).await
        })?;
        rows.into_iter()
            .map(|columns| {
                let id = columns.0.escape_debug().to_string();
                row_of(columns).ok_or_else(|| self.worker.damaged(format!("the row of task `{id}` makes no sense")))
            })
            .collect()
    }

    fn mark_lost(&self, now: Millis) -> Result<u64, StoreFault> {
        self.worker.run(async move |connection| {
            let sql = "UPDATE task SET state = 'lost', at = $1 WHERE state = 'running'";
            Ok(sqlx::query(sql)
                .bind(whole(now))
                .execute(connection)
                .await?
                .rows_affected())
        })
    }

    fn put_question(&self, waiting: &Waiting) -> Result<(), StoreFault> {
        approvals::put_question(&self.worker, waiting)
    }

    fn drop_question(&self, id: DecisionId) -> Result<(), StoreFault> {
        approvals::drop_question(&self.worker, id)
    }

    fn questions(&self) -> Result<Vec<Waiting>, StoreFault> {
        approvals::questions(&self.worker)
    }

    fn put_grant(&self, row: &GrantRow) -> Result<(), StoreFault> {
        approvals::put_grant(&self.worker, row)
    }

    fn use_grant(&self, id: GrantId, used: u64) -> Result<(), StoreFault> {
        approvals::use_grant(&self.worker, id, used)
    }

    fn drop_grant(&self, id: GrantId) -> Result<(), StoreFault> {
        approvals::drop_grant(&self.worker, id)
    }

    fn first_use(&self, mandate: &Digest, now: Millis) -> Result<Millis, StoreFault> {
        let digest = mandate.to_string();
        let (since,): (i64,) = self.worker.run(async move |connection| {
            let sql = "INSERT INTO mandate (digest, since) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING";
            let query = sqlx::query(sql).bind(digest.clone()).bind(whole(now));
            query.execute(&mut *connection).await?;
            let sql = "SELECT since FROM mandate WHERE digest = $1";
            sqlx::query_as(sql).bind(digest).fetch_one(connection).await
        })?;
        let since =
            u64::try_from(since).map_err(|_| self.worker.damaged(format!("a mandate was first used at {since}")))?;
        Ok(Millis(since))
    }

    fn put_counted(&self, key: &CountedKey, counted: &Counted) -> Result<(), StoreFault> {
        approvals::put_counted(&self.worker, key, counted)
    }

    fn drop_counted(&self, key: &CountedKey) -> Result<(), StoreFault> {
        approvals::drop_counted(&self.worker, key)
    }

    fn counted(&self) -> Result<Vec<(CountedKey, Counted)>, StoreFault> {
        approvals::counted(&self.worker)
    }

    fn grants(&self) -> Result<Vec<GrantRow>, StoreFault> {
        approvals::grants(&self.worker)
    }

    fn count(&self, context: &ContextId, kind: &str, answer: Answered) -> Result<(), StoreFault> {
        approvals::count(&self.worker, context, kind, answer)
    }

    fn likes(&self, context: &ContextId, kind: &str) -> Result<Likes, StoreFault> {
        approvals::likes(&self.worker, context, kind)
    }
}

fn row_of((id, context, command, started, state, at, status): Columns) -> Option<TaskRow> {
    let state = match (state.as_str(), at.map(millis), status) {
        ("running", None, None) => TaskState::Running,
        ("ended", Some(at), Some(status)) => TaskState::Ended {
            at: at?,
            status: i32::try_from(status).ok()?,
        },
        ("lost", Some(at), None) => TaskState::Lost { at: at? },
        _ => return None,
    };
    Some(TaskRow {
        id: id.parse().ok()?,
        context: ContextId(context),
        command: serde_json::from_str(&command).ok()?,
        started: millis(started)?,
        state,
    })
}

/// A time as the database keeps it. It has one bit less; times that need it are 292 million years away.
fn whole(time: Millis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn millis(time: i64) -> Option<Millis> {
    u64::try_from(time).ok().map(Millis)
}
