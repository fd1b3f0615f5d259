//! What outlives a process: trust and tasks, on SQLite.
