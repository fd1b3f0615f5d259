//! By which road a request came in, and which one URL it is for.
//!
//! Promises: P5 (the host of the request line, of the Host line, and what was connected to, are one), P4 (what can be read
//! in two ways is refused).
//! Trust: request line and head are the agent's. Not here: sending on (`forward`).
//! See: RFC 9112 section 3.2.

use std::net::IpAddr;

use bailiwick_model::{Code, Host, HttpUrl, Scheme};
use hyper::header::{self, HeaderMap};
use hyper::{Uri, Version};

/// By which road a request came in, which says for whom it can be meant.
#[derive(Debug, Clone)]
pub(crate) enum Road {
    /// Through the proxy: the request says for whom.
    Proxy,
    /// Straight, to a socket that stands for one host and port.
    Straight {
        /// The scheme: `https` where the connection was opened.
        scheme: Scheme,
        /// The host.
        host: Host,
        /// The port.
        port: u16,
    },
    /// Straight, to an address that stands for no name: the Host line says which is meant.
    Address {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// Straight, to a socket that stands for a port of the machine's loopback.
    Loopback {
        /// The port.
        port: u16,
    },
}

/// What is wrong with a request before anything is asked about it.
type Flaw = (Code, String);

fn flaw(code: Code, why: impl Into<String>) -> Flaw {
    (code, why.into())
}

impl Road {
    /// The one URL that a request is for.
    pub(crate) fn url_of(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<HttpUrl, Flaw> {
        if let Self::Address { address, port } = self {
            return Self::named(*address, *port, headers)?.url_of(version, uri, headers);
        }
        let url = match (self, uri.scheme_str()) {
            (Self::Proxy, None) => {
                return Err(flaw(
                    Code::MalformedRequest,
                    "a proxy is asked for a whole url, `http://host/path`",
                ));
            }
            (_, Some(_)) => {
                HttpUrl::parse(&uri.to_string()).map_err(|fault| flaw(Code::MalformedRequest, fault.to_string()))?
            }
            (Self::Straight { scheme, host, port }, None) => Self::own(*scheme, host.clone(), *port, uri)?,
            (Self::Address { address, port }, None) => Self::own(Scheme::Http, Host::Address(*address), *port, uri)?,
            (Self::Loopback { port }, None) => {
                Self::own(Scheme::Http, Host::Address([127, 0, 0, 1].into()), *port, uri)?
            }
        };
        if url.scheme != self.scheme() {
            let why = match self.scheme() {
                Scheme::Http => "https is asked for with CONNECT, so that the client itself speaks TLS",
                Scheme::Https => "the request line inside TLS names another scheme than https",
            };
            return Err(flaw(Code::MalformedRequest, why));
        }
        self.check_target(&url.host, url.port, "the request line")?;
        let mut named = headers.get_all(header::HOST).iter();
        match (named.next(), named.next(), self) {
            (Some(_), Some(_), _) => return Err(flaw(Code::MalformedRequest, "there are two Host lines")),
            (None, _, Self::Proxy) => {}
            // On HTTP/2 the authority says it (RFC 9113, section 8.3.1).
            (None, _, _) if version == Version::HTTP_2 && uri.authority().is_some() => {}
            (None, _, Self::Straight { .. } | Self::Address { .. } | Self::Loopback { .. }) => {
                return Err(flaw(Code::MalformedRequest, "there is no Host line"));
            }
            (Some(line), None, _) => {
                let text = line
                    .to_str()
                    .map_err(|_| flaw(Code::MalformedRequest, "the Host line is not text"))?;
                let (host, port) = HttpUrl::authority(text, self.scheme().default_port())
                    .map_err(|fault| flaw(Code::MalformedRequest, format!("the Host line: {fault}")))?;
                match self {
                    Self::Proxy if (&host, port) != (&url.host, url.port) => {
                        return Err(flaw(
                            Code::NameMismatch,
                            format!("the Host line names `{text}`, the request line another host"),
                        ));
                    }
                    Self::Proxy => {}
                    Self::Straight { .. } | Self::Address { .. } | Self::Loopback { .. } => {
                        self.check_target(&host, port, "the Host line")?;
                    }
                }
            }
        }
        match self {
            Self::Proxy | Self::Straight { .. } | Self::Address { .. } => Ok(url),
            // Whatever the spelling, one address is asked about.
            Self::Loopback { port } => {
                HttpUrl::from_parts(Scheme::Http, Host::Address([127, 0, 0, 1].into()), *port, &url.target())
                    .map_err(|fault| flaw(Code::MalformedRequest, fault.to_string()))
            }
        }
    }

    /// The road to the host that the Host line names. An address there is the address that was connected to, and this
    /// machine is not elsewhere.
    fn named(address: IpAddr, port: u16, headers: &HeaderMap) -> Result<Self, Flaw> {
        let line = headers.get(header::HOST).and_then(|line| line.to_str().ok());
        let named = line.and_then(|text| HttpUrl::authority(text, Scheme::Http.default_port()).ok());
        let host = match named {
            Some((host @ Host::Name(_), _)) if !host.is_localhost() => host,
            // What is missing or wrong is told further on.
            _ => Host::Address(address),
        };
        Ok(Self::Straight {
            scheme: Scheme::Http,
            host,
            port,
        })
    }

    /// The scheme of every request that comes by this road.
    fn scheme(&self) -> Scheme {
        match self {
            Self::Straight { scheme, .. } => *scheme,
            Self::Proxy | Self::Address { .. } | Self::Loopback { .. } => Scheme::Http,
        }
    }

    fn own(scheme: Scheme, host: Host, port: u16, uri: &Uri) -> Result<HttpUrl, Flaw> {
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        HttpUrl::from_parts(scheme, host, port, target).map_err(|fault| flaw(Code::MalformedRequest, fault.to_string()))
    }

    /// Refuses a host and port that this road does not lead to.
    fn check_target(&self, host: &Host, port: u16, place: &str) -> Result<(), Flaw> {
        let fits = match self {
            Self::Proxy => true,
            Self::Straight {
                host: own, port: at, ..
            } => own == host && *at == port,
            Self::Address { address, port: at } => host.address() == Some(*address) && *at == port,
            Self::Loopback { port: at } => {
                let this_machine = host.address().is_some_and(|address| {
                    address == std::net::IpAddr::from([127, 0, 0, 1]) || address == std::net::Ipv6Addr::LOCALHOST
                });
                (this_machine || host.is_localhost()) && *at == port
            }
        };
        if fits {
            return Ok(());
        }
        Err(flaw(
            Code::NameMismatch,
            format!("{place} names `{host}` port {port}, which is not what was connected to"),
        ))
    }
}
