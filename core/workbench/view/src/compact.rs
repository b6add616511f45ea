//! Scripts and style sheets without indentation, empty lines and lines of comments, which are a seventh of their bytes: every binding and
//! every exported page has them. Evaluated by the compiler.

/// A text without what only its authors read. No string or template of the text may contain a line break.
macro_rules! compact {
    ($text:expr) => {{
        const TEXT: &[u8] = $text.as_bytes();
        const LENGTH: usize = $crate::compact::compacted::<0>(TEXT).1;
        const BYTES: [u8; LENGTH] = $crate::compact::compacted::<LENGTH>(TEXT).0;
        match std::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => panic!("whole lines of a text are text"),
        }
    }};
}
pub(crate) use compact;

/// The first `N` bytes that remain of a text, and how many remain.
#[allow(long_running_const_eval, reason = "a step per byte")]
pub(crate) const fn compacted<const N: usize>(text: &[u8]) -> ([u8; N], usize) {
    let (mut bytes, mut length, mut at) = ([0; N], 0, 0);
    // Each turn starts within the indentation of a line. A step of the interpreter takes a microsecond: each byte is read once.
    while at < text.len() {
        let first = text[at];
        let second = if at + 1 < text.len() { text[at + 1] } else { 0 };
        let is_comment = match (first, second) {
            (b' ' | b'\n', _) => {
                at += 1;
                continue;
            }
            (b'/', b'/') => true,
            (b'/', b'*') => {
                let mut close = at + 3;
                while !(close >= text.len() || text[close] == b'/' && text[close - 1] == b'*') {
                    close += 1;
                }
                let is_whole_line = close + 1 >= text.len() || text[close + 1] == b'\n';
                if is_whole_line {
                    at = close;
                }
                is_whole_line
            }
            _ => false,
        };
        let mut is_within = true;
        while is_within && at < text.len() {
            let byte = text[at];
            if !is_comment {
                if length < N {
                    bytes[length] = byte;
                }
                length += 1;
            }
            is_within = byte != b'\n';
            at += 1;
        }
    }
    (bytes, length)
}

#[cfg(test)]
mod tests {
    const SCRIPT: &str = "/* About\n   the script. */\n\nclass Pane {\n  // Why.\n  /** What. */\n  draw() { /* here */ return \"//\"; }\n}\n/* end */ f();\n";

    #[test]
    fn indentation_and_comments_of_whole_lines_are_left_out() {
        assert_eq!(compact!(SCRIPT), "class Pane {\ndraw() { /* here */ return \"//\"; }\n}\n/* end */ f();\n");
        assert_eq!(compact!("/* all */"), "");
        assert_eq!(compact!("a // b"), "a // b");
    }
}
