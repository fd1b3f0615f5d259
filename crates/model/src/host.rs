//! Host names and addresses in one normal form, and what kind of place an address is.
//!
//! Promises: P5. Trust: the text comes from the agent, or from a server it chose; it wants `evil.test` to be read
//! as an allowed host, or `127.0.0.1` as a public one.
//! See: WHATWG URL, section 3.5 (host parsing, with its many spellings of an IPv4 address); UTS 46 for names;
//! RFC 6890 and the IANA special-purpose registries for the classes of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest host name, in bytes (RFC 1035, section 2.3.4, without the final dot).
const MAX: usize = 253;

/// Says why a text is not a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing is left of it.
    #[error("the host is empty")]
    Empty,
    /// It holds a character that no host has (user information, a path, white space, a control character).
    #[error("`{0}` is not a host name: {1:?} cannot stand in one")]
    Character(String, char),
    /// It is not a name under the rules of DNS and IDNA.
    #[error("`{0}` is not a host name")]
    Name(String),
    /// It ends in a number but is no address.
    #[error("`{0}` looks like an address but is none")]
    Address(String),
}

/// A host: a lower-case ASCII name (international names in their `xn--` form, no final dot), or an address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address; an IPv4 address written as IPv6 has been brought back to IPv4.
    Address(IpAddr),
}

impl Host {
    /// Reads any spelling: letter case, a final dot, international names, `0x7f.1`, `2130706433`, `[::ffff:7f00:1]`.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(|| HostError::Address(text.into()))?;
            let address: Ipv6Addr = inner.parse().map_err(|_| HostError::Address(text.into()))?;
            return Ok(Self::Address(unmapped(address)));
        }
        if text.matches(':').count() >= 2 {
            let address: Ipv6Addr = text.parse().map_err(|_| HostError::Address(text.into()))?;
            return Ok(Self::Address(unmapped(address)));
        }
        if let Some(bad) = text
            .chars()
            .find(|c| !c.is_alphanumeric() && c.is_ascii() && !matches!(c, '-' | '.' | '_'))
        {
            return Err(HostError::Character(text.into(), bad));
        }
        let ascii = idna::domain_to_ascii(text).map_err(|_| HostError::Name(text.into()))?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if ends_in_number(name) {
            return ipv4(name)
                .map(|v4| Self::Address(v4.into()))
                .ok_or_else(|| HostError::Address(text.into()));
        }
        let label_ok =
            |label: &str| (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_');
        if name.len() > MAX || !name.split('.').all(label_ok) || !name.bytes().all(plain) {
            return Err(HostError::Name(text.into()));
        }
        Ok(Self::Name(name.into()))
    }

    /// The address, when the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name(_) => None,
        }
    }

    /// What an international name looks like where it is not shown in ASCII; none for all that is ASCII through and through.
    pub fn looks_like(&self) -> Option<String> {
        let Self::Name(name) = self else { return None };
        let is_international = name.split('.').any(|label| label.starts_with("xn--"));
        is_international.then(|| idna::domain_to_unicode(name).0)
    }

    /// True for `localhost` and the names below it, which mean this machine (RFC 6761, section 6.3).
    pub fn is_localhost(&self) -> bool {
        matches!(self, Self::Name(name) if name == "localhost" || name.ends_with(".localhost"))
    }

    /// The same with one spelling for this machine, which has three: `localhost`, `127.0.0.1` and `[::1]`.
    #[must_use]
    pub fn with_one_loopback(self) -> Self {
        if self.is_localhost() || self == Self::Address(Ipv6Addr::LOCALHOST.into()) {
            return Self::Address(Ipv4Addr::LOCALHOST.into());
        }
        self
    }
}

/// Brings an IPv6 spelling of an IPv4 address (mapped, compatible, NAT64) back to the IPv4 address it reaches.
fn unmapped(address: Ipv6Addr) -> IpAddr {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let [h1, h2] = high.to_be_bytes();
    let [l1, l2] = low.to_be_bytes();
    let v4 = IpAddr::V4(Ipv4Addr::new(h1, h2, l1, l2));
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) => v4,
        (0, 0, 0, 0, 0, 0) if high != 0 => v4,
        (0x64, 0xff9b, 0, 0, 0, 0) => v4,
        _ => IpAddr::V6(address),
    }
}

/// True when the last label is a number in any spelling, so that the whole must be an address.
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    !last.is_empty() && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(hex))
}

fn number(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return if hex.is_empty() {
            Some(0)
        } else {
            u32::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with('+'))
        };
    }
    if !lower.bytes().all(|byte| byte.is_ascii_digit()) || lower.is_empty() {
        return None;
    }
    match lower.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        _ => lower.parse().ok(),
    }
}

fn ipv4(name: &str) -> Option<Ipv4Addr> {
    let parts = name.split('.').map(number).collect::<Option<Vec<u32>>>()?;
    let (last, heads) = parts.split_last()?;
    if heads.len() > 3 || heads.iter().any(|part| *part > 255) {
        return None;
    }
    let room = 32u32.checked_sub(8u32.checked_mul(u32::try_from(heads.len()).ok()?)?)?;
    if room < 32 && (*last >> room) != 0 {
        return None;
    }
    let mut bits = *last;
    for (place, part) in heads.iter().enumerate() {
        bits |= part << (24u32.checked_sub(8u32.checked_mul(u32::try_from(place).ok()?)?)?);
    }
    Some(Ipv4Addr::from_bits(bits))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Host {
    type Err = HostError;
    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Host {
    /// Takes only the normal form.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match Self::parse(&text) {
            Ok(host) if host.to_string() == text => Ok(host),
            _ => Err(serde::de::Error::custom("not a host in normal form")),
        }
    }
}

/// What kind of place an address is. The stricter the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressClass {
    /// Globally reachable unicast.
    Public,
    /// Private use, shared, documentation, benchmarking, multicast, reserved: refused unless named.
    Private,
    /// This machine, under any of its loopback names: refused unless named.
    Loopback,
    /// Link-local, where clouds keep their metadata services: always refused.
    LinkLocal,
}

impl AddressClass {
    /// Says what kind of place an address is; addresses that carry an IPv4 address are judged by that one.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => match unmapped(v6) {
                IpAddr::V4(v4) => Self::of_v4(v4),
                IpAddr::V6(v6) => Self::of_v6(v6),
            },
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        match (a, b, c) {
            (169, 254, _) => Self::LinkLocal,
            // 100.100.100.200 is the metadata service of a large cloud and lies in shared space.
            (100, 100, 100) if address.octets() == [100, 100, 100, 200] => Self::LinkLocal,
            (168, 63, 129) if address.octets() == [168, 63, 129, 16] => Self::LinkLocal,
            (127, _, _) | (0, _, _) => Self::Loopback,
            (10, _, _) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Self::Private,
            (192, 0, 0) | (192, 0, 2) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => {
                Self::Private
            }
            (224..=255, _, _) => Self::Private,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let [first, second, third, ..] = address.segments();
        if address.is_loopback() || address.is_unspecified() {
            return Self::Loopback;
        }
        // fd00:ec2::254 is a metadata service inside unique-local space.
        if first & 0xffc0 == 0xfe80 || address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254) {
            return Self::LinkLocal;
        }
        // Only 2000::/3 is global unicast; inside it 6to4, Teredo, documentation and benchmarking are not for us.
        let global = first & 0xe000 == 0x2000;
        let special = first == 0x2002
            || (first == 0x2001 && (second < 0x200 || second == 0xdb8))
            || (first == 0x3fff && second < 0x1000)
            || (first == 0x2001 && second == 2 && third == 0);
        if global && !special {
            Self::Public
        } else {
            Self::Private
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> String {
        Host::parse(text).map_or_else(|_| "refused".into(), |host| host.to_string())
    }

    #[test]
    fn p5_one_name_for_many_spellings() {
        for (spelling, want) in [
            ("API.Example.Test.", "api.example.test"),
            ("münze.example.test", "xn--mnze-0ra.example.test"),
            ("ａpi.example.test", "api.example.test"),
            ("api。example。test", "api.example.test"),
            ("localhost.", "localhost"),
        ] {
            assert_eq!(host(spelling), want, "{spelling}");
        }
        for bad in [
            "",
            ".",
            "a..b",
            "api@evil",
            "evil\\@api",
            "a b",
            "a/b",
            "a%2e",
            "a\0b",
            "-a.test",
            "a:80",
            "xn--a",
        ] {
            assert_eq!(host(bad), "refused", "{bad}");
        }
    }

    #[test]
    fn p5_one_address_for_many_spellings() {
        for spelling in [
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "127.0.0.1.",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "0x7F.1",
        ] {
            assert_eq!(host(spelling), "127.0.0.1", "{spelling}");
        }
        assert_eq!(host("0"), "0.0.0.0");
        assert_eq!(host("2852039166"), "169.254.169.254");
        assert_eq!(host("[64:ff9b::a9fe:a9fe]"), "169.254.169.254");
        for bad in ["256.1.1.1", "1.2.3.4.5", "0x100000000", "1.2.3.08", "[::1", "::g"] {
            assert_eq!(host(bad), "refused", "{bad}");
        }
    }

    #[test]
    fn classes_of_addresses() {
        let class = |text: &str| AddressClass::of(text.parse().unwrap());
        for text in ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"] {
            assert_eq!(class(text), AddressClass::Loopback, "{text}");
        }
        for text in [
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert_eq!(class(text), AddressClass::LinkLocal, "{text}");
        }
        for text in [
            "10.0.0.1",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "2001:db8::1",
            "224.0.0.1",
            "2002:7f00:1::",
        ] {
            assert_eq!(class(text), AddressClass::Private, "{text}");
        }
        for text in ["1.1.1.1", "172.32.0.1", "2606:4700::1111"] {
            assert_eq!(class(text), AddressClass::Public, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parse_is_idempotent_and_never_panics(text in "\\PC{0,40}|[0-9a-fx.:\\[\\]]{0,24}") {
            if let Ok(host) = Host::parse(&text) {
                proptest::prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
            }
        }
    }
}
