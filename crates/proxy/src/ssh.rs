//! The key that an SSH server shows.
//!
//! Answers: is the server at the other end of a tunnel the one that a rule names by its key?
//! Promises: P5 (another key ends the connection before anything is said under it), P4 (what cannot be read does).
//! Trust: the bytes are the server's. A server shows its key before the connection is encrypted, and signs with it; the
//! signature is the client's to check, which alone knows what was signed. So this keeps an honest client from another
//! server, and any client from a server that shows its own key.
//! See: RFC 4253 sections 4.2 (version), 6 (packets), 8 (key exchange); RFC 4419 (groups), RFC 5656 (elliptic curves).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bailiwick_model::Digest;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes before the key, and the longest packet.
const MAX: usize = 64 * 1024;

/// Packets that may come at any time and change nothing: ignore, unimplemented, debug, and what extensions there are.
const ASIDE: [u8; 4] = [2, 3, 4, 7];
/// The beginning of a key exchange.
const KEX_INIT: u8 = 20;
/// The group, or the reply of exchanges that need none.
const KEX_31: u8 = 31;
/// The reply after a group.
const KEX_33: u8 = 33;

/// How far a server's beginning has been read.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    bytes: Vec<u8>,
    from: usize,
    versions_read: bool,
}

impl Beginning {
    /// Takes what the server said next. The key that it shows, as SSH writes it, once that is read.
    pub(crate) fn add(&mut self, more: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
        if self.bytes.len().saturating_add(more.len()) > MAX {
            return Err("the server shows no key for too long");
        }
        self.bytes.extend_from_slice(more);
        while !self.versions_read {
            let rest = self.bytes.get(self.from..).unwrap_or_default();
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                return Ok(None);
            };
            // Lines before that of the version are for people.
            self.versions_read = rest.starts_with(b"SSH-");
            self.from = self.from.saturating_add(end).saturating_add(1);
        }
        loop {
            let rest = self.bytes.get(self.from..).unwrap_or_default();
            let Some((payload, length)) = packet(rest)? else {
                return Ok(None);
            };
            match payload.split_first() {
                Some((kind, _)) if *kind == KEX_INIT || ASIDE.contains(kind) => {}
                Some((&KEX_31, body)) if is_group(body) => {}
                Some((&(KEX_31 | KEX_33), body)) => {
                    let key = text(&mut &*body).filter(|key| is_key(key));
                    return key
                        .map(|key| Some(key.to_vec()))
                        .ok_or("the server's key cannot be read");
                }
                _ => return Err("the server says something else than its key"),
            }
            self.from = self.from.saturating_add(length);
        }
    }
}

/// One packet's content, and how long it is in all; none while it is not whole.
fn packet(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, &'static str> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if !(5..=MAX).contains(&length) {
        return Err("a packet has no proper length");
    }
    let Some(packet) = rest.get(..length) else {
        return Ok(None);
    };
    let (padding, content) = packet.split_first().ok_or("a packet is empty")?;
    let end = content.len().checked_sub(usize::from(*padding)).filter(|end| *end > 0);
    let payload = end
        .and_then(|end| content.get(..end))
        .ok_or("a packet has no proper padding")?;
    Ok(Some((payload, length.saturating_add(4))))
}

/// Takes a string off the front (RFC 4251, section 5).
fn text<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = from.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *from = rest;
    Some(text)
}

/// A key begins with the name of its kind.
fn is_key(bytes: &[u8]) -> bool {
    let name = text(&mut &*bytes);
    name.is_some_and(|name| (1..=64).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic))
}

/// Two numbers and no more: the group of an exchange that names one.
fn is_group(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let (first, second) = (text(&mut rest), text(&mut rest));
    rest.is_empty() && first.is_some_and(|first| !is_key(first)) && second.is_some()
}

/// A server of which nothing goes on once it has shown another key than is meant.
pub(crate) struct Pinned<S> {
    server: S,
    keys: Vec<Vec<Digest>>,
    /// Until it has shown its key; none where any will do.
    beginning: Option<Beginning>,
    refused: Option<&'static str>,
}

impl<S> Pinned<S> {
    /// `keys` are digests, of each of which the server's key must be one. Without any, all passes unread.
    pub(crate) fn new(server: S, keys: Vec<Vec<Digest>>) -> Self {
        Self {
            server,
            beginning: (!keys.is_empty()).then(Beginning::default),
            keys,
            refused: None,
        }
    }

    /// Why the server was refused.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    fn judge(&mut self, more: &[u8]) {
        let Some(beginning) = &mut self.beginning else { return };
        match beginning.add(more) {
            Ok(None) => {}
            Ok(Some(key)) => {
                let digest = Digest(Sha256::digest(&key).into());
                if self.keys.iter().all(|keys| keys.contains(&digest)) {
                    self.beginning = None;
                } else {
                    self.refused = Some("the server shows another key than the rule names");
                }
            }
            Err(why) => self.refused = Some(why),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pinned<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.beginning.is_none() {
            return Pin::new(&mut this.server).poll_read(cx, into);
        }
        let before = into.filled().len();
        if this.refused.is_none() {
            ready!(Pin::new(&mut this.server).poll_read(cx, into))?;
            let more = into.filled().get(before..).unwrap_or_default().to_vec();
            this.judge(&more);
        }
        if this.refused.is_some() {
            into.set_filled(before);
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Pinned<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.server).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    fn packed(payload: &[u8]) -> Vec<u8> {
        let padding = 4 + (8 - (payload.len() + 9) % 8) % 8;
        let length = u32::try_from(payload.len() + padding + 1).unwrap();
        [
            &length.to_be_bytes()[..],
            &[u8::try_from(padding).unwrap()],
            payload,
            &vec![0; padding],
        ]
        .concat()
    }

    fn key(word: &[u8]) -> Vec<u8> {
        [string(b"ssh-ed25519"), string(word)].concat()
    }

    fn said(reply: u8, group: bool) -> Vec<u8> {
        let mut all = b"hello people\r\nSSH-2.0-x\r\n".to_vec();
        all.extend(packed(&[&[KEX_INIT][..], &[7; 40]].concat()));
        all.extend(packed(&[2, 0, 0, 0, 0]));
        if group {
            all.extend(packed(&[&[KEX_31][..], &string(&[1; 65]), &string(&[2])].concat()));
        }
        all.extend(packed(
            &[
                &[reply][..],
                &string(&key(b"own")),
                &string(&[4; 32]),
                &string(&[5; 83]),
            ]
            .concat(),
        ));
        all
    }

    #[test]
    fn p5_a_server_shows_its_key_however_it_is_cut() {
        for all in [said(KEX_31, false), said(KEX_33, true)] {
            let mut at_once = Beginning::default();
            assert_eq!(at_once.add(&all), Ok(Some(key(b"own"))));
            let mut slowly = Beginning::default();
            let (last, before) = all.split_last().unwrap();
            for byte in before {
                assert_eq!(slowly.add(&[*byte]), Ok(None));
            }
            assert_eq!(slowly.add(&[*last]), Ok(Some(key(b"own"))));
        }
    }

    #[test]
    fn p4_what_shows_no_key_is_refused() {
        let after = |packet: &[u8]| [b"SSH-2.0-x\r\n", packet].concat();
        for bad in [
            after(&packed(&[21])),
            after(&packed(&[6, 0])),
            after(&[0, 0, 0, 1, 0]),
            after(&[0xff; 8]),
            after(&packed(&[&[KEX_31][..], &string(b"")].concat())),
            vec![b'x'; MAX + 1],
        ] {
            assert!(Beginning::default().add(&bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn p5_nothing_comes_through_from_a_server_with_another_key() {
        let all = said(KEX_31, false);
        for (word, passes) in [(&b"own"[..], true), (b"other", false)] {
            let wanted = Digest(Sha256::digest(key(word)).into());
            let mut server = Pinned::new(io::Cursor::new(all.clone()), vec![vec![Digest([0; 32]), wanted]]);
            let mut heard = Vec::new();
            let came = server.read_to_end(&mut heard).await;
            assert_eq!(came.is_ok(), passes);
            assert_eq!(heard == all, passes);
            assert_eq!(server.refused().is_none(), passes);
        }
    }

    proptest! {
        #[test]
        fn p4_any_server_is_read_or_refused(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..8)) {
            let mut beginning = Beginning::default();
            let _ = beginning.add(b"SSH-2.0-x\r\n");
            for piece in pieces {
                if beginning.add(&piece).is_err() {
                    break;
                }
            }
        }
    }
}
