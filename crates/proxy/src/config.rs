//! What the gate is told when it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bailiwick_model::{Host, Opened, TaskId};
use serde::{Deserialize, Serialize};

use crate::certificates::Authority;
use crate::standin::StandIn;

/// What one network gate serves, and for which task. Comes from the daemon, which is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The task on whose behalf everything is asked.
    pub task: TaskId,
    /// What is served on each listening socket, in the order in which they are handed over.
    pub sockets: Vec<Service>,
    /// Names that are not looked up: they have this address.
    #[serde(default)]
    pub hosts: BTreeMap<Host, IpAddr>,
    /// Hosts whose TLS connections are opened: each request inside is asked about. Others are asked about as tunnels.
    #[serde(default)]
    pub opened: Vec<Opened>,
    /// The task's own authority, which signs for those hosts. Without it nothing is opened.
    #[serde(default)]
    pub authority: Option<Authority>,
    /// Roots that the person believes besides the machine's, for servers: PEM.
    #[serde(default)]
    pub roots: String,
    /// What stands for secrets, and where those are for.
    #[serde(default)]
    pub secrets: Vec<StandIn>,
    /// The build, told to the mediator in the greeting.
    pub build: String,
}

/// What is served on one listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Service {
    /// An HTTP proxy: `http://` requests and CONNECT.
    Proxy,
    /// DNS over datagrams.
    DnsDatagram,
    /// DNS over streams.
    DnsStream,
    /// Connections of programs that know no proxy, to any address that is not the fence's own: one that stands for a name
    /// (see [`SYNTHETIC`](crate::SYNTHETIC)), or one of the world's.
    Elsewhere {
        /// Endpoints that rules name as plain streams: whoever connects there need say nothing before it is asked about.
        streams: BTreeSet<(Host, u16)>,
    },
    /// The heads of datagrams that go nowhere.
    Strays,
    /// Plain HTTP for a port of the machine's loopback.
    LoopbackHttp {
        /// The port.
        port: u16,
    },
    /// A plain connection to a port of the machine's loopback.
    LoopbackStream {
        /// The port.
        port: u16,
    },
    /// Connections that are all meant for one host.
    Direct {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// True for plain HTTP, false for a connection that is passed on.
        http: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_read_back_as_it_was_written() {
        let config = Config {
            task: TaskId([1; 8]),
            sockets: vec![
                Service::Proxy,
                Service::DnsDatagram,
                Service::DnsStream,
                Service::Elsewhere {
                    streams: [(Host::parse("db.test").unwrap(), 5432)].into(),
                },
                Service::Strays,
                Service::LoopbackHttp { port: 11434 },
                Service::LoopbackStream { port: 5432 },
                Service::Direct {
                    host: Host::parse("a.test").unwrap(),
                    port: 443,
                    http: false,
                },
            ],
            hosts: [(Host::parse("a.test").unwrap(), IpAddr::from([127, 0, 0, 1]))].into(),
            opened: vec![Opened {
                host: bailiwick_model::HostPattern::parse("*.a.test").unwrap(),
                port: 443,
                except: Vec::new(),
            }],
            authority: Some(Authority::make("x").unwrap()),
            roots: "-----BEGIN".into(),
            secrets: Vec::new(),
            build: "0.1.0".into(),
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn p4_an_unknown_field_is_refused() {
        let text = r#"{"task":"0101010101010101","sockets":[],"build":"x","more":1}"#;
        assert!(serde_json::from_str::<Config>(text).is_err());
        let text = r#"{"task":"0101010101010101","sockets":[{"direct":{"port":1}}],"build":"x"}"#;
        assert!(serde_json::from_str::<Config>(text).is_err());
    }
}
