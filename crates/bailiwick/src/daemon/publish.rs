//! Ports of a task that are seen outside: listens on the machine's loopback, has the first process connect inside, and
//! hands both ends to the network gate, which joins them.
//!
//! Promises: P10 (each port is on record before anything starts), P11 (when the task ends, the ports are closed, and
//! with the gate all that went through them).
//! Trust: who connects is any program or browser of this machine, and may open many connections; no byte of theirs is
//! read here. Not here: joining (`bailiwick_proxy`), connecting inside (`bailiwick_fence`).

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bailiwick_fence::Control;
use bailiwick_gate::{LaunchFault, Listen};
use bailiwick_model::Code;
use bailiwick_policy::Published;

use super::spare::Joiner;

/// Most ports of one task.
const MOST: usize = 32;

/// The ports that are wanted: those of the command line take the place of rules on the same port inside.
pub fn wanted(rules: &[Published], order: &[Published], served: &[Listen]) -> Result<Vec<Published>, LaunchFault> {
    let refuse = |what: String, hint: &str| LaunchFault {
        code: Code::PortTaken,
        what,
        cause: String::new(),
        hint: hint.into(),
    };
    let mut all: Vec<Published> = order.to_vec();
    let ordered = |port: &Published| order.iter().any(|other| other.inside == port.inside);
    all.extend(rules.iter().filter(|port| !ordered(port)));
    all.sort_unstable();
    all.dedup();
    if all.len() > MOST {
        return Err(refuse(
            format!("{} ports are to be seen outside: at most {MOST} can be", all.len()),
            "name those that are needed",
        ));
    }
    for (place, port) in all.iter().enumerate() {
        if all
            .iter()
            .skip(place.saturating_add(1))
            .any(|other| other.outside == port.outside)
        {
            return Err(refuse(
                format!("port {} outside is asked for twice", port.outside),
                "write `OUTSIDE:INSIDE` with another port outside",
            ));
        }
        if served.iter().any(|listen| listen.port == port.inside) {
            return Err(refuse(
                format!(
                    "port {} inside is the network gate's own, for what the agent sends out",
                    port.inside
                ),
                "have the program inside listen on another port",
            ));
        }
    }
    Ok(all)
}

/// Listens outside. Nobody is served before [`Ports::serve`].
#[derive(Debug)]
pub struct Ports(Vec<(Published, TcpListener)>);

/// Takes the ports outside, all or none.
pub fn listen(wanted: &[Published]) -> Result<Ports, LaunchFault> {
    let take = |port: &Published| {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port.outside));
        bound.map(|listener| (*port, listener)).map_err(|e| LaunchFault {
            code: Code::PortTaken,
            what: format!("port {} of this machine cannot be used", port.outside),
            cause: match e.kind() {
                io::ErrorKind::AddrInUse => "another program, or another task, listens there".into(),
                io::ErrorKind::PermissionDenied => "this account may not use ports below 1024".into(),
                _ => e.to_string(),
            },
            hint: format!(
                "`bailiwick run -p OTHER:{}` shows it at another port; `bailiwick status` lists the ports of other tasks",
                port.inside
            ),
        })
    };
    wanted.iter().map(take).collect::<Result<_, _>>().map(Ports)
}

impl Ports {
    /// Serves until the answer is closed.
    pub fn serve(self, fence: &Arc<Control>, joiner: &Joiner) -> io::Result<Open> {
        let mut open = Open(Vec::new());
        for (port, listener) in self.0 {
            open.0.push(listener.try_clone()?);
            let (fence, joiner) = (Arc::clone(fence), joiner.clone());
            std::thread::spawn(move || accept(&listener, port.inside, &fence, &joiner));
        }
        Ok(open)
    }
}

/// Ports that are served. Dropped, it closes them.
#[derive(Debug)]
pub struct Open(Vec<TcpListener>);

impl Drop for Open {
    fn drop(&mut self) {
        for listener in &self.0 {
            // Whoever waits in `accept` comes back with an error, and the last handle on the socket goes.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, inside: u16, fence: &Control, joiner: &Joiner) {
    loop {
        match listener.accept() {
            Ok((outer, _)) => {
                // Where nothing listens inside, whoever connected sees the connection close.
                if let Ok(inner) = fence.connect(inside) {
                    let _ = joiner.join(&OwnedFd::from(outer), &inner);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return,
            // A connection that was broken off, or too many open files: what ends makes room.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(texts: &[&str]) -> Vec<Published> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_command_line_takes_the_place_of_rules() {
        let all = wanted(&ports(&["5173", "80:8080"]), &ports(&["9000:5173"]), &[]).unwrap();
        assert_eq!(all, ports(&["80:8080", "9000:5173"]));
        assert!(wanted(&[], &ports(&["80:1", "80:2"]), &[]).is_err());
        let served = Listen {
            address: Ipv4Addr::LOCALHOST,
            port: 3128,
            kind: bailiwick_gate::ListenKind::Stream,
        };
        assert!(wanted(&[], &ports(&["3128"]), &[served]).is_err());
    }

    #[test]
    fn a_port_that_is_taken_is_told_and_a_closed_one_is_free_again() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let wanted = ports(&[&port.to_string()]);
        let told = listen(&wanted).unwrap_err();
        assert!(
            told.code == Code::PortTaken && told.what.contains(&port.to_string()),
            "{told}"
        );
        drop(other);
        drop(listen(&wanted).unwrap());
        listen(&wanted).unwrap();
    }
}
