//! How a row names its function, as text and as JSON.

use serde_json::{Map, Value};
use spanprof_read::query::FunctionLine;

/// The members of a row that name its function or line.
pub fn function_members(location: &FunctionLine) -> Map<String, Value> {
    let mut members = Map::from_iter([
        ("function".to_owned(), location.function.as_str().into()),
        ("file".to_owned(), location.file.as_str().into()),
    ]);
    if location.line > 0 {
        members.insert("line".to_owned(), location.line.into());
    }
    members.insert("frame_type".to_owned(), location.frame_type.as_str().unwrap_or("").into());
    members
}

/// `name  file:line`, as far as they are known.
pub fn function_text(location: &FunctionLine) -> String {
    let mut text = printable(&location.function);
    if !location.file.is_empty() {
        text += &format!("  {}", printable(&location.file));
    }
    if location.line > 0 {
        text += &format!(":{}", location.line);
    }
    text
}

/// A name without control characters, which a terminal would interpret.
pub fn printable(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Text in Markdown: without markup, HTML and links.
pub fn escaped(text: &str) -> String {
    let special = |letter: char| r"\`*_{}[]<>()#+-!|~&$@".contains(letter);
    text.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter])).collect()
}
