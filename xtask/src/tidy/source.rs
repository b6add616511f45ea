//! Splits source lines into code and comments and removes string literals: for Rust, Java and JavaScript, and for languages
//! with `#` comments. An approximation, not a parser. Called by the rules of this module.

/// One line of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLine {
    /// Code without string literals and comments.
    pub code: String,
    /// Text of the comments.
    pub comment: String,
}

#[derive(Clone, Copy, PartialEq)]
enum ScanState {
    Code,
    LineComment,
    BlockComment(u32),
    Str,
    RawStr(usize),
}

/// The lines of a Rust (or Java, or JavaScript) file.
pub fn rust(text: &str) -> Vec<SourceLine> {
    let characters: Vec<char> = text.chars().collect();
    let mut lines = vec![SourceLine::default()];
    let mut state = ScanState::Code;
    let mut position = 0;
    while position < characters.len() {
        let here = characters[position];
        let next = characters.get(position + 1).copied().unwrap_or('\0');
        if here == '\n' {
            if state == ScanState::LineComment {
                state = ScanState::Code;
            }
            lines.push(SourceLine::default());
            position += 1;
            continue;
        }
        let Some(line) = lines.last_mut() else { break };
        let mut step = 1;
        match state {
            ScanState::Code => match (here, next) {
                ('/', '/') => (state, step) = (ScanState::LineComment, 2),
                ('/', '*') => (state, step) = (ScanState::BlockComment(1), 2),
                ('"', _) => state = ScanState::Str,
                ('r', '"' | '#') if !follows_name(&characters, position) => {
                    match raw_string_start(&characters[position + 1..]) {
                        Some(hashes) => (state, step) = (ScanState::RawStr(hashes), hashes + 2),
                        None => line.code.push(here),
                    }
                }
                ('\'', _) => match character_length(&characters[position..]) {
                    Some(length) => step = length,
                    None => line.code.push(here),
                },
                _ => line.code.push(here),
            },
            ScanState::LineComment => line.comment.push(here),
            ScanState::BlockComment(depth) => match (here, next) {
                ('*', '/') => {
                    step = 2;
                    state = if depth == 1 { ScanState::Code } else { ScanState::BlockComment(depth - 1) };
                }
                ('/', '*') => (state, step) = (ScanState::BlockComment(depth + 1), 2),
                _ => line.comment.push(here),
            },
            ScanState::Str => match here {
                // A backslash at the end of a line continues the string; the line is still counted.
                '\\' if next != '\n' => step = 2,
                '"' => state = ScanState::Code,
                _ => {}
            },
            ScanState::RawStr(hashes) => {
                let closes =
                    here == '"' && characters[position + 1..].iter().take_while(|&&c| c == '#').count() >= hashes;
                if closes {
                    (state, step) = (ScanState::Code, hashes + 1);
                }
            }
        }
        position += step;
    }
    lines
}

/// The lines of a file whose comments begin with `#`. Python's triple-quoted strings count as comments, since most are
/// docstrings; other strings end on their line.
pub fn hashed(text: &str) -> Vec<SourceLine> {
    let mut lines = Vec::new();
    let mut open: Option<&str> = None;
    for text in text.lines() {
        let mut line = SourceLine::default();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(quotes) = open {
                let (inside, after) =
                    rest.split_once(quotes).map_or((rest, None), |(inside, after)| (inside, Some(after)));
                line.comment.push_str(inside);
                rest = after.unwrap_or_default();
                open = if after.is_some() { None } else { open };
                continue;
            }
            let Some(position) = rest.find(['#', '"', '\'']) else {
                line.code.push_str(rest);
                break;
            };
            line.code.push_str(&rest[..position]);
            rest = &rest[position..];
            if let Some(comment) = rest.strip_prefix('#') {
                line.comment.push_str(comment);
                break;
            }
            let triple = ["\"\"\"", "'''"].into_iter().find(|quotes| rest.starts_with(quotes));
            match triple {
                Some(quotes) => {
                    open = Some(quotes);
                    rest = &rest[3..];
                }
                None => rest = after_string(rest),
            }
        }
        lines.push(line);
    }
    lines
}

fn after_string(text: &str) -> &str {
    let mut characters = text.char_indices();
    let Some((_, quote)) = characters.next() else { return "" };
    while let Some((position, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return &text[position + 1..];
        }
    }
    ""
}

fn follows_name(characters: &[char], position: usize) -> bool {
    // `br"…"` is a raw string; `for"` does not occur.
    position.checked_sub(1).is_some_and(|before| {
        let before = characters[before];
        (before.is_alphanumeric() && before != 'b') || before == '_'
    })
}

fn raw_string_start(after_r: &[char]) -> Option<usize> {
    let hashes = after_r.iter().take_while(|&&c| c == '#').count();
    (after_r.get(hashes) == Some(&'"')).then_some(hashes)
}

/// Length of a character literal at the start; `None` when the quote begins a lifetime.
fn character_length(text: &[char]) -> Option<usize> {
    match (text.get(1)?, text.get(2)?) {
        ('\\', _) => text.iter().skip(3).position(|&c| c == '\'').map(|position| position + 4),
        (_, '\'') => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> Vec<String> {
        rust(text).into_iter().map(|line| line.code.trim().to_owned()).collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let lines = rust("let a = \"unsafe \\\" {\"; // unsafe here\n/* unsafe\n /* deeper */ still */ b();");
        assert_eq!(lines[0].code, "let a = ; ");
        assert_eq!(lines[0].comment, " unsafe here");
        assert_eq!(lines[1].code, "");
        assert_eq!(lines[2].code, " b();");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        assert_eq!(code_of("x(r#\"a \"quoted\" // b\"#); y"), ["x(); y"]);
        assert_eq!(code_of("x(br\"c\\\"); y"), ["x(b); y"]);
    }

    #[test]
    fn lifetimes_are_code_and_character_literals_are_not() {
        assert_eq!(
            code_of("fn f<'a>(x: &'a str) { x.find('\"'); x.find('\\''); x.find('\\u{1F}') }"),
            ["fn f<'a>(x: &'a str) { x.find(); x.find(); x.find() }"]
        );
    }

    #[test]
    fn a_string_over_several_lines_keeps_the_line_numbers() {
        assert_eq!(code_of("a(\"one \\\n two\nthree\");\nunsafe_here()").len(), 4);
        assert_eq!(code_of("a(\"one \\\n two\nthree\");\nlast()")[3], "last()");
    }

    #[test]
    fn hash_comments_and_docstrings_are_comments() {
        let lines = hashed("x = '#no' # yes\n\"\"\"Doc\nmore\"\"\"\ny = 1");
        assert_eq!((lines[0].code.as_str(), lines[0].comment.as_str()), ("x =  ", " yes"));
        assert_eq!(lines[1].comment, "Doc");
        assert_eq!(lines[2].comment, "more");
        assert_eq!(lines[3].code, "y = 1");
    }
}
