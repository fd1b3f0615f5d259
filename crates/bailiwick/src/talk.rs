//! Printing that survives its reader: data goes to standard output, talk to standard error.
//!
//! The standard macros panic when their reader is gone or the disk under a redirected stream is full. Here talk is
//! dropped then, since nobody hears it, and a command whose output nobody reads any more ends.

/// Writes talk; what cannot be written is dropped.
pub fn talk(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes data. When its reader is gone (`| head`), the process ends, as a program ended by SIGPIPE would.
pub fn tell(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(141);
    }
}

/// A line of talk.
macro_rules! talkln {
    ($($text:tt)*) => { $crate::talk::talk(&format!("{}\n", format_args!($($text)*))) };
}

/// A line of data.
macro_rules! tellln {
    ($($text:tt)*) => { $crate::talk::tell(&format!("{}\n", format_args!($($text)*))) };
}
