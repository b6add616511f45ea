//! Tables of functions or lines: the flags that `top` and `diff` share, and how a row names its function.

use serde_json::{Map, Value};
use spanprof_read::query::{FunctionLine, Granularity};

/// Flags of a table.
#[derive(Debug, clap::Args)]
pub(crate) struct TableArguments {
    /// rows to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "30", value_parser = row_limit)]
    pub limit: usize,
    /// flat: the function itself, cum: with its callees
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = SortColumn::Flat)]
    pub sort: SortColumn,
    /// rows: functions or their lines
    #[arg(long, value_name = "ROWS", value_enum, default_value_t = Rows::Function)]
    pub by: Rows,
    /// as JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of rows, 0 for all of them.
pub(super) fn row_limit(text: &str) -> Result<usize, std::num::ParseIntError> {
    text.parse().map(|limit| if limit == 0 { usize::MAX } else { limit })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortColumn {
    Flat,
    Cum,
}

/// The flag `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rows {
    Function,
    Line,
}

impl From<Rows> for Granularity {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Function => Granularity::Function,
            Rows::Line => Granularity::Line,
        }
    }
}

/// The members of a row that name its function or line.
pub(super) fn function_members(at: &FunctionLine) -> Map<String, Value> {
    let mut members = Map::from_iter([
        ("function".to_owned(), at.function.as_str().into()),
        ("file".to_owned(), at.file.as_str().into()),
    ]);
    if at.line > 0 {
        members.insert("line".to_owned(), at.line.into());
    }
    members.insert("frame_type".to_owned(), at.frame_type.as_str().unwrap_or("").into());
    members
}

/// `name  file:line`, as far as they are known.
pub(super) fn function_text(at: &FunctionLine) -> String {
    let mut text = printable(&at.function);
    if !at.file.is_empty() {
        text += &format!("  {}", printable(&at.file));
    }
    if at.line > 0 {
        text += &format!(":{}", at.line);
    }
    text
}

/// A name without control characters, which a terminal would interpret.
pub(super) fn printable(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Text in Markdown: without markup, HTML and links.
pub(super) fn escaped(text: &str) -> String {
    let special = |letter: char| r"\`*_{}[]<>()#+-!|~&$@".contains(letter);
    text.chars().flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter])).collect()
}
