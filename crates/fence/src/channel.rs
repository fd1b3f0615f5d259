//! Frames and descriptors over a stream socket pair.
//!
//! Promises: P4 (frames have a size limit, see `bailiwick_gate::FrameReader`; descriptors that nothing claimed are
//! closed with the channel). Trust: between daemon, launcher and the first process of a fence, none of which runs code
//! of the agent's.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailiwick_gate::{FrameReader, decode, encode};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most descriptors in one message.
const MAX_DESCRIPTORS: usize = 72;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    frames: FrameReader,
    descriptors: VecDeque<OwnedFd>,
}

impl Channel {
    /// Speaks over a socket.
    pub fn over(socket: OwnedFd) -> Self {
        Self {
            socket,
            frames: FrameReader::default(),
            descriptors: VecDeque::new(),
        }
    }

    /// Two ends that speak to each other.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        Ok(socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?)
    }

    /// Sends a message, and descriptors with its first byte.
    pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = encode(message).map_err(io::Error::other)?;
        let mut rest = frame.as_slice();
        let mut along = descriptors;
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !along.is_empty() && !control.push(SendAncillaryMessage::ScmRights(along)) {
                return Err(io::Error::other("too many descriptors"));
            }
            match sendmsg(&self.socket, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    along = &[];
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A second handle on the same end, for sending while the first one waits for messages.
    pub fn second(&self) -> io::Result<Self> {
        Ok(Self::over(self.socket.try_clone()?))
    }

    /// Waits for a message. None when the other end has closed.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// A message that is here already.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.frames.next_frame().map_err(io::Error::other)? {
            Some(body) => decode(body).map(Some).map_err(io::Error::other),
            None => Ok(None),
        }
    }

    /// Reads once; waits when nothing is there. False when the other end has closed.
    pub(crate) fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0u8; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(got) => break got,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.frames.push(bytes.get(..got.bytes).unwrap_or_default());
        Ok(got.bytes > 0)
    }

    /// How many descriptors have come and not been taken.
    pub fn waiting(&self) -> usize {
        self.descriptors.len()
    }

    /// The next descriptor that came along.
    pub fn take(&mut self) -> io::Result<OwnedFd> {
        self.descriptors
            .pop_front()
            .ok_or_else(|| io::Error::other("a descriptor is missing"))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn messages_carry_descriptors() {
        let (one, other) = Channel::pair().unwrap();
        let (one, mut other) = (Channel::over(one), Channel::over(other));
        let (read, write) = rustix::pipe::pipe().unwrap();
        one.send(&"hello", &[write.as_fd()]).unwrap();
        drop(write);
        assert_eq!(other.receive::<String>().unwrap().as_deref(), Some("hello"));
        let write = other.take().unwrap();
        assert!(other.take().is_err(), "one came along");
        rustix::io::write(&write, b"x").unwrap();
        drop(write);
        let mut text = String::new();
        std::fs::File::from(read).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(one);
        assert!(other.receive::<String>().unwrap().is_none());
    }
}
