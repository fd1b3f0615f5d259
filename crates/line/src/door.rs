//! Where connections of the fence come in: a listening socket inside, or a channel through which its supervisor hands them
//! over one by one, each with the address that was asked for, and tells what it refused by itself.
//!
//! Trust: whoever connects is hostile; the channel is the supervisor's.
//! See: unix(7), SCM_RIGHTS.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use bailiwick_gate::{Handed, MAX_HANDED};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};

/// Where connections come in.
#[derive(Debug)]
pub enum Door {
    /// A socket that listens inside.
    Listening(TcpListener),
    /// Connections that were made already.
    Handed(tokio::net::UnixStream),
}

impl Door {
    /// Looks what kind of socket it is.
    pub fn of(socket: OwnedFd) -> io::Result<Self> {
        if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
            let channel = std::os::unix::net::UnixStream::from(socket);
            channel.set_nonblocking(true)?;
            return tokio::net::UnixStream::from_std(channel).map(Self::Handed);
        }
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self::Listening)
    }

    /// Waits for what comes next.
    pub async fn accept(&self) -> io::Result<Came> {
        match self {
            Self::Listening(listener) => listener
                .accept()
                .await
                .map(|(stream, _)| Came::Connection(stream, None)),
            Self::Handed(channel) => {
                let (message, connection) = channel.async_io(Interest::READABLE, || take(channel)).await?;
                match (message, connection) {
                    (Handed::Connection(address), Some(connection)) => {
                        let stream = std::net::TcpStream::from(connection);
                        stream.set_nonblocking(true)?;
                        Ok(Came::Connection(TcpStream::from_std(stream)?, Some(address)))
                    }
                    (Handed::Refused { what, why }, None) => Ok(Came::Refused { what, why }),
                    _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
                }
            }
        }
    }
}

/// What comes in.
#[derive(Debug)]
pub enum Came {
    /// A connection, and the address that it was made to where the supervisor made it.
    Connection(TcpStream, Option<SocketAddr>),
    /// The supervisor has refused something.
    Refused {
        /// What was asked for.
        what: String,
        /// Why it was refused.
        why: String,
    },
}

/// Takes one message from the channel.
fn take(channel: impl AsFd) -> io::Result<(Handed, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0u8; MAX_HANDED];
    let got = recvmsg(
        channel,
        &mut [IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if got.bytes == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    let connection = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    let text = std::str::from_utf8(text.get(..got.bytes).unwrap_or_default());
    let message = text.ok().and_then(|text| text.parse().ok());
    Ok((message.ok_or(io::ErrorKind::InvalidData)?, connection))
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
        let say = |message: &str, control: &mut SendAncillaryBuffer| {
            let message = [std::io::IoSlice::new(message.as_bytes())];
            sendmsg(&theirs, &message, control, SendFlags::empty()).unwrap();
        };
        say("connection 93.184.216.34:443", &mut control);
        say("refused connect 1.2.3.4:5\nwhy", &mut SendAncillaryBuffer::default());
        say("connection 1.2.3.4:5", &mut SendAncillaryBuffer::default());
        drop(accepted);
        let Came::Connection(mut stream, Some(address)) = door.accept().await.unwrap() else {
            panic!("no connection");
        };
        assert_eq!(address, "93.184.216.34:443".parse().unwrap());
        agent.write_all(b"ping").unwrap();
        drop(agent);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "ping");
        let came = door.accept().await.unwrap();
        assert!(matches!(came, Came::Refused { what, .. } if what == "connect 1.2.3.4:5"));
        assert!(door.accept().await.is_err(), "without the connection");
        drop(theirs);
        assert!(door.accept().await.is_err());
    }
}
