//! Tries what a fence is to stop, one thing a time. Ends with 0 when it succeeded.

fn main() {}
