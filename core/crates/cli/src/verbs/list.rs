//! `spanprof list`: the source lines of functions with their cost. Reads the sources where they are on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regex_lite::Regex;
use serde_json::{json, Value};
use spanprof_read::query::{self, Granularity, TopTable, Weight};

use super::table::row_limit;
use super::{matches, no_function, one_type, pattern, selected, ReadArguments, SOURCE_ABOUT};
use crate::answers::{cut_end, printable, TerminalLayout};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::output;
use crate::quantity::{format_quantity, format_share};
use crate::selection::EndArguments;

/// Lines shown before the first and after the last line of a function that has a cost.
const CONTEXT_LINES: usize = 3;
/// Where a module of Maven or Gradle has its packages.
const SOURCE_ROOTS: [&str; 5] = ["", "src/main/java", "src/main/kotlin", "src/main/scala", "src/test/java"];
/// Largest source file read.
const MAX_SOURCE_BYTES: u64 = 16 << 20;

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

/// A function with the weights of its lines.
struct ListedFunction {
    /// With line 0.
    at: query::FunctionLine,
    flat: i64,
    lines: BTreeMap<i64, Weight>,
}

/// The functions to print, and their sources where they were found.
struct SourceListing {
    table: TopTable,
    functions: Vec<ListedFunction>,
    sources: Vec<Option<Vec<String>>>,
    /// Number of functions that match.
    matched: usize,
}

pub(crate) fn run(given: &ListArguments) -> Result<i32, Failure> {
    let listing = listing(given)?;
    let text = if given.json {
        members(&listing).to_string() + "\n"
    } else {
        let SourceListing { table, functions, sources, matched } = &listing;
        let parts = functions
            .iter()
            .zip(sources)
            .map(|(function, source)| function_listing(table, function, source.as_deref()));
        let more = matched - functions.len();
        let more = if more > 0 { format!("\n… and {more} more (--limit 0 prints all)\n") } else { String::new() };
        parts.collect::<Vec<_>>().join("\n") + &more
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The result as JSON.
pub(crate) fn answer(given: &ListArguments) -> Result<Value, Failure> {
    listing(given).map(|listing| members(&listing))
}

fn listing(given: &ListArguments) -> Result<SourceListing, Failure> {
    let (data, filter) = selected(&given.read, given.end.to.as_deref(), Detail::Stacks)?;
    let table = query::top(&data, &one_type(&data, &filter), Granularity::Line);
    let mut functions = listed(&table, &given.pattern);
    if functions.is_empty() {
        return Err(no_function(&given.pattern, &table.type_name));
    }
    let matched = functions.len();
    functions.truncate(given.limit);
    let sources = functions.iter().map(|function| source_of(&function.at, given)).collect();
    Ok(SourceListing { table, functions, sources, matched })
}

/// The functions that match, by descending flat weight.
fn listed(table: &TopTable, pattern: &Regex) -> Vec<ListedFunction> {
    let mut functions: Vec<ListedFunction> = Vec::new();
    for row in table.rows.iter().filter(|row| matches(pattern, &row.at)) {
        let at = query::FunctionLine { line: 0, ..row.at.clone() };
        let nth = functions.iter().position(|function| function.at == at).unwrap_or_else(|| {
            functions.push(ListedFunction { at, flat: 0, lines: BTreeMap::new() });
            functions.len() - 1
        });
        functions[nth].flat = functions[nth].flat.saturating_add(row.weight.flat);
        functions[nth].lines.insert(row.at.line, row.weight);
    }
    functions.sort_by_key(|function| std::cmp::Reverse(function.flat));
    functions
}

/// The lines of a source file: of the path itself, or below the directories of `--source-path` by the longest part of the
/// path that exists there. A bare file name, as of the JVM, is below the directories of its package.
fn source_of(at: &query::FunctionLine, given: &ListArguments) -> Option<Vec<String>> {
    let path = Path::new(&at.file);
    let trimmed = given.trim_path.as_ref().and_then(|prefix| path.strip_prefix(prefix).ok()).unwrap_or(path);
    // A path of the profile must not lead out of these directories.
    let parts: Vec<_> = match trimmed.iter().any(|part| part == "..") {
        true => Vec::new(),
        false => trimmed.iter().filter(|part| *part != "/").collect(),
    };
    let packages = if parts.len() == 1 { package_directories(&at.function) } else { Vec::new() };
    let below = |directory: &PathBuf| {
        let directories =
            packages.iter().flat_map(|package| SOURCE_ROOTS.iter().map(move |root| Path::new(root).join(package)));
        let of_package = directories.map(|package| directory.join(package).join(parts[0]));
        let of_path = (0..parts.len()).map(|start| directory.join(parts[start..].iter().collect::<PathBuf>()));
        of_package.chain(of_path).collect::<Vec<_>>()
    };
    let named = [trimmed, path].into_iter().filter(|_| !given.only_source_path).map(Path::to_owned);
    given.source_path.iter().flat_map(below).chain(named).find_map(|candidate| {
        let meta = std::fs::metadata(&candidate).ok().filter(|meta| meta.is_file())?;
        let bytes = (meta.len() <= MAX_SOURCE_BYTES).then(|| std::fs::read(&candidate).ok()).flatten()?;
        Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
    })
}

/// The directories in which the class of a function such as `shop.cart.Cart$Item.price` may be: `shop/cart/Cart$Item`,
/// `shop/cart`, `shop`.
fn package_directories(function: &str) -> Vec<PathBuf> {
    let segments: Vec<&str> = function.split(['.', '/']).collect();
    // Not the name of a class: a signature, or a path out of the directory.
    if segments.iter().any(|segment| segment.is_empty()) {
        return Vec::new();
    }
    (1..segments.len()).rev().map(|length| segments[..length].iter().collect()).collect()
}

fn function_listing(table: &TopTable, function: &ListedFunction, source: Option<&[String]>) -> String {
    let quantity = |value: i64| if value == 0 { "·".to_owned() } else { format_quantity(value, &table.unit) };
    let share = format_share(function.flat, table.total);
    let flat = format_quantity(function.flat, &table.unit);
    let layout = TerminalLayout::of_stdout();
    let name = layout.function(&function.at);
    let mut text = format!("{name}\n{flat} {share} of {}: flat, cum, line\n", table.type_name);
    let mut row = |line: i64, weight: Weight, content: &str| {
        let content = printable(&content.replace('\t', "    "));
        let row = format!("{:>10} {:>10} {line:>6}  {content}", quantity(weight.flat), quantity(weight.cum));
        text += &cut_end(row.trim_end(), layout.columns.unwrap_or(usize::MAX));
        text.push('\n');
    };
    let known = function.lines.keys().filter(|line| **line > 0);
    let (first, last) = (known.clone().min().copied().unwrap_or(0), known.max().copied().unwrap_or(0));
    match source {
        Some(source) if first > 0 => {
            let start = (first as usize).saturating_sub(CONTEXT_LINES).max(1);
            let end = (last as usize).saturating_add(CONTEXT_LINES).min(source.len());
            for line in start..=end {
                row(line as i64, function.lines.get(&(line as i64)).copied().unwrap_or_default(), &source[line - 1]);
            }
        }
        _ => function.lines.iter().for_each(|(line, weight)| row(*line, *weight, "")),
    }
    if source.is_none() && !function.at.file.is_empty() {
        text += "  the file is not on this machine: name its directory with --source-path\n";
    }
    text
}

fn members(SourceListing { table, functions, sources, matched }: &SourceListing) -> Value {
    let functions = functions.iter().zip(sources).map(|(function, source)| {
        let lines = function.lines.iter().map(|(line, weight)| {
            let text = source.as_ref().and_then(|source| source.get(usize::try_from(*line - 1).ok()?));
            json!({"line": line, "flat": weight.flat, "cum": weight.cum, "text": text})
        });
        json!({
            "function": function.at.function,
            "file": function.at.file,
            "flat": function.flat,
            "lines": lines.collect::<Value>(),
        })
    });
    json!({
        "type": table.type_name,
        "unit": table.unit,
        "total": table.total,
        "matched": matched,
        "functions": functions.collect::<Value>(),
    })
}
