//! A process that is not to be read, ended or steered: it waits, and repeats a word of its memory when it is told to.

use std::io::{BufRead, Write};

/// Says its number and where in its memory the secret and the word lie, then repeats the word for each line of its input,
/// and ends with the input. The secret comes from the environment, as secrets do.
pub fn be_victim() -> std::io::Result<()> {
    let secret = std::env::var("BAIT_TOKEN").unwrap_or_default().into_bytes();
    let lever = *b"as-it-was";
    // Held open, and gone from the file system: only this process can read it.
    let path = std::env::temp_dir().join(format!("victim-{}", std::process::id()));
    std::fs::write(&path, &secret)?;
    let held = std::fs::File::open(&path)?;
    std::fs::remove_file(&path)?;
    let mut output = std::io::stdout();
    writeln!(
        output,
        "{} {} {}",
        std::process::id(),
        crate::sys::address(&secret),
        crate::sys::address(&lever)
    )?;
    output.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let seen = std::hint::black_box(&lever);
        writeln!(output, "{}", String::from_utf8_lossy(seen))?;
        output.flush()?;
    }
    drop(held);
    Ok(())
}

/// Keeps shared memory, messages, a semaphore and a queue until its input ends; says their keys and the queue's name.
pub fn be_keeper() -> std::io::Result<()> {
    use crate::sys::{Arg, call, text};
    let secret = std::env::var("BAIT_TOKEN").unwrap_or_default().into_bytes();
    // Of the secret's last digits: containers share the objects, and each counts its processes from one.
    let digits = secret.get(secret.len().saturating_sub(6)..).unwrap_or_default();
    let digits = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| i64::from_str_radix(digits, 16).ok());
    let key = digits.unwrap_or_default() | 0x4200_0000;
    let flags = i64::from(libc::IPC_CREAT | libc::IPC_EXCL | 0o600);
    let memory = call(libc::SYS_shmget, [Arg::N(key), Arg::N(4096), Arg::N(flags)])?;
    let at = call(libc::SYS_shmat, [Arg::N(memory), Arg::N(0), Arg::N(0)])?;
    crate::sys::put_bytes_at(at, &secret);
    let messages = call(libc::SYS_msgget, [Arg::N(key), Arg::N(flags)])?;
    for _ in 0..16 {
        let message = [&1u64.to_ne_bytes(), secret.as_slice()].concat();
        call(
            libc::SYS_msgsnd,
            [
                Arg::N(messages),
                Arg::In(&message),
                Arg::N(secret.len() as i64),
                Arg::N(0),
            ],
        )?;
    }
    let semaphores = call(libc::SYS_semget, [Arg::N(key), Arg::N(1), Arg::N(flags)])?;
    let name = format!("bailiwick-probe-{key:x}");
    let flags = i64::from(libc::O_CREAT | libc::O_EXCL | libc::O_RDWR);
    let queue = call(
        libc::SYS_mq_open,
        [Arg::Text(&text(&name)), Arg::N(flags), Arg::N(0o600), Arg::N(0)],
    )?;
    for _ in 0..8 {
        let length = i64::try_from(secret.len()).unwrap_or(0);
        call(
            libc::SYS_mq_timedsend,
            [Arg::N(queue), Arg::In(&secret), Arg::N(length), Arg::N(1), Arg::N(0)],
        )?;
    }
    let mut output = std::io::stdout();
    writeln!(output, "{key} /{name}")?;
    output.flush()?;
    let _ = std::io::stdin().lock().lines().count();
    call(libc::SYS_shmctl, [Arg::N(memory), Arg::N(0), Arg::N(0)])?;
    call(libc::SYS_msgctl, [Arg::N(messages), Arg::N(0), Arg::N(0)])?;
    call(libc::SYS_semctl, [Arg::N(semaphores), Arg::N(0), Arg::N(0)])?;
    call(libc::SYS_mq_unlink, [Arg::Text(&text(&name))])?;
    Ok(())
}
