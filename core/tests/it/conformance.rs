//! The Rust runner of the conformance suite.

use std::path::PathBuf;

use spanprof_profiler::conformance::{run_in, EndRequest, Language, SampleStep};

use super::rust_language::RustLanguage;

fn run(text: &str) -> Result<String, String> {
    run_in(text, &mut RustLanguage::default())
}

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
        match run(&text) {
            Ok(name) => assert_eq!(Some(name.as_str()), path.file_stem().and_then(|stem| stem.to_str())),
            Err(problem) => failures.push(format!("{}: {problem}", path.display())),
        }
    }
    assert!(paths.len() >= 30, "only {} cases were found", paths.len());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn conformance_a_failed_case_reports_the_expected_and_the_actual_value() {
    let _serial = crate::profiler::one_at_a_time();
    let text = "{name: x, rule: y, steps: [{sample: {at_ms: 1, value: 10, stack: a}}, \
                {close: {at_ms: 10, samples: {cpu: [\"b 1\"]}}}]}";
    let problem = run(text).unwrap_err();
    assert!(problem.contains("\"b 1\"") && problem.contains("\"a 1\""), "{problem}");
    assert!(run("{name: x, rule: y, stepz: []}").is_err());
}

/// The Rust API with one fault: the samples of a case get the context of a changed step, or ends of requests are changed.
struct FaultyLanguage {
    sample: fn(&mut SampleStep),
    end: fn(&mut EndRequest),
    rust: RustLanguage,
}

impl FaultyLanguage {
    fn in_samples(sample: fn(&mut SampleStep)) -> Self {
        Self { sample, end: |_| {}, rust: RustLanguage::default() }
    }

    fn in_ends(end: fn(&mut EndRequest)) -> Self {
        Self { sample: |_| {}, end, rust: RustLanguage::default() }
    }
}

impl Language for FaultyLanguage {
    fn context(&mut self, sample: &SampleStep) -> u64 {
        let mut changed = sample.clone();
        (self.sample)(&mut changed);
        self.rust.context(&changed)
    }

    fn end_request(&mut self, end: &EndRequest) {
        let mut changed = end.clone();
        (self.end)(&mut changed);
        self.rust.end_request(&changed);
    }
}

#[test]
fn conformance_cases_of_tail_based_retention_fail_in_a_language_with_faulty_ends() {
    let _serial = crate::profiler::one_at_a_time();
    for (case, fault) in [
        // Microseconds in place of milliseconds, or the reverse.
        ("slow_requests", (|end| end.duration_ms /= 1000) as fn(&mut EndRequest)),
        ("slow_requests", |end| end.duration_ms *= 1000),
        ("slow_requests", |end| end.request = "another".to_owned()),
        ("failed_requests", |end| end.is_error = false),
        ("failed_requests", |end| end.is_error = true),
    ] {
        let path =
            cases().into_iter().find(|path| path.ends_with(format!("tail_retention_keeps_{case}.yaml"))).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(run_in(&text, &mut FaultyLanguage::in_ends(fault)).is_err(), "{} cannot fail", path.display());
    }
}

#[test]
fn conformance_cases_of_scopes_and_bound_work_fail_in_a_faulty_language() {
    let _serial = crate::profiler::one_at_a_time();
    let binds_nothing: fn(&mut SampleStep) = |sample| sample.bound_in = None;
    let adds_the_labels_of_the_caller: fn(&mut SampleStep) = |sample| {
        sample.scopes.extend(sample.bound_in.take().unwrap_or_default());
    };
    let restores_nothing: fn(&mut SampleStep) = |sample| sample.returned = false;
    // A prepared label set that replaces the labels around it.
    let keeps_the_innermost: fn(&mut SampleStep) = |sample| {
        let outer = sample.scopes.len().saturating_sub(1);
        if sample.prepared {
            sample.scopes.drain(..outer);
        }
    };
    for (part, fault, at_least) in [
        ("bound_work_", binds_nothing, 4),
        ("bound_work_has", adds_the_labels_of_the_caller, 2),
        ("bound_work_outside", adds_the_labels_of_the_caller, 1),
        ("_restore", restores_nothing, 2),
        ("prepared_labels_nest", restores_nothing, 1),
        ("prepared_labels_", keeps_the_innermost, 3),
    ] {
        let cases: Vec<_> = cases().into_iter().filter(|path| path.to_string_lossy().contains(part)).collect();
        assert!(cases.len() >= at_least, "only {} cases of {part}", cases.len());
        for path in cases {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(run_in(&text, &mut FaultyLanguage::in_samples(fault)).is_err(), "{} cannot fail", path.display());
        }
    }
}
