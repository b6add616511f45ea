//! Side-cars of the files of a running profiler.

use super::profiler::start_native;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spanprof_config::Config;

use crate::profiler::{burn, one_at_a_time, TIMEOUT};

/// Writes the CPU profile of one run into a new directory; returns the JSON files in it.
fn sidecars_of_run(name: &str, config: Config) -> (PathBuf, Vec<PathBuf>) {
    let directory = std::env::temp_dir().join(format!("spanprof-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let profiler = start_native(Config {
        file_directory: Some(directory.to_str().unwrap().to_owned()),
        service_name: "shop".to_owned(),
        upload_interval: Duration::from_secs(3600),
        stop_timeout: TIMEOUT,
        sample_rate: 1000,
        ..config
    })
    .unwrap();
    burn(Duration::from_millis(300));
    assert!(profiler.stop());
    let has_extension = |path: &Path, extension: &str| path.extension().is_some_and(|it| it == extension);
    let paths = || std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    assert!(paths().any(|path| has_extension(&path, "gz")), "a profile was written");
    let sidecars = paths().filter(|path| has_extension(path, "json")).collect();
    (directory, sidecars)
}

#[test]
fn a_side_car_has_the_deployment_and_the_window_of_its_profile() {
    let _serial = one_at_a_time();
    let attributes = [("service.version", "1.3.0"), ("vcs.ref.head.revision", "4f2a"), ("cloud.region", "eu")];
    let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = Config { resource_attributes: attributes.into_iter().collect(), ..Config::default() };
    let (directory, sidecars) = sidecars_of_run("sidecar", config);

    let [path] = sidecars.as_slice() else { panic!("one side-car, got {sidecars:?}") };
    assert!(path.with_extension("pb.gz").exists(), "{}", path.display());
    let text = std::fs::read_to_string(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let members =
        ["service.name", "service.version", "git.commit", "runtime.name"].map(|name| json[name].as_str().unwrap_or(""));
    assert_eq!(members, ["shop", "1.3.0", "4f2a", "rust"], "{text}");
    // The compiler's version, such as 1.88.0.
    let version = json["runtime.version"].as_str().unwrap_or("");
    assert!(version.starts_with("1.") && version.split('.').count() == 3, "{text}");
    assert!(!text.contains("cloud.region"), "{text}");
    let [start, end] = ["window.start", "window.end"].map(|name| json[name].as_str().unwrap().to_owned());
    assert!(start < end && start.starts_with("20") && end.ends_with('Z'), "{text}");
    // The name has the start of the window in milliseconds.
    let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
    let millis = stem.rsplit('-').next().unwrap().to_owned();
    assert_eq!(start[20..23], millis[millis.len() - 3..], "{stem}: {text}");
    std::fs::remove_dir_all(directory).unwrap();
}
