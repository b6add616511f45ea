//! Files of profiles by their names.

use std::path::Path;

/// Whether a file has a usual suffix of profile files and is not a side-car.
pub fn looks_like_a_profile(path: &Path) -> bool {
    has_profile_suffix(path) && !is_sidecar(path)
}

/// Whether a name has a usual suffix of profile files.
pub fn has_profile_suffix(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    [".pb", ".pprof", ".prof", ".otlp", ".json", ".jsonl", ".folded"].iter().any(|it| plain.ends_with(it))
}

/// Whether a file is the side-car `cpu-1.json` of a file `cpu-1.pb.gz` beside it.
pub fn is_sidecar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json") && path.with_extension("pb.gz").exists()
}
