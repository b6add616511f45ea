//! google/pprof pulls every profile of a running program in Python. Checked are functions, labels, spans, and each index of the
//! heap.

use std::time::Duration;

use super::pprof;
use crate::arguments::LiveArguments;
use crate::languages::python;
use crate::scratch;
use crate::step::{ProcessStep, Running, StepFailure, StepResult};

const TOKEN: &str = "live-token";

pub fn run(_: &LiveArguments) -> StepResult {
    let pprof = pprof::built()?;
    let directory = scratch::empty("live-pull")?;
    let python = python::Venv::with("live", &python::runtimes::preferred()?, &[])?;
    python.install_wheel(&python::package::build_for_tests()?)?;
    let step = ProcessStep::new("a Python program", python.python()).arg("xtask/live/pull/program.py");
    let mut program = step.start(&directory.join("program.log"))?;
    let address = address(&mut program)?;
    let pull = |path: &str, words: &[&str]| {
        // Without the lines of the resource, which are the same in every report.
        let url = format!("http://:{TOKEN}@{address}/debug/pprof/{path}");
        ProcessStep::new(format!("google/pprof {path} {}", words.join(" ")), &pprof)
            .args(["-symbolize=none", "-nodefraction=0", "-nodecount=1000"])
            .args(words)
            .arg(url)
            // Downloaded profiles are stored there.
            .env("PPROF_TMPDIR", &directory)
            .capture()
    };
    let contains = |path: &str, words: &[&str], all: &[&str]| {
        let text = pull(path, words)?;
        match all.iter().find(|word| !text.contains(**word)) {
            None => Ok(()),
            Some(missing) => {
                let name = format!("{path} {}", words.join(" "));
                Err(StepFailure::new(name, format!("`{missing}` is not in:\n{text}")))
            }
        }
    };
    // On an oversubscribed machine the program may not have begun its work.
    for _ in 0..10 {
        if pull("profile?seconds=1", &["-top"])?.contains("burn") {
            break;
        }
    }
    contains("profile?seconds=2", &["-top"], &["Type: cpu", "burn", "service.name=live-pull"])?;
    contains("profile?seconds=1", &["-tags"], &["endpoint", "/cart", "span_id", "b7ad6b7169203331", "trace_id"])?;
    let focus = "-tagfocus=span_id=b7ad6b7169203331";
    contains("profile?seconds=1", &["-top", focus], &["burn"])?;
    contains("wall?seconds=1", &["-top"], &["Type: wall", "burn"])?;
    for path in ["heap", "heap?seconds=1", "allocs"] {
        let shown = if path == "allocs" { "Type: alloc_space" } else { "Type: inuse_space" };
        contains(path, &["-top"], &[shown, "allocate"])?;
        for index in ["alloc_space", "alloc_objects", "inuse_space", "inuse_objects"] {
            let selected = format!("-sample_index={index}");
            contains(path, &["-top", &selected], &[&format!("Type: {index}"), "allocate"])?;
        }
    }
    for path in ["block", "mutex?seconds=1"] {
        contains(path, &["-top"], &["Type: delay", "wait_for_lock"])?;
        contains(path, &["-top", "-sample_index=contentions"], &["Type: contentions", "wait_for_lock"])?;
    }
    for path in ["threads", "goroutine"] {
        contains(path, &["-top"], &["Type: threads"])?;
    }
    // The source file is on this disk.
    contains("profile?seconds=1", &["-list=burn"], &["total += number * number"])?;
    println!("every profile pulled by google/pprof");
    Ok(())
}

fn address(program: &mut Running) -> StepResult<String> {
    program.wait_until(Duration::from_secs(60), |log| {
        let line = log.lines().find_map(|line| line.strip_prefix("address "))?;
        Some(line.trim().to_owned())
    })
}
