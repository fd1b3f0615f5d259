//! `bailiwick mcp`: the lines of a client inside the fence, passed on to the gate and back.
//!
//! Promises: none of its own: it runs inside the fence with the agent's authority, and the gate takes it for the agent.
//! Trust: all of it is the agent's.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// Says the token at the gate's address, then passes standard input on to it and what it says to standard output, until
/// either ends. Blocks.
pub fn relay_inside(address: SocketAddr, token: &str) -> io::Result<()> {
    relay(address, token, io::stdin(), io::stdout().lock())
}

fn relay(address: SocketAddr, token: &str, input: impl Read + Send + 'static, output: impl Write) -> io::Result<()> {
    let stream = TcpStream::connect(address)?;
    let _ = stream.set_nodelay(true);
    let mut to = stream.try_clone()?;
    to.write_all(format!("{token}\n").as_bytes())?;
    // Not waited for: it may hang in its input when the gate has ended.
    std::thread::spawn(move || {
        let _ = pass(input, &to);
        let _ = to.shutdown(Shutdown::Write);
    });
    pass(stream, output)
}

/// Passes on what comes as it comes.
fn pass(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
            Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(fault) => return Err(fault),
        };
        to.write_all(buffer.get(..count).unwrap_or_default())?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_is_said_is_passed_on_both_ways_after_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let gate = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).unwrap();
            stream.write_all(b"answer\n").unwrap();
            heard
        });
        let mut said = Vec::new();
        relay(address, "token", &b"question\n"[..], &mut said).unwrap();
        assert_eq!(gate.join().unwrap(), "token\nquestion\n");
        assert_eq!(said, b"answer\n");
    }

    #[test]
    fn without_a_gate_it_says_so() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let fault = relay(address, "token", io::empty(), io::sink()).unwrap_err();
        assert_eq!(fault.kind(), io::ErrorKind::ConnectionRefused);
    }
}
