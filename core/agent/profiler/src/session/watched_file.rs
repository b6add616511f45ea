//! The configuration file of a running profiler: detects a new version and applies its changed keys. The drain thread reads
//! the file's metadata at its own wakeups, so an idle process has no additional ones. An invalid file changes nothing. Not
//! here: the wakeups (`due_changes`).
//!
//! inotify needs descriptors, which programs close and whose identity cannot be verified (all have one inode), and it
//! misses changes on network file systems. A poll every second would wake an idle process ten times as often, in which a
//! changed rate has no effect.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host_log::{log, LogLevel};
use spanprof_config::{line_of_key, read_settings, Config, ConfigSource, ConfigValue, RunningConfig};

/// Interval between two reads of a file that may be half written.
const REPEAT_INTERVAL: Duration = Duration::from_millis(100);

/// Identity and times of a version of the file. A symbolic link is followed: Kubernetes replaces a link to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    /// The version of the file at `path`; `None` if it cannot be read.
    fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// The last version of the file that was read.
#[derive(Clone, Debug)]
pub(crate) struct WatchedFile {
    /// Absolute: the program may change its working directory.
    path: PathBuf,
    /// As in the configuration, for messages.
    pub name: String,
    version: Option<FileVersion>,
    pub settings: Vec<(String, ConfigValue)>,
    /// The logged problem of the last version.
    pub problem: Option<String>,
}

impl WatchedFile {
    /// The file of a configuration; `None` without one.
    pub fn new(config: &Config) -> Option<Self> {
        let name = config.config_file.clone().filter(|name| !name.is_empty())?;
        let path = std::path::absolute(&name).ok()?;
        let version = FileVersion::of(&path);
        // The start has logged its problems.
        let settings = read_settings(&path).unwrap_or_default().0;
        Some(Self { path, name, version, settings, problem: None })
    }

    /// Whether the file has another version than the last one read.
    pub fn has_changed(&self) -> bool {
        FileVersion::of(&self.path) != self.version
    }

    /// The next version.
    pub fn read(&self) -> Self {
        let mut version = FileVersion::of(&self.path);
        let mut settings = read_settings(&self.path);
        // An editor may be writing it.
        let is_empty = matches!(&settings, Ok((settings, _)) if settings.is_empty());
        if settings.is_err() || is_empty || FileVersion::of(&self.path) != version {
            std::thread::sleep(REPEAT_INTERVAL);
            version = FileVersion::of(&self.path);
            settings = read_settings(&self.path);
        }
        let (settings, problem) = match settings {
            Ok((settings, conflicts)) => {
                for conflict in conflicts {
                    log(
                        LogLevel::Warning,
                        &format!("spanprof: {conflict} (file {}); the nested one is ignored", self.name),
                    );
                }
                (settings, None)
            }
            Err(problem) => (self.settings.clone(), Some(problem)),
        };
        Self { version, settings, problem, ..self.clone() }
    }

    /// The configuration with the changed keys of `next`.
    pub fn applied(&self, next: &Self, running: &RunningConfig) -> Result<RunningConfig, String> {
        let before = |key: &str| self.settings.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value);
        let is_changed = |(key, value): &&(String, ConfigValue)| before(key) != Some(value);
        let changed: Vec<_> = next.settings.iter().filter(is_changed).cloned().collect();
        let is_removed = |key: &&String| !next.settings.iter().any(|(name, _)| name == *key);
        let removed: Vec<_> = self.settings.iter().map(|(key, _)| key).filter(is_removed).cloned().collect();
        let can_change = |key: &str| running.lasting().can_change(key);
        let fixed: Vec<_> = changed.iter().map(|(key, _)| key).chain(&removed).filter(|key| !can_change(key)).collect();
        for key in fixed {
            log(
                LogLevel::Warning,
                &format!("spanprof: {key} (file {}) cannot change while the profiler runs; restart it", self.name),
            );
        }
        let source = ConfigSource::File(self.name.clone());
        let removed: Vec<_> = removed.into_iter().filter(|key| can_change(key)).collect();
        let start = running.without_file_values(&removed);
        let changed = changed.into_iter().filter(|(key, _)| can_change(key));
        let changed: Vec<_> = changed
            .map(|(key, value)| {
                let merged = start.merged_with_file(&key, before(&key), &value);
                (key, merged)
            })
            .collect();
        start.changed(&changed, &source).map_err(|error| {
            let fails = |(key, value): &&(String, ConfigValue)| {
                start.changed(&[(key.clone(), value.clone())], &source).is_err()
            };
            let line = changed.iter().find(fails).and_then(|(key, _)| line_of_key(&self.path, key));
            let line = line.map(|line| format!(" (line {line})")).unwrap_or_default();
            format!("{}{line}", error.message)
        })
    }
}
