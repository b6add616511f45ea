//! Names of the files of `serve`. Windows: `<arrival>-<pid>-<number>.otlp.pb.gz`, with the arrival in 13 digits. Roll-ups:
//! `<start>-<level>-<digest>.otlp.pb.gz`, with 13 and 16 digits, and the same with the suffixes `.facts.gz` and `.spans.gz`.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

pub(crate) const SUFFIX: &str = ".otlp.pb.gz";
/// Suffixes of the files beside a roll-up: what it knows of its windows, and the sums of their spans.
pub(crate) const FACTS_SUFFIX: &str = ".facts.gz";
pub(crate) const SPANS_SUFFIX: &str = ".spans.gz";
/// Width of the levels.
pub(crate) const LEVELS_MS: [u64; 3] = [60_000, 600_000, 3_600_000];
/// The levels in names.
const LEVEL_NAMES: [&str; 3] = ["1m", "10m", "1h"];
pub(crate) const LEVELS: usize = LEVELS_MS.len();
/// The level of hours, which replace their windows.
pub(crate) const HOURS: usize = LEVELS - 1;

/// What a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollupName {
    pub level: usize,
    /// Unix milliseconds.
    pub start_ms: u64,
    /// Of the merged windows.
    pub digest: u64,
}

impl RollupName {
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(SUFFIX)?.splitn(3, '-');
        let is_number = |text: &&str| text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit());
        let start_ms = parts.next().filter(is_number)?.parse().ok()?;
        let level_name = parts.next()?;
        let level = LEVEL_NAMES.iter().position(|level| *level == level_name)?;
        let digest = parts.next().filter(|digest| digest.len() == 16)?;
        Some(RollupName { level, start_ms, digest: u64::from_str_radix(digest, 16).ok()? })
    }

    pub fn of_path(path: &Path) -> Option<Self> {
        Self::parse(path.file_name()?.to_str()?)
    }

    pub fn file_name(self) -> String {
        format!("{:013}-{}-{:016x}{SUFFIX}", self.start_ms, LEVEL_NAMES[self.level], self.digest)
    }

    pub fn end_ms(self) -> u64 {
        self.start_ms.saturating_add(LEVELS_MS[self.level])
    }

    /// Whether a file of this name may have replaced its windows.
    pub fn is_hour(self) -> bool {
        self.level == HOURS
    }
}

/// The file beside a roll-up with another suffix.
pub(crate) fn side_file(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{}{suffix}", name.strip_suffix(SUFFIX).unwrap_or(&name)))
}

/// The files beside a roll-up, which may be absent.
pub(crate) fn side_files(path: &Path) -> [PathBuf; 2] {
    [FACTS_SUFFIX, SPANS_SUFFIX].map(|suffix| side_file(path, suffix))
}

/// The arrival in `<13 digits>-<pid>-<number>.otlp.pb.gz`, the name a directory gives; Unix milliseconds.
pub fn received_of_name(name: &str) -> Option<u64> {
    let mut parts = name.strip_suffix(SUFFIX)?.split('-');
    let (received, pid, number) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (parts.next().is_none() && received.len() == 13 && digits(received) && digits(pid) && digits(number))
        .then(|| received.parse().ok())?
}

/// When the windows that an hour replaced arrived, Unix milliseconds: from its start on, until the time of its file.
pub fn replaced_range_ms(path: &Path) -> Option<std::ops::Range<u64>> {
    let name = RollupName::of_path(path).filter(|name| name.is_hour())?;
    let modified = path.metadata().and_then(|meta| meta.modified()).ok();
    let last =
        modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |since| since.as_millis() as u64);
    Some(name.start_ms..name.end_ms().max(last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parsed_as_it_was_formatted_and_no_other_is() {
        let name = RollupName { level: HOURS, start_ms: 1_700_000_000_000, digest: 0xab };
        assert_eq!(name.file_name(), "1700000000000-1h-00000000000000ab.otlp.pb.gz");
        assert_eq!(RollupName::parse(&name.file_name()), Some(name));
        for other in [
            "1700000000000-12-000003.otlp.pb.gz",
            "170000000000-1h-00000000000000ab.otlp.pb.gz",
            "1700000000000-2h-00000000000000ab.otlp.pb.gz",
            "1700000000000-1h-ab.otlp.pb.gz",
            "1700000000000-1h-00000000000000ab.pb.gz",
        ] {
            assert_eq!(RollupName::parse(other), None, "{other}");
        }
    }
}
