//! google/pprof reads our files: the same total of each function as `spanprof top`, and no error; heap profiles of every
//! language too. Labels and spans are checked by `live pull`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::go_program;
use crate::arguments::LiveArguments;
use crate::languages::{java, node, python};
use crate::scratch;
use crate::step::{ProcessStep, StepFailure, StepResult};

/// The module's version, from xtask/live/pprof/go.mod.
const VERSION: &str = "v0.0.0-20260906184651";

pub fn run(_: &LiveArguments) -> StepResult {
    ProcessStep::cargo("google/pprof reads random files back")
        .args(["test", "--quiet", "-p", "spanprof-read", "--features", "readback", "--test", "live_readback"])
        .install_hint("install Go 1.26 or later: https://go.dev/dl")
        .run()?;
    let pprof = built()?;
    let directory = scratch::empty("live-pprof")?;
    let python = python::runtimes::preferred()?;
    let venv = python::Venv::with("live", &python, &[])?;
    venv.install_wheel(&python::package::build_for_tests()?)?;
    ProcessStep::new("a Python program that writes files", venv.python())
        .arg("xtask/live/pprof/program.py")
        .arg(&directory)
        .arg("live-pprof")
        .run()?;
    let command = venv.program("spanprof");
    for (name, sample_type, unit) in [
        ("cpu", "cpu", "ns"),
        ("wall", "wall", "ns"),
        ("allocs", "alloc_space", "B"),
        ("heap", "inuse_space", "B"),
        ("gc", "gc", "ns"),
    ] {
        let file = first(&directory, name)?;
        ProcessStep::new(format!("google/pprof -raw of {name}"), &pprof).arg("-raw").arg(&file).capture()?;
        same_totals(&pprof, &command, &file, sample_type, unit)?;
    }
    heap_of_other_languages(&pprof, &command)
}

/// google/pprof's program.
pub(super) fn built() -> StepResult<PathBuf> {
    go_program("pprof", ".", VERSION)
}

/// Programs that write their heap profiles into a directory.
fn heap_of_other_languages(pprof: &Path, command: &Path) -> StepResult {
    let node = ProcessStep::new("heap profiles of Node.js", node::runtimes::preferred()?.program)
        .env("NODE_PATH", node::live::installed()?)
        .arg("bindings-node/tests/programs/heap.js");
    let java = java::live::program(&java::runtimes::preferred()?, "heap profiles of Java", &java::live::compiled()?)
        .arg("io.spanprof.programs.Retains");
    let rust = ProcessStep::cargo("heap profiles of Rust").args([
        "run",
        "--quiet",
        "-p",
        "spanprof",
        "--example",
        "rust-leak",
        "--",
    ]);
    for (language, program, scenario) in [("node", node, Some("windows")), ("java", java, None), ("rust", rust, None)] {
        let directory = scratch::empty(&format!("live-pprof-{language}"))?;
        program.arg(&directory).args(scenario).capture()?;
        for (name, sample_type) in [("allocs", "alloc_space"), ("heap", "inuse_space")] {
            same_totals(pprof, command, &first(&directory, name)?, sample_type, "B")?;
        }
    }
    Ok(())
}

/// The file of the first window, which `flush()` ended. The window that `stop()` ends has little in it.
fn first(directory: &Path, kind: &str) -> StepResult<PathBuf> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{kind}-")) && name.ends_with(".pb.gz")
    });
    files
        .min()
        .ok_or_else(|| StepFailure::new("find the profile", format!("no {kind}-*.pb.gz in {}", directory.display())))
}

fn same_totals(pprof: &Path, command: &Path, file: &Path, sample_type: &str, unit: &str) -> StepResult {
    let theirs = ProcessStep::new("google/pprof -top", pprof)
        // Without it, google/pprof shortens Rust's names.
        .arg("-symbolize=none")
        .args(["-top", "-nodefraction=0", "-edgefraction=0", "-nodecount=100000"])
        .arg(format!("-unit={unit}"))
        .arg(format!("-sample_index={sample_type}"))
        .arg(file)
        .capture()?;
    let theirs = read_top(&theirs, unit);
    let ours = ProcessStep::new("spanprof top", command)
        .arg("top")
        .arg(file)
        .args(["--type", sample_type, "--limit", "0", "--json"])
        .capture()?;
    let ours: serde_json::Value =
        serde_json::from_str(&ours).map_err(|error| StepFailure::new("spanprof top", format!("not JSON: {error}")))?;
    // google/pprof merges functions of the same name in several files. Sums of flat values are comparable, sums of cumulative
    // values are not.
    let mut own: BTreeMap<String, i64> = BTreeMap::new();
    for row in ours["rows"].as_array().into_iter().flatten() {
        let name = row["function"].as_str().unwrap_or_default().to_owned();
        *own.entry(name).or_default() += row["flat"].as_i64().unwrap_or_default();
    }
    let wrong: Vec<_> = theirs.iter().filter(|(name, flat)| own.get(*name) != Some(*flat)).collect();
    if theirs.is_empty() || theirs.len() != own.len() || !wrong.is_empty() {
        let message =
            format!("{} functions in google/pprof, {} in spanprof; different: {wrong:?}", theirs.len(), own.len());
        return Err(StepFailure::new(format!("compare {sample_type} with google/pprof"), message));
    }
    println!("{sample_type}: {} functions, each with the same flat total", theirs.len());
    Ok(())
}

/// Name → flat value in `unit`, of the lines below the header.
fn read_top(text: &str, unit: &str) -> BTreeMap<String, i64> {
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat")).skip(1);
    rows.filter_map(|line| {
        let mut words = line.split_whitespace();
        let flat = words.next()?;
        let flat = flat.strip_suffix(unit).unwrap_or(flat).parse::<f64>().ok()? as i64;
        // Skips flat%, sum%, cum and cum%.
        let name = words.skip(4).collect::<Vec<_>>().join(" ").trim_end_matches(" (inline)").to_owned();
        Some((name, flat))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_table_of_google_pprof_is_read() {
        let text = "File: app\nType: cpu\nShowing nodes accounting for 30ns, 100% of 30ns total\n      flat  flat%   sum%        cum   cum%\n      \
                    20ns 66.67% 66.67%       30ns   100%  Class.method\n      10ns 33.33%   100%       10ns 33.33%  <lambda> (inline)\n         0     0%   100%       30ns   100%  <module>\n";
        let rows = read_top(text, "ns");
        assert_eq!(rows["Class.method"], 20);
        assert_eq!(rows["<lambda>"], 10);
        assert_eq!(rows["<module>"], 0);
    }
}
