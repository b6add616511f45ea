//! `bench encoder`: the encoders for many distinct stacks beside prost messages and google/pprof. Programs of one pair run one
//! after the other, and pairs alternate, so that a change of the machine's speed affects both.

use std::path::PathBuf;

use crate::step::{ProcessStep, StepResult};
use crate::workspace;

const STACKS: [usize; 4] = [20_000, 50_000, 100_000, 200_000];
const BUDGET_STACKS: usize = 100_000;
const PAIRS: usize = 6;
/// Encodings per program; each program reports their median.
const ROUNDS: usize = 3;

/// How the benchmark is compiled.
struct BuildProfile {
    name: &'static str,
    options: &'static [&'static str],
}

const BUILD_PROFILES: [BuildProfile; 2] = [
    BuildProfile { name: "release: the crate at 3", options: &[] },
    BuildProfile {
        name: "the crate at z",
        options: &["--config", "profile.bench.package.spanprof-profile.opt-level=\"z\""],
    },
];

/// Milliseconds in one program, by encoder in the order of core/crates/profile/benches/encode.rs; the last two are Go's, plain and
/// gzipped.
#[derive(Clone, Default)]
struct Times {
    encoders: Vec<(String, f64)>,
}

impl Times {
    fn of(&self, name: &str) -> f64 {
        self.encoders.iter().find(|(known, _)| known == name).map_or(f64::NAN, |(_, time)| *time)
    }
}

/// The tables of RESULTS.md.
pub(super) fn measure(short: bool) -> StepResult<String> {
    let (pairs, stacks) = if short { (2, &STACKS[..1]) } else { (PAIRS, &STACKS[..]) };
    let go = go_program()?;
    let mut out = String::from(
        "Stacks of 32 frames, functions a tenth as many, 1,000 labels. Budget for 100,000 stacks: 250 ms, 64 MB above the memory \
         before. Uncompressed except for gzip. prost: messages made from the same profile, then encoded. google/pprof: \
         `WriteUncompressed` of the same profile, read from our file. Times are medians over pairs of processes, ratios medians \
         with the lowest and highest of 6 pairs (97 %).\n\n",
    );
    out.push_str("| stacks | pprof, ms | OTLP, ms | prost pprof ÷ ours | prost OTLP ÷ ours | google/pprof ÷ ours | gzip pprof, ms | google/pprof gzip ÷ ours |\n|---|---|---|---|---|---|---|---|\n");
    for &stacks in stacks {
        let file = write_file(stacks)?;
        let mut rounds = Vec::new();
        for _ in 0..pairs {
            let mut times = rust_times(stacks, &BUILD_PROFILES[0])?;
            times.encoders.extend(go_times(&go, &file)?.encoders);
            rounds.push(times);
        }
        let time = |name: &str| format!("{:.1}", middle(rounds.iter().map(|times| times.of(name)).collect()));
        let ratio =
            |other: &str, own: &str| ratio(rounds.iter().map(|times| times.of(other) / times.of(own)).collect());
        out.push_str(&format!(
            "| {stacks} | {} | {} | {} | {} | {} | {} | {} |\n",
            time("pprof"),
            time("otlp"),
            ratio("pprof-prost", "pprof"),
            ratio("otlp-prost", "otlp"),
            ratio("go", "pprof"),
            time("pprof-gzip"),
            ratio("go-gzip", "pprof-gzip"),
        ));
    }
    out.push_str("\nPeak of the resident memory above that before, MB; a fresh process each.\n\n");
    out.push_str("| stacks | pprof | OTLP | prost pprof | prost OTLP | google/pprof |\n|---|---|---|---|---|---|\n");
    for &stacks in stacks {
        let file = write_file(stacks)?;
        let mut cells = Vec::new();
        for name in ["pprof", "otlp", "pprof-prost", "otlp-prost"] {
            cells.push(bench(&BUILD_PROFILES[0], &["memory", name, &stacks.to_string()])?.trim().to_owned());
        }
        let google = ProcessStep::new("memory of google/pprof", &go).arg("memory").arg(&file).capture()?;
        cells.push(google.trim().to_owned());
        out.push_str(&format!("| {stacks} | {} |\n", cells.join(" | ")));
    }
    let budget_stacks = if short { STACKS[0] } else { BUDGET_STACKS };
    out.push_str(&format!(
        "\nThe encoders with other optimization, {budget_stacks} stacks, medians of {pairs} interleaved processes. The release profile \
         builds the crate of the encoders at 3 and libraries at z, except for those listed in Cargo.toml.\n\n\
         | build | pprof, ms | OTLP, ms | gzip pprof, ms |\n|---|---|---|---|\n"
    ));
    let mut by_profile = vec![Vec::new(); BUILD_PROFILES.len()];
    // Built before the measurement.
    BUILD_PROFILES.iter().try_for_each(|profile| rust_times(STACKS[0], profile).map(drop))?;
    for _ in 0..pairs {
        for (profile, times) in BUILD_PROFILES.iter().zip(&mut by_profile) {
            times.push(rust_times(budget_stacks, profile)?);
        }
    }
    for (profile, rounds) in BUILD_PROFILES.iter().zip(&by_profile) {
        let time = |name: &str| format!("{:.1}", middle(rounds.iter().map(|times| times.of(name)).collect()));
        out.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            profile.name,
            time("pprof"),
            time("otlp"),
            time("pprof-gzip")
        ));
    }
    Ok(out)
}

/// Runs a mode of the benchmark; its output.
fn bench(profile: &BuildProfile, words: &[&str]) -> StepResult<String> {
    ProcessStep::cargo("bench encode")
        .args(["bench", "--quiet", "-p", "spanprof-profile", "--bench", "encode"])
        .args(profile.options)
        .arg("--")
        .args(words)
        .capture()
}

fn rust_times(stacks: usize, profile: &BuildProfile) -> StepResult<Times> {
    let lines = bench(profile, &["time", &stacks.to_string(), &ROUNDS.to_string()])?;
    let encoder = |line: &str| {
        let (name, time) = line.split_once(' ')?;
        Some((name.to_owned(), time.trim().parse().ok()?))
    };
    Ok(Times { encoders: lines.lines().filter_map(encoder).collect() })
}

fn go_times(go: &PathBuf, file: &PathBuf) -> StepResult<Times> {
    let line = ProcessStep::new("google/pprof", go).arg("time").arg(file).arg(ROUNDS.to_string()).capture()?;
    let times = line.split_whitespace().filter_map(|time| time.parse().ok());
    Ok(Times { encoders: ["go", "go-gzip"].map(str::to_owned).into_iter().zip(times).collect() })
}

/// The profile of so many stacks as a pprof file.
fn write_file(stacks: usize) -> StepResult<PathBuf> {
    let path = workspace::target().join(format!("encoder-{stacks}.pb"));
    bench(&BUILD_PROFILES[0], &["file", &stacks.to_string(), &path.to_string_lossy()])?;
    Ok(path)
}

fn go_program() -> StepResult<PathBuf> {
    let program = workspace::target().join("encoder-google-pprof");
    ProcessStep::new("build the Go encoder", "go")
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .env("CGO_ENABLED", "0")
        .in_directory(&workspace::root().join("xtask/bench/encoder"))
        .install_hint("install Go 1.26 or later: https://go.dev/dl")
        .run()?;
    Ok(program)
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len() / 2;
    if values.len() % 2 == 1 {
        values[at]
    } else {
        (values[at - 1] + values[at]) / 2.0
    }
}

/// Median, lowest and highest: these contain the true median in 97 % of 6 pairs.
fn ratio(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[0], values[values.len() - 1]);
    format!("{:.2} ({low:.2} … {high:.2})", middle(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_with_the_lowest_and_the_highest() {
        let values = (1..=6).rev().map(f64::from).collect();
        assert_eq!(ratio(values), "3.50 (1.00 … 6.00)");
    }
}
