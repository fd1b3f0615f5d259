//! Decide, commit, settle: the reference monitor.
