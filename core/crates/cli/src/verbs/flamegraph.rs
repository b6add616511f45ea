//! `spanprof flamegraph`: writes a flame graph as one HTML page that works offline.

use spanprof_profile::encode::flamegraph;
use spanprof_profile::transform;

use super::{one_type, selected, SOURCES, SOURCE_ABOUT};
use crate::arguments::{CliVerb, Flag, Parsed};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::{output, selection};

pub(crate) static VERB: CliVerb = CliVerb {
    name: "flamegraph",
    summary: "Write a flame graph as one HTML file",
    usage: "FILE|DIR|URL… [-o OUT.html] [FLAGS]",
    about: SOURCE_ABOUT,
    flags: &[
        &[
            OUTPUT,
            Flag::value("--title", "TEXT", "title of the page [service and type]"),
            Flag::switch("--json", "the tree as JSON instead of a page"),
        ],
        selection::FLAGS,
        selection::TO,
    ],
    examples: &[
        "spanprof flamegraph cpu.pb.gz -o cpu.html",
        "spanprof flamegraph http://127.0.0.1:4318 --service checkout --type wall --from -5m -o wall.html",
    ],
    positionals: SOURCES,
    run,
};

/// Output file of a verb.
pub(super) const OUTPUT: Flag =
    Flag { long: "--output", short: "-o", value: "FILE", help: "output file, - for stdout [-]", repeats: false };

fn run(parsed: &Parsed) -> Result<i32, Failure> {
    let (data, filter) = selected(parsed, Detail::Stacks)?;
    let tree = transform::tree(&data, &one_type(&data, &filter));
    let text = if parsed.has("--json") {
        flamegraph::json(&tree) + "\n"
    } else {
        flamegraph::html(&tree, &title(parsed, &data, &tree.type_name))
    };
    output::write(parsed.value("--output").unwrap_or("-"), text.as_bytes())?;
    Ok(0)
}

/// Title of a page: `--title`, else its services and type.
pub(super) fn title(parsed: &Parsed, data: &spanprof_profile::ProfilesData, type_name: &str) -> String {
    if let Some(title) = parsed.value("--title") {
        return title.to_owned();
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
