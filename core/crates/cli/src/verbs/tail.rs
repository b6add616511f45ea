//! `spanprof tail`: one line for each profile that arrives in a directory or at a running `serve`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use spanprof_profile::ProfilesData;
use spanprof_read::query::{self, Filter, Granularity, TypeSummary};

use crate::answers::{printable, FittingTable, TerminalLayout};
use crate::failure::Failure;
use crate::moment::unix_ns;
use crate::quantity::{format_quantity, format_share};
use crate::selection::FilterArguments;
use crate::serve::replaced_range_ms;
use crate::source::Source;
use crate::{moment, output};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof tail DIR|URL [FLAGS]",
    before_help = "Prints time, service, type, total, samples and most expensive function of each new profile, until Ctrl+C.",
    after_help = "\
Examples:
  spanprof tail http://127.0.0.1:4318
  spanprof tail ./profiles --service checkout --type cpu --json"
)]
pub(crate) struct TailArguments {
    #[arg(value_name = "DIR|URL", hide = true)]
    pub source: String,
    /// seconds between two queries
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// print what is there, and end
    #[arg(long)]
    pub once: bool,
    /// as JSON, one object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub filter: FilterArguments,
}

pub(crate) fn run(given: &TailArguments) -> Result<i32, Failure> {
    let source = Source::parse(&given.source)?;
    if !matches!(source, Source::Directory(_) | Source::ObjectPrefix(_) | Source::Server(_)) {
        return Err(Failure::usage(format!(
            "`{}` is not a directory, a prefix of object storage or the address of a `spanprof serve`",
            given.source
        )));
    }
    let filter = given.filter.filter(None, unix_ns())?;
    let mut known: HashSet<String> = match given.once {
        true => HashSet::new(),
        false => source.window_names(&filter)?.into_iter().collect(),
    };
    let mut is_failing = false;
    loop {
        match source.window_names(&filter) {
            Ok(names) => {
                is_failing = false;
                // An hour of `serve` has the samples of windows that were printed.
                let is_hour = |name: &str| replaced_range_ms(name.rsplit('/').next().unwrap_or(name)).is_some();
                for name in names.iter().filter(|name| !known.contains(*name) && (given.once || !is_hour(name))) {
                    if !print(&source, name, &filter, given.json) {
                        return Ok(0);
                    }
                }
                // Removed ones are forgotten.
                known = names.into_iter().collect();
            }
            Err(failure) if given.once => return Err(failure),
            // A restarted server is one line.
            Err(failure) if !is_failing => {
                is_failing = true;
                output::note(&format!("{}; retrying", failure.message));
            }
            Err(_) => (),
        }
        if given.once {
            return Ok(0);
        }
        std::thread::sleep(Duration::from_secs(given.interval));
    }
}

/// Prints the lines of a window; false when no process reads them any more.
fn print(source: &Source, name: &str, filter: &Filter, as_json: bool) -> bool {
    let data = match source.window(name) {
        Ok(data) => filter.apply(&data),
        Err(failure) => {
            output::note(&format!("skipped {}", failure.message));
            return true;
        }
    };
    query::types(&data).iter().filter(|summary| summary.samples > 0).all(|summary| {
        let line = if as_json { json_line(&data, summary) } else { text_line(&data, summary) };
        output::try_print(&line)
    })
}

/// The most expensive function of a service's profiles of one type.
fn hottest(data: &ProfilesData, summary: &TypeSummary) -> Option<query::TopRow> {
    let of_service = Filter { service: Some(summary.service.clone()), ..Filter::default() };
    let data = if summary.service.is_empty() { data } else { &of_service.apply(data) };
    query::top(data, &summary.type_name, Granularity::Function).rows.into_iter().next()
}

fn text_line(data: &ProfilesData, summary: &TypeSummary) -> String {
    let numbers = format!(
        "{}  {}  {}  {}  {} samples",
        moment::format_rfc3339(summary.to_unix_nano),
        printable(&summary.service),
        printable(&summary.type_name),
        format_quantity(summary.total, &summary.unit),
        summary.samples,
    );
    let mut lines = FittingTable::new(TerminalLayout::of_stdout());
    match hottest(data, summary) {
        Some(row) => {
            let share = format_share(row.weight.flat, summary.total);
            lines.function(format!("{numbers}  {share} "), 0, &row.at, "");
        }
        None => lines.heading(numbers, ""),
    }
    lines.text()
}

fn json_line(data: &ProfilesData, summary: &TypeSummary) -> String {
    let hottest = hottest(data, summary);
    let value = json!({
        "from_unix_nano": summary.from_unix_nano,
        "to_unix_nano": summary.to_unix_nano,
        "service": summary.service,
        "type": summary.type_name,
        "unit": summary.unit,
        "total": summary.total,
        "samples": summary.samples,
        "function": hottest.as_ref().map(|row| &row.at.function),
        "flat": hottest.as_ref().map(|row| row.weight.flat),
    });
    value.to_string() + "\n"
}
