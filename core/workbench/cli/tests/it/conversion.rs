//! Conversions of files of other profilers by the command, to OTLP and back.

use std::path::Path;

use spanprof_profile::encode::pprof::names;
use spanprof_profile::encode::text;
use spanprof_profile::transform::merge;
use spanprof_read::decode::{pprof, DecodeLimits};

use crate::fixture::{encoded, spanprof, window, Serve, TestDirectory, TestSample};

/// The content of a pprof file; samples of one identity are one. Without the default type, which may be explicit only after a
/// conversion.
fn contents(path: &Path) -> String {
    let data = pprof::decode(&std::fs::read(path).unwrap(), &DecodeLimits::default()).unwrap();
    let is_default = |line: &&str| line.contains(names::DEFAULT_SAMPLE_TYPE);
    text::encode(&merge([&data])).lines().filter(|line| !is_default(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn files_are_equal_after_two_conversions() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/it/profiles");
    let directory = TestDirectory::new();
    let [otlp, json, back] =
        ["a.otlp.pb.gz", "a.json", "a.pb.gz"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    for name in ["go-cpu.pb.gz", "go-heap.pb.gz", "node-wall.pb.gz", "python-ddtrace.pb.gz"] {
        let file = recorded.join(name);
        for (format, between) in [("otlp", &otlp), ("json", &json)] {
            for arguments in [
                ["convert", file.to_str().unwrap(), "--to", format, "-o", between],
                ["convert", between, "--to", "pprof", "-o", &back],
            ] {
                let finished = spanprof(&arguments);
                assert_eq!(finished.code, 0, "{name}: {}", finished.stderr);
            }
            assert_eq!(contents(Path::new(&back)), contents(&file), "{name} by {format}");
        }
    }
}

#[test]
fn a_merge_of_large_profiles_is_read_by_file_and_by_server() {
    let directory = TestDirectory::new();
    let names: Vec<String> = (0..240).map(|number| format!("f{number}")).collect();
    let part = |callers: &[String]| {
        let stacks: Vec<[&str; 2]> =
            callers.iter().flat_map(|caller| names.iter().map(|name| [caller.as_str(), name.as_str()])).collect();
        // pprof repeats the labels of each sample.
        let labels: Vec<(&str, &str)> = names[..32].iter().map(|key| (key.as_str(), "1")).collect();
        let samples: Vec<_> = stacks.iter().map(|stack| TestSample(stack, 10_000_000, &labels, 0)).collect();
        directory.file(&format!(".{}.otlp.pb", callers[0]), &encoded(&window("shop", "cpu", &samples)))
    };
    let merged = directory.path().join("all.pb.gz").to_str().unwrap().to_owned();
    let finished = spanprof(&["merge", &part(&names[..120]), &part(&names[120..]), "-o", &merged]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let file = std::fs::read(&merged).unwrap();
    assert!(pprof::decode(&file, &DecodeLimits::default()).is_err(), "the file is beyond the limits of a request");
    let serve = Serve::start(directory.path(), &[]);
    for source in [merged.clone(), serve.url()] {
        let finished = spanprof(&["services", &source, "--json"]);
        assert!(finished.stdout.contains("\"stacks\":57600"), "{source}: {} {}", finished.stdout, finished.stderr);
    }
}
