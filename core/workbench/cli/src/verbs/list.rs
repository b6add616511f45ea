//! `spanprof list`: the source lines of functions with their cost. Reads the sources where they are on this machine.

use std::path::PathBuf;

use regex_lite::Regex;
use serde_json::{json, Value};
use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::{format_quantity, format_share};
use spanprof_answers::selection::EndArguments;
use spanprof_answers::sources::{self, SourceFile, SourcePaths};
use spanprof_answers::{cut_end, function_members, printable, TerminalLayout};
use spanprof_read::query::{self, Detail, FunctionLineTable, FunctionLines};

use super::table::row_limit;
use super::{matches, no_function, one_type, pattern, selected, ReadArguments, SOURCE_ABOUT};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof list REGEX FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof list '^price$' cpu.pb.gz
  spanprof list price ./profiles --trim-path /srv/app --source-path ./src"
)]
pub(crate) struct ListArguments {
    #[arg(value_name = "REGEX", value_parser = pattern, hide = true)]
    pub pattern: Regex,
    /// directory of the sources; repeat for more
    #[arg(long, value_name = "DIR")]
    pub source_path: Vec<PathBuf>,
    /// prefix to remove from the file names of the profile
    #[arg(long, value_name = "PREFIX")]
    pub trim_path: Option<PathBuf>,
    /// read no other source files, such as the paths in the profile
    #[arg(long)]
    pub only_source_path: bool,
    /// functions to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "10", value_parser = row_limit)]
    pub limit: usize,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

/// The functions to print, and their sources where they were found.
struct SourceListing {
    table: FunctionLineTable,
    sources: Vec<Option<SourceFile>>,
    /// Number of functions that match.
    matched: usize,
}

pub(crate) fn run(arguments: &ListArguments) -> Result<i32, Failure> {
    let listing = listing(arguments)?;
    let text = if arguments.json {
        members(&listing).to_string() + "\n"
    } else {
        let SourceListing { table, sources, matched } = &listing;
        let functions = table.functions.iter().zip(sources);
        let parts = functions.map(|(function, source)| function_listing(table, function, source.as_ref()));
        let more = matched - table.functions.len();
        let more = if more > 0 { format!("\n… and {more} more (--limit 0 prints all)\n") } else { String::new() };
        parts.collect::<Vec<_>>().join("\n") + &more
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(arguments: &ListArguments) -> Result<Value, Failure> {
    listing(arguments).map(|listing| members(&listing))
}

fn listing(arguments: &ListArguments) -> Result<SourceListing, Failure> {
    let (data, filter) = selected(&arguments.read, arguments.end.to.as_deref(), Detail::Stacks)?;
    let mut table = query::function_lines(&data, &one_type(&data, &filter), |at| matches(&arguments.pattern, at));
    if table.functions.is_empty() {
        return Err(no_function(&arguments.pattern, &table.type_name));
    }
    let matched = table.functions.len();
    table.functions.truncate(arguments.limit);
    let (directories, prefix) = (arguments.source_path.clone(), arguments.trim_path.clone());
    let paths = if arguments.only_source_path {
        SourcePaths::only_below(directories, prefix)
    } else {
        SourcePaths::new(directories, prefix)
    };
    let sources = table.functions.iter().map(|function| paths.read(&function.location)).collect();
    Ok(SourceListing { table, sources, matched })
}

fn function_listing(table: &FunctionLineTable, function: &FunctionLines, source: Option<&SourceFile>) -> String {
    let quantity = |value: i64| if value == 0 { "·".to_owned() } else { format_quantity(value, &table.unit) };
    let share = format_share(function.flat, table.total);
    let flat = format_quantity(function.flat, &table.unit);
    let layout = TerminalLayout::of_stdout();
    let name = layout.function(&function.location);
    let mut text = format!("{name}\n{flat} {share} of {}: flat, cum, line\n", table.type_name);
    let lines = source.map(|source| source.lines.as_slice());
    for line in sources::shown_lines(function, lines) {
        let weight = function.lines.get(&line).copied().unwrap_or_default();
        let content = printable(&sources::line_text(lines, line).unwrap_or_default().replace('\t', "    "));
        let row = format!("{:>10} {:>10} {line:>6}  {content}", quantity(weight.flat), quantity(weight.cum));
        text += &cut_end(row.trim_end(), layout.columns.unwrap_or(usize::MAX));
        text.push('\n');
    }
    if source.is_none() && !function.location.file.is_empty() {
        text += "  the file is not on this machine: name its directory with --source-path\n";
    }
    text
}

fn members(SourceListing { table, sources, matched }: &SourceListing) -> Value {
    let functions = table.functions.iter().zip(sources).map(|(function, source)| {
        let text = source.as_ref().map(|source| source.lines.as_slice());
        let mut members = function_members(&function.location);
        members.insert("flat".to_owned(), function.flat.into());
        members.insert("lines".to_owned(), sources::lines_json(function, text, function.lines.keys().copied()));
        Value::Object(members)
    });
    json!({
        "type": table.type_name,
        "unit": table.unit,
        "total": table.total,
        "matched": matched,
        "functions": functions.collect::<Value>(),
    })
}
