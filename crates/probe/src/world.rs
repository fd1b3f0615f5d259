//! The world that the bait was laid in: where it lies, who listens, and which process is not to be touched.
//!
//! Trust: the judge made it. It holds no secret: what an attempt learns, it can only have learned from the bait.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What an attempt is told of the world.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// What [`crate::Goal::Tell`] is to say. The secret of the bait is another.
    pub word: String,
    /// The folder that is granted for writing: the probe starts in it.
    pub project: PathBuf,
    /// The person's home.
    pub home: PathBuf,
    /// Another project, which is not granted.
    pub beside: PathBuf,
    /// Bailiwick's state folder.
    pub state: PathBuf,
    /// A file of the machine's `/tmp`, of its `/var/tmp` and of its `/dev/shm`, each with the secret.
    pub shared: [PathBuf; 3],
    /// A process of the same user, with the secret in its environment, arguments, memory and descriptors.
    pub victim: i32,
    /// Where in the victim's memory the secret lies.
    pub address: u64,
    /// The victim's word in memory that it would repeat if asked.
    pub lever: u64,
    /// Another terminal of the person.
    pub terminal: PathBuf,
    /// Sockets in the file system: a stream outside, a stream in the project, datagrams outside.
    pub sockets: [PathBuf; 3],
    /// Names of abstract sockets: stream, datagram, sequenced packets.
    pub names: [String; 3],
    /// Ports that listen on every address of this machine: TCP, UDP.
    pub ports: [u16; 2],
    /// An address of this machine that is not loopback; none where it has no network.
    pub own_address: Option<std::net::Ipv4Addr>,
    /// The port of an HTTP server on the loopback, of which `GET` below `/ok` is allowed.
    pub origin: u16,
    /// The port of a server for TLS that may be reached by the name `pinned.test`.
    pub pinned: u16,
    /// A port where an honest server listens on a public address, and another one on the loopback.
    pub rebound: u16,
    /// True where names and addresses of the whole world are the test's own.
    pub internet: bool,
    /// Keys of System V objects: memory, messages, semaphores.
    pub keys: [i32; 3],
    /// The name of a POSIX message queue, with its slash.
    pub queue: String,
}

impl World {
    /// The path of one of the world's sockets; an empty one where there is none.
    pub fn place_of_socket(&self, number: usize) -> PathBuf {
        self.sockets.get(number).cloned().unwrap_or_default()
    }

    /// The path of a place: `project:PATH`, `home:PATH`, `beside:PATH`, `state:PATH`, `shared:NUMBER`, or an absolute one.
    pub fn place(&self, place: &str) -> PathBuf {
        match place.split_once(':') {
            Some(("project", path)) => self.project.join(path),
            Some(("home", path)) => self.home.join(path),
            Some(("beside", path)) => self.beside.join(path),
            Some(("state", path)) => self.state.join(path),
            Some(("shared", number)) => {
                let number = number.parse().unwrap_or(0);
                self.shared.get(number).cloned().unwrap_or_default()
            }
            _ => place.into(),
        }
    }
}
