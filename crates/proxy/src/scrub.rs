//! Takes the value of a secret out of an answer: as it is, and as servers write it again.
//!
//! Promises: P9. Trust: the answer comes from whoever serves, and may repeat what it was sent, in any cut of its stream.
//! What is found is written over with as many bytes, so that lengths stay true: the value itself with the stand-in where that
//! is as long, everything else with signs that stand for nothing.
//! Known forms: the value; base64 of it, wherever it begins in what was coded, with both alphabets; percent-encoding; JSON and
//! HTML escapes; hexadecimal digits. A server that hides it otherwise is not found out: it had the value already.
//! See: RFC 4648 (base64), RFC 3986 section 2.1, RFC 8259 section 7.

use zeroize::Zeroizing;

/// Shortest value that can be told from other text, in bytes.
pub const SHORTEST: usize = 6;

/// One form of a value.
struct Form {
    text: Zeroizing<Vec<u8>>,
    with: Vec<u8>,
}

/// What is looked for.
pub(crate) struct Forms {
    forms: Vec<Form>,
    /// Which bytes a form begins with.
    first: [bool; 256],
    longest: usize,
}

impl Forms {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self {
            forms: Vec::new(),
            first: [false; 256],
            longest: 0,
        }
    }

    /// True when nothing is looked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Adds all forms of a value; `stand_in` takes the place of the value itself where it is as long.
    pub(crate) fn add(&mut self, value: &[u8], stand_in: &[u8]) {
        if value.len() < SHORTEST {
            return;
        }
        let with = if stand_in.len() == value.len() {
            stand_in.to_vec()
        } else {
            vec![b'*'; value.len()]
        };
        self.put(value.to_vec(), with);
        for text in spelled(value) {
            let with = vec![b'x'; text.len()];
            self.put(text, with);
        }
    }

    /// Adds a text that is looked for as it is.
    pub(crate) fn put(&mut self, text: Vec<u8>, with: Vec<u8>) {
        let text = Zeroizing::new(text);
        if text.is_empty() || text.len() != with.len() || self.forms.iter().any(|known| known.text == text) {
            return;
        }
        if let Some(slot) = text.first().and_then(|byte| self.first.get_mut(usize::from(*byte))) {
            *slot = true;
        }
        self.longest = self.longest.max(text.len());
        let place = self.forms.partition_point(|known| known.text.len() > text.len());
        self.forms.insert(place, Form { text, with });
    }

    fn may_begin(&self, byte: u8) -> bool {
        self.first.get(usize::from(byte)).copied().unwrap_or(false)
    }

    /// The longest form that stands at the beginning of a text.
    fn at(&self, text: &[u8]) -> Option<&Form> {
        self.forms.iter().find(|form| text.starts_with(&form.text))
    }

    /// Where a form may have begun that the end of a text breaks off.
    fn broken_off(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.longest.saturating_sub(1));
        let tail = text.get(from..).unwrap_or_default();
        let begins = |place: usize| {
            let rest = tail.get(place..).unwrap_or_default();
            let cut = |form: &Form| form.text.len() > rest.len() && form.text.starts_with(rest);
            rest.first().is_some_and(|byte| self.may_begin(*byte)) && self.forms.iter().any(cut)
        };
        (0..tail.len())
            .find(|place| begins(*place))
            .map_or(text.len(), |place| from.saturating_add(place))
    }

    /// Writes over what is found in a whole text; true when there was something.
    pub(crate) fn scrub(&self, text: &mut [u8]) -> bool {
        let end = text.len();
        self.scrub_to(text, end)
    }

    /// Writes over what begins before a place.
    fn scrub_to(&self, text: &mut [u8], end: usize) -> bool {
        let (mut place, mut found) = (0usize, false);
        while place < end {
            let rest = text.get_mut(place..).unwrap_or_default();
            let Some(skip) = rest.iter().position(|byte| self.may_begin(*byte)) else {
                break;
            };
            place = place.saturating_add(skip);
            if place >= end {
                break;
            }
            let rest = rest.get_mut(skip..).unwrap_or_default();
            match self.at(rest) {
                Some(form) => {
                    for (byte, with) in rest.iter_mut().zip(&form.with) {
                        *byte = *with;
                    }
                    found = true;
                    place = place.saturating_add(form.text.len());
                }
                None => place = place.saturating_add(1),
            }
        }
        found
    }

    /// The same of a text in lower case, whatever the case of what is looked for.
    pub(crate) fn is_in_lower_case(&self, text: &[u8]) -> bool {
        self.forms.iter().any(|form| {
            let length = form.text.len();
            text.windows(length).any(|part| part.eq_ignore_ascii_case(&form.text))
        })
    }

    /// True when a text holds something that is looked for.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        (0..text.len()).any(|place| {
            let rest = text.get(place..).unwrap_or_default();
            rest.first().is_some_and(|byte| self.may_begin(*byte)) && self.at(rest).is_some()
        })
    }
}

/// Looks through a stream, however it is cut, and holds back no more than what may be the beginning of something.
pub(crate) struct Stream {
    held: Zeroizing<Vec<u8>>,
    found: bool,
}

impl Stream {
    /// The beginning of a stream.
    pub(crate) fn new() -> Self {
        Self {
            held: Zeroizing::new(Vec::new()),
            found: false,
        }
    }

    /// True when something was found until now.
    pub(crate) fn has_found(&self) -> bool {
        self.found
    }

    /// Takes a piece; what comes back may go on.
    pub(crate) fn push(&mut self, forms: &Forms, piece: &[u8]) -> Vec<u8> {
        let mut all = Zeroizing::new(Vec::with_capacity(self.held.len().saturating_add(piece.len())));
        all.extend_from_slice(&self.held);
        all.extend_from_slice(piece);
        let end = forms.broken_off(&all);
        self.found |= forms.scrub_to(&mut all, end);
        let (out, held) = all.split_at_checked(end).unwrap_or((&all, &[]));
        self.held = Zeroizing::new(held.to_vec());
        out.to_vec()
    }

    /// The end of the stream: what was held back.
    pub(crate) fn finish(&mut self, forms: &Forms) -> Vec<u8> {
        let mut rest = std::mem::replace(&mut self.held, Zeroizing::new(Vec::new()));
        self.found |= forms.scrub(&mut rest);
        rest.to_vec()
    }
}

/// The forms of a value other than itself.
fn spelled(value: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for coded in base64_within(value) {
        let safe: Vec<u8> = coded
            .iter()
            .map(|byte| match byte {
                b'+' => b'-',
                b'/' => b'_',
                other => *other,
            })
            .collect();
        all.push(percent(&coded, true, |byte| byte.is_ascii_alphanumeric()));
        all.push(percent(&coded, false, |byte| byte.is_ascii_alphanumeric()));
        all.push(coded);
        all.push(safe);
    }
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let component = |byte: u8| unreserved(byte) || b"!'()*".contains(&byte);
    let in_path = |byte: u8| component(byte) || b"$&+,/:;=@".contains(&byte);
    for upper in [true, false] {
        let written = percent(value, upper, unreserved);
        all.push(String::from_utf8_lossy(&written).replace("%20", "+").into_bytes());
        all.push(written);
        all.push(percent(value, upper, component));
        all.push(percent(value, upper, in_path));
        all.push(percent(value, upper, |_| false));
        all.push(hex(value, upper));
    }
    if let Ok(text) = std::str::from_utf8(value) {
        let json = |text: &str| {
            let quoted = serde_json::to_string(text).unwrap_or_default();
            quoted
                .get(1..quoted.len().saturating_sub(1))
                .unwrap_or_default()
                .to_owned()
        };
        let plain = json(text);
        let escaped: String = plain
            .chars()
            .flat_map(|sign| match sign.is_ascii() {
                true => vec![sign],
                false => {
                    let mut units = [0u16; 2];
                    let units = sign.encode_utf16(&mut units);
                    units
                        .iter()
                        .flat_map(|unit| format!("\\u{unit:04x}").chars().collect::<Vec<_>>())
                        .collect()
                }
            })
            .collect();
        all.push(escaped.replace('/', "\\/").into_bytes());
        all.push(plain.replace('/', "\\/").into_bytes());
        all.push(escaped.into_bytes());
        all.push(plain.into_bytes());
        let html = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;");
        all.push(html.replace('\'', "&#39;").into_bytes());
        all.push(html.replace('\'', "&#x27;").into_bytes());
        all.push(html.into_bytes());
    }
    all.retain(|text| text.as_slice() != value);
    all
}

fn percent(text: &[u8], upper: bool, plain: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        match (plain(*byte), upper) {
            (true, _) => out.push(*byte),
            (false, true) => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            (false, false) => out.extend_from_slice(format!("%{byte:02x}").as_bytes()),
        }
    }
    out
}

fn hex(text: &[u8], upper: bool) -> Vec<u8> {
    let digits = text.iter().map(|byte| {
        if upper {
            format!("{byte:02X}")
        } else {
            format!("{byte:02x}")
        }
    });
    digits.collect::<String>().into_bytes()
}

/// Base64 of a value for each of the three places at which it may begin in a coded text: the signs that it alone decides.
fn base64_within(value: &[u8]) -> [Vec<u8>; 3] {
    use base64::Engine as _;
    [0usize, 1, 2].map(|before| {
        let mut text = Zeroizing::new(vec![0u8; before]);
        text.extend_from_slice(value);
        let coded = Zeroizing::new(base64::engine::general_purpose::STANDARD_NO_PAD.encode(&*text));
        let from = before.saturating_mul(8).div_ceil(6);
        let to = text.len().saturating_mul(8) / 6;
        coded.as_bytes().get(from..to).unwrap_or_default().to_vec()
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    const VALUE: &[u8] = b"ghp_r/e+a?l-7&x";
    const STAND_IN: &[u8] = b"ghp_0123456789a";

    fn forms() -> Forms {
        let mut forms = Forms::none();
        forms.add(VALUE, STAND_IN);
        forms
    }

    fn scrubbed(text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        forms().scrub(&mut text);
        text
    }

    fn holds(text: &[u8], part: &[u8]) -> bool {
        text.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn c056_a_value_is_found_however_a_server_writes_it() {
        let text = std::str::from_utf8(VALUE).unwrap();
        for written in [
            text.to_owned(),
            STANDARD.encode(VALUE),
            STANDARD.encode([b"bot:", VALUE].concat()),
            STANDARD.encode([b"a:", VALUE, b"\n"].concat()),
            URL_SAFE_NO_PAD.encode([b"x", VALUE].concat()),
            "ghp_r%2Fe%2Ba%3Fl-7%26x".into(),
            "ghp_r%2fe%2ba%3fl-7%26x".into(),
            "ghp_r\\/e+a?l-7&x".into(),
            "ghp_r/e+a?l-7&amp;x".into(),
            hex(VALUE, true).iter().map(|byte| char::from(*byte)).collect(),
        ] {
            let answer = format!("{{\"login\": \"{written}\", \"more\": 1}}");
            let out = scrubbed(answer.as_bytes());
            assert_eq!(out.len(), answer.len(), "{written}");
            assert!(
                serde_json::from_slice::<serde_json::Value>(&out).is_ok() || written.contains('\\'),
                "{written}"
            );
            assert!(out != answer.as_bytes(), "{written} is found");
            // No eight signs of it are left.
            for part in written.as_bytes().windows(8) {
                assert!(!holds(&out, part), "{written}: {}", String::from_utf8_lossy(&out));
            }
        }
        assert_eq!(scrubbed(text.as_bytes()), STAND_IN);
        assert_eq!(scrubbed(b"nothing of it"), b"nothing of it");
    }

    #[test]
    fn a_stream_of_events_is_not_held_up() {
        let mut stream = Stream::new();
        assert_eq!(stream.push(&forms(), b"data: 1\n\n"), b"data: 1\n\n");
        assert_eq!(stream.push(&forms(), b"data: gh"), b"data: ");
        assert_eq!(stream.push(&forms(), b"ost\n\n"), b"ghost\n\n");
        assert_eq!(stream.push(&forms(), b"ghp_r/"), b"");
        assert_eq!(stream.finish(&forms()), b"ghp_r/");
    }

    /// Has a stream look through bytes that come cut like this.
    fn in_pieces(forms: &Forms, bytes: &[u8], cuts: &[usize]) -> (Stream, Vec<u8>) {
        let (mut stream, mut out, mut rest) = (Stream::new(), Vec::new(), bytes);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            out.extend(stream.push(forms, now));
            rest = later;
        }
        out.extend(stream.finish(forms));
        (stream, out)
    }

    proptest! {
        #[test]
        fn p9_no_cut_of_a_stream_lets_a_value_through(
            value in proptest::collection::vec(any::<u8>(), SHORTEST..40),
            before in proptest::collection::vec(any::<u8>(), 0..30),
            after in proptest::collection::vec(any::<u8>(), 0..30),
            cuts in proptest::collection::vec(1usize..7, 1..20),
            coded in any::<bool>(),
        ) {
            let mut forms = Forms::none();
            forms.add(&value, b"");
            let whole = [before.as_slice(), &value, &after].concat();
            let whole = if coded { STANDARD.encode(&whole).into_bytes() } else { whole };
            let (stream, out) = in_pieces(&forms, &whole, &cuts);
            prop_assert_eq!(out.len(), whole.len());
            prop_assert!(stream.has_found());
            let mut at_once = whole.clone();
            forms.scrub(&mut at_once);
            prop_assert_eq!(&out, &at_once);
            // What is left decodes to nothing that holds the value.
            let plain = if coded { STANDARD.decode(&out).unwrap_or_default() } else { out };
            let stars = value.iter().all(|byte| *byte == b'*' || *byte == b'x');
            prop_assert!(stars || !plain.windows(value.len()).any(|part| part == value.as_slice()));
        }

        #[test]
        fn what_holds_no_value_is_unchanged(text in "[a-e ]{0,300}", cuts in proptest::collection::vec(1usize..50, 1..9)) {
            let forms = forms();
            let (_, out) = in_pieces(&forms, text.as_bytes(), &cuts);
            prop_assert_eq!(out, text.into_bytes());
        }
    }
}
