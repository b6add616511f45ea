//! Conversions of files of other profilers by the command, to OTLP and back.

use std::path::Path;

use spanprof_profile::encode::pprof::names;
use spanprof_profile::encode::text;
use spanprof_profile::transform::merge;
use spanprof_read::decode::{pprof, DecodeLimits};

use crate::fixture::{spanprof, TestDirectory};

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
