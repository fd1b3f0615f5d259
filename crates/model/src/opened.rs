//! Hosts whose connections are opened, so that each request inside is judged.
//!
//! Trust: it comes from rules. This is routing only: what goes by either road is asked of the mediator.

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::pattern::{ANY_PORT, HostPattern};

/// A host and port whose TLS connections are opened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The hosts.
    pub host: HostPattern,
    /// The port, or [`ANY_PORT`].
    pub port: u16,
}

impl Opened {
    /// True when connections to this host and port are opened.
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        (self.port == ANY_PORT || self.port == port) && self.host.covers(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_must_both_be_covered() {
        let opened = |host: &str, port| Opened {
            host: HostPattern::parse(host).unwrap(),
            port,
        };
        let host = Host::parse("a.example.com").unwrap();
        assert!(opened("*.example.com", 443).covers(&host, 443));
        assert!(opened("**", ANY_PORT).covers(&host, 8443));
        assert!(!opened("*.example.com", 443).covers(&host, 8443));
        assert!(!opened("example.com", ANY_PORT).covers(&host, 443));
        let text = serde_json::to_string(&opened("**.a.test", 443)).unwrap();
        assert_eq!(text, r#"{"host":"**.a.test","port":443}"#);
        assert_eq!(serde_json::from_str::<Opened>(&text).unwrap(), opened("**.a.test", 443));
    }
}
