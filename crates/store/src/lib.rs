//! What outlives a process: trust and tasks, on SQLite.
//!
//! Answers: is this content of a rule file trusted, and which tasks were there?
//! Promises: P4 (a store that cannot be read trusts nothing: every failure is a fault, never an answer).
//! Trust: the file is the person's own, mode 0600; it may have been damaged, or written by a newer build: then it is
//! refused and left as it is.
//! Not here: what is done with a fault (`mediator`, `bailiwick`), what was decided (`ledger`).
//! See: `schema` for the tables; `tests/contract.rs` for what any other backend has to do too.

mod schema;
mod worker;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use bailiwick_gate::{Store, StoreFault, TaskRow, TaskState};
use bailiwick_model::{ContextId, Digest, Millis};

use worker::Worker;

/// How every SQLite file begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

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
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        if let Some(cause) = flaw(&file.map_err(unusable)?, path).map_err(unusable)? {
            return Err(StoreFault::Damaged {
                path: path.display().to_string(),
                cause: cause.into(),
            });
        }
        Ok(Self {
            worker: Worker::start(path)?,
        })
    }
}

/// What is wrong with a file that SQLite would not mind: it takes a short one for a new one, and writes over what is
/// left of an old one; it reads what is missing of a last page as zeros.
fn flaw(file: &File, path: &Path) -> io::Result<Option<&'static str>> {
    let mut head = Vec::new();
    file.take(100).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(None);
    }
    if head.len() < 100 || !head.starts_with(MAGIC) {
        return Ok(Some("it does not begin as a store does"));
    }
    // The size of a page, in two bytes; 65536 is written as 1.
    let page = match head.get(16..18) {
        Some(&[0, 1]) => 65_536,
        Some(&[high, low]) => u64::from(u16::from_be_bytes([high, low])),
        _ => 0,
    };
    // A crash may leave a page half written, but then its content stands in the journal still.
    let mut journal = path.as_os_str().to_owned();
    journal.push("-wal");
    let has_journal = fs::metadata(journal).is_ok_and(|journal| journal.len() > 0);
    let whole = page != 0 && file.metadata()?.len().is_multiple_of(page);
    Ok((!whole && !has_journal).then_some("its last page is cut short"))
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
