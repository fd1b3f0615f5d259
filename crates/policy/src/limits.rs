//! Reads the limits of a rule on requests: `query`, `body`, `answer`, `pin`, `budget` in its table.
//!
//! Promises: P4 (what cannot be read, or could not hold where it stands, is an error), P13 (a limit on what is passed on unread
//! is refused, since nobody would see that it holds).

use std::collections::{BTreeMap, BTreeSet};

use bailiwick_model::{ANY_PORT, Act, Digest, Limits, Parameter, Rate, ResourcePattern, Scheme, Verdict, media_type};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use toml_edit::{Item, TableLike};

use crate::diagnostic::Span;
use crate::document::{Reader, kind};
use crate::settings::{bytes_of, seconds_of};

/// The keys of a rule's table that limit requests.
pub(crate) const KEYS: [&str; 5] = ["query", "body", "answer", "pin", "budget"];

/// Most times that a rate may count.
const MOST_OFTEN: u32 = 10_000;

/// Limits as they were written, and where the first of them stands.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub limits: Limits,
    pub first: Option<(String, Option<Span>)>,
    /// In which ways keys were written.
    forms: BTreeSet<KeyForm>,
}

/// How the digest of a server's key is written, which says what speaks there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyForm {
    /// `sha256/…`: of a certificate's key.
    Tls,
    /// `SHA256:…`, as ssh-keygen(1) prints it.
    Ssh,
}

impl Reader<'_> {
    /// Reads one of [`KEYS`].
    pub(crate) fn limit(&mut self, key: &str, item: &Item, span: Option<Span>, into: &mut Written) {
        into.first.get_or_insert_with(|| (key.to_owned(), span.clone()));
        let limits = &mut into.limits;
        match key {
            "query" => limits.query = Some(self.query(item)),
            "body" => self.body(item, span, limits),
            "answer" => self.table(item, key, span, |reader, table| reader.answer(table, limits)),
            "pin" => {
                for (text, span) in self.texts_of(item, "pin") {
                    match key_of(&text) {
                        Some((form, digest)) => {
                            limits.keys.push(digest);
                            into.forms.insert(form);
                        }
                        None => {
                            let hint = "write `sha256/` and the 44 characters of the key's digest in base64; of an SSH server \
                                        `SHA256:` and 43, as `ssh-keygen -l` prints it";
                            self.error(span, &format!("`{text}` is not the digest of a key"), Some(hint.into()));
                        }
                    }
                }
            }
            _ => self.table(item, key, span, |reader, table| reader.budget(table, limits)),
        }
    }

    fn query(&mut self, item: &Item) -> BTreeMap<String, Parameter> {
        let Some(table) = item.as_table_like() else {
            let names = self.texts_of(item, "query");
            return names
                .into_iter()
                .map(|(name, _)| (name, Parameter::default()))
                .collect();
        };
        let mut found = BTreeMap::new();
        for (name, item) in table.iter() {
            let mut parameter = Parameter::default();
            match item.as_table_like() {
                None => parameter.values = self.values(item, name),
                Some(table) => {
                    for (key, item) in table.iter() {
                        let span = table.key(key).and_then(|key| key.span());
                        match (key, item.as_integer().and_then(|most| u64::try_from(most).ok())) {
                            ("value", _) => parameter.values = self.values(item, "value"),
                            ("longest", Some(most)) => parameter.longest = Some(most),
                            ("longest", None) => {
                                let hint = "write `longest = 100`: so many characters at most";
                                self.error(
                                    item.span(),
                                    "`longest` is not a number of characters",
                                    Some(hint.into()),
                                );
                            }
                            (other, _) => self.unknown(other, span, &["value", "longest"]),
                        }
                    }
                }
            }
            found.insert(name.into(), parameter);
        }
        found
    }

    /// One value or several; `*` alone is any.
    fn values(&mut self, item: &Item, what: &str) -> Vec<String> {
        let values: Vec<String> = match item.as_str() {
            Some(text) => vec![text.into()],
            None => self.texts_of(item, what).into_iter().map(|(text, _)| text).collect(),
        };
        if values.iter().any(|value| value == "*") {
            return Vec::new();
        }
        if values.is_empty() && item.as_array().is_some_and(|array| array.is_empty()) {
            let hint = format!("write `{what} = \"*\"` for any value, or take the parameter out");
            self.error(
                item.span(),
                &format!("`{what}` has no value that it may be"),
                Some(hint),
            );
        }
        values
    }

    fn body(&mut self, item: &Item, span: Option<Span>, limits: &mut Limits) {
        if item.as_table_like().is_none() {
            limits.body.bytes = self.bytes(item, "body", "`body = \"64 KiB\"`, or `body = 0` for none");
            return;
        }
        self.table(item, "body", span, |reader, table| {
            for (key, item) in table.iter() {
                let span = table.key(key).and_then(|key| key.span());
                match key {
                    "most" => limits.body.bytes = reader.bytes(item, "most", "`most = \"64 KiB\"`"),
                    "types" => {
                        for (text, span) in reader.texts_of(item, "types") {
                            let own = media_type(&text);
                            let plain = |part: &str| {
                                !part.is_empty()
                                    && part
                                        .bytes()
                                        .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
                            };
                            match own.split_once('/') {
                                Some((kind, rest)) if plain(kind) && plain(rest) && !text.contains(';') => {
                                    limits.body.types.push(own);
                                }
                                _ => {
                                    let hint = "write it without parameters, as in `application/json`";
                                    reader.error(span, &format!("`{text}` is not a media type"), Some(hint.into()));
                                }
                            }
                        }
                        if item.as_array().is_some_and(|array| array.is_empty()) {
                            let hint = "name one, or write `body = 0` for no body";
                            reader.error(item.span(), "`types` names no type", Some(hint.into()));
                        }
                    }
                    other => reader.unknown(other, span, &["most", "types"]),
                }
            }
        });
    }

    fn answer(&mut self, table: &dyn TableLike, limits: &mut Limits) {
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "most" => limits.answer.bytes = self.bytes(item, "most", "`most = \"10 MiB\"`"),
                "within" => match item.as_str().and_then(seconds_of) {
                    Some(seconds) => limits.answer.seconds = Some(seconds),
                    None => {
                        let hint =
                            "write `within = \"30 s\"`: seconds (`s`), minutes (`min`) or hours (`h`), at most 24 h";
                        self.error(item.span(), "`within` is not a length of time", Some(hint.into()));
                    }
                },
                "rate" => match item.as_str().and_then(|text| bytes_of(text.strip_suffix("/s")?)) {
                    Some(bytes) => limits.answer.bytes_per_second = Some(bytes),
                    None => {
                        let hint = "write `rate = \"1 MiB/s\"`";
                        self.error(item.span(), "`rate` is not a size a second", Some(hint.into()));
                    }
                },
                other => self.unknown(other, span, &["most", "within", "rate"]),
            }
        }
    }

    fn budget(&mut self, table: &dyn TableLike, limits: &mut Limits) {
        let budget = &mut limits.budget;
        for (key, item) in table.iter() {
            let span = table.key(key).and_then(|key| key.span());
            match key {
                "requests" => match item.as_integer().and_then(|count| u64::try_from(count).ok()) {
                    Some(count) => budget.requests = Some(count),
                    None => {
                        let hint = "write `requests = 100`";
                        self.error(item.span(), "`requests` is not a count", Some(hint.into()));
                    }
                },
                "sent" => budget.sent = self.bytes(item, "sent", "`sent = \"1 MiB\"`"),
                "received" => budget.received = self.bytes(item, "received", "`received = \"1 GiB\"`"),
                "rate" => match item.as_str().and_then(rate_of) {
                    Some(rate) => budget.rate = Some(rate),
                    None => {
                        let hint = format!(
                            "write `rate = \"60/min\"`: a count up to {MOST_OFTEN}, and `s`, `min`, `h` or `day`"
                        );
                        self.error(item.span(), "`rate` is not a count in a time", Some(hint));
                    }
                },
                other => self.unknown(other, span, &["requests", "sent", "received", "rate"]),
            }
        }
    }

    /// A size, in which nothing is a size too.
    fn bytes(&mut self, item: &Item, what: &str, right: &str) -> Option<u64> {
        let number = item.as_integer().and_then(|bytes| u64::try_from(bytes).ok());
        let found = number.or_else(|| item.as_str().and_then(bytes_of));
        if found.is_none() {
            let message = format!("`{what}` is not a size, but {}", kind(item));
            self.error(item.span(), &message, Some(format!("write {right}")));
        }
        found
    }
}

/// Why limits cannot hold for a rule, and what would be right.
pub(crate) fn misplaced(effect: Verdict, act: &Act, written: &Written, key: &str) -> Option<(String, String)> {
    let Written { limits, forms, .. } = written;
    if effect == Verdict::Deny {
        let message = format!("`{act}` is denied: `{key}` would limit what is not allowed");
        return Some((
            message,
            "a deny holds for all that its act covers: take the key out".into(),
        ));
    }
    let only_keys = || {
        let keys = limits.keys.clone();
        *limits
            == Limits {
                keys,
                ..Limits::default()
            }
    };
    match &act.resource {
        ResourcePattern::Url(url) if url.scheme == Scheme::Http && !limits.keys.is_empty() => Some((
            format!("`{act}` goes to a server that shows no key"),
            "`pin` is for `https` rules".into(),
        )),
        ResourcePattern::Repository(_) if limits.query.is_some() => {
            Some((format!("`{act}` has no query of its own"), "take `query` out".into()))
        }
        ResourcePattern::Url(_) | ResourcePattern::Repository(_) if forms.contains(&KeyForm::Ssh) => Some((
            format!("`{act}` goes to no SSH server"),
            "write the key of the server's certificate, `sha256/…`".into(),
        )),
        ResourcePattern::Url(_) | ResourcePattern::Repository(_) => None,
        ResourcePattern::Endpoint { port, .. } if only_keys() && !forms.contains(&KeyForm::Tls) => {
            // At these a TLS greeting is insisted on.
            let of_tls = [443, ANY_PORT].contains(port);
            of_tls.then(|| {
                (
                    format!("`{act}` is for TLS, and `{key}` names the key of an SSH server"),
                    "write the port on which SSH is spoken, as in `host:22`".into(),
                )
            })
        }
        ResourcePattern::Endpoint { .. } => Some((
            format!("`{act}` is passed on unread: nobody would see that `{key}` holds"),
            "open the host instead, with a rule such as `GET https://host/**`".into(),
        )),
        _ => Some((
            format!("`{act}` is no request: `{key}` limits requests over HTTP"),
            "take the key out".into(),
        )),
    }
}

/// Reads the digest of a public key: `sha256/` (or `sha256//`, as curl has it) and base64, or `SHA256:` and base64 without
/// its padding, as OpenSSH has it.
fn key_of(text: &str) -> Option<(KeyForm, Digest)> {
    let (form, digits) = match text.strip_prefix("SHA256:") {
        Some(digits) => (KeyForm::Ssh, format!("{digits}=")),
        None => {
            let digits = text.strip_prefix("sha256/")?;
            let shorter = digits.strip_prefix('/').filter(|rest| rest.len() == 44);
            (KeyForm::Tls, shorter.unwrap_or(digits).to_owned())
        }
    };
    let digest = BASE64.decode(digits).ok()?.try_into().ok()?;
    Some((form, Digest(digest)))
}

/// Reads a rate: a count, a slash, a unit of time.
fn rate_of(text: &str) -> Option<Rate> {
    let (count, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        "day" => 86_400,
        _ => return None,
    };
    let count = count.trim();
    let plain = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let count = count
        .parse()
        .ok()
        .filter(|count| plain && (1..=MOST_OFTEN).contains(count))?;
    Some(Rate { count, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_digests_in_base64() {
        let zero = (KeyForm::Tls, Digest([0; 32]));
        assert_eq!(
            key_of("sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            Some(zero)
        );
        assert_eq!(
            key_of("sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            Some(zero)
        );
        assert_eq!(
            key_of("SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
            Some((KeyForm::Ssh, zero.1))
        );
        // The example of RFC 7469, section 2.1.5: d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM=
        let known = key_of("sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM=").unwrap();
        assert_eq!(
            known.1.to_string(),
            "77aab346ef7338409bf7451ecf6ef15a5b4db23d1ed4c77b1a4618915a195a63"
        );
        for wrong in [
            "sha256/",
            "sha1/AAAA",
            "d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM=",
            "sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmN=",
            "sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZWmM",
            "sha256/d6qzRu9zOECb90Uez27xWltNsj0e1Md7GkYYkVoZW*M=",
            "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "SHA256:AAAA",
        ] {
            assert_eq!(key_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rates_are_counts_in_a_time() {
        assert_eq!(rate_of("60/min"), Some(Rate { count: 60, seconds: 60 }));
        assert_eq!(
            rate_of("5 / day"),
            Some(Rate {
                count: 5,
                seconds: 86_400
            })
        );
        for wrong in ["", "60", "0/min", "-1/s", "+1/s", "1/week", "10001/h", "/s"] {
            assert_eq!(rate_of(wrong), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn reading_never_panics(text in "(sha256/)?[A-Za-z0-9+/=]{0,48}|[0-9]{0,12}/[a-z]{0,4}") {
            let _ = (key_of(&text), rate_of(&text));
        }
    }
}
