//! `spanprof flamegraph`: writes a flame graph as one HTML page that works offline.

use spanprof_profile::encode::flamegraph;
use spanprof_profile::transform;

use super::{one_type, selected, OutputArguments, ReadArguments, SOURCE_ABOUT};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::output;
use crate::selection::EndArguments;

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
    /// libraries and parts of the runtime as one frame each
    #[arg(long)]
    pub fold: bool,
    /// the tree as JSON instead of a page
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
    #[command(flatten)]
    pub end: EndArguments,
}

pub(crate) fn run(given: &FlamegraphArguments) -> Result<i32, Failure> {
    if !given.json {
        output::refuse_on_terminal(&given.output.output, "HTML", "-o flame.html")?;
    }
    let (data, filter) = selected(&given.read, given.end.to.as_deref(), Detail::Stacks)?;
    let mut tree = transform::tree(&data, &one_type(&data, &filter));
    if given.fold {
        tree = tree.folded(|_| false);
    }
    let text = if given.json {
        flamegraph::json(&tree) + "\n"
    } else {
        flamegraph::html(&tree, &title(&given.output, &data, &tree.type_name))
    };
    output::write(&given.output.output, text.as_bytes())?;
    Ok(0)
}

/// Title of a page: `--title`, else its services and type.
pub(super) fn title(given: &OutputArguments, data: &spanprof_profile::ProfilesData, type_name: &str) -> String {
    if let Some(title) = &given.title {
        return title.clone();
    }
    let mut services: Vec<&str> = data.resources.iter().map(|resource| resource.service_name()).collect();
    services.sort_unstable();
    services.dedup();
    services.retain(|name| !name.is_empty());
    match services.as_slice() {
        [] => type_name.to_owned(),
        [one] => format!("{one} · {type_name}"),
        several => format!("{} services · {type_name}", several.len()),
    }
}
