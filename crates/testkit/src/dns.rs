//! A DNS server on the loopback that records every name it is asked for.
//!
//! See: RFC 1035, sections 4.1.1 to 4.1.3.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::origin::ANY_PORT;

/// A recording DNS server over UDP.
#[derive(Debug)]
pub struct DnsSink {
    address: SocketAddr,
    names: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl DnsSink {
    /// Starts a server that knows no name: every answer is NXDOMAIN.
    pub fn start() -> Self {
        Self::knowing(Vec::new())
    }

    /// Starts a server that knows these names, in lower case and without a final dot.
    pub fn knowing(known: Vec<(String, Ipv4Addr)>) -> Self {
        let socket = UdpSocket::bind(ANY_PORT).expect("the loopback has a free port");
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a socket takes a timeout");
        let address = socket.local_addr().expect("a bound socket has an address");
        let names = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(AtomicBool::new(false));
        let (kept, end) = (Arc::clone(&names), Arc::clone(&ended));
        let serving = std::thread::spawn(move || {
            let mut packet = [0u8; 4096];
            while !end.load(Ordering::SeqCst) {
                let Ok((length, peer)) = socket.recv_from(&mut packet) else {
                    continue;
                };
                let query = &packet[..length];
                let (name, question) = question(query).unwrap_or_else(|| ("?".into(), &[]));
                kept.lock().expect("no thread panics with the list").push(name.clone());
                let found = known
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, address)| *address);
                let _ = socket.send_to(&answer(query, question, found), peer);
            }
        });
        Self {
            address,
            names,
            ended,
            serving: Some(serving),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The names it was asked for, in lower case and in order; `?` stands for a packet that is no query.
    pub fn names(&self) -> Vec<String> {
        self.names.lock().expect("no thread panics with the list").clone()
    }
}

impl Drop for DnsSink {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// The name of the first question, and the question's bytes.
fn question(query: &[u8]) -> Option<(String, &[u8])> {
    let body = query.get(12..)?;
    let mut labels = Vec::new();
    let mut at = 0usize;
    loop {
        let length = usize::from(*body.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        let label = body.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    Some((labels.join("."), body.get(..at + 4)?))
}

fn answer(query: &[u8], question: &[u8], found: Option<Ipv4Addr>) -> Vec<u8> {
    let mut packet = query.get(..2).unwrap_or(&[0, 0]).to_vec();
    let is_a = question.len() >= 4 && question[question.len() - 4..] == [0, 1, 0, 1];
    let record = found.filter(|_| is_a);
    // A response, recursion available; NXDOMAIN unless the name is known.
    packet.extend_from_slice(&[0x81, if found.is_some() { 0x80 } else { 0x83 }]);
    packet.extend_from_slice(&[
        0,
        u8::from(!question.is_empty()),
        0,
        u8::from(record.is_some()),
        0,
        0,
        0,
        0,
    ]);
    packet.extend_from_slice(question);
    if let Some(address) = record {
        packet.extend_from_slice(&[0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        packet.extend_from_slice(&address.octets());
    }
    packet
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn sink_records_and_answers_what_it_knows() {
        let sink = DnsSink::knowing(vec![("ok.example.test".into(), Ipv4Addr::new(192, 0, 2, 7))]);
        let dig = |name: &str| {
            let port = sink.address().port().to_string();
            let output = Command::new("dig")
                .args(["@127.0.0.1", "-p", &port, "+short", "+tries=1", "+time=5", name])
                .output()
                .expect("dig is installed: run ./scripts/test");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        assert_eq!(dig("OK.example.test"), "192.0.2.7");
        assert_eq!(dig("c2VjcmV0.leak.example.test"), "");
        assert_eq!(sink.names(), ["ok.example.test", "c2vjcmv0.leak.example.test"]);
    }
}
