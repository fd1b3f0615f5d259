//! The first words of a TLS client, read without answering: which server does it name?
//!
//! Answers: the ClientHello's server name, and the very bytes it was read from, to be passed on untouched.
//! Promises: P5 (the name in the greeting is the name of the tunnel). Trust: the bytes come from the agent, cut as it
//! likes. Parsing is rustls's; a greeting that it refuses is refused here.
//! Not here: what is said after the greeting (it is encrypted, and a tunnel is not read); ECH, whose inner name no one
//! on the way can see.
//! See: RFC 8446 section 4.1.2, RFC 6066 section 3.

use bailiwick_model::Host;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::limits;

/// A greeting that was read.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// The server it names, as it was written; none when it names none.
    pub(crate) name: Option<String>,
    /// All bytes that were read.
    pub(crate) bytes: Vec<u8>,
}

/// Says why there is no greeting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GreetingFault {
    /// The client went away before it had said anything.
    Silent,
    /// The bytes are something else.
    NotTls(String),
    /// It is longer, or takes longer, than it may.
    Limit(&'static str),
}

const TOO_LONG: GreetingFault = GreetingFault::Limit("the TLS greeting is too long");

/// Reads a greeting. `early` are bytes that have been read already.
pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S, early: &[u8]) -> Result<Greeting, GreetingFault> {
    match tokio::time::timeout(limits::GREETING_TIME, read_in_time(stream, early)).await {
        Ok(result) => result,
        Err(_) => Err(GreetingFault::Limit("the TLS greeting did not come in time")),
    }
}

async fn read_in_time<S: AsyncRead + Unpin>(stream: &mut S, early: &[u8]) -> Result<Greeting, GreetingFault> {
    let mut reader = Reader::default();
    reader.add(early);
    let mut piece = vec![0u8; 4096];
    loop {
        if let Some(greeting) = reader.greeting()? {
            return Ok(greeting);
        }
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) if reader.bytes.is_empty() => return Err(GreetingFault::Silent),
            Ok(0) | Err(_) => return Err(GreetingFault::NotTls("it ends before the greeting does".into())),
            Ok(count) => reader.add(piece.get(..count).unwrap_or_default()),
        }
    }
}

/// A greeting that comes in pieces.
#[derive(Default)]
pub(crate) struct Reader {
    acceptor: Acceptor,
    bytes: Vec<u8>,
    fed: usize,
}

impl Reader {
    /// Takes the next piece.
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// What has come.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What has come, to be passed on.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The greeting, once it is whole.
    pub(crate) fn greeting(&mut self) -> Result<Option<Greeting>, GreetingFault> {
        while self.fed < self.bytes.len() {
            let mut rest = self.bytes.get(self.fed..).unwrap_or_default();
            // Reading from memory cannot fail, so this is the parser's own limit.
            let taken = self.acceptor.read_tls(&mut rest).map_err(|_| TOO_LONG)?;
            self.fed = self.fed.saturating_add(taken);
            match self.acceptor.accept() {
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(Into::into);
                    return Ok(Some(Greeting {
                        name,
                        bytes: self.take(),
                    }));
                }
                Ok(None) if taken > 0 => {}
                Ok(None) => return Err(GreetingFault::NotTls("the greeting does not end".into())),
                Err((fault, _)) => return Err(GreetingFault::NotTls(fault.to_string())),
            }
        }
        if self.bytes.len() >= limits::GREETING_BYTES {
            return Err(TOO_LONG);
        }
        Ok(None)
    }
}

/// Compares the name in a greeting with the host of the tunnel. To an address, no name is right.
pub(crate) fn names_host(name: Option<&str>, host: &Host) -> Result<(), String> {
    match (name, host) {
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err("the TLS greeting names no server".into()),
        (Some(name), Host::Name(_)) if Host::parse(name).as_ref() == Ok(host) => Ok(()),
        (Some(name), Host::Name(_) | Host::Address(_)) => Err(format!("the TLS greeting names `{name}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_now(bytes: &[u8], cut: usize) -> Result<Greeting, GreetingFault> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (early, mut rest) = bytes.split_at(cut.min(bytes.len()));
        runtime.block_on(read(&mut rest, early))
    }

    proptest::proptest! {
        #[test]
        fn p4_no_bytes_are_a_greeting_by_chance(bytes in proptest::collection::vec(0u8..=255, 0..300), cut in 0usize..300) {
            proptest::prop_assert!(read_now(&bytes, cut).is_err());
        }

        #[test]
        fn p4_noise_after_a_good_beginning_never_panics(bytes in proptest::collection::vec(0u8..=255, 0..300)) {
            let length = u8::try_from(bytes.len().min(250)).unwrap();
            let head = [22, 3, 1, 0, length.saturating_add(4), 1, 0, 0, length];
            let _ = read_now(&[&head[..], &bytes].concat(), 3);
        }
    }

    /// What OpenSSL 3 sends for `-servername front.example.test`.
    fn real() -> Vec<u8> {
        let digits: Vec<u32> = include_str!("../tests/vectors/client-hello-openssl.hex")
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .collect();
        let pairs = digits.chunks_exact(2);
        pairs
            .map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap())
            .collect()
    }

    proptest::proptest! {
        #[test]
        fn p5_a_real_greeting_is_read_whatever_its_cuts(piece in 1usize..700, early in 0usize..700, record in 1usize..255) {
            let whole = real();
            let records = whole[5..].chunks(record);
            let spread: Vec<u8> = records
                .flat_map(|body| [&[22, 3, 1, 0, u8::try_from(body.len()).unwrap()], body].concat())
                .collect();
            for bytes in [whole, spread] {
                let (early, rest) = bytes.split_at(early.min(bytes.len()));
                let (rest, early) = (rest.to_vec(), early.to_vec());
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let greeting = runtime.block_on(async move {
                    let (mut client, mut gate) = tokio::io::duplex(piece);
                    tokio::spawn(async move {
                        let _ = tokio::io::AsyncWriteExt::write_all(&mut client, &rest).await;
                        std::future::pending::<()>().await;
                    });
                    read(&mut gate, &early).await
                });
                let greeting = greeting.unwrap();
                proptest::prop_assert_eq!(greeting.name.as_deref(), Some("front.example.test"));
                proptest::prop_assert_eq!(greeting.bytes, bytes);
            }
        }

        #[test]
        fn p4_a_broken_greeting_never_panics_and_never_gains_a_name(place in 5usize..300, byte in 0u8..=255) {
            let mut bytes = real();
            let place = place.min(bytes.len() - 1);
            bytes[place] = byte;
            if let Ok(greeting) = read_now(&bytes, 0) {
                let name = greeting.name.unwrap_or_default();
                proptest::prop_assert!(names_host(Some(&name), &Host::parse("back.example.test").unwrap()).is_err());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn p4_a_greeting_has_limits_of_time_and_size() {
        let (_client, mut gate) = tokio::io::duplex(64);
        let fault = read(&mut gate, &real()[..100]).await.unwrap_err();
        assert!(matches!(fault, GreetingFault::Limit(_)), "{fault:?}");
        // One handshake message that never ends, in records of one byte.
        let mut long = vec![22, 3, 1, 0, 4, 1, 0, 0xff, 0xff];
        while long.len() < limits::GREETING_BYTES {
            long.extend([22, 3, 1, 0, 1, 0]);
        }
        let fault = read(&mut tokio::io::empty(), &long).await.unwrap_err();
        assert!(matches!(fault, GreetingFault::Limit(_)), "{fault:?}");
        assert_eq!(
            read(&mut tokio::io::empty(), b"").await.unwrap_err(),
            GreetingFault::Silent
        );
    }

    #[test]
    fn p5_names_are_compared_in_their_one_form() {
        let host = |text: &str| Host::parse(text).unwrap();
        assert!(names_host(Some("A.test."), &host("a.test")).is_ok());
        assert!(names_host(None, &host("127.0.0.1")).is_ok());
        for (name, other) in [
            (None, "a.test"),
            (Some("b.test"), "a.test"),
            (Some("a.test"), "127.0.0.1"),
            (Some("127.0.0.1"), "127.0.0.1"),
            (Some("x.a.test"), "a.test"),
        ] {
            assert!(names_host(name, &host(other)).is_err(), "{name:?} {other}");
        }
    }
}
