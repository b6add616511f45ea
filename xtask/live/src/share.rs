//! The CPU time of one function in a directory of pprof files.

use std::path::Path;

use spanprof_profile::ProfilesData;
use spanprof_read::decode::{pprof, DecodeLimits};

/// Prints the CPU time of all samples with a function whose name contains `function`, ns.
pub fn run(directory: &str, function: &str) -> Result<(), String> {
    let mut total_ns = 0;
    for entry in std::fs::read_dir(directory).map_err(|error| format!("{directory}: {error}"))? {
        let path = entry.map_err(|error| format!("{directory}: {error}"))?.path();
        if path.to_str().is_some_and(|name| name.ends_with(".pb.gz")) {
            total_ns += in_file(&path, function)?;
        }
    }
    println!("{total_ns}");
    Ok(())
}

fn in_file(path: &Path, function: &str) -> Result<i64, String> {
    let at = |error: String| format!("{}: {error}", path.display());
    let bytes = std::fs::read(path).map_err(|error| at(error.to_string()))?;
    let data = pprof::decode(&bytes, &DecodeLimits::default()).map_err(|error| at(error.to_string()))?;
    let of_cpu = data.profiles().map(|(_, profile)| profile).filter(|profile| profile.type_name() == "cpu");
    let samples = of_cpu.flat_map(|profile| profile.samples.iter().map(move |sample| (profile, sample)));
    Ok(samples
        .filter(|(_, sample)| has(&data, sample.stack, function))
        .map(|(profile, sample)| profile.weight(sample))
        .sum())
}

fn has(data: &ProfilesData, stack: spanprof_profile::StackId, function: &str) -> bool {
    data.dictionary.get_stack(stack).iter().any(|location| {
        let lines = &data.dictionary.get_location(*location).lines;
        lines.iter().any(|line| {
            let name = data.dictionary.get_function(line.function).name;
            data.dictionary.get_string(name).contains(function)
        })
    })
}
