//! Text from elsewhere, made safe to print: what could move the cursor, hide or reorder text is shown as an escape.
//!
//! Promises: P8, P10. Trust: names of files, hosts and programs come from agents that would like to draw the screen.
//! See: Unicode 16, tables of Cc, Cf and the bidirectional controls; RFC 8265 on why these have no place in names.

/// Shows text on one line: control, format and bidirectional characters as `\u{…}`, runs of blanks as they are.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_hidden(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Shows text of several lines: each as [`visible`] does.
pub fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

/// True for characters that show nothing, or change how their neighbours are shown.
fn is_hidden(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f | 0x2028..=0x202e
        | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb | 0x1bca0..=0x1bca3
        | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p8_nothing_that_draws_comes_through() {
        assert_eq!(
            visible("a\u{1b}[2Kb\rc\u{202e}d\u{200b}e\nf"),
            "a\\u{1b}[2Kb\\rc\\u{202e}d\\u{200b}e\\nf"
        );
        assert_eq!(visible("größe \u{1f980}"), "größe \u{1f980}");
    }
}
