//! Which connections the network gate opens: those to hosts of which a rule says what may be requested.
//!
//! Promises: P5 (whichever road a connection takes, what goes by it is judged: this is routing only).
//! A rule on `https://` URLs opens the connections to its hosts. A tunnel rule on the same hosts, or on narrower ones, passes
//! them on unread. What neither names is asked about as a tunnel, so that a refusal comes before anything is sent.

use bailiwick_model::{
    ANY_PORT, AbsPath, Act, Host, HostPattern, Layer, Opened, ResourcePattern, Scheme, UrlPattern, Verb, VerbPattern,
    Verdict,
};

use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::document::Reader;
use crate::overlap::is_shipped;
use crate::rule::Rule;
use crate::settings::Settings;

impl Settings {
    /// True when connections to this host and port are opened, and each request inside is judged.
    pub fn opens(&self, host: &Host, port: u16) -> bool {
        self.opened.iter().any(|opened| opened.covers(host, port))
    }
}

/// The hosts and ports whose connections are opened, by the rules of the context.
pub(crate) fn opened(rules: &[Rule]) -> Vec<Opened> {
    let own = || {
        rules
            .iter()
            .filter(|rule| rule.layer() == Layer::Context && rule.effect != Verdict::Deny)
    };
    let tunnels: Vec<(&HostPattern, u16)> = own().filter_map(|rule| passed_on(rule.act())).collect();
    let mut found: Vec<Opened> = Vec::new();
    for rule in own() {
        let Some(url) = url_of(rule.act()) else { continue };
        if url.scheme != Scheme::Https
            || found
                .iter()
                .any(|known| (&known.host, known.port) == (&url.host, url.port))
        {
            continue;
        }
        let narrower = |(host, port): &&(&HostPattern, u16)| {
            host.narrowness() >= url.host.narrowness()
                && host.is_within(&url.host)
                && (*port == url.port || [*port, url.port].contains(&ANY_PORT))
        };
        let except = tunnels.iter().filter(narrower);
        found.push(Opened {
            host: url.host.clone(),
            port: url.port,
            except: except.map(|(host, port)| ((*host).clone(), *port)).collect(),
        });
    }
    found
}

/// The URLs that an act on requests or repositories is about.
pub(crate) fn url_of(act: &Act) -> Option<&UrlPattern> {
    match &act.resource {
        ResourcePattern::Url(url) => Some(url),
        ResourcePattern::Repository(pattern) => Some(&pattern.url),
        _ => None,
    }
}

/// The host and port that a tunnel rule passes on unread.
fn passed_on(act: &Act) -> Option<(&HostPattern, u16)> {
    match &act.resource {
        ResourcePattern::Endpoint { host, port } if act.verb == VerbPattern::One(Verb::Tunnel) => Some((host, *port)),
        _ => None,
    }
}

/// The tunnel that an act means, of which the table says `tls = "pass"`: any request to any path of a host.
pub(crate) fn passed(act: &Act) -> Option<Act> {
    match &act.resource {
        ResourcePattern::Url(url)
            if url.scheme == Scheme::Https && url.is_whole_host() && act.verb == VerbPattern::Any =>
        {
            Some(Act {
                verb: VerbPattern::One(Verb::Tunnel),
                resource: ResourcePattern::Endpoint {
                    host: url.host.clone(),
                    port: url.port,
                },
            })
        }
        _ => None,
    }
}

/// Complaints about rules of people on requests that go by unread, since a tunnel rule names the same host.
pub(crate) fn unread(rules: &[Rule]) -> Vec<Diagnostic> {
    let own = || {
        rules.iter().filter(|rule| {
            rule.layer() == Layer::Context && rule.effect != Verdict::Deny && rule.follows_from.is_none()
        })
    };
    let mut found = Vec::new();
    for rule in own().filter(|rule| !is_shipped(rule)) {
        let Some(url) = url_of(rule.act()) else { continue };
        let passes = |other: &&Rule| {
            passed_on(other.act()).is_some_and(|(host, port)| *host == url.host && [ANY_PORT, url.port].contains(&port))
        };
        if url.scheme != Scheme::Https {
            continue;
        }
        let Some(tunnel) = own().find(passes) else { continue };
        let origin = &rule.origin;
        let (severity, place, hint) = if tunnel.origin.file == origin.file {
            let hint = "take one of the two out: a tunnel is told by the host's name alone";
            (Severity::Error, format!("line {}", tunnel.origin.line), hint)
        } else {
            let hint = "a tunnel is told by the host's name alone; `profiles = []` goes without those of toolchains";
            (Severity::Warning, tunnel.origin.to_string(), hint)
        };
        let message = format!(
            "`{}` is never looked at: `{}` ({place}) passes that host on unread",
            origin.act, tunnel.origin.act
        );
        let place = Place {
            line: origin.line,
            column: origin.column,
        };
        found.push(Diagnostic::new(
            severity,
            &origin.file,
            place,
            &message,
            Some(hint.into()),
        ));
    }
    found
}

impl Reader<'_> {
    /// `[network] roots`: files with certificates that servers may be verified by, besides those of the machine.
    pub(crate) fn roots(&mut self, item: &toml_edit::Item, span: Option<crate::diagnostic::Span>) {
        if self.layer == Layer::Context {
            let hint =
                "put it into `~/.config/bailiwick/*.toml`: whom servers are believed from is not a project's to say";
            return self.error(span, "`roots` cannot stand in a project's file", Some(hint.into()));
        }
        for (text, span) in self.texts_of(item, "roots") {
            let path = match text.strip_prefix("~/") {
                Some(rest) => self.anchors.home.join(rest),
                None => AbsPath::new(&text),
            };
            match path {
                Ok(path) => self.file.settings.roots.push(path),
                Err(fault) => {
                    let hint = "write the path of a PEM file, as in `/etc/ssl/our-ca.pem` or `~/ca.pem`";
                    self.error(span, &fault.to_string(), Some(hint.into()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bailiwick_gate::AsWritten;
    use bailiwick_model::{Anchors, RuleRef};

    use super::*;

    fn rules(lines: &[&str]) -> Vec<Rule> {
        let anchors = Anchors {
            root: AbsPath::new("/p").ok(),
            home: AbsPath::new("/home/dana").unwrap(),
        };
        let origin = RuleRef {
            layer: Layer::Context,
            file: "f".into(),
            line: 1,
            column: 1,
            act: String::new(),
        };
        let mut all = Vec::new();
        for line in lines {
            let (effect, act) = match line.split_once(' ') {
                Some(("ask", act)) => (Verdict::Ask, act),
                Some(("deny", act)) => (Verdict::Deny, act),
                _ => (Verdict::Allow, *line),
            };
            let act = Act::parse(act, &anchors).unwrap();
            all.extend(Rule::written(effect, act, &origin, None, &AsWritten));
        }
        all
    }

    #[test]
    fn p5_what_a_rule_requests_is_opened_unless_a_tunnel_names_it() {
        let opens = |lines: &[&str], host: &str, port| {
            let host = Host::parse(host).unwrap();
            opened(&rules(lines)).iter().any(|opened| opened.covers(&host, port))
        };
        for (lines, host, port, want) in [
            (&["GET https://a.test/x"][..], "a.test", 443, true),
            (&["GET https://a.test/x"], "b.test", 443, false),
            (&["GET https://a.test/x"], "a.test", 8443, false),
            (&["GET https://a.test:*/x"], "a.test", 8443, true),
            (&["GET http://a.test/x"], "a.test", 443, false),
            (&["ask POST https://**"], "a.test", 443, true),
            (&["deny POST https://a.test/x"], "a.test", 443, false),
            (&["GET https://a.test/x", "tunnel a.test"], "a.test", 443, false),
            (&["GET https://a.test/x", "ask tunnel a.test"], "a.test", 443, false),
            (&["GET https://a.test/x", "tunnel a.test:22"], "a.test", 443, true),
            (&["GET https://**", "tunnel a.test"], "a.test", 443, false),
            (&["GET https://**", "tunnel a.test"], "b.test", 443, true),
            (&["GET https://a.test/x", "tunnel **"], "a.test", 443, true),
            (&["GET https://a.test/x", "tunnel *.test"], "a.test", 443, true),
            (&["GET https://*.b.test/x", "tunnel *.test"], "a.b.test", 443, true),
            (&["GET https://a.test:*/x", "tunnel a.test"], "a.test", 443, false),
            (&["GET https://a.test:*/x", "tunnel a.test"], "a.test", 8443, true),
            (&["GET https://localhost:8443"], "127.0.0.1", 8443, true),
        ] {
            assert_eq!(opens(lines, host, port), want, "{lines:?} {host}:{port}");
        }
    }

    #[test]
    fn only_a_whole_host_can_be_passed_on() {
        let act = |text: &str| rules(&[text]).remove(0).act().clone();
        assert_eq!(
            passed(&act("* https://a.test:8443"))
                .map(|act| act.to_string())
                .as_deref(),
            Some("tunnel a.test:8443")
        );
        for other in [
            "GET https://a.test",
            "* https://a.test/x/**",
            "* http://a.test",
            "read /x",
        ] {
            assert_eq!(passed(&act(other)), None, "{other}");
        }
    }
}
