//! Hosts whose connections are opened, so that each request inside is judged.
//!
//! Trust: it comes from rules. This is routing only: what goes by either road is asked of the mediator.

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::host_pattern::HostPattern;
use crate::pattern::ANY_PORT;

/// A host and port whose TLS connections are opened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The hosts.
    pub host: HostPattern,
    /// The port, or [`ANY_PORT`].
    pub port: u16,
    /// Hosts and ports among them that are passed on unread all the same, since a rule as narrow or narrower says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<(HostPattern, u16)>,
}

impl Opened {
    /// True when connections to this host and port are opened.
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        let is = |own: &HostPattern, at: u16| (at == ANY_PORT || at == port) && own.covers(host);
        is(&self.host, self.port) && !self.except.iter().any(|(own, at)| is(own, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap()
    }

    fn opened(host: &str, port: u16) -> Opened {
        Opened {
            host: hosts(host),
            port,
            except: Vec::new(),
        }
    }

    #[test]
    fn host_and_port_must_both_be_covered() {
        let host = Host::parse("a.example.com").unwrap();
        assert!(opened("*.example.com", 443).covers(&host, 443));
        assert!(opened("**", ANY_PORT).covers(&host, 8443));
        assert!(!opened("*.example.com", 443).covers(&host, 8443));
        assert!(!opened("example.com", ANY_PORT).covers(&host, 443));
        let text = serde_json::to_string(&opened("**.a.test", 443)).unwrap();
        assert_eq!(text, r#"{"host":"**.a.test","port":443}"#);
        assert_eq!(serde_json::from_str::<Opened>(&text).unwrap(), opened("**.a.test", 443));
    }

    #[test]
    fn what_is_excepted_is_not_opened() {
        let opened = Opened {
            except: vec![(hosts("pinned.example.com"), 443)],
            ..opened("**", ANY_PORT)
        };
        let host = |text: &str| Host::parse(text).unwrap();
        assert!(!opened.covers(&host("pinned.example.com"), 443));
        assert!(opened.covers(&host("pinned.example.com"), 8443));
        assert!(opened.covers(&host("other.example.com"), 443));
        let text = serde_json::to_string(&opened).unwrap();
        assert_eq!(serde_json::from_str::<Opened>(&text).unwrap(), opened);
    }
}
