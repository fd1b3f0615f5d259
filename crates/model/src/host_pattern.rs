//! Patterns over hosts: one host, the names below a domain, a registrable domain with all below it, or any host.
//!
//! Promises: P4 (a pattern that cannot be read is an error), P5. Trust: patterns come from people's rule files; hosts that
//! they are matched against are in normal form already (`host`).
//! Not here: which domains are registrable (`policy` holds `site:` against the public suffix list when it reads rules).

use std::fmt;

use crate::host::Host;
use crate::pattern::{ANY_PORT, PatternError, as_text};

/// What stands before a registrable domain.
const SITE: &str = "site:";

/// A pattern over hosts: one host, `*.example.com` (one label more), `**.example.com` (any number), `site:example.com` (the
/// domain and any number), `**` (any host).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// Any host.
    Any,
    /// One host.
    Exact(Host),
    /// The names below a domain, not the domain itself.
    Below {
        /// The domain.
        domain: String,
        /// True for `**`: any number of labels more; false for `*`: one.
        deep: bool,
    },
    /// A registrable domain and all names below it: what one owner has of the public suffix.
    Site(String),
}

impl HostPattern {
    /// Reads a host pattern. That a site's domain is registrable is not looked at.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text == "**" {
            return Ok(Self::Any);
        }
        if let Some(domain) = text.strip_prefix(SITE) {
            return match Host::parse(domain)? {
                Host::Name(domain) => Ok(Self::Site(domain)),
                Host::Address(_) => Err(PatternError::Site(text.into())),
            };
        }
        let (deep, rest) = match (text.strip_prefix("**."), text.strip_prefix("*.")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) if text.contains('*') => return Err(PatternError::OpenHost(text.into())),
            (None, None) => return Ok(Self::Exact(Host::parse(text)?)),
        };
        if rest.contains('*') {
            return Err(PatternError::OpenHost(text.into()));
        }
        match Host::parse(rest)? {
            Host::Name(domain) => Ok(Self::Below { domain, deep }),
            Host::Address(_) => Err(PatternError::OpenHost(text.into())),
        }
    }

    /// True when the pattern covers this host.
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exact(own), other) => own == other,
            (Self::Below { domain, deep }, Host::Name(name)) => {
                below(name, domain).is_some_and(|head| *deep || !head.contains('.'))
            }
            (Self::Site(domain), Host::Name(name)) => name == domain || below(name, domain).is_some(),
            (Self::Below { .. } | Self::Site(_), Host::Address(_)) => false,
        }
    }

    /// True when this pattern covers no host that `wide` does not.
    pub fn is_within(&self, wide: &Self) -> bool {
        match (self, wide) {
            (_, Self::Any) => true,
            (Self::Exact(host), _) => wide.covers(host),
            (Self::Any | Self::Below { .. } | Self::Site(_), Self::Exact(_)) | (Self::Any, _) => false,
            (
                Self::Below { domain, deep },
                Self::Below {
                    domain: over,
                    deep: open,
                },
            ) => (domain == over && (*open || !*deep)) || (below(domain, over).is_some() && *open),
            (Self::Below { domain, .. } | Self::Site(domain), Self::Site(over)) => {
                domain == over || below(domain, over).is_some()
            }
            (Self::Site(domain), Self::Below { domain: over, deep }) => *deep && below(domain, over).is_some(),
        }
    }

    /// How narrow the pattern is: of two that cover one host, the greater covers less. Counts literal bytes first.
    pub fn narrowness(&self) -> usize {
        let (literal, form) = match self {
            Self::Any => (0, 0),
            Self::Site(domain) => (domain.len(), 0),
            Self::Below { domain, deep: true } => (domain.len(), 1),
            Self::Below { domain, deep: false } => (domain.len(), 2),
            Self::Exact(host) => (host.to_string().len(), 3),
        };
        literal.saturating_mul(4).saturating_add(form)
    }
}

/// What stands before a domain in a name below it, without the dot.
fn below<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let head = name.strip_suffix(domain)?.strip_suffix('.')?;
    (!head.is_empty()).then_some(head)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("**"),
            Self::Exact(host) => write!(f, "{host}"),
            Self::Below { domain, deep: true } => write!(f, "**.{domain}"),
            Self::Below { domain, deep: false } => write!(f, "*.{domain}"),
            Self::Site(domain) => write!(f, "{SITE}{domain}"),
        }
    }
}
as_text!(HostPattern);

/// Splits `host[:port]` of a pattern.
pub(crate) fn split_port(text: &str, default: u16) -> Result<(&str, u16), PatternError> {
    // The colon of a site is none before a port.
    if let Some(rest) = text.strip_prefix(SITE) {
        let (host, port) = split_port(rest, default)?;
        let whole = text.get(..SITE.len().saturating_add(host.len()));
        return Ok((whole.unwrap_or(text), port));
    }
    match text.rsplit_once(':') {
        Some((host, "*")) if !host.contains(':') || host.ends_with(']') => Ok((host, ANY_PORT)),
        Some((host, digits)) if !digits.ends_with(']') && (!host.contains(':') || host.ends_with(']')) => {
            let port = digits
                .parse()
                .ok()
                .filter(|port| *port != 0 && !digits.starts_with('+'));
            Ok((host, port.ok_or_else(|| PatternError::Port(digits.into()))?))
        }
        _ => Ok((text, default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(narrow: &str, wide: &str) -> bool {
        let pattern = |text: &str| HostPattern::parse(text).unwrap();
        pattern(narrow).is_within(&pattern(wide))
    }

    #[test]
    fn hosts_are_compared_by_label() {
        let covers =
            |pattern: &str, host: &str| HostPattern::parse(pattern).unwrap().covers(&Host::parse(host).unwrap());
        assert!(covers("example.com", "Example.COM."));
        assert!(!covers("example.com", "a.example.com") && !covers("example.com", "evilexample.com"));
        assert!(covers("*.example.com", "a.example.com") && !covers("*.example.com", "a.b.example.com"));
        assert!(!covers("*.example.com", "example.com") && !covers("*.example.com", "evilexample.com"));
        assert!(covers("**.example.com", "a.b.example.com") && !covers("**.example.com", "example.com"));
        assert!(covers("**", "10.0.0.1"));
        assert!(covers("site:example.co.uk", "example.co.uk") && covers("site:example.co.uk", "a.b.example.co.uk"));
        assert!(!covers("site:example.co.uk", "evilexample.co.uk") && !covers("site:example.co.uk", "co.uk"));
        assert!(!covers("site:example.co.uk", "10.0.0.1"));
    }

    #[test]
    fn p4_what_is_no_pattern_is_an_error() {
        for bad in [
            "*.*",
            "*",
            "a.*.b",
            "**.*",
            "*.127.0.0.1",
            "a b",
            "site:",
            "site:127.0.0.1",
            "site:*.a.test",
            "site:site:a.test",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(split_port("site:a.test", 443), Ok(("site:a.test", 443)));
        assert_eq!(split_port("site:a.test:8443", 443), Ok(("site:a.test", 8443)));
        assert_eq!(split_port("site:a.test:*", 443), Ok(("site:a.test", ANY_PORT)));
        assert!(split_port("site:a.test:x", 443).is_err());
    }

    #[test]
    fn p3_within_is_said_only_when_sure() {
        assert!(hosts("*.a.test", "**.a.test") && hosts("**.b.a.test", "**.a.test") && hosts("a.test", "*.test"));
        assert!(!hosts("**.a.test", "*.a.test") && !hosts("*.b.a.test", "*.a.test") && !hosts("**", "**.test"));
        assert!(!hosts("**.evila.test", "**.a.test") && !hosts("a.test", "*.a.test"));
        assert!(
            hosts("a.test", "site:a.test") && hosts("**.a.test", "site:a.test") && hosts("*.b.a.test", "site:a.test")
        );
        assert!(
            hosts("site:a.test", "site:a.test") && hosts("site:a.b.test", "**.b.test") && hosts("site:a.test", "**")
        );
        assert!(
            !hosts("site:a.test", "**.a.test") && !hosts("site:a.b.test", "*.b.test") && !hosts("**", "site:a.test")
        );
        assert!(!hosts("site:eviltest.test", "site:test.test") && !hosts("site:a.test", "a.test"));
    }

    #[test]
    fn the_wider_of_two_forms_is_less_narrow() {
        let narrowness = |text: &str| HostPattern::parse(text).unwrap().narrowness();
        let forms = ["**", "site:a.test", "**.a.test", "*.a.test", "b.a.test"];
        assert!(forms.map(narrowness).is_sorted_by(|wide, narrow| wide < narrow));
    }

    proptest::proptest! {
        #[test]
        fn p3_within_never_widens(
            narrow in "(\\*\\*|(\\*\\.|\\*\\*\\.|site:|)(a|b)(\\.(a|b|ab)){0,3})",
            wide in "(\\*\\*|(\\*\\.|\\*\\*\\.|site:|)(a|b)(\\.(a|b|ab)){0,3})",
            host in "(a|b|ab)(\\.(a|b|ab)){0,4}",
        ) {
            let pattern = |text: &str| HostPattern::parse(text).unwrap();
            let (narrow, wide, host) = (pattern(&narrow), pattern(&wide), Host::parse(&host).unwrap());
            if narrow.is_within(&wide) && narrow.covers(&host) {
                proptest::prop_assert!(wide.covers(&host), "{} in {} at {}", narrow, wide, host);
            }
            if narrow.covers(&host) && wide.covers(&host) && narrow.is_within(&wide) && narrow != wide {
                proptest::prop_assert!(narrow.narrowness() > wide.narrowness(), "{} than {}", narrow, wide);
            }
        }

        #[test]
        fn parse_never_panics_and_prints_what_it_reads(text in "(site:|\\*\\.|\\*\\*\\.)?\\PC{0,24}") {
            if let Ok(pattern) = HostPattern::parse(&text) {
                proptest::prop_assert_eq!(HostPattern::parse(&pattern.to_string()), Ok(pattern));
            }
        }
    }
}
