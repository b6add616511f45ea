//! `spanprof convert`: writes samples in another format.

use spanprof_profile::encode::{flamegraph, folded, otlp, pprof};
use spanprof_profile::transform;

use super::{one_type, selected, SOURCES, SOURCE_ABOUT, SOURCE_USAGE};
use crate::arguments::{CliVerb, Flag, Parsed};
use crate::detail::Detail;
use crate::failure::Failure;
use crate::serve::gzip;
use crate::{moment, otlp_json, output, selection};

const EXPECTED: &str = "otlp, pprof, folded, flamegraph or json";

pub(crate) static VERB: CliVerb = CliVerb {
    name: "convert",
    summary: "Write profiles in another format",
    usage: SOURCE_USAGE,
    about: SOURCE_ABOUT,
    flags: &[
        &[
            Flag {
                long: "--to",
                short: "",
                value: "FORMAT|TIME",
                help: "otlp, pprof, folded, flamegraph (HTML) or json (OTLP/JSON) [by the output's name]; or the end of the time range",
                repeats: true,
            },
            super::flamegraph::OUTPUT,
            Flag::value("--title", "TEXT", "title of a flame graph [service and type]"),
            Flag::switch("--json", "the same as --to json"),
        ],
        selection::FLAGS,
    ],
    examples: &[
        "spanprof convert cpu.otlp.pb.gz --to pprof -o cpu.pb.gz",
        "spanprof convert http://127.0.0.1:4318 --service checkout --type cpu --to folded -o cpu.folded",
    ],
    positionals: SOURCES,
    run,
};

fn run(parsed: &Parsed) -> Result<i32, Failure> {
    let path = parsed.value("--output").unwrap_or("-");
    let formats: Vec<&str> = parsed.all("--to").filter(|value| selection::FORMATS.contains(value)).collect();
    let times: Vec<&str> = parsed.all("--to").filter(|value| !selection::FORMATS.contains(value)).collect();
    if let Some(invalid) = times.iter().find(|text| moment::parse(text, 0).is_none()) {
        return Err(Failure::usage(format!("--to: expected {EXPECTED}, or a time, got `{invalid}`")));
    }
    if formats.len() > 1 || times.len() > 1 {
        return Err(Failure::usage("--to names two formats or two times").hint("give one format and at most one time"));
    }
    let format = match (formats.first().copied(), parsed.has("--json")) {
        (Some(format), false) | (Some(format @ "json"), true) => format,
        (None, true) => "json",
        (Some(format), true) => {
            return Err(Failure::usage(format!("--to {format} and --json are contradictory")).hint("give one of them"));
        }
        (None, false) => format_of_name(path)
            .ok_or_else(|| Failure::usage("the output format is missing").hint(format!("--to FORMAT: {EXPECTED}")))?,
    };
    let detail = if matches!(format, "folded" | "flamegraph") { Detail::Stacks } else { Detail::Everything };
    let (data, filter) = selected(parsed, detail)?;
    let bytes = match format {
        "pprof" => pprof::encode(&data),
        "json" => otlp_json::encode(&data).into_bytes(),
        "folded" => folded::encode(&transform::tree(&data, &one_type(&data, &filter))).into_bytes(),
        "flamegraph" => {
            let tree = transform::tree(&data, &one_type(&data, &filter));
            flamegraph::html(&tree, &super::flamegraph::title(parsed, &data, &tree.type_name)).into_bytes()
        }
        _ => {
            let plain = otlp::encode(&data, otlp::Revision::One);
            if path.ends_with(".gz") {
                gzip(&plain)
            } else {
                plain
            }
        }
    };
    output::write(path, &bytes)?;
    Ok(0)
}

/// The format that belongs to a file's suffix.
fn format_of_name(path: &str) -> Option<&'static str> {
    [
        (".otlp.pb.gz", "otlp"),
        (".otlp.pb", "otlp"),
        (".otlp", "otlp"),
        (".pprof", "pprof"),
        (".pprof.gz", "pprof"),
        (".pb.gz", "pprof"),
        (".folded", "folded"),
        (".txt", "folded"),
        (".html", "flamegraph"),
        (".json", "json"),
    ]
    .iter()
    .find(|(suffix, _)| path.ends_with(suffix))
    .map(|(_, format)| *format)
}
