//! Stand-ins: what the agent is given in place of a secret.
//!
//! Promises: P9 (nothing of the value is in it but how such tokens begin, which their issuer publishes, and how long they are).
//! Looks like the value to programs that check the look of a token; cannot be guessed, and is another one in every task.

use bailiwick_gate::Random;

/// How tokens of well-known issuers begin; each says what kind it is, and nothing of a value.
const BEGINNINGS: [&str; 31] = [
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "gldt-",
    "sk-ant-api03-",
    "sk-ant-",
    "sk-proj-",
    "sk-or-v1-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "pk_live_",
    "sk-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "npm_",
    "pypi-",
    "hf_",
    "dop_v1_",
    "dckr_pat_",
    "SG.",
    "AIza",
    "AKIA",
    "ASIA",
    "shpat_",
    "lin_api_",
];

/// Least number of signs that are made up.
const MADE_UP: usize = 20;
/// Longest stand-in.
const LONGEST: usize = 256;

/// Makes a stand-in. Without a value, which could not be had yet, and without a known beginning it is of no special look.
pub fn make(value: Option<&[u8]>, beginning: Option<&str>, random: &dyn Random) -> String {
    let text = value
        .and_then(|value| std::str::from_utf8(value).ok())
        .unwrap_or_default();
    let known = BEGINNINGS.iter().find(|known| text.starts_with(**known)).copied();
    let beginning = beginning.or(known).unwrap_or_default();
    let rest = text.strip_prefix(beginning).unwrap_or(text);
    let length = text.len().clamp(beginning.len().saturating_add(MADE_UP), LONGEST);
    let signs = alphabet(rest);
    let mut out = String::with_capacity(length);
    out.push_str(beginning);
    while out.len() < length {
        let mut byte = [0u8; 1];
        random.fill(&mut byte);
        let [byte] = byte;
        // Every sign is as likely as any other.
        let most = 256usize
            .checked_div(signs.len())
            .unwrap_or(0)
            .saturating_mul(signs.len());
        if usize::from(byte) < most
            && let Some(sign) = signs.get(usize::from(byte).checked_rem(signs.len()).unwrap_or(0))
        {
            out.push(char::from(*sign));
        }
    }
    out
}

/// The signs of which a value seems to be made, as far as every place of a request takes them.
fn alphabet(text: &str) -> &'static [u8] {
    const ALL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let made_of = |signs: &[u8]| !text.is_empty() && text.bytes().all(|byte| signs.contains(&byte));
    for signs in [
        &b"0123456789abcdef"[..],
        b"0123456789ABCDEF",
        b"abcdefghijklmnopqrstuvwxyz0123456789",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    ] {
        if made_of(signs) && text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            return signs;
        }
    }
    ALL
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    struct Counting(AtomicU8);

    impl Random for Counting {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill_with(|| self.0.fetch_add(37, Ordering::Relaxed));
        }
    }

    fn made(value: &str, beginning: Option<&str>) -> String {
        make(Some(value.as_bytes()), beginning, &Counting(AtomicU8::new(3)))
    }

    #[test]
    fn p9_a_stand_in_looks_like_the_value_and_holds_nothing_of_it() {
        let value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
        let stand_in = made(value, None);
        assert!(
            stand_in.starts_with("ghp_") && stand_in.len() == value.len(),
            "{stand_in}"
        );
        assert!(
            value.as_bytes()[4..]
                .windows(6)
                .all(|part| !stand_in.as_bytes().windows(6).any(|own| own == part))
        );
        // What is no known beginning may be a part of the secret.
        assert!(!made("hunter2-and-more-of-a-password", None).starts_with("hunter2"));
        assert!(made("real-7", None).len() >= MADE_UP);
        assert!(
            made("0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", None)
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        );
        assert!(made("anything", Some("tok_")).starts_with("tok_"));
        assert_eq!(make(None, None, &Counting(AtomicU8::new(0))).len(), MADE_UP);
        assert!(made(&"x".repeat(9000), None).len() == LONGEST);
        assert!(
            made("größe:%&= \"x\" and so on and on", None)
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric())
        );
    }
}
