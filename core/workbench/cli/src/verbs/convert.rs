//! `spanprof convert`: writes samples in another format.

use spanprof_answers::failure::Failure;
use spanprof_answers::quantity::format_quantity;
use spanprof_answers::selection::{self, moment};
use spanprof_profile::encode::gzip;
use spanprof_profile::encode::{folded, otlp, pprof};
use spanprof_profile::redact::{ProfileRedactor, UnredactedProfiles};
use spanprof_profile::{transform, ProfilesData};
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::otlp_json;
use spanprof_read::query::{self, Detail, Filter};
use spanprof_view::{firefox, page, speedscope, svg};

use super::flamegraph::title;
use super::{one_type, selected, OutputArguments, ReadArguments, SOURCE_ABOUT};
use crate::nearest::nearest;
use crate::source::MAX_FILE_BYTES;
use crate::{output, redaction_rules};

const EXPECTED: &str = "otlp, pprof, folded, html, svg, speedscope, firefox or json";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof convert FILE|DIR|URL… [FLAGS]",
    before_help = SOURCE_ABOUT,
    after_help = "\
Examples:
  spanprof convert cpu.otlp.pb.gz --to pprof -o cpu.pb.gz
  spanprof convert cpu.pb.gz -o cpu.speedscope.json
  spanprof convert http://127.0.0.1:4318 --trace-id 0af7651916cd43dd8448eb211c80319c -o request.firefox.json
  spanprof convert cpu.pb.gz --redaction rules.yaml -o shared.pb.gz
  spanprof convert http://127.0.0.1:4318 --service checkout --type cpu --to folded -o cpu.folded"
)]
pub(crate) struct ConvertArguments {
    /// otlp, pprof, folded, html (a flame graph), svg, speedscope, firefox (Firefox Profiler) or json (OTLP/JSON), by the output's name by default; or the end of the time range
    #[arg(long, value_name = "FORMAT|TIME")]
    pub to: Vec<String>,
    #[command(flatten)]
    pub output: OutputArguments,
    /// redact by these rules and the default patterns: a configuration file, or a list of rules in YAML
    #[arg(long, value_name = "FILE")]
    pub redaction: Option<String>,
    /// the same as --to json
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArguments,
}

pub(crate) fn run(arguments: &ConvertArguments) -> Result<i32, Failure> {
    let path = arguments.output.output.as_str();
    let (formats, times): (Vec<&str>, Vec<&str>) =
        arguments.to.iter().map(|value| full_name(value)).partition(|value| selection::FORMATS.contains(value));
    if let Some(invalid) = times.iter().find(|text| moment::parse(text, 0).is_none()) {
        let failure = Failure::usage(if invalid.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            format!("--to: expected {}, or a format, got `{invalid}`", moment::FORMS)
        } else {
            format!("--to: expected {EXPECTED}, got `{invalid}`")
        });
        return Err(match nearest(invalid, selection::FORMATS) {
            Some(format) => failure.hint(format!("did you mean `--to {format}`?")),
            None => failure,
        });
    }
    if formats.len() > 1 || times.len() > 1 {
        return Err(Failure::usage("--to names two formats or two times").hint("give one format and at most one time"));
    }
    let format = match (formats.first().copied(), arguments.json) {
        (Some(format), false) | (Some(format @ "json"), true) => format,
        (None, true) => "json",
        (Some(format), true) => {
            return Err(Failure::usage(format!("--to {format} and --json are contradictory")).hint("give one of them"));
        }
        (None, false) => format_of_name(path)
            .ok_or_else(|| Failure::usage("the output format is missing").hint(format!("--to FORMAT: {EXPECTED}")))?,
    };
    refuse_on_terminal(path, format)?;
    let redaction = arguments.redaction.as_deref().map(redaction_rules::read).transpose()?;
    let (mut data, filter) = selected(&arguments.read, times.first().copied(), detail_of(format))?;
    if let Some(settings) = redaction {
        data = UnredactedProfiles::new(data).redacted_with_resources(&mut ProfileRedactor::new(settings));
    }
    write(&data, &filter, format, &arguments.output)
}

/// The name of a format that has two.
fn full_name(value: &str) -> &str {
    if value == "html" {
        "flamegraph"
    } else {
        value
    }
}

/// Text for people and scripts is written to a terminal, other formats are not.
fn refuse_on_terminal(path: &str, format: &str) -> Result<(), Failure> {
    match format {
        "otlp" => output::refuse_on_terminal(path, "OTLP", "-o profile.otlp.pb.gz"),
        "pprof" => output::refuse_on_terminal(path, "pprof", "-o profile.pb.gz"),
        "flamegraph" => output::refuse_on_terminal(path, "HTML", "-o flame.html"),
        "svg" => output::refuse_on_terminal(path, "SVG", "-o flame.svg"),
        _ => Ok(()),
    }
}

/// Detail that a format can hold.
pub(super) fn detail_of(format: &str) -> Detail {
    match format {
        "otlp" | "pprof" | "json" | "firefox" => Detail::Everything,
        "flamegraph" => Detail::Labels,
        _ => Detail::Stacks,
    }
}

/// Writes `data` in one of the formats.
pub(super) fn write(
    data: &ProfilesData,
    filter: &Filter,
    format: &str,
    arguments: &OutputArguments,
) -> Result<i32, Failure> {
    let path = arguments.output.as_str();
    let tree = || transform::tree(data, &one_type(data, filter));
    let bytes = match format {
        "pprof" => pprof::encode(data),
        "json" => {
            otlp_json::encode(&transform::separate_exact_values(data.clone())).map_err(Failure::new)?.into_bytes()
        }
        "folded" => folded::encode(&tree()).into_bytes(),
        "flamegraph" => {
            page::html(data, &selection::type_to_show(data, filter), &title(arguments, data, "")).into_bytes()
        }
        "svg" => {
            let tree = tree();
            let quantity = |weight| format_quantity(weight, &tree.unit);
            svg::encode(&tree, &title(arguments, data, &tree.type_name), svg::DEFAULT_WIDTH, quantity).into_bytes()
        }
        "speedscope" => {
            let mut types: Vec<String> = query::types(data).into_iter().map(|summary| summary.type_name).collect();
            types.sort();
            types.dedup();
            let trees: Vec<_> = types.iter().map(|type_name| transform::tree(data, type_name)).collect();
            speedscope::encode(&trees, &title(arguments, data, &types.join(", "))).into_bytes()
        }
        "firefox" => firefox_profile(data, &title(arguments, data, ""))?,
        _ => {
            let plain = otlp::encode(&transform::separate_exact_values(data.clone()), otlp::Revision::One);
            if path.ends_with(".gz") {
                gzip(&plain)
            } else {
                plain
            }
        }
    };
    if matches!(format, "pprof" | "json" | "otlp") {
        refuse_unreadable(&bytes)?;
    }
    output::write(path, &bytes)?;
    Ok(0)
}

/// The samples on a time axis.
fn firefox_profile(data: &ProfilesData, title: &str) -> Result<Vec<u8>, Failure> {
    let endpoint = |set| query::endpoint_of_labels(&data.dictionary, set);
    let Some((profile, left_out)) = firefox::encode(data, title, endpoint) else {
        return Err(Failure::new("no sample has a timestamp, so there is no time axis for the Firefox Profiler").hint(
            "profile with keep_timestamps=true (SPANPROF_KEEP_TIMESTAMPS), or select requests that tail retention kept; \
             --to speedscope needs no timestamps",
        ));
    };
    if left_out > 0 {
        output::note(&format!("{left_out} samples without timestamps are left out"));
    }
    Ok(profile.to_string().into_bytes())
}

/// No file is written that the reading verbs refuse.
fn refuse_unreadable(bytes: &[u8]) -> Result<(), Failure> {
    let failed = |reason| {
        Failure::new(format!("the result is too large to be read again: {reason}"))
            .hint("narrow it with --type, --service or --from")
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(format!("{} bytes, at most {MAX_FILE_BYTES}", bytes.len())));
    }
    decode::check_size(bytes, &DecodeLimits::of_files()).map_err(|error| failed(error.to_string()))
}

/// The format that belongs to a file's suffix.
pub(super) fn format_of_name(path: &str) -> Option<&'static str> {
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
        (".svg", "svg"),
        (".speedscope.json", "speedscope"),
        (".firefox.json", "firefox"),
        (".json", "json"),
    ]
    .iter()
    .find(|(suffix, _)| path.ends_with(suffix))
    .map(|(_, format)| *format)
}
