//! `spanprof top`: the functions that cost most, as text or as JSON.

use std::cmp::Reverse;

use serde_json::Value;
use spanprof_answers::failure::Failure;
use spanprof_answers::selection::EndArguments;
use spanprof_answers::top::{members, table_text};
use spanprof_answers::{next_command, TerminalLayout};
use spanprof_read::query::{self, Detail, TopRow, TopTable};

use super::table::{Rows, TableArguments};
use super::{one_type, selected, BuiltinArguments, ReadArguments, SOURCE_ABOUT};
use crate::output;

/// More sources than this are not repeated in a hint.
const SOURCES_IN_HINT: usize = 3;

#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "spanprof top FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof top cpu.pb.gz
  spanprof top worker-1.pb.gz worker-2.pb.gz
  spanprof top ./profiles --service checkout --from -15m --label endpoint=/cart
  spanprof top ./profiles --type inuse_space --label age=old
  spanprof top ./profiles --by type
  spanprof top http://127.0.0.1:4318 --trace-id 0af7651916cd43dd8448eb211c80319c --json"
)]
pub(crate) struct TopArguments {
    /// flat: the function itself, own: with the libraries and the runtime that it calls, cum: with all its callees
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = TopColumn::Flat)]
    pub sort: TopColumn,
    #[command(flatten)]
    pub table: TableArguments,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub builtins: BuiltinArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TopColumn {
    Flat,
    Own,
    Cum,
}

pub(crate) fn run(arguments: &TopArguments) -> Result<i32, Failure> {
    let table = table(arguments)?;
    let limit = arguments.table.limit;
    let text = if arguments.table.json {
        Value::Object(members(&table, limit)).to_string() + "\n"
    } else {
        table_text(&table, arguments.table.by == Rows::Type, limit, TerminalLayout::of_stdout())
    };
    output::print(text.as_bytes())?;
    if !arguments.table.json && arguments.table.by != Rows::Type {
        output::hint(|| next_command::after_top(&table, &selection_words(arguments)?));
    }
    Ok(0)
}

/// The sources and the filter as words of a shell. `None` if the sources cannot be read again.
fn selection_words(arguments: &TopArguments) -> Option<String> {
    let sources = &arguments.read.sources;
    if sources.iter().any(|source| source == "-") {
        return None;
    }
    let mut words: Vec<String> = if sources.len() <= SOURCES_IN_HINT {
        sources.iter().map(|source| next_command::quoted(source)).collect()
    } else {
        vec!["SOURCE…".to_owned()]
    };
    let to = arguments.end.to.as_deref().map(|to| ("--to", to));
    for (flag, value) in arguments.read.filter.flags().into_iter().chain(to) {
        words.push(format!("{flag} {}", next_command::quoted(value)));
    }
    Some(words.join(" "))
}

/// The result as JSON.
pub(crate) fn answer(arguments: &TopArguments) -> Result<Value, Failure> {
    Ok(Value::Object(members(&table(arguments)?, arguments.table.limit)))
}

fn table(arguments: &TopArguments) -> Result<TopTable, Failure> {
    let mut read = arguments.read.clone();
    read.filter.type_name = read.filter.type_name.or(arguments.table.by.default_type());
    let (mut data, filter) = selected(&read, arguments.end.to.as_deref(), Detail::Stacks)?;
    arguments.builtins.apply(&mut data);
    arguments.table.by.reduce(&mut data);
    let mut table = query::top(&data, &one_type(&data, &filter), arguments.table.by.into());
    let by: fn(&TopRow) -> [i64; 3] = match arguments.sort {
        // The order of the query.
        TopColumn::Flat => return Ok(table),
        TopColumn::Own => |row| [row.own, row.weight.flat, row.weight.cum],
        TopColumn::Cum => |row| [row.weight.cum, row.weight.flat, row.own],
    };
    table.rows.sort_by(|one, other| {
        Reverse(by(one)).cmp(&Reverse(by(other))).then_with(|| one.location.cmp(&other.location))
    });
    Ok(table)
}
