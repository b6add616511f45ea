//! Round trips pprof → OTLP → pprof: random files and files of other profilers, compared as messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use prost::Message;
use spanprof_profile::encode::{otlp, pprof};
use spanprof_profile::transform::separate_exact_values;
use spanprof_read::decode::{self, DecodeLimits};

use crate::pprof_messages::{File, Mapping};
use crate::random_files::random_file;

const FILES: u64 = if cfg!(miri) { 2 } else { 10_000 };

/// The file after a conversion to OTLP and back.
fn round_trip(file: &[u8]) -> File {
    let limits = DecodeLimits::default();
    let data = decode::pprof::decode(file, &limits).expect("the file is decodable");
    let body = otlp::encode(&separate_exact_values(data), otlp::Revision::One);
    let data = decode::otlp::decode(&body, &limits).expect("encoded profiles are decodable");
    File::decode(&pprof::encode_uncompressed(&data)[..]).expect("a pprof message")
}

/// A file without the choices of its writer: ids, order of tables and samples, unused entries, samples without a value, samples
/// of one identity. A mapping without range, file and build id is none; the default of a file without one is its last type.
fn canonical(file: &File) -> String {
    let text = |index: i64| file.string_table[index as usize].as_str();
    let types: Vec<String> =
        file.sample_type.iter().map(|of| format!("{:?}/{:?}", text(of.kind), text(of.unit))).collect();
    let period = file.period_type.unwrap_or_default();
    let last = file.sample_type.last().map_or("", |last| text(last.kind));
    let default = Some(text(file.default_sample_type)).filter(|kind| !kind.is_empty()).unwrap_or(last);
    let mut comments: Vec<&str> =
        file.comment.iter().flat_map(|comment| text(*comment).split('\n')).filter(|line| !line.is_empty()).collect();
    comments.sort_unstable();
    let mut out = format!(
        "types {types:?} default {default:?}\nperiod {} {:?}/{:?}\ntime {} + {}\nframes {:?} {:?} url {:?}\n{comments:?}\n",
        file.period,
        text(period.kind),
        text(period.unit),
        file.time_nanos,
        file.duration_nanos,
        text(file.drop_frames),
        text(file.keep_frames),
        text(file.doc_url),
    );
    let mappings: BTreeMap<u64, &Mapping> = file.mapping.iter().map(|mapping| (mapping.id, mapping)).collect();
    let functions: BTreeMap<u64, String> = file
        .function
        .iter()
        .map(|of| {
            let texts = [of.name, of.system_name, of.filename].map(text);
            (of.id, format!("{texts:?}:{}", of.start_line))
        })
        .collect();
    let mapping_text = |id: u64| match mappings.get(&id) {
        Some(of)
            if [of.memory_start, of.memory_limit, of.file_offset] != [0; 3]
                || [of.filename, of.build_id].map(text) != ["", ""] =>
        {
            let flags = [of.has_functions, of.has_filenames, of.has_line_numbers, of.has_inline_frames];
            let range = (of.memory_start, of.memory_limit, of.file_offset);
            format!("{range:x?} {:?} {flags:?}", [of.filename, of.build_id].map(text))
        }
        _ => String::new(),
    };
    let locations: BTreeMap<u64, String> = file
        .location
        .iter()
        .map(|of| {
            let mut location = format!("  {:x} {} folded {}", of.address, mapping_text(of.mapping_id), of.is_folded);
            for line in &of.line {
                let function = functions.get(&line.function_id).map_or("[\"\", \"\", \"\"]:0", String::as_str);
                let _ = write!(location, " | {function} {}:{}", line.line, line.column);
            }
            (of.id, location + "\n")
        })
        .collect();
    let mapping_of: BTreeMap<u64, u64> = file.location.iter().map(|of| (of.id, of.mapping_id)).collect();
    let mut samples: BTreeMap<String, (Vec<i64>, &[u64])> = BTreeMap::new();
    for sample in &file.sample {
        let mut identity: String = sample.location_id.iter().map(|id| locations[id].as_str()).collect();
        let mut labels: Vec<String> = sample
            .label
            .iter()
            .map(|label| match text(label.str) {
                "" => format!("  {:?} = {} {:?}\n", text(label.key), label.num, text(label.num_unit)),
                value => format!("  {:?} = {value:?}\n", text(label.key)),
            })
            .collect();
        labels.sort_unstable();
        identity.extend(labels);
        let (sums, _) = samples.entry(identity).or_insert_with(|| (vec![0; sample.value.len()], &sample.location_id));
        sums.iter_mut().zip(&sample.value).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
    }
    samples.retain(|_, (sums, _)| sums.iter().any(|sum| *sum != 0));
    let used: BTreeSet<u64> =
        samples.values().flat_map(|(_, stack)| stack.iter().map(|location| mapping_of[location])).collect();
    // The first mapping of a file is that of the program, so the order counts.
    let mut listed: Vec<String> = Vec::new();
    for mapping in file.mapping.iter().filter(|mapping| used.contains(&mapping.id)) {
        let mapping = mapping_text(mapping.id);
        if !mapping.is_empty() && !listed.contains(&mapping) {
            listed.push(mapping);
        }
    }
    let _ = writeln!(out, "mappings {listed:#?}");
    for (identity, (values, _)) in &samples {
        let _ = write!(out, "sample {values:?}\n{identity}");
    }
    out
}

#[test]
fn random_files_are_equal_after_a_round_trip_through_otlp() {
    for seed in 0..FILES {
        let file = random_file(seed);
        let round = round_trip(&file.encode_to_vec());
        assert_eq!(canonical(&round), canonical(&file), "seed {seed}");
    }
}

/// Checks of the generator: each kind of content is frequent, and the comparison sees a change of each.
#[test]
fn the_comparison_sees_every_kind_of_change() {
    let changes: [(&str, Change); 14] = [
        ("value", |file| {
            change(
                file.sample.iter_mut().find_map(|sample| sample.value.iter_mut().find(|value| **value > 1)),
                |value| *value ^= 1,
            )
        }),
        ("stack", |file| {
            change(
                file.sample
                    .iter_mut()
                    .find(|sample| sample.location_id.len() > 1 && sample.location_id[0] != sample.location_id[1]),
                |sample| {
                    sample.location_id.swap(0, 1);
                },
            )
        }),
        ("text label", |file| change(labels(file).find(|label| label.str != 0), |label| label.str = 0)),
        ("number label", |file| change(labels(file).find(|label| label.str == 0), |label| label.num ^= 1)),
        ("unit", |file| change(labels(file).find(|label| label.num_unit != 0), |label| label.num_unit = 0)),
        ("period", |file| change(Some(file), |file| file.period += 1)),
        ("time", |file| change(Some(file), |file| file.time_nanos ^= 1)),
        ("duration", |file| change(Some(file), |file| file.duration_nanos ^= 1)),
        ("types", |file| {
            change(Some(file).filter(|file| file.sample_type.len() > 1), |file| {
                file.sample_type.swap(0, 1);
            })
        }),
        ("default", |file| {
            change(Some(file).filter(|file| file.default_sample_type != 0), |file| file.default_sample_type = 1)
        }),
        ("comments", |file| change(Some(file), |file| file.comment.push(1))),
        ("drop frames", |file| change(Some(file).filter(|file| file.drop_frames != 1), |file| file.drop_frames = 1)),
        ("keep frames", |file| change(Some(file).filter(|file| file.keep_frames != 1), |file| file.keep_frames = 1)),
        ("url", |file| change(Some(file).filter(|file| file.doc_url != 1), |file| file.doc_url = 1)),
    ];
    for (what, change) in changes {
        let mut seen = 0;
        for seed in 0..if cfg!(miri) { 0 } else { 200 } {
            let file = random_file(seed);
            let mut changed = file.clone();
            seen += usize::from(change(&mut changed) && canonical(&changed) != canonical(&file));
        }
        assert!(cfg!(miri) || seen >= 40, "{what}: {seen} of 200 files");
    }
}

/// A change of a file; whether it has such a part.
type Change = fn(&mut File) -> bool;

fn change<T>(of: Option<T>, change: impl FnOnce(T)) -> bool {
    of.map(change).is_some()
}

fn labels(file: &mut File) -> impl Iterator<Item = &mut crate::pprof_messages::Label> {
    file.sample.iter_mut().flat_map(|sample| &mut sample.label)
}

#[test]
#[cfg_attr(miri, ignore)]
fn files_of_other_profilers_are_equal_after_a_round_trip_through_otlp() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/profiles");
    let mut files = 0;
    for entry in std::fs::read_dir(directory).expect("the directory of recorded files") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        let mut plain = Vec::new();
        let bytes = std::fs::read(&path).expect("a file");
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut plain).expect("gzip data");
        let file = File::decode(&plain[..]).expect("a pprof message");
        assert!(!file.sample.is_empty(), "{}", path.display());
        assert_eq!(canonical(&round_trip(&bytes)), canonical(&file), "{}", path.display());
        files += 1;
    }
    assert!(files >= 10, "{files} files");
}
