//! The thread that owns the connection: callers need no runtime, and may have one.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bailiwick_gate::StoreFault;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::runtime::{Builder, Runtime};

use crate::schema;

/// How long one process waits while another writes.
const BUSY: Duration = Duration::from_secs(5);

/// A piece of work on the connection.
type Job = Box<dyn FnOnce(&Runtime, &mut SqliteConnection) + Send>;

/// The thread and the way to it.
#[derive(Debug)]
pub(crate) struct Worker {
    path: String,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread; returns once the store is open and of today's schema.
    pub(crate) fn start(path: &Path) -> Result<Self, StoreFault> {
        let shown = path.display().to_string();
        let unusable = |cause: String| StoreFault::Unusable {
            path: shown.clone(),
            cause,
        };
        let (jobs, todo) = mpsc::channel::<Job>();
        let (opened, is_open) = mpsc::channel();
        let (file, name) = (path.to_owned(), shown.clone());
        let work = move || {
            let runtime = match Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    return drop(opened.send(Err(StoreFault::Unusable {
                        path: name,
                        cause: error.to_string(),
                    })));
                }
            };
            let mut connection = match runtime.block_on(open(&file, &name)) {
                Ok(connection) => connection,
                Err(fault) => return drop(opened.send(Err(fault))),
            };
            if opened.send(Ok(())).is_err() {
                return;
            }
            while let Ok(job) = todo.recv() {
                job(&runtime, &mut connection);
            }
            // What it would report was reported by the last write.
            let _ = runtime.block_on(connection.close());
        };
        let thread = thread::Builder::new().name("store".into()).spawn(work);
        let thread = thread.map_err(|error| unusable(error.to_string()))?;
        is_open.recv().map_err(|_| unusable("its thread has ended".into()))??;
        Ok(Self {
            path: shown,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs a piece of work and waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> sqlx::Result<T> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let (answer, result) = mpsc::channel();
        let job: Job = Box::new(move |runtime, connection| {
            // Whoever asked is waiting below.
            let _ = answer.send(runtime.block_on(work(connection)));
        });
        let ended = || StoreFault::Unusable {
            path: self.path.clone(),
            cause: "its thread has ended".into(),
        };
        self.jobs.as_ref().ok_or_else(ended)?.send(job).map_err(|_| ended())?;
        result
            .recv()
            .map_err(|_| ended())?
            .map_err(|error| fault_of(&self.path, &error))
    }

    /// Says that the content is damaged.
    pub(crate) fn damaged(&self, cause: String) -> StoreFault {
        StoreFault::Damaged {
            path: self.path.clone(),
            cause,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn open(file: &Path, path: &str) -> Result<SqliteConnection, StoreFault> {
    let fault = |error: sqlx::Error| fault_of(path, &error);
    let options = SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(BUSY)
        .foreign_keys(true);
    let mut connection = options.disable_statement_logging().connect().await.map_err(fault)?;
    let found = schema::inspect(&mut connection).await.map_err(fault)?;
    let damaged = |cause: String| StoreFault::Damaged {
        path: path.into(),
        cause,
    };
    if is_cut_short(file, found.page) {
        return Err(damaged("its last page is cut short".into()));
    }
    if let Some(damage) = found.damage {
        return Err(damaged(damage.replace('\n', " ")));
    }
    if found.foreign || found.version < 0 {
        return Err(damaged("it is the database of another program".into()));
    }
    if found.version > schema::KNOWN {
        return Err(StoreFault::Newer {
            path: path.into(),
            found: found.version,
            known: schema::KNOWN,
        });
    }
    let until = Instant::now() + BUSY;
    loop {
        match schema::migrate(&mut connection).await {
            Ok(()) => return Ok(connection),
            // Changing the journal's mode does not wait for others by itself.
            Err(error) if code_of(&error) == Some(LOCKED) && Instant::now() < until => thread::sleep(BUSY / 500),
            Err(error) => return Err(fault(error)),
        }
    }
}

/// Says whether the file ends inside a page: SQLite reads what is missing as zeros.
fn is_cut_short(file: &Path, page: i64) -> bool {
    let len_of = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    // A crash may leave a page half written, but then its content stands in the journal still.
    let mut journal = file.as_os_str().to_owned();
    journal.push("-wal");
    let whole = u64::try_from(page).is_ok_and(|page| page > 0 && len_of(file).is_multiple_of(page));
    !whole && len_of(Path::new(&journal)) == 0
}

/// `SQLITE_BUSY`.
const LOCKED: u32 = 5;
/// `SQLITE_CORRUPT` and `SQLITE_NOTADB`.
const DAMAGE: [u32; 2] = [11, 26];

/// The primary code of a database error; the upper bits say more about the same.
fn code_of(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    Some(code.parse::<u32>().ok()? & 0xff)
}

/// Which fault an error of the database is.
fn fault_of(path: &str, error: &sqlx::Error) -> StoreFault {
    let database = error.as_database_error();
    let cause = database.map_or_else(|| error.to_string(), |error| error.message().to_owned());
    let path = path.to_owned();
    match code_of(error) {
        Some(code) if DAMAGE.contains(&code) => StoreFault::Damaged { path, cause },
        _ => StoreFault::Unusable { path, cause },
    }
}
