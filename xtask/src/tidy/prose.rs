//! Extracts prose from tracked files: comments and docstrings, names of test functions, file names, Markdown text.
//! Code spans, fenced blocks and quoted text are left out. Called by the rules about wording.

use super::{has_extension, source};

/// A word of prose, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Empty between two separate texts, so that no phrase spans both.
    pub text: String,
    /// Line in the file, from 1; 0 for the file name.
    pub line: usize,
    /// First word of a sentence.
    pub opens_sentence: bool,
}

/// Prose of one file; empty for files of other kinds.
pub fn words(path: &str, text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let name = path.rsplit('/').next().unwrap_or_default();
    append(&mut words, &name.split('.').next().unwrap_or_default().replace(['_', '-'], " "), 0);
    separate(&mut words);
    if has_extension(path, &["md"]) {
        for (at, line) in markdown(text).iter().enumerate() {
            append_line(&mut words, line, at + 1);
        }
        return words;
    }
    let lines = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs" | "java" | "js" | "mjs" | "ts") => source::rust(text),
        Some("py" | "pyi") => source::hashed(text),
        _ => return Vec::new(),
    };
    let mut fenced = false;
    for (at, line) in lines.iter().enumerate() {
        let comment = line.comment.trim_start_matches(['/', '!', '*', ' ']);
        if comment.starts_with("```") {
            fenced = !fenced;
            separate(&mut words);
        } else if !fenced {
            append_line(&mut words, &without_spans(comment), at + 1);
        }
    }
    for (name, line) in test_names(path, text, &lines) {
        separate(&mut words);
        append(&mut words, &separate_words(&name), line);
    }
    words
}

/// Appends a line of a text that may have begun on the line above; an empty line separates.
fn append_line(words: &mut Vec<Word>, line: &str, number: usize) {
    match line.trim().is_empty() {
        true => separate(words),
        false => append(words, line, number),
    }
}

fn separate(words: &mut Vec<Word>) {
    words.push(Word { text: String::new(), line: 0, opens_sentence: false });
}

fn append(words: &mut Vec<Word>, text: &str, line: usize) {
    let mut opens_sentence =
        words.last().is_none_or(|word| word.text.is_empty() || word.text.ends_with(['.', '?', '!']));
    // The end mark of the last word is only needed to continue on the next line.
    if let Some(last) = words.last_mut() {
        last.text = last.text.trim_end_matches(['.', '?', '!']).to_owned();
    }
    for token in text.split_whitespace() {
        let ends = token.trim_end_matches([')', '*', '_', '"']).ends_with(['.', '?', '!', ':']);
        let parts = token.split(|c: char| !c.is_alphanumeric() && !"_-'’".contains(c));
        for part in parts.map(|part| part.trim_matches(['-', '\'', '_', '’'])).filter(|part| !part.is_empty()) {
            words.push(Word { text: part.to_lowercase(), line, opens_sentence });
            opens_sentence = false;
        }
        opens_sentence |= ends;
    }
    if let (true, Some(last)) = (opens_sentence, words.last_mut().filter(|word| !word.text.is_empty())) {
        last.text.push('.');
    }
}

/// The lines of a Markdown file without fenced blocks, code spans, quoted text and link targets.
pub fn markdown(text: &str) -> Vec<String> {
    let mut fenced = false;
    let lines = text.lines().map(|line| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return String::new();
        }
        match fenced {
            true => String::new(),
            false => without_spans(line),
        }
    });
    lines.collect()
}

/// A line without code spans, quoted text and link targets; each leaves the mark `¤`, one word.
fn without_spans(line: &str) -> String {
    let mut rest = line;
    let mut kept = String::new();
    while let Some(at) = rest.find(['`', '"', '“', ']']) {
        let opening = rest[at..].chars().next().unwrap_or_default();
        let (start, closing) = match opening {
            '“' => (at + opening.len_utf8(), '”'),
            ']' if rest[at..].starts_with("](") => (at + 2, ')'),
            ']' => (rest.len(), ']'),
            other => (at + 1, other),
        };
        let Some(length) = rest.get(start..).and_then(|inside| inside.find(closing)) else {
            let next = at + opening.len_utf8();
            kept.push_str(&rest[..next]);
            rest = &rest[next..];
            continue;
        };
        kept.push_str(&rest[..at]);
        if opening != ']' {
            kept.push('¤');
        }
        rest = &rest[start + length + closing.len_utf8()..];
    }
    kept + rest
}

/// Names of test functions and the lines where they are declared.
fn test_names(path: &str, text: &str, lines: &[source::SourceLine]) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    let mut attribute = false;
    for (at, (line, original)) in lines.iter().zip(text.lines()).enumerate() {
        let code = line.code.trim();
        let name = if has_extension(path, &["py"]) {
            code.strip_prefix("def ").or(code.strip_prefix("async def ")).filter(|name| name.starts_with("test_"))
        } else if has_extension(path, &["rs"]) {
            attribute |= code.starts_with("#[") && code.contains("test]");
            code.split_once("fn ").map(|(_, name)| name).filter(|_| std::mem::take(&mut attribute))
        } else if has_extension(path, &["java"]) {
            attribute |= code.starts_with("@Test") || code.starts_with("@ParameterizedTest");
            code.split_once("void ").map(|(_, name)| name).filter(|_| std::mem::take(&mut attribute))
        } else {
            // In JavaScript the name is the text of the first argument.
            let call = ["test(", "it("].into_iter().find_map(|call| original.trim_start().strip_prefix(call));
            let quote = call.and_then(|call| call.chars().next()).filter(|quote| "'\"`".contains(*quote));
            let title = call.zip(quote).and_then(|(call, quote)| call[1..].split(quote).next());
            names.extend(title.map(|title| (title.to_owned(), at + 1)));
            None
        };
        let name = name.and_then(|name| name.split(|c: char| !c.is_alphanumeric() && c != '_').next());
        names.extend(name.map(|name| (name.to_owned(), at + 1)));
    }
    names
}

/// `aName` and `a_name` become `a name`; a text with spaces stays.
fn separate_words(name: &str) -> String {
    let mut separated = String::new();
    for character in name.chars() {
        if character.is_uppercase() && separated.ends_with(char::is_lowercase) {
            separated.push(' ');
        }
        separated.push(if character == '_' { ' ' } else { character });
    }
    separated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        let words = words(path, text).into_iter().filter(|word| word.line > 0);
        words.map(|word| word.text.trim_end_matches('.').to_owned()).collect()
    }

    #[test]
    fn comments_and_test_names_are_prose_and_code_is_not() {
        let rust = "// A comment.\nlet code = \"text\";\n#[test]\nfn a_full_ring_drops() { a_call(); }\n";
        assert_eq!(texts("a.rs", rust), ["a", "comment", "a", "full", "ring", "drops"]);
        assert_eq!(texts("A.java", "@Test\nvoid aFullRingDrops() {}\n"), ["a", "full", "ring", "drops"]);
        assert_eq!(texts("a.py", "x = 1  # why\ndef test_one():\n    pass\n"), ["why", "test", "one"]);
        assert_eq!(texts("a.test.js", "test('a full ring', () => {});"), ["a", "full", "ring"]);
    }

    #[test]
    fn code_spans_quotes_and_fenced_blocks_are_not_prose() {
        assert_eq!(texts("a.md", "Run `cargo door` \"the bell\" now.\n```\nroom\n```\n"), ["run", "now"]);
        assert_eq!(texts("a.rs", "/// Before.\n/// ```\n/// room();\n/// ```\n/// After."), ["before", "after"]);
        assert_eq!(texts("a.md", "[here](room/door.md)"), ["here"]);
    }

    #[test]
    fn hyphens_and_underscores_make_one_word() {
        assert_eq!(texts("a.md", "an in-house door_bell"), ["an", "in-house", "door_bell"]);
    }

    #[test]
    fn sentences_open_after_an_end_mark_also_across_lines() {
        let words = words("a.rs", "// One two.\n// Three\n// four. Five");
        let opening: Vec<_> = words.iter().filter(|word| word.opens_sentence && word.line > 0).collect();
        assert_eq!(opening.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), ["one", "three", "five"]);
    }

    #[test]
    fn a_file_name_is_prose_and_files_of_other_kinds_have_none() {
        assert_eq!(words("a/door_bell.rs", "")[1].text, "bell");
        assert!(words("a/door.txt", "room").is_empty());
    }
}
