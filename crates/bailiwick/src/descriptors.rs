//! Frames with descriptors over Unix sockets: what the person's commands, the daemon and its gates say to each other.
//!
//! Trust: the person's socket refuses peers of other users and peers that live in a fence (`daemon::person`). Frames
//! are limited in size; at most eight descriptors come with one.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bailiwick_gate::{MAX_FRAME, encode};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most descriptors that come with one frame.
const MAX_DESCRIPTORS: usize = 128;

/// Sends one frame, with descriptors.
pub fn send<T: Serialize>(socket: &UnixStream, message: &T, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
    let frame = encode(message).map_err(std::io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(std::io::Error::other("too many descriptors for one frame"));
    }
    let sent = rustix::net::sendmsg(
        socket.as_fd(),
        &[IoSlice::new(&frame)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    let mut rest: &UnixStream = socket;
    rest.write_all(frame.get(sent..).unwrap_or_default())
}

/// Receives one frame, with descriptors; none when the other side has closed.
pub fn receive<T: DeserializeOwned>(socket: &UnixStream) -> std::io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut head = [0u8; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut head)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    let mut stream: &UnixStream = socket;
    stream.read_exact(head.get_mut(got.bytes..).unwrap_or_default())?;
    let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
    if length > MAX_FRAME {
        return Err(std::io::Error::other("a frame is too long"));
    }
    let mut body = vec![0u8; length];
    stream.read_exact(&mut body)?;
    let message = bailiwick_gate::decode(&body).map_err(std::io::Error::other)?;
    Ok(Some((message, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send(&one, &"hello", &[write.as_fd()]).unwrap();
        drop(write);
        let (message, descriptors) = receive::<String>(&other).unwrap().unwrap();
        assert_eq!((message.as_str(), descriptors.len()), ("hello", 1));
        rustix::io::write(&descriptors[0], b"x").unwrap();
        drop(descriptors);
        let mut text = String::new();
        std::fs::File::from(read).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(one);
        assert!(receive::<String>(&other).unwrap().is_none());
    }
}
