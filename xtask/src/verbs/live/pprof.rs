//! google/pprof reads our files back: function by function the same totals as our own top table, labels and spans where
//! they belong, and no complaint about the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::go_program;
use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Step};
use crate::{pythons, scratch, venv, verbs};

/// The module's version, from xtask/live/pprof/go.mod.
const VERSION: &str = "v0.0.0-20260906184651";

pub fn run(_: &Arguments) -> Outcome {
    Step::cargo("google/pprof reads random files back")
        .args(["test", "--quiet", "-p", "spanprof-profile", "--features", "readback", "--test", "live_readback"])
        .missing_means("install Go 1.26 or later: https://go.dev/dl")
        .run()?;
    let pprof = go_program("pprof", ".", VERSION)?;
    let folder = scratch::empty("live-pprof")?;
    let python = pythons::preferred()?;
    let venv = venv::Venv::with("live", &python, &[])?;
    venv.install_wheel(&verbs::wheel::build_for_tests()?)?;
    Step::new("a Python program that writes files", venv.python())
        .arg("xtask/live/pprof/program.py")
        .arg(&folder)
        .arg("live-pprof")
        .run()?;
    let command = venv.program("spanprof");
    for kind in ["cpu", "wall"] {
        let file = newest(&folder, kind)?;
        Step::new(format!("google/pprof -raw of {kind}"), &pprof).arg("-raw").arg(&file).capture()?;
        same_totals(&pprof, &command, &file, kind)?;
    }
    labels_and_spans(&pprof, &newest(&folder, "cpu")?)
}

fn newest(folder: &Path, kind: &str) -> Outcome<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{kind}-"))))
        .collect();
    files.sort();
    files.pop().ok_or_else(|| Failure::new("find the profile", format!("no {kind}-*.pb.gz in {}", folder.display())))
}

fn same_totals(pprof: &Path, command: &Path, file: &Path, kind: &str) -> Outcome {
    let theirs = Step::new("google/pprof -top", pprof)
        .args(["-top", "-unit=ns", "-nodefraction=0", "-edgefraction=0", "-nodecount=100000"])
        .arg(format!("-sample_index={kind}"))
        .arg(file)
        .capture()?;
    let theirs = read_top(&theirs);
    let ours = Step::new("spanprof top", command)
        .arg("top")
        .arg(file)
        .args(["--type", kind, "--limit", "0", "--json"])
        .capture()?;
    let ours: serde_json::Value =
        serde_json::from_str(&ours).map_err(|error| Failure::new("spanprof top", format!("not JSON: {error}")))?;
    // Functions of one name in several files are one line there and several rows here: their flat values add up, their
    // cumulative ones need not.
    let mut mine: BTreeMap<String, i64> = BTreeMap::new();
    for row in ours["rows"].as_array().into_iter().flatten() {
        let name = row["function"].as_str().unwrap_or_default().to_owned();
        *mine.entry(name).or_default() += row["flat"].as_i64().unwrap_or_default();
    }
    let wrong: Vec<_> = theirs.iter().filter(|(name, flat)| mine.get(*name) != Some(*flat)).collect();
    if theirs.is_empty() || theirs.len() != mine.len() || !wrong.is_empty() {
        let message = format!("{} functions there, {} here; different: {wrong:?}", theirs.len(), mine.len());
        return Err(Failure::new(format!("compare {kind} with google/pprof"), message));
    }
    println!("{kind}: {} functions, each with the same flat total", theirs.len());
    Ok(())
}

/// Name → flat nanoseconds of the lines below the header.
fn read_top(text: &str) -> BTreeMap<String, i64> {
    let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat")).skip(1);
    rows.filter_map(|line| {
        let mut words = line.split_whitespace();
        let flat = nanoseconds(words.next()?)?;
        // The two shares and the cumulative value between.
        let name = words.skip(4).collect::<Vec<_>>().join(" ").trim_end_matches(" (inline)").to_owned();
        Some((name, flat))
    })
    .collect()
}

fn nanoseconds(word: &str) -> Option<i64> {
    word.strip_suffix("ns").unwrap_or(word).parse::<f64>().ok().map(|value| value as i64)
}

fn labels_and_spans(pprof: &Path, file: &Path) -> Outcome {
    let tags = Step::new("google/pprof -tags", pprof).args(["-tags", "-sample_index=cpu"]).arg(file).capture()?;
    let focus = Step::new("google/pprof -tagfocus", pprof)
        .args(["-top", "-sample_index=cpu", "-tagfocus=span_id=b7ad6b7169203331"])
        .arg(file)
        .capture()?;
    for (text, wanted) in [(&tags, "endpoint"), (&tags, "/cart"), (&tags, "span_id"), (&focus, "burn_with_span")] {
        if !text.contains(wanted) {
            return Err(Failure::new("labels in google/pprof", format!("`{wanted}` is not in:\n{text}")));
        }
    }
    if focus.contains("burn_alone") {
        return Err(Failure::new("labels in google/pprof", format!("a function outside the span is in it:\n{focus}")));
    }
    println!("labels and span found by -tags and -tagfocus");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_table_of_google_pprof_is_read() {
        let text = "File: app\nType: cpu\nShowing nodes accounting for 30ns, 100% of 30ns total\n      flat  flat%   sum%        cum   cum%\n      \
                    20ns 66.67% 66.67%       30ns   100%  Class.method\n      10ns 33.33%   100%       10ns 33.33%  <lambda> (inline)\n         0     0%   100%       30ns   100%  <module>\n";
        let rows = read_top(text);
        assert_eq!(rows["Class.method"], 20);
        assert_eq!(rows["<lambda>"], 10);
        assert_eq!(rows["<module>"], 0);
    }
}
