//! The tables, and how an older store becomes one of today: forward only.

use sqlx::{Connection, SqliteConnection};

/// What stands in a store's file before anything is done to it.
pub(crate) struct Found {
    /// The schema's number; 0 for a new file.
    pub(crate) version: i64,
    /// What SQLite finds wrong, in its words.
    pub(crate) damage: Option<String>,
    /// There are tables though no build of ours has numbered the schema.
    pub(crate) foreign: bool,
    /// The size of a page, in bytes.
    pub(crate) page: i64,
}

/// The steps, each from one schema to the next; its number is its place, from 1. A step that was shipped never changes.
const STEPS: [&str; 4] = [
    "
    CREATE TABLE trust (
        file   TEXT NOT NULL,
        digest TEXT NOT NULL,
        since  BIGINT NOT NULL,
        PRIMARY KEY (file, digest)
    );
    CREATE TABLE task (
        id      TEXT NOT NULL PRIMARY KEY,
        context TEXT NOT NULL,
        command TEXT NOT NULL,
        started BIGINT NOT NULL,
        state   TEXT NOT NULL CHECK (state IN ('running', 'ended', 'lost')),
        at      BIGINT,
        status  BIGINT
    );
    CREATE INDEX task_started ON task (started);
",
    "
    CREATE TABLE question (
        id      TEXT NOT NULL PRIMARY KEY,
        since   BIGINT NOT NULL,
        waiting TEXT NOT NULL
    );
    CREATE TABLE given (
        id    TEXT NOT NULL PRIMARY KEY,
        since BIGINT NOT NULL,
        used  BIGINT NOT NULL,
        row   TEXT NOT NULL
    );
    CREATE TABLE liked (
        context TEXT NOT NULL,
        kind    TEXT NOT NULL,
        answer  TEXT NOT NULL,
        times   BIGINT NOT NULL,
        PRIMARY KEY (context, kind, answer)
    );
",
    "
    CREATE TABLE ordered (
        place INTEGER NOT NULL PRIMARY KEY,
        task  TEXT NOT NULL UNIQUE,
        text  TEXT NOT NULL
    );
",
    "
    CREATE TABLE counted (
        scope TEXT NOT NULL,
        rule  TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (scope, rule)
    );
    CREATE TABLE mandate (
        digest TEXT NOT NULL PRIMARY KEY,
        since  BIGINT NOT NULL
    );
",
];

/// The newest schema that this build knows.
pub(crate) const KNOWN: i64 = STEPS.len() as i64;

/// Looks at a store without writing to it; at one moment, since another process may be making it.
pub(crate) async fn inspect(connection: &mut SqliteConnection) -> sqlx::Result<Found> {
    let mut moment = connection.begin().await?;
    let (check,): (String,) = sqlx::query_as("PRAGMA quick_check(1)").fetch_one(&mut *moment).await?;
    let version = version_of(&mut moment).await?;
    let (tables,): (i64,) = sqlx::query_as("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&mut *moment)
        .await?;
    let (page,): (i64,) = sqlx::query_as("PRAGMA page_size").fetch_one(&mut *moment).await?;
    moment.rollback().await?;
    Ok(Found {
        version,
        damage: (check != "ok").then_some(check),
        foreign: version == 0 && tables > 0,
        page,
    })
}

/// Brings a store to the newest schema. All steps or none; of two processes at once, one takes them.
pub(crate) async fn migrate(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        .execute(&mut *connection)
        .await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let version = version_of(&mut transaction).await?;
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    for step in STEPS.iter().skip(done) {
        sqlx::raw_sql(*step).execute(&mut *transaction).await?;
    }
    if version < KNOWN {
        // A pragma takes no parameters; the number is ours.
        let sql = format!("PRAGMA user_version = {KNOWN}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

async fn version_of(connection: &mut SqliteConnection) -> sqlx::Result<i64> {
    let (version,): (i64,) = sqlx::query_as("PRAGMA user_version").fetch_one(connection).await?;
    Ok(version)
}
