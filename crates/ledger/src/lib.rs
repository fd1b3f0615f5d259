//! The log: append, checkpoint, receipt, offline verify.
