//! The watched configuration file of a running profiler.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::profiler::{burn, one_at_a_time, CapturedLog};
use spanprof_aggregate::testing::FakeRuntime;
use spanprof_aggregate::StatValue;
use spanprof_config::{Config, ConfigPatch, ConfigValue, Environment};
use spanprof_profiler::ProfilerHandle;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("spanprof-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts with this file, and keys in code.
fn start(file: &Path, code: &[(&str, ConfigValue)]) -> ProfilerHandle {
    let none = ("destinations".to_owned(), ConfigValue::List(Vec::new()));
    let file = ("config_file".to_owned(), ConfigValue::Text(file.to_string_lossy().into_owned()));
    let code = code.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
    let code: Vec<_> = [none, file].into_iter().chain(code).collect();
    let config = Config::load(&code, &Environment::new()).unwrap();
    ProfilerHandle::start_with_runtime(config, FakeRuntime::new()).unwrap()
}

/// Replaces the file as most editors do.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// Waits in a process that uses the CPU: an idle one reads the file once per upload interval.
fn wait_until(condition: &str, is_true: impl Fn() -> bool) {
    super::profiler::wait_until(condition, || {
        burn(Duration::from_millis(5));
        is_true()
    });
}

fn source(profiler: &ProfilerHandle, key: &str) -> String {
    match profiler.stats().get(&format!("config.{key}.source")) {
        Some(StatValue::Text(text)) => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn changed_keys_of_the_file_are_applied_and_removed_ones_return_to_their_other_source() {
    let _serial = one_at_a_time();
    let directory = Directory::new("watched");
    let file = directory.0.join("spanprof.yaml");
    fs::write(&file, "upload_interval: 30\n").unwrap();
    let profiler = start(&file, &[("sample_rate", ConfigValue::Int(40))]);
    assert_eq!(profiler.config().upload_interval.as_secs(), 30);
    replace(&file, "upload_interval: 20\nsample_rate: 70\nenabled: false\n");
    wait_until("the file disables the profiler", || !profiler.is_running());
    let config = profiler.config();
    assert_eq!((config.sample_rate, config.upload_interval.as_secs()), (70, 20));
    assert_eq!(source(&profiler, "sample_rate"), format!("file {}", file.display()));
    // The last writer wins, until the file changes that key again.
    profiler.update(&ConfigPatch(vec![("upload_interval".to_owned(), ConfigValue::Int(15))])).unwrap();
    replace(&file, "upload_interval: 20\n");
    wait_until("a removed key enables the profiler", || profiler.is_running());
    let config = profiler.config();
    assert_eq!((config.sample_rate, config.upload_interval.as_secs()), (40, 15));
    assert_eq!(
        (source(&profiler, "sample_rate"), source(&profiler, "upload_interval")),
        ("code".into(), "update".into())
    );
    profiler.stop();
}

#[test]
fn an_invalid_file_changes_nothing_and_is_one_warning_with_line_and_key() {
    let _serial = one_at_a_time();
    let directory = Directory::new("invalid");
    let file = directory.0.join("spanprof.yaml");
    fs::write(&file, "sample_rate: 50\n").unwrap();
    let profiler = start(&file, &[]);
    let log = CapturedLog::begin();
    let lines = || log.texts();
    let has_line = |text: &str| lines().iter().any(|line| line.contains(text));
    replace(&file, "wall: true\nsample_rate: 0\n");
    wait_until("a value is refused", || has_line("sample_rate"));
    let refused = "is ignored: sample_rate (file";
    assert!(lines().iter().any(|line| line.contains(refused) && line.ends_with("got 0 (line 2)")), "{:?}", lines());
    replace(&file, "wall: true\nsample_rate: [unclosed\n");
    wait_until("a syntax error is refused", || has_line("line 3 column 1"));
    replace(&file, "sample_rate: 60\nendpoint: http://elsewhere:4318\nsampel_rate: 5\n");
    wait_until("a valid file is applied", || profiler.config().sample_rate == 60);
    wait_until("a fixed key is a warning", || has_line("endpoint (file"));
    wait_until("an unknown key is a warning", || has_line("did you mean `sample_rate`?"));
    assert_eq!((profiler.config().wall, profiler.config().endpoint), (false, None));
    drop(log);
    profiler.stop();
}

#[test]
fn a_file_of_a_kubernetes_config_map_is_followed_through_its_links() {
    let _serial = one_at_a_time();
    let directory = Directory::new("config-map");
    let version = |name: &str, text: &str| {
        fs::create_dir_all(directory.0.join(name)).unwrap();
        fs::write(directory.0.join(name).join("spanprof.yaml"), text).unwrap();
        // The kubelet renames a new link over `..data`.
        symlink(name, directory.0.join("..data_tmp")).unwrap();
        fs::rename(directory.0.join("..data_tmp"), directory.0.join("..data")).unwrap();
    };
    version("..2026_11_23", "sample_rate: 20\n");
    let file = directory.0.join("spanprof.yaml");
    symlink("..data/spanprof.yaml", &file).unwrap();
    let profiler = start(&file, &[]);
    version("..2026_11_24", "sample_rate: 30\n");
    wait_until("the new version is applied", || profiler.config().sample_rate == 30);
    profiler.stop();
}
