//! Text in columns: how wide they may be, and where a line is broken.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// The narrowest and the widest that text is set, in characters.
const BOUNDS: (usize, usize) = (60, 110);

/// How many characters a line may have on this stream; none where it is no terminal that says.
pub fn width(stream: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(stream).ok()?;
    let (least, most) = BOUNDS;
    (size.ws_col > 0).then(|| usize::from(size.ws_col).clamp(least, most))
}

/// Breaks a text at its blanks into lines of at most `width` characters. What stands in backticks is one word, so that it
/// can be copied; a longer word stands on a line of its own.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0_usize;
    let mut quoted = false;
    let words = text.split(move |c| {
        quoted ^= c == '`';
        c == ' ' && !quoted
    });
    for word in words {
        let long = word.chars().count();
        match lines.last_mut() {
            Some(line) if used == 0 => line.push_str(word),
            Some(line) if used.saturating_add(1).saturating_add(long) <= width => {
                line.push(' ');
                line.push_str(word);
                used = used.saturating_add(1);
            }
            _ => {
                lines.push(word.to_owned());
                used = 0;
            }
        }
        used = used.saturating_add(long);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_blanks_and_lose_nothing() {
        let text = "one two  three a-word-that-is-longer-than-a-line four";
        let lines = folded(text, 9);
        assert_eq!(
            lines,
            ["one two ", "three", "a-word-that-is-longer-than-a-line", "four"]
        );
        assert_eq!(lines.join(" "), text);
        assert_eq!(folded("run `a b c d` now", 9), ["run", "`a b c d`", "now"]);
        assert_eq!(folded("", 9), [""]);
        assert_eq!(folded("größe ist", 9), ["größe ist"]);
    }
}
