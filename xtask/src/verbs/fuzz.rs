//! `cargo xtask fuzz`: runs the fuzz targets of core/fuzz, which need nightly and cargo-fuzz.

use crate::step::{nightly_with, ProcessStep, StepFailure, StepResult};

/// fuzzes each decoder
///
/// Targets are in core/fuzz/fuzz_targets. An input that panics, takes over 1 s or over 256 MB ends the run and is
/// kept under core/fuzz/artifacts. Needs a nightly toolchain and cargo-fuzz.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct FuzzArguments {
    /// targets, all by default
    #[arg(value_name = "TARGET")]
    names: Vec<String>,
    /// seconds per target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub fn run(arguments: &FuzzArguments) -> StepResult {
    if arguments.names.is_empty() {
        return every_target(arguments.seconds);
    }
    require_tools()?;
    arguments.names.iter().try_for_each(|target| one(target, arguments.seconds))
}

/// Runs every target for so many seconds.
pub fn every_target(seconds: u64) -> StepResult {
    require_tools()?;
    let targets = targets()?;
    targets.iter().try_for_each(|target| one(target, seconds))
}

fn require_tools() -> StepResult {
    nightly_with("fuzz", "rustup toolchain install nightly && cargo install cargo-fuzz")
}

fn targets() -> StepResult<Vec<String>> {
    let directory = crate::workspace::root().join("core/fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&directory)
        .map_err(|error| StepFailure::new("list fuzz targets", format!("{}: {error}", directory.display())))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(StepFailure::new("list fuzz targets", format!("none in {}", directory.display())));
    }
    Ok(names)
}

fn one(target: &str, seconds: u64) -> StepResult {
    ProcessStep::nightly_cargo(format!("fuzz {target} for {seconds} s"))
        .in_directory(&crate::workspace::root().join("core"))
        // The decoders are safe code: without the address sanitizer a run is ten times faster, and the memory limit covers only
        // the decoder.
        .args(["fuzz", "run", "--sanitizer", "none", target, "--target-dir"])
        .arg(crate::workspace::target().join("fuzz"))
        .args(["--", "-timeout=1", "-rss_limit_mb=256"])
        .arg(format!("-max_total_time={seconds}"))
        .run()
}
