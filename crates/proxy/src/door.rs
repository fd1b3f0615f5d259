//! Where connections of the fence come in: a listening socket inside, or, where the fence has no network of its own, a
//! channel through which its supervisor hands them over one by one.
//!
//! Trust: whoever connects is hostile; the channel is the supervisor's.
//! See: unix(7), SCM_RIGHTS.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};

/// Where connections come in.
#[derive(Debug)]
pub(crate) enum Door {
    /// A socket that listens inside.
    Listening(TcpListener),
    /// Connections that were made already.
    Handed(tokio::net::UnixStream),
}

impl Door {
    /// Looks what kind of socket it is.
    pub(crate) fn of(socket: OwnedFd) -> io::Result<Self> {
        if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
            let channel = std::os::unix::net::UnixStream::from(socket);
            channel.set_nonblocking(true)?;
            return tokio::net::UnixStream::from_std(channel).map(Self::Handed);
        }
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self::Listening)
    }

    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Listening(listener) => listener.accept().await.map(|(stream, _)| stream),
            Self::Handed(channel) => {
                let taken = channel.async_io(Interest::READABLE, || take(channel)).await?;
                let stream = std::net::TcpStream::from(taken);
                stream.set_nonblocking(true)?;
                TcpStream::from_std(stream)
            }
        }
    }
}

/// Takes one connection from the channel.
fn take(channel: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let got = recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let connection = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    match connection {
        Some(connection) => Ok(connection),
        None if got.bytes == 0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::net::{
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
    };
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_handed_over_comes_in() {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.unwrap();
        let door = Door::of(ours).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut agent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let along = [accepted.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&along)));
        sendmsg(
            &theirs,
            &[std::io::IoSlice::new(b".")],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        drop(accepted);
        let mut stream = door.accept().await.unwrap();
        agent.write_all(b"ping").unwrap();
        drop(agent);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "ping");
        drop(theirs);
        assert!(door.accept().await.is_err());
    }
}
