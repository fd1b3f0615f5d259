//! Stand-ins: what the agent has in place of secrets, and where in a request they are.
//!
//! Promises: P9, P5 (a stand-in is found in a head however it is written there: plain, percent-encoded, inside Basic).
//! Trust: requests are the agent's, which may send a stand-in anywhere in the hope that the value goes there. A stand-in by
//! itself is worth nothing to whoever gets it.
//! Not here: which secret a request may have (the mediator), putting it in (`inject`).

use bailiwick_model::{Argument, HttpUrl, Place, Request, SecretName, UrlPattern, argument};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hyper::header::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use crate::scrub::Forms;

/// A secret as the gate knows it: what stands for it, and where it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandIn {
    /// The secret.
    pub secret: SecretName,
    /// What the agent has in its place.
    pub text: String,
    /// Which requests it is for.
    pub urls: Vec<UrlPattern>,
    /// Where in them it stands.
    pub place: Place,
    /// True when the cookies of its hosts are kept here.
    pub session: bool,
}

impl StandIn {
    /// True when the secret is for this request.
    fn covers(&self, url: &HttpUrl) -> bool {
        self.urls.iter().any(|pattern| pattern.covers(url))
    }

    /// True when the secret is for some request to the same host and port.
    fn is_at(&self, url: &HttpUrl) -> bool {
        let at = |own: &UrlPattern| own.scheme == url.scheme && own.port == url.port && own.host.covers(&url.host);
        self.urls.iter().any(at)
    }
}

impl Look {
    /// Tells the mediator of a login that is the agent's own.
    pub(crate) fn told(&self, mut request: Request) -> Request {
        if self.own_login {
            let name = argument::CREDENTIAL.to_owned();
            request.arguments.insert(name, Argument::Flag(true));
        }
        request
    }
}

/// All stand-ins of a task.
#[derive(Default)]
pub(crate) struct StandIns {
    all: Vec<StandIn>,
}

/// What a look at a request's head found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// The secrets whose stand-ins stand in their places.
    pub(crate) sent: Vec<SecretName>,
    /// True when the request brings a login of its own.
    pub(crate) own_login: bool,
    /// True when the cookies of the host are kept here.
    pub(crate) session: bool,
}

impl StandIns {
    pub(crate) fn of(all: Vec<StandIn>) -> Self {
        Self { all }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn text_of(&self, secret: &SecretName) -> Option<&str> {
        let found = self.all.iter().find(|own| own.secret == *secret);
        found.map(|own| own.text.as_str())
    }

    /// What a body is looked through for. Where a body is the place of one, that one is not among them.
    pub(crate) fn in_bodies(&self, but: Option<&SecretName>) -> Forms {
        let mut forms = Forms::none();
        for own in self.all.iter().filter(|own| Some(&own.secret) != but) {
            let text = own.text.clone().into_bytes();
            forms.put(text.clone(), text);
        }
        forms
    }

    /// Looks through the head of a request. The error says which stand-in is where it does not belong.
    pub(crate) fn look(&self, url: &HttpUrl, headers: &HeaderMap) -> Result<Look, String> {
        let url = &url.clone().with_one_loopback();
        let mut look = Look {
            session: self.all.iter().any(|own| own.session && own.is_at(url)),
            ..Look::default()
        };
        for own in &self.all {
            let spots = spots(&own.text, url, headers);
            let belongs = own.covers(url) && spots.iter().all(|spot| spot.is(&own.place));
            match spots.as_slice() {
                [] => {}
                [_] if belongs => look.sent.push(own.secret.clone()),
                [_] if !own.covers(url) => {
                    return Err(format!("the stand-in of secret:{} is not for this request", own.secret));
                }
                _ => return Err(format!("the stand-in of secret:{} is not in its place", own.secret)),
            }
        }
        look.own_login = self.brings_its_own(url, headers);
        Ok(look)
    }

    /// True for a login that is none of the stand-ins, in any header in which one may stand at this host.
    fn brings_its_own(&self, url: &HttpUrl, headers: &HeaderMap) -> bool {
        let here = self.all.iter().filter(|own| own.is_at(url));
        let places = here.filter_map(|own| own.place.header());
        let logins = ["authorization", "cookie"].into_iter().chain(places);
        let is_own = |name: &str| {
            headers.get_all(name).iter().any(|value| {
                let holds = |own: &StandIn| in_value(&own.text, value.as_bytes()) > 0;
                // A signature is made anew; it names the key that it was made with.
                let signed = |own: &StandIn| match &own.place {
                    Place::Signature { key, .. } => own.covers(url) && is_signed_with(key, value.as_bytes()),
                    _ => false,
                };
                !self.all.iter().any(|own| holds(own) || signed(own))
            })
        };
        let by_header = logins.into_iter().any(is_own);
        let by_query = self
            .all
            .iter()
            .filter(|own| own.is_at(url))
            .any(|own| match &own.place {
                Place::Query { name } => {
                    let values = parameters(url).filter(|(own, _)| own == name);
                    values
                        .into_iter()
                        .any(|(_, value)| !self.all.iter().any(|own| value == own.text))
                }
                _ => false,
            });
        by_header || by_query
    }
}

fn is_signed_with(key: &str, value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    text.starts_with("AWS4-HMAC-SHA256 ") && text.contains(&format!("Credential={key}/"))
}

/// Where a stand-in was found.
#[derive(Debug, PartialEq, Eq)]
enum Spot {
    /// In this header, once; with what kind of login where that is its header.
    Header { name: String, scheme: Option<String> },
    /// As the whole of this parameter.
    Query(String),
    /// Where no place is: in the path, beside other text of the query, twice in a header, in a header's name.
    Elsewhere,
}

impl Spot {
    fn is(&self, place: &Place) -> bool {
        match (self, place) {
            (Self::Header { name, scheme }, Place::Bearer) => {
                name == "authorization" && scheme.as_deref() == Some("bearer")
            }
            (Self::Header { name, scheme }, Place::Basic { .. }) => {
                name == "authorization" && scheme.as_deref() == Some("basic")
            }
            (Self::Header { name, scheme }, Place::Header { name: own }) => {
                name == own && scheme.as_deref() != Some("basic")
            }
            (Self::Query(name), Place::Query { name: own }) => name == own,
            _ => false,
        }
    }
}

/// The parameters of a query, decoded.
pub(crate) fn parameters(url: &HttpUrl) -> impl Iterator<Item = (String, String)> {
    url.query().unwrap_or_default().split('&').map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    })
}

/// Percent-decoding, with `+` for a blank; what is no encoding stays.
pub(crate) fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let two = || {
            let [high, low] = [bytes.clone().next()?, bytes.clone().nth(1)?];
            let digits = [high, low];
            let digits = std::str::from_utf8(&digits).ok()?;
            u8::from_str_radix(digits, 16).ok().filter(|_| high != b'+')
        };
        match byte {
            b'+' => out.push(b' '),
            b'%' => match two() {
                Some(value) => {
                    out.push(value);
                    bytes.nth(1);
                }
                None => out.push(b'%'),
            },
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The user and password of a Basic login.
pub(crate) fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, coded) = text.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let coded = coded.trim();
    STANDARD
        .decode(coded)
        .or_else(|_| STANDARD_NO_PAD.decode(coded.trim_end_matches('=')))
        .ok()
}

fn times(text: &str, within: &[u8]) -> usize {
    let text = text.as_bytes();
    within.windows(text.len().max(1)).filter(|part| *part == text).count()
}

/// How often a stand-in is in the value of a header, plain or inside Basic.
fn in_value(text: &str, value: &[u8]) -> usize {
    let within = basic(value).map_or(0, |login| times(text, &login));
    times(text, value).saturating_add(within)
}

/// Everywhere in a head that a stand-in is.
fn spots(text: &str, url: &HttpUrl, headers: &HeaderMap) -> Vec<Spot> {
    let mut found = Vec::new();
    let path = decoded(url.path());
    if times(text, path.as_bytes()) > 0 || times(text, url.path().as_bytes()) > 0 {
        found.push(Spot::Elsewhere);
    }
    let query = url.query().unwrap_or_default();
    if times(text, query.as_bytes()) > 0 || times(text, decoded(query).as_bytes()) > 0 {
        let whole: Vec<Spot> = parameters(url)
            .filter(|(_, value)| value == text)
            .map(|(name, _)| Spot::Query(name))
            .collect();
        let all = times(text, decoded(query).as_bytes()).max(times(text, query.as_bytes()));
        if whole.len() == all {
            found.extend(whole);
        } else {
            found.push(Spot::Elsewhere);
        }
    }
    for (name, value) in headers {
        let count = in_value(text, value.as_bytes());
        if in_name(text, name) {
            found.push(Spot::Elsewhere);
        }
        match count {
            0 => {}
            1 => {
                let words = value.to_str().unwrap_or_default().trim();
                let scheme = words
                    .split_once(' ')
                    .map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest.trim()));
                // A bearer is the whole of what follows the word.
                let scheme = match scheme {
                    Some((scheme, rest)) if scheme == "bearer" => (rest == text).then_some(scheme),
                    Some((scheme, _)) => Some(scheme),
                    None => None,
                };
                found.push(Spot::Header {
                    name: name.as_str().into(),
                    scheme,
                });
            }
            _ => found.push(Spot::Elsewhere),
        }
    }
    found
}

fn in_name(text: &str, name: &HeaderName) -> bool {
    times(&text.to_ascii_lowercase(), name.as_str().as_bytes()) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand_in(secret: &str, url: &str, place: &str) -> StandIn {
        StandIn {
            secret: SecretName::parse(secret).unwrap(),
            text: format!("standin-{secret}-0123456789"),
            urls: vec![UrlPattern::parse(url).unwrap()],
            place: Place::read(place, None).unwrap(),
            session: false,
        }
    }

    fn look(url: &str, lines: &[(&str, &str)]) -> Result<Look, String> {
        let all = StandIns::of(vec![
            stand_in("a", "https://a.test/api/**", "bearer"),
            stand_in("b", "https://b.test/**", "header:x-key"),
            stand_in("c", "https://c.test/**", "basic"),
            stand_in("d", "https://d.test/**", "query:key"),
        ]);
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        all.look(&HttpUrl::parse(url).unwrap(), &headers)
    }

    const A: &str = "standin-a-0123456789";
    const D: &str = "standin-d-0123456789";

    #[test]
    fn c055_a_stand_in_is_found_wherever_it_is_and_belongs_in_one_place() {
        let bearer = format!("Bearer {A}");
        let sent = |found: Result<Look, String>| found.map(|look| look.sent.len());
        assert_eq!(sent(look("https://a.test/api/x", &[("authorization", &bearer)])), Ok(1));
        assert_eq!(
            sent(look(
                "https://a.test/api/x",
                &[("authorization", &bearer.to_lowercase())]
            )),
            Ok(1)
        );
        let twice = format!("Bearer {A} {A}");
        let both = format!("Bearer {A}x");
        let basic = format!("Basic {}", STANDARD.encode(format!("bot:{A}")));
        for (url, lines) in [
            ("https://b.test/", &[("authorization", bearer.as_str())][..]),
            ("https://a.test/other", &[("authorization", &bearer)]),
            ("http://a.test/api/x", &[("authorization", &bearer)]),
            ("https://a.test/api/x", &[("cookie", A)]),
            ("https://a.test/api/x", &[("referer", &bearer)]),
            ("https://a.test/api/x", &[("authorization", &twice)]),
            ("https://a.test/api/x", &[("authorization", &both)]),
            ("https://a.test/api/x", &[("authorization", &basic)]),
            ("https://a.test/api/x", &[("authorization", &bearer), ("x-more", A)]),
            ("https://a.test/api/x", &[(A, "1")]),
            ("https://a.test/api/x?q=standin-a-0123456789", &[]),
            ("https://a.test/api/x?q=standin%2Da-0123456789", &[]),
            ("https://a.test/api/standin-a-0123456789", &[]),
            ("https://none.test/api/standin%2Da-0123456789", &[]),
        ] {
            assert!(look(url, lines).is_err(), "{url} {lines:?}");
        }
        let right = format!("https://d.test/x?more=1&key={D}");
        assert_eq!(sent(look(&right, &[])), Ok(1));
        assert!(look(&format!("https://d.test/x?other={D}"), &[]).is_err());
        assert!(look(&format!("https://d.test/x?key={D}&key={D}"), &[]).is_err());
    }

    #[test]
    fn c054_a_basic_login_is_looked_into() {
        let c = "standin-c-0123456789";
        let login = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let found = look("https://c.test/x", &[("authorization", &login(&format!("bot:{c}")))]).unwrap();
        assert_eq!((found.sent.len(), found.own_login), (1, false));
        let found = look("https://c.test/x", &[("authorization", &login("bot:other"))]).unwrap();
        assert!(found.own_login);
    }

    proptest::proptest! {
        #[test]
        fn p9_no_head_hides_a_whole_stand_in(
            before in "[ -~]{0,20}",
            after in "[ -~]{0,20}",
            name in "x-[a-z]{1,8}",
            coded in proptest::prelude::any::<bool>(),
        ) {
            let text = format!("{before}{A}{after}");
            let value = if coded { format!("Basic {}", STANDARD.encode(&text)) } else { text };
            proptest::prop_assert!(look("https://b.test/", &[(name.as_str(), value.trim())]).is_err());
        }

        #[test]
        fn p4_any_head_is_looked_through(path in "/[!-~]{0,60}", value in "[ -~]{0,60}") {
            if HttpUrl::parse(&format!("https://a.test{path}")).is_ok() {
                let _ = look(&format!("https://a.test{path}"), &[("authorization", value.trim()), ("cookie", value.trim())]);
            }
        }
    }

    #[test]
    fn a_login_of_its_own_is_seen() {
        for (url, lines, own) in [
            ("https://a.test/api/x", &[][..], false),
            ("https://a.test/api/x", &[("authorization", "Bearer mine")], true),
            ("https://a.test/else", &[("authorization", "Bearer mine")], true),
            ("https://a.test/api/x", &[("cookie", "id=1")], true),
            ("https://b.test/", &[("x-key", "mine")], true),
            ("https://a.test/api/x", &[("x-key", "mine")], false),
            ("https://d.test/?key=mine", &[], true),
            ("https://a.test/api/?key=mine", &[], false),
        ] {
            assert_eq!(look(url, lines).unwrap().own_login, own, "{url} {lines:?}");
        }
    }
}
