//! Replaces the windows of an hour by their roll-up, so that a server that is killed at any moment has each sample once after
//! its next start. Files only; the index is in `store`.
//!
//! Steps: the roll-up is complete and synced; the record `.replace-<start>` with the names of roll-up and windows is written,
//! synced and renamed; the roll-up moves into the directory of the windows; these are removed, then the record. A start
//! repeats the steps of each record that it finds. Without a record, the windows are valid and the roll-up is not used.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::directory;
use super::file_names::{received_of_name, side_files, RollupName};

const RECORD: &str = ".replace-";

/// The replacement of one hour.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    directory: PathBuf,
    rollups: PathBuf,
    hour: RollupName,
    /// Names of the windows.
    windows: Vec<String>,
}

impl Replacement {
    /// `rollups` has the roll-up, `directory` the windows.
    pub fn new(directory: &Path, rollups: &Path, hour: RollupName, windows: Vec<String>) -> Self {
        Replacement { directory: directory.to_owned(), rollups: rollups.to_owned(), hour, windows }
    }

    /// Records the replacement. From here on the roll-up counts, and the windows do not.
    pub fn commit(&self) -> io::Result<()> {
        let source = self.rollups.join(self.hour.file_name());
        File::open(&source)?.sync_all()?;
        for beside in side_files(&source).iter().filter(|path| path.exists()) {
            File::open(beside)?.sync_all()?;
        }
        let text = std::iter::once(self.hour.file_name()).chain(self.windows.iter().cloned()).collect::<Vec<_>>();
        directory::write_synced_file(&self.directory, &self.record_name(), text.join("\n").as_bytes())
    }

    /// Moves the roll-up beside the windows; its path.
    pub fn move_rollup(&self) -> io::Result<PathBuf> {
        let name = self.hour.file_name();
        let (source, target) = (self.rollups.join(&name), self.directory.join(&name));
        // The roll-up last: its reader finds the files beside it.
        for (source, target) in side_files(&source).into_iter().zip(side_files(&target)) {
            if source.exists() {
                fs::rename(source, target)?;
            }
        }
        // Moved before the server was killed.
        if source.exists() || !target.exists() {
            fs::rename(source, &target)?;
        }
        File::open(&self.directory)?.sync_all()?;
        Ok(target)
    }

    /// Removes the windows, and the record when none is left.
    pub fn remove_windows(&self) -> io::Result<()> {
        for name in &self.windows {
            let path = self.directory.join(name);
            if RollupName::parse(name).is_some() {
                side_files(&path).into_iter().try_for_each(remove_if_present)?;
            }
            remove_if_present(path)?;
        }
        File::open(&self.directory)?.sync_all()?;
        remove_if_present(self.directory.join(self.record_name()))
    }

    fn record_name(&self) -> String {
        format!("{RECORD}{:013}", self.hour.start_ms)
    }

    /// The replacement that a record describes; `None` if its names are not those of an hour and of windows.
    fn parse(directory: &Path, rollups: &Path, text: &str) -> Option<Self> {
        let mut names = text.lines();
        let hour = RollupName::parse(names.next()?).filter(|name| name.is_hour())?;
        let is_own = |name: &str| received_of_name(name).is_some() || RollupName::parse(name).is_some();
        let windows: Vec<_> = names.map(str::to_owned).collect();
        let is_valid = windows.iter().all(|name| is_own(name) && *name != hour.file_name());
        is_valid.then(|| Replacement::new(directory, rollups, hour, windows))
    }

    fn resume(&self) -> io::Result<()> {
        let name = self.hour.file_name();
        if self.rollups.join(&name).exists() || self.directory.join(&name).exists() {
            self.move_rollup()?;
            return self.remove_windows();
        }
        // Someone deleted the roll-up: the windows that are left count.
        remove_if_present(self.directory.join(self.record_name()))
    }
}

/// Completes the replacements during which the server was killed; the messages of those that failed.
pub(crate) fn resume_all(directory: &Path, rollups: &Path) -> Vec<String> {
    let mut messages = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_record = name.to_str().is_some_and(|name| name.starts_with(RECORD) && !name.ends_with(".tmp"));
        if !is_record {
            continue;
        }
        let path = entry.path();
        let read = directory::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let outcome = read.and_then(|text| match Replacement::parse(directory, rollups, &text) {
            Some(replacement) => replacement.resume(),
            None => Err(io::Error::other("expected the name of an hour and those of its windows")),
        });
        if let Err(error) = outcome {
            messages.push(format!("cannot complete the replacement of {}: {error}", path.display()));
        }
    }
    messages
}

fn remove_if_present(path: PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const WINDOWS: [&str; 2] = ["1700000000001-1-000000.otlp.pb.gz", "1700000000002-1-000001.otlp.pb.gz"];

    /// A directory with two windows and the roll-up of their hour.
    fn prepared() -> (TempDir, Replacement) {
        let home = tempfile::tempdir().unwrap();
        let rollups = home.path().join("rollups");
        fs::create_dir(&rollups).unwrap();
        let hour = RollupName { level: 2, start_ms: 1_700_000_000_000, digest: 7 };
        fs::write(rollups.join(hour.file_name()), "hour").unwrap();
        side_files(&rollups.join(hour.file_name())).iter().for_each(|path| fs::write(path, "beside").unwrap());
        WINDOWS.iter().for_each(|name| fs::write(home.path().join(name), "window").unwrap());
        let windows = WINDOWS.map(str::to_owned).to_vec();
        let replacement = Replacement::new(home.path(), &rollups, hour, windows);
        (home, replacement)
    }

    fn names(home: &TempDir) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(home.path())
            .unwrap()
            .chain(fs::read_dir(home.path().join("rollups")).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "rollups")
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_start_completes_a_replacement_from_each_step_after_its_record() {
        for steps in 0..4 {
            let (home, replacement) = prepared();
            replacement.commit().unwrap();
            if steps > 0 {
                replacement.move_rollup().unwrap();
            }
            if steps > 1 {
                fs::remove_file(home.path().join(WINDOWS[0])).unwrap();
            }
            if steps > 2 {
                fs::remove_file(home.path().join(WINDOWS[1])).unwrap();
            }
            assert_eq!(resume_all(home.path(), &home.path().join("rollups")), [""; 0]);
            let hour = replacement.hour.file_name();
            let [facts, spans] = side_files(Path::new(&hour)).map(|path| path.to_string_lossy().into_owned());
            assert_eq!(names(&home), [facts, hour.clone(), spans], "after {steps} steps");
            assert_eq!(fs::read_to_string(home.path().join(hour)).unwrap(), "hour");
        }
    }

    #[test]
    fn a_start_keeps_the_windows_of_a_replacement_without_a_complete_record_or_without_its_hour() {
        let (home, replacement) = prepared();
        fs::write(home.path().join(".replace-1700000000000.tmp"), "half").unwrap();
        assert_eq!(resume_all(home.path(), &home.path().join("rollups")), [""; 0]);
        assert_eq!(names(&home).len(), 6);
        replacement.commit().unwrap();
        fs::remove_file(home.path().join("rollups").join(replacement.hour.file_name())).unwrap();
        assert_eq!(resume_all(home.path(), &home.path().join("rollups")), [""; 0]);
        assert!(WINDOWS.iter().all(|name| home.path().join(name).exists()));
        assert!(!home.path().join(replacement.record_name()).exists());
    }

    #[test]
    fn a_record_with_other_names_removes_nothing() {
        let (home, replacement) = prepared();
        let secret = home.path().join("notes.txt");
        fs::write(&secret, "notes").unwrap();
        let record = home.path().join(replacement.record_name());
        for windows in ["../notes.txt", "notes.txt", &replacement.hour.file_name()] {
            fs::write(&record, format!("{}\n{windows}", replacement.hour.file_name())).unwrap();
            let messages = resume_all(home.path(), &home.path().join("rollups"));
            assert!(messages[0].contains("expected the name of an hour"), "{messages:?}");
            assert!(secret.exists() && home.path().join("rollups").join(replacement.hour.file_name()).exists());
        }
    }
}
