//! Roll-ups: files that each merge the windows of a minute, ten minutes or an hour, by the end of their profiles, so that a query
//! of a day reads some fifty files. They are OTLP files in the subdirectory `rollups`, which the other commands do not read;
//! `merged` states what they lack. Built in the background, the newest hour first, each level from the one below.
//!
//! Invariant: a roll-up is used only for exactly the windows that it merges. Its name has the digest of their names and sizes,
//! so that a late arrival and retention outdate it. Files are written under a temporary name and renamed; all may be deleted
//! at any time. An hour that replaces its windows leaves this directory: see `replacement`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use spanprof_profile::encode::gzip;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::transform::separate_exact_values;

use super::buckets::{buckets, end_ms, last_received_ms, start_ms};
use super::merged::Rollup;
use crate::files::directory;
use crate::files::file_names::{
    side_file, side_files, RollupName, FACTS_SUFFIX, HOURS, LEVELS, LEVELS_MS, SPANS_SUFFIX,
};
use crate::files::locks::lock;
use crate::files::span_file;
use crate::files::window::{digest, StoredWindow};

const DIRECTORY: &str = "rollups";
/// A bucket is complete this long after its end and after its last arrival: requests in progress were stored.
const COMPLETE_AFTER_MS: u64 = 2_000;
/// Part of the width of a bucket after which its roll-up may be built again, for later arrivals: a sender whose clock is late
/// outdates an hour every few seconds.
const REBUILT_AFTER: u64 = 10;
/// Minutes and ten minutes serve the ends of time ranges; for older ends the windows are read.
const FINE_LEVELS_KEPT_MS: u64 = 24 * 3_600_000;
/// Spans in the sums of a roll-up, by level. A day of hours has 192,000, as many as a query keeps.
const MAX_STORED_SPANS: [usize; LEVELS] = [2_000, 4_000, 8_000];
/// Windows merged at once, to bound memory.
const MERGE_BATCH: usize = 24;

/// A roll-up of this directory.
#[derive(Debug)]
pub(crate) struct StoredRollup {
    pub path: PathBuf,
    pub name: RollupName,
    /// Of both files.
    pub bytes: u64,
    /// When this server built it; 0 for files of earlier runs.
    built_unix_ms: u64,
    /// Keys of labels that it lacks, once it was read.
    omitted_labels: OnceLock<BTreeSet<String>>,
}

/// The roll-ups by level and start.
#[derive(Debug)]
pub(crate) struct Rollups {
    directory: PathBuf,
    files: Mutex<BTreeMap<(usize, u64), Arc<StoredRollup>>>,
}

impl StoredRollup {
    /// Its samples, unless a label of `keys` is not in them.
    pub(crate) fn read(&self, keys: &[&str]) -> Option<Rollup> {
        let lacks = |omitted: &BTreeSet<String>| keys.iter().any(|key| omitted.contains(*key));
        if self.omitted_labels.get().is_some_and(lacks) {
            return None;
        }
        let rollup = Rollup::read(&self.path).ok()?;
        let omitted = self.omitted_labels.get_or_init(|| rollup.facts.omitted_labels.clone());
        (!lacks(omitted)).then_some(rollup)
    }

    pub(crate) fn remove_files(&self) {
        directory::remove_rollup(&self.path);
    }
}

impl Rollups {
    /// The roll-ups of a directory of windows, to be loaded.
    pub(crate) fn of(directory: &Path) -> Self {
        Rollups { directory: directory.join(DIRECTORY), files: Mutex::default() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lists the files of earlier runs.
    pub(crate) fn load(&self) {
        let Some(entries) = self.is_directory().then(|| fs::read_dir(&self.directory).ok()).flatten() else { return };
        let mut files = lock(&self.files);
        let mut beside = Vec::new();
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Some(meta) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
            let Some(name) = name.to_str() else { continue };
            match RollupName::parse(name) {
                Some(name) => {
                    let bytes = meta.len() + directory::bytes_beside(&path);
                    let rollup = StoredRollup { path, name, bytes, built_unix_ms: 0, omitted_labels: OnceLock::new() };
                    if let Some(other) = files.insert((name.level, name.start_ms), Arc::new(rollup)) {
                        other.remove_files();
                    }
                }
                None if name.starts_with('.') => drop(fs::remove_file(&path)),
                None if [FACTS_SUFFIX, SPANS_SUFFIX].iter().any(|suffix| name.ends_with(suffix)) => beside.push(path),
                None => {}
            }
        }
        let paths: HashSet<_> = files.values().flat_map(|rollup| side_files(&rollup.path)).collect();
        for path in beside.into_iter().filter(|path| !paths.contains(path)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Not a symbolic link, which may lead out of the store.
    fn is_directory(&self) -> bool {
        fs::symlink_metadata(&self.directory).is_ok_and(|meta| meta.is_dir())
    }

    /// The roll-up of exactly these windows, which are all of one bucket of the level.
    pub(crate) fn find(&self, windows: &[Arc<StoredWindow>], level: usize) -> Option<Arc<StoredRollup>> {
        let key = (level, start_ms(windows.first()?, level));
        let rollup = lock(&self.files).get(&key)?.clone();
        (rollup.name.digest == digest(windows)).then_some(rollup)
    }

    /// Number and bytes of the files.
    pub(crate) fn size(&self) -> (usize, u64) {
        let files = lock(&self.files);
        (files.len(), files.values().map(|rollup| rollup.bytes).sum())
    }

    /// The roll-ups of a removed window, which are not found any more. The caller removes or moves their files.
    pub(crate) fn take_containing(&self, window: &StoredWindow) -> Vec<Arc<StoredRollup>> {
        let mut files = lock(&self.files);
        (0..LEVELS).filter_map(|level| files.remove(&(level, start_ms(window, level)))).collect()
    }

    /// Removes fine levels that are too old, and roll-ups of windows that are not stored.
    pub(crate) fn retain(&self, windows: &[Arc<StoredWindow>], now_unix_ms: u64) {
        let starts: BTreeSet<_> = windows
            .iter()
            .filter(|window| !window.is_rollup)
            .flat_map(|window| (0..LEVELS).map(|level| (level, start_ms(window, level))))
            .collect();
        let mut removed = Vec::new();
        lock(&self.files).retain(|key, rollup| {
            let is_old = key.0 < HOURS && key.1 + LEVELS_MS[key.0] + FINE_LEVELS_KEPT_MS < now_unix_ms;
            let is_kept = !is_old && starts.contains(key);
            if !is_kept {
                removed.push(rollup.clone());
            }
            is_kept
        });
        // Without the lock, for which queries wait.
        removed.iter().for_each(|rollup| rollup.remove_files());
    }

    /// Builds what is missing of complete buckets, the newest hour first. `windows`: those that `serve` wrote, sorted by
    /// [`StoredWindow::ended_unix_ms`], newest first.
    pub(crate) fn build(&self, windows: &[Arc<StoredWindow>], now_unix_ms: u64, is_stopping: &impl Fn() -> bool) {
        self.build_level(windows, HOURS, now_unix_ms, is_stopping);
    }

    fn build_level(&self, windows: &[Arc<StoredWindow>], level: usize, now: u64, is_stopping: &impl Fn() -> bool) {
        for bucket in buckets(windows, level) {
            let end = end_ms(bucket, level);
            let is_old = level < HOURS && end + FINE_LEVELS_KEPT_MS < now;
            let is_replaced = matches!(bucket, [hour] if hour.is_rollup);
            if is_old || is_replaced || self.find(bucket, level).is_some() {
                continue;
            }
            if level > 0 {
                self.build_level(bucket, level - 1, now, is_stopping);
            }
            if is_stopping() {
                return;
            }
            if self.is_due(bucket, level, now) {
                // Without space or permission queries read the windows.
                let _ = self.write(bucket, level, now);
            }
        }
    }

    /// Whether a roll-up that is missing or outdated is to be built.
    fn is_due(&self, windows: &[Arc<StoredWindow>], level: usize, now: u64) -> bool {
        let complete_ms = end_ms(windows, level).max(last_received_ms(windows)) + COMPLETE_AFTER_MS;
        let key = (level, end_ms(windows, level) - LEVELS_MS[level]);
        let outdated =
            lock(&self.files).get(&key).map(|rollup| rollup.built_unix_ms + LEVELS_MS[level] / REBUILT_AFTER);
        complete_ms.max(outdated.unwrap_or(0)) <= now
    }

    fn write(&self, windows: &[Arc<StoredWindow>], level: usize, now: u64) -> std::io::Result<()> {
        let mut sources = Vec::new();
        self.add_sources(windows, level, &mut sources);
        let mut rollup = Rollup::default();
        for batch in sources.chunks(MERGE_BATCH) {
            // A file that retention removed meanwhile outdates this roll-up. Of one that cannot be read, nothing may be lost.
            let parts = batch.iter().map(|path| Rollup::read_with_spans(path)).collect::<Result<Vec<_>, _>>();
            rollup.add(parts.map_err(std::io::Error::other)?);
        }
        let Rollup { data, facts, spans } = rollup.reduced();
        let gzipped = gzip(&otlp::encode(&separate_exact_values(data), Revision::One));
        let facts = gzip(facts.to_json().to_string().as_bytes());
        let spans = gzip(span_file::to_json(&spans.parts(MAX_STORED_SPANS[level])).to_string().as_bytes());
        let name = RollupName { level, start_ms: end_ms(windows, level) - LEVELS_MS[level], digest: digest(windows) };
        if !self.is_directory() {
            fs::DirBuilder::new().mode(0o700).create(&self.directory)?;
        }
        let file_name = name.file_name();
        let path = self.directory.join(&file_name);
        for (suffix, bytes) in [(FACTS_SUFFIX, &facts), (SPANS_SUFFIX, &spans)] {
            let path = side_file(&path, suffix);
            directory::write_file(&self.directory, &path.file_name().unwrap_or_default().to_string_lossy(), bytes)?;
        }
        directory::write_file(&self.directory, &file_name, &gzipped)?;
        let bytes = (gzipped.len() + facts.len() + spans.len()) as u64;
        let new = Arc::new(StoredRollup { path, name, bytes, built_unix_ms: now, omitted_labels: OnceLock::new() });
        let outdated = lock(&self.files).insert((level, name.start_ms), new);
        if let Some(outdated) = outdated.filter(|other| other.name != name) {
            outdated.remove_files();
        }
        Ok(())
    }

    /// The files whose merge is that of the windows of a bucket: roll-ups of lower levels where there are some.
    fn add_sources(&self, windows: &[Arc<StoredWindow>], level: usize, sources: &mut Vec<PathBuf>) {
        if level == 0 {
            return sources.extend(windows.iter().map(|window| window.path.clone()));
        }
        for bucket in buckets(windows, level - 1) {
            match self.find(bucket, level - 1) {
                Some(rollup) => sources.push(rollup.path.clone()),
                None => self.add_sources(bucket, level - 1, sources),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::directory::DirectoryFile;
    use spanprof_profile::ProfilesData;

    fn window(home: &Path) -> Arc<StoredWindow> {
        fs::write(home.join("a"), otlp::encode(&ProfilesData::default(), Revision::One)).unwrap();
        let file = DirectoryFile {
            path: home.join("a"),
            bytes: 1,
            modified_unix_nano: 0,
            received_unix_ms: 1_700_000_000_000,
            is_owned: true,
            is_rollup: false,
        };
        Arc::new(StoredWindow::new(&ProfilesData::default(), file))
    }

    #[test]
    fn a_rollup_of_an_incomplete_minute_is_not_built() {
        let home = tempfile::tempdir().unwrap();
        let rollups = Rollups::of(home.path());
        let end = 1_700_000_040_000;
        for (now, count) in [(end, 0), (end + COMPLETE_AFTER_MS, 1)] {
            rollups.build(&[window(home.path())], now, &|| false);
            assert_eq!(rollups.size().0, count);
        }
    }

    #[test]
    fn a_file_that_a_killed_server_was_writing_is_removed_and_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(DIRECTORY);
        fs::create_dir(&directory).unwrap();
        let name = "1700000000000-1h-0123456789abcdef.otlp.pb.gz";
        fs::write(directory.join(name), "rollup").unwrap();
        fs::write(directory.join(format!(".{name}.tmp")), "half").unwrap();
        let facts = "1700000000000-1h-0123456789abcdef.facts.gz";
        fs::write(directory.join(facts), "facts").unwrap();
        fs::write(directory.join("1700000060000-1m-0123456789abcdef.facts.gz"), "of a removed roll-up").unwrap();
        fs::write(directory.join("notes.txt"), "notes").unwrap();
        let rollups = Rollups::of(home.path());
        rollups.load();
        assert_eq!(rollups.size(), (1, 6 + 5));
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [facts, name, "notes.txt"]);
    }

    #[test]
    fn a_symbolic_link_to_another_directory_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("1700000000000-1h-0123456789abcdef.otlp.pb.gz"), "secret").unwrap();
        std::os::unix::fs::symlink(&other, home.path().join(DIRECTORY)).unwrap();
        let rollups = Rollups::of(home.path());
        rollups.load();
        rollups.build(&[window(home.path())], 1_800_000_000_000, &|| false);
        assert_eq!((rollups.size(), fs::read_dir(other).unwrap().count()), ((0, 0), 1));
    }
}
