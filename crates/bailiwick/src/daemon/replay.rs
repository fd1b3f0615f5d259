//! What a terminal shows of output that it is shown a second time: all but the questions in it.
//!
//! Programs ask their terminal things (where is the cursor, which colours, what can you do), and it answers as if the
//! answer were typed. Shown again, an old question would be answered into whatever runs now.
//! Trust: the output is an agent's, and may hold anything.
//! See: ECMA-48, sections 5.4 and 5.6; xterm, "Control Sequences".

/// Leaves out what a terminal would answer, and what is cut off at the end.
pub fn without_questions(output: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(output.len());
    let mut rest = output;
    while let Some((first, after)) = rest.split_first() {
        let length = match (first, after.first()) {
            (0x1b, Some(b'[')) => control(rest),
            // Texts to the terminal: of the operating system, of the device, and the three others.
            (0x1b, Some(b']' | b'P' | b'X' | b'^' | b'_')) => text(rest),
            (0x1b, None) => None,
            _ => Some(1),
        };
        let Some((whole, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
            break;
        };
        if !is_question(whole) {
            shown.extend_from_slice(whole);
        }
        rest = after;
    }
    shown
}

/// The length of a control sequence: its last byte is from `@` to `~`.
fn control(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().skip(2).position(|byte| (0x40..=0x7e).contains(byte));
    end.map(|end| end.saturating_add(3))
}

/// The length of a text to the terminal: BEL or ESC `\` ends it, whichever comes first.
fn text(bytes: &[u8]) -> Option<usize> {
    let mut pairs = bytes.iter().zip(bytes.iter().skip(1).chain([&0])).enumerate();
    pairs.find_map(|(place, pair)| match pair {
        (0x07, _) => Some(place.saturating_add(1)),
        (0x1b, b'\\') => Some(place.saturating_add(2)),
        _ => None,
    })
}

fn is_question(whole: &[u8]) -> bool {
    match whole {
        // Who are you?
        [0x05] => true,
        [0x1b, b'[', inner @ .., last] => match last {
            b'n' | b'c' | b'x' => true,
            b'p' => inner.ends_with(b"$"),
            b'q' => inner.starts_with(b">"),
            b'u' => inner.starts_with(b"?"),
            b't' => inner.len() >= 2 && inner.first().is_some_and(|digit| *digit != b'8'),
            _ => false,
        },
        // A colour that is asked for, and what a device is asked.
        [0x1b, b']', inner @ ..] => inner.contains(&b'?'),
        [0x1b, b'P' | b'_', ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_left_out_and_nothing_else() {
        for (output, shown) in [
            (&b"plain\r\n"[..], &b"plain\r\n"[..]),
            (b"a\x1b[6nb\x1b[cc\x1b[>cd", b"abcd"),
            (
                b"\x1b[31mred\x1b[0m\x1b[2J\x1b[?1049h",
                b"\x1b[31mred\x1b[0m\x1b[2J\x1b[?1049h",
            ),
            (b"\x1b]11;?\x07x\x1b]0;title\x1b\\y", b"x\x1b]0;title\x1b\\y"),
            (b"\x1bP+q544e\x1b\\z\x1b[?2026$p\x1b[>0q\x1b[?u", b"z"),
            (b"\x1b[18t\x1b[8;24;80t", b"\x1b[8;24;80t"),
            (b"cut\x1b[3", b"cut"),
            (b"\x05\x1bM\x1b7", b"\x1bM\x1b7"),
        ] {
            assert_eq!(without_questions(output), shown, "{output:?}");
        }
        let begun = std::time::Instant::now();
        for piece in [&b"\x1b]0;a\x07"[..], b"\x1b[", b"\x1b]", b"\x1b", b"\x1bP\x1b\\"] {
            without_questions(&piece.repeat((256 << 10) / piece.len()));
        }
        assert!(
            begun.elapsed() < std::time::Duration::from_secs(5),
            "no output takes long"
        );
    }
}
