//! `spanprof flamegraph`: writes a flame graph as one HTML page that works offline.

use std::path::PathBuf;

use spanprof_answers::failure::Failure;
use spanprof_answers::page_sources::page_sources;
use spanprof_answers::selection::{self, EndArguments};
use spanprof_answers::sources::{source_directories, SourcePaths};
use spanprof_profile::transform;
use spanprof_read::query::Detail;
use spanprof_view::flamegraph;
use spanprof_view::page::{self, PageContext};

use super::{one_type, selected, OutputArguments, ReadArguments, SOURCE_ABOUT};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof flamegraph FILE|DIR|URL… [-o OUT.html] [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof flamegraph cpu.pb.gz -o cpu.html
  spanprof flamegraph http://127.0.0.1:4318 --service checkout --type wall --from -5m -o wall.html"
)]
pub(crate) struct FlamegraphArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// the tree as JSON instead of a page
    #[arg(long)]
    pub json: bool,
    /// directory of sources whose lines the page shows with their weight, at most 1 MiB; repeat for more
    #[arg(long, value_name = "DIR")]
    pub source_path: Vec<PathBuf>,
    /// prefix to remove from the file names of the profile
    #[arg(long, value_name = "PREFIX")]
    pub trim_path: Option<PathBuf>,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(arguments: &FlamegraphArguments) -> Result<i32, Failure> {
    if !arguments.json {
        output::refuse_on_terminal(&arguments.output.output, "HTML", "-o flame.html")?;
    }
    let (data, filter) = selected(&arguments.read, arguments.end.to.as_deref(), Detail::Labels)?;
    // A page has all types: that it shows one first needs no word.
    let type_name = if arguments.json { one_type(&data, &filter) } else { selection::type_to_show(&data, &filter) };
    let text = if arguments.json {
        flamegraph::json(&transform::tree(&data, &type_name)) + "\n"
    } else {
        let directories = source_directories(&arguments.source_path)?;
        let sources = if directories.is_empty() {
            Vec::new()
        } else {
            page_sources(&data, &SourcePaths::only_below(directories, arguments.trim_path.clone()))
        };
        let context = PageContext { sources, ..PageContext::default() };
        page::html_with(&data, &type_name, &title(&arguments.output, &data, ""), &context)
    };
    output::write(&arguments.output.output, text.as_bytes())?;
    Ok(0)
}

/// Title of a result: `--title`, else its services, and its type if it has one.
pub(super) fn title(arguments: &OutputArguments, data: &spanprof_profile::ProfilesData, type_name: &str) -> String {
    if let Some(title) = &arguments.title {
        return title.clone();
    }
    let mut services: Vec<&str> = data.resources.iter().map(|resource| resource.service_name()).collect();
    services.sort_unstable();
    services.dedup();
    services.retain(|name| !name.is_empty());
    let services = match services.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        several => format!("{} services", several.len()),
    };
    [services.as_str(), type_name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}
