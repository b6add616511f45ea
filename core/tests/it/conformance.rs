//! The Rust runner of the conformance suite.

use std::path::PathBuf;

fn cases() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/cases");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn conformance_every_case_holds_in_rust() {
    // Cases set the limits of process-wide tables.
    let _serial = crate::profiler::one_at_a_time();
    let mut failures = Vec::new();
    let paths = cases();
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        match spanprof::conformance::run(&text) {
            Ok(name) => assert_eq!(Some(name.as_str()), path.file_stem().and_then(|stem| stem.to_str())),
            Err(problem) => failures.push(format!("{}: {problem}", path.display())),
        }
    }
    assert!(paths.len() >= 30, "only {} cases were found", paths.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn conformance_a_failed_case_reports_the_expected_and_the_actual_value() {
    let text = "{name: x, law: y, steps: [{sample: {at_ms: 1, value: 10, stack: a}}, \
                {close: {at_ms: 10, samples: {cpu: [\"b 1\"]}}}]}";
    let problem = spanprof::conformance::run(text).unwrap_err();
    assert!(problem.contains("\"b 1\"") && problem.contains("\"a 1\""), "{problem}");
    assert!(spanprof::conformance::run("{name: x, law: y, stepz: []}").is_err());
}
