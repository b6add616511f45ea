//! Reads random files of our encoder with google/pprof and compares samples, values, labels, locations and header. Needs Go
//! (`go tool pprof`); run with `--features readback`. `GO` selects the `go` command, `READBACK_FILES` the number of files.

#[path = "it/random.rs"]
#[allow(dead_code)]
mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use spanprof_profile::encode::pprof;
use spanprof_profile::*;
use spanprof_read::query::{top, types, Granularity};

fn pprof_output(arguments: &[&str], file: &Path) -> String {
    let go = std::env::var("GO").unwrap_or_else(|_| "go".to_owned());
    let output =
        Command::new(&go).args(["tool", "pprof"]).args(arguments).arg(file).output().unwrap_or_else(|error| {
            panic!("cannot start `{go} tool pprof`: {error}; install Go, or set GO=/path/to/go")
        });
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "pprof rejected {}: {err}", file.display());
    assert!(err.trim().is_empty(), "pprof warned about {}: {err}", file.display());
    out.into_owned()
}

fn files() -> u32 {
    std::env::var("READBACK_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("spanprof-readback-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch directory");
    folder
}

/// Flat weight of each function by name: functions that differ only in file are one line of the report.
fn flat_by_name(data: &ProfilesData, type_name: &str) -> BTreeMap<String, i64> {
    let mut flat = BTreeMap::new();
    for row in top(data, type_name, Granularity::Function).rows.into_iter().filter(|row| row.weight.flat != 0) {
        *flat.entry(row.location.function).or_insert(0) += row.weight.flat;
    }
    flat
}

fn reported(report: &str) -> BTreeMap<String, i64> {
    let rows = report.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    let mut flat = BTreeMap::new();
    for line in rows {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let amount = columns[0].trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
        let name = columns[5..].join(" ");
        let amount: i64 = amount.parse().unwrap_or_else(|_| panic!("a whole amount in {line:?}"));
        if amount != 0 {
            *flat.entry(name.trim_end_matches(" (inline)").to_owned()).or_insert(0) += amount;
        }
    }
    flat
}

#[test]
fn google_pprof_reads_equal_values_from_random_files() {
    let folder = scratch();
    let mut runner = TestRunner::deterministic();
    for nth in 0..files() {
        let data = random::profiles_data(random::PPROF).new_tree(&mut runner).expect("a request").current();
        let file = folder.join(format!("{nth}.pb.gz"));
        std::fs::write(&file, pprof::encode(&data)).expect("a file");
        same_samples(&data, &file);
        for summary in types(&data) {
            let unit = if summary.unit == "nanoseconds" { "-unit=ns" } else { "-unit=B" };
            let index = format!("-sample_index={}", summary.type_name);
            let options = ["-top", "-nodefraction=0", "-edgefraction=0", "-nodecount=1000000", unit, &index];
            let report = pprof_output(&options, &file);
            // Locations without a name are formatted differently; named functions must agree.
            let ours: BTreeMap<String, i64> = named(flat_by_name(&data, &summary.type_name));
            assert_eq!(named(reported(&report)), ours, "file {nth}, {}:\n{report}", summary.type_name);
        }
    }
    std::fs::remove_dir_all(folder).expect("the scratch directory is removed");
}

fn named(mut flat: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    flat.retain(|name, _| !["0x", "0000", "<unknown>"].iter().any(|nameless| name.starts_with(nameless)));
    flat
}

/// Compares number of samples, sum of each column, labels and header with the output of `-raw`.
fn same_samples(data: &ProfilesData, file: &Path) {
    let raw = pprof_output(&["-raw"], file);
    let line =
        |start: &str| raw.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in\n{raw}"));
    let (_, first) = data.profiles().next().expect("a profile");
    assert_eq!(line("PeriodType:"), format!("PeriodType: {} {}", first.period_type.kind, first.period_type.unit));
    assert_eq!(line("Period:"), format!("Period: {}", first.period));
    assert_eq!(line("Duration:"), "Duration: 10s");
    assert_eq!(line("Comment: service"), "Comment: service.name=service 0");
    let body = raw.split_once("Samples:\n").expect("samples").1.split_once("Locations\n").expect("locations").0;
    let mut lines = body.lines();
    let columns: Vec<String> = lines
        .next()
        .expect("types")
        .split_whitespace()
        .map(|name| name.trim_end_matches("[dflt]").to_owned())
        .collect();
    let mut sums = vec![0i64; columns.len()];
    let mut labels: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines {
        match line
            .split_once(": ")
            .filter(|(values, _)| values.split_whitespace().all(|value| value.parse::<i64>().is_ok()))
        {
            Some((values, _)) => {
                values.split_whitespace().zip(&mut sums).for_each(|(value, sum)| *sum += value.parse::<i64>().unwrap());
            }
            None => line.split_whitespace().for_each(|label| *labels.entry(label.to_owned()).or_insert(0) += 1),
        }
    }
    let (expected, expected_labels) = expectation(data);
    let found: BTreeMap<String, i64> = columns.into_iter().zip(sums).collect();
    assert_eq!(found, expected, "{raw}");
    for (label, count) in expected_labels {
        assert_eq!(labels.get(&label), Some(&count), "{label} in\n{raw}");
    }
}

fn expectation(data: &ProfilesData) -> (BTreeMap<String, i64>, BTreeMap<String, usize>) {
    let mut sums = BTreeMap::new();
    let mut rows = BTreeMap::new();
    for (_, profile) in data.profiles() {
        let name = |value_type: &ValueType| format!("{}/{}", value_type.kind, value_type.unit);
        *sums.entry(name(&profile.sample_type)).or_insert(0) += profile.samples.iter().map(Sample::total).sum::<i64>();
        if let Some(exact) = &profile.exact_type {
            *sums.entry(name(exact)).or_insert(0) +=
                profile.samples.iter().map(|sample| sample.exact_value).sum::<i64>();
        }
        for sample in &profile.samples {
            rows.insert((sample.stack, sample.attributes, sample.link), ());
        }
    }
    let mut labels = BTreeMap::new();
    for (_, attributes, link) in rows.into_keys() {
        let mut count = |label: String| *labels.entry(label).or_insert(0usize) += 1;
        for attribute in data.dictionary.attributes_of(attributes).filter(|attribute| attribute.key == "http.route") {
            count(format!("http.route:[{}]", attribute.value));
        }
        let link = data.dictionary.get_link(link);
        let ids = [("trace_id", &link.trace_id[..]), ("span_id", &link.span_id[..])];
        for (name, id) in ids.into_iter().filter(|(_, id)| id.iter().any(|byte| *byte != 0)) {
            count(format!("{name}:[{}]", hex::encode(id)));
        }
    }
    (sums, labels)
}
