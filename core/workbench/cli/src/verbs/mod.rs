//! The verbs, one file each: the structure of its flags, and a function from these to an exit code.

pub(crate) mod check;
mod check_redaction;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod diff;
pub(crate) mod doctor;
mod empty_selection;
pub(crate) mod explain;
pub(crate) mod flamegraph;
pub(crate) mod gate;
pub(crate) mod heap;
pub(crate) mod labels;
pub(crate) mod list;
pub(crate) mod mcp;
pub(crate) mod merge;
pub(crate) mod peek;
pub(crate) mod scrape;
pub(crate) mod serve;
pub(crate) mod services;
pub(crate) mod spans;
pub(crate) mod symbolize;
mod table;
pub(crate) mod top;
pub(crate) mod tree;
pub(crate) mod upload;
pub(crate) mod view;

use std::path::Path;

use regex_lite::Regex;
use spanprof_answers::failure::Failure;
use spanprof_answers::profile_name::is_sidecar;
use spanprof_answers::selection::moment::unix_ns;
use spanprof_answers::selection::{self, FilterArguments};
use spanprof_profile::{kinds, transform, ProfilesData};
use spanprof_read::query::{self, Detail, Filter, FunctionLine, StackFilter};

use empty_selection::nothing_passes;

use crate::nearest::nearest;
use crate::output;
use crate::source::Source;

/// Longest list of services in a hint.
const MAX_CONTENTS: usize = 240;

const SOURCE_ABOUT: &str = "\
Reads OTLP profiles (protobuf, plain or gzip), the lines the OpenTelemetry Collector's file exporter writes, pprof, folded
stacks, speedscope; all profiles of a directory; stdin for `-`; an object, or all below a prefix (s3://, gs://, az://); or a running
`spanprof serve` by its address (a link copied from its page works); or a program's own endpoint (http://HOST:PORT/debug/pprof/). Several sources are merged.";

/// Sources and filter of a reading verb.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReadArguments {
    #[arg(value_name = "FILE|DIR|URL", required = true, hide = true)]
    pub sources: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArguments,
    /// only samples with a function in their stack whose name or file matches
    #[arg(long, value_name = "REGEX", value_parser = pattern)]
    pub focus: Option<Regex>,
    /// only samples without such a function
    #[arg(long, value_name = "REGEX", value_parser = pattern)]
    pub ignore: Option<Regex>,
}

/// Frames below built-in functions of V8.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BuiltinArguments {
    /// with the native frames of V8 below JSON.parse and other built-in functions
    #[arg(long)]
    pub native: bool,
}

impl BuiltinArguments {
    fn apply(&self, data: &mut ProfilesData) {
        if !self.native {
            query::fold_builtins(data);
        }
    }
}

/// Output file of a verb.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArguments {
    /// output file, - for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: String,
    /// title of a flame graph; service and type by default
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}

/// A regular expression of the command line.
fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

/// Stdin can be read once.
fn refuse_repeated_stdin(names: &[impl AsRef<str>]) -> Result<(), Failure> {
    if names.iter().filter(|name| name.as_ref() == "-").count() > 1 {
        Err(Failure::usage("stdin is named twice").hint("give `-` once"))
    } else {
        Ok(())
    }
}

/// The sources that the command line names, without side-cars: `profiles/*` contains them.
fn sources(names: &[String]) -> Result<Vec<Source>, Failure> {
    refuse_repeated_stdin(names)?;
    let is_read = |name: &&String| names.len() == 1 || !is_sidecar(Path::new(name));
    names.iter().filter(is_read).map(|name| Source::parse(name)).collect()
}

/// The samples of all sources that pass the filter.
fn read_all(sources: &[Source], filter: &Filter, detail: Detail) -> Result<ProfilesData, Failure> {
    merged(sources, |source| source.read(filter, detail.clone()))
}

fn merged(
    sources: &[Source],
    read: impl FnMut(&Source) -> Result<ProfilesData, Failure>,
) -> Result<ProfilesData, Failure> {
    let mut parts = sources.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    match parts.len() {
        1 => Ok(parts.remove(0)),
        _ => Ok(transform::merge(&parts)),
    }
}

/// Reads the sources of a reading verb with its filter; returns both.
fn selected(read: &ReadArguments, to: Option<&str>, detail: Detail) -> Result<(ProfilesData, Filter), Failure> {
    let filter = read.filter.filter(to, unix_ns())?;
    let mut data = passing(&read.sources, &filter, detail)?;
    StackFilter { focus: read.focus.clone(), ignore: read.ignore.clone() }.apply(&mut data);
    match data.sample_count() {
        0 => Err(Failure::new("no stack passes --focus and --ignore")
            .hint("`spanprof top` without them lists the functions; patterns are case-sensitive, (?i) ignores case")),
        _ => Ok((data, filter)),
    }
}

/// The samples of the named sources that pass the filter. When there are none, the error lists the available services and
/// types.
fn passing(names: &[String], filter: &Filter, detail: Detail) -> Result<ProfilesData, Failure> {
    let sources = sources(names)?;
    match read_all(&sources, filter, detail)? {
        data if data.sample_count() > 0 => Ok(data),
        _ => Err(nothing_passes(&names.join(", "), &sources, filter)),
    }
}

/// The error for a source without samples of a type.
fn missing(name: &str, type_name: &str, data: &ProfilesData) -> Failure {
    let failure = Failure::new(format!("{name} has no samples of the type {type_name}"));
    let types = query::types(data);
    let is_known = kinds::of_type(type_name).is_some();
    let similar = nearest(type_name, types.iter().map(|summary| summary.type_name.as_str()));
    if let Some(similar) = similar.filter(|_| !is_known) {
        return failure.hint(format!("did you mean `--type {similar}`?"));
    }
    let key = kinds::of_type(type_name).and_then(|kind| kind.key);
    let profiled = key.map(|key| format!(", or profile with {key}=true")).unwrap_or_default();
    failure.hint(format!("available: {}; choose one with --type{profiled}", contents(data)))
}

/// `"checkout" (cpu, wall), "cart" (cpu)`, at most about three lines.
fn contents(data: &ProfilesData) -> String {
    let mut services: Vec<(String, Vec<String>)> = Vec::new();
    for summary in query::types(data) {
        match services.iter_mut().find(|(name, _)| *name == summary.service) {
            Some((_, types)) => types.push(summary.type_name),
            None => services.push((summary.service, vec![summary.type_name])),
        }
    }
    let mut text = String::new();
    for (nth, (name, types)) in services.iter().enumerate() {
        let part = format!("{}{name:?} ({})", if nth > 0 { ", " } else { "" }, types.join(", "));
        if nth > 0 && text.len() + part.len() > MAX_CONTENTS {
            return format!("{text} and {} more services; `spanprof services` lists them", services.len() - nth);
        }
        text += &part;
    }
    text
}

/// Whether a pattern matches a function's name or file.
fn matches(pattern: &Regex, at: &FunctionLine) -> bool {
    pattern.is_match(&at.function) || pattern.is_match(&at.file)
}

fn no_function(pattern: &Regex, type_name: &str) -> Failure {
    Failure::new(format!("no function of the type {type_name} matches `{pattern}`"))
        .hint("`spanprof top` lists the functions; patterns are case-sensitive, (?i) ignores case")
}

/// The type to show; prints a note when there are others.
fn one_type(data: &ProfilesData, filter: &Filter) -> String {
    let shown = selection::type_to_show(data, filter);
    let mut others: Vec<String> = query::types(data).into_iter().map(|summary| summary.type_name).collect();
    others.sort();
    others.dedup();
    others.retain(|name| *name != shown);
    if !others.is_empty() {
        output::note(&format!("showing {shown}; also available: {} (choose with --type)", others.join(", ")));
    }
    shown
}
