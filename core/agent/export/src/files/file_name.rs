//! Formats and parses the names of finished and unfinished profile files. Performs no I/O.

/// Suffix of a finished file.
pub(crate) const FINISHED: &str = ".pb.gz";
/// Suffix of its side-car.
pub(crate) const SIDECAR: &str = ".json";
/// Suffix of an unfinished file.
const UNFINISHED: &str = ".tmp";
/// Prefix of an unfinished file; the dot hides it from globs.
const UNFINISHED_PREFIX: &str = ".spanprof-";

/// Name of a finished file or its side-car without the suffix: `<type>-<unix ms>`; of further files of the same millisecond
/// `<type>-<unix ms>-<n>`.
pub(crate) fn stem(profile_type: Option<&str>, unix_ms: u64, duplicate: u32) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() || character == '_' { character } else { '_' };
    let name: String = profile_type.unwrap_or("profile").chars().take(64).map(safe).collect();
    let name = if name.is_empty() { "profile" } else { &name };
    match duplicate {
        0 => format!("{name}-{unix_ms}"),
        _ => format!("{name}-{unix_ms}-{duplicate}"),
    }
}

/// Name of the side-car of a finished file.
pub(crate) fn sidecar_of(name: &str) -> String {
    format!("{}{SIDECAR}", name.strip_suffix(FINISHED).unwrap_or(name))
}

/// Sort key of a finished file, oldest first, from its name; `None` for any other file.
pub(crate) fn age_key(name: &str) -> Option<(u64, u32)> {
    let stem = name.strip_suffix(FINISHED)?;
    let mut parts = stem.split('-');
    let profile_type = parts.next()?;
    let is_type_character = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if profile_type.is_empty() || !profile_type.chars().all(is_type_character) {
        return None;
    }
    let unix_ms = number(parts.next()?)?;
    let duplicate = parts.next().map_or(Some(0), number)?;
    parts.next().is_none().then_some((unix_ms, u32::try_from(duplicate).ok()?))
}

fn number(digits: &str) -> Option<u64> {
    digits.chars().all(|character| character.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The process that writes a file, with the PID namespace of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterProcess {
    pub process_id: u32,
    /// Inode of the PID namespace; 0 when unknown.
    pub namespace: u64,
    /// Start time, which distinguishes a later process with the same id.
    pub start_time: u64,
}

/// Name of an unfinished file; `unique` distinguishes threads and stale files.
pub(crate) fn unfinished(writer: WriterProcess, unique: u64) -> String {
    let WriterProcess { process_id, namespace, start_time } = writer;
    format!("{UNFINISHED_PREFIX}{process_id}-{namespace}-{start_time}-{unique:016x}{UNFINISHED}")
}

/// The writer of an unfinished file; `None` for any other file.
pub(crate) fn writer(name: &str) -> Option<WriterProcess> {
    let mut parts = name.strip_prefix(UNFINISHED_PREFIX)?.strip_suffix(UNFINISHED)?.split('-');
    let process_id = u32::try_from(number(parts.next()?)?).ok()?;
    let namespace = number(parts.next()?)?;
    let start_time = number(parts.next()?)?;
    let unique = parts.next()?;
    let is_unique = unique.len() == 16 && unique.chars().all(|character| character.is_ascii_hexdigit());
    (is_unique && parts.next().is_none()).then_some(WriterProcess { process_id, namespace, start_time })
}

#[cfg(test)]
mod tests {
    use super::{age_key, sidecar_of, stem, unfinished, writer, WriterProcess, FINISHED};

    fn finished(profile_type: Option<&str>, unix_ms: u64, duplicate: u32) -> String {
        stem(profile_type, unix_ms, duplicate) + FINISHED
    }

    #[test]
    fn a_name_sorts_by_age_and_has_no_path_separator() {
        assert_eq!(finished(Some("cpu"), 17, 0), "cpu-17.pb.gz");
        assert_eq!(finished(Some("cpu"), 17, 2), "cpu-17-2.pb.gz");
        assert_eq!(finished(None, 17, 0), "profile-17.pb.gz");
        assert_eq!(finished(Some("../../etc/x-1"), 17, 0), "______etc_x_1-17.pb.gz");
        assert_eq!(age_key(&finished(Some("a/-\0b"), u64::MAX, 3)), Some((u64::MAX, 3)));
        assert!(age_key("cpu-17.pb.gz") < age_key("alloc_space-17-1.pb.gz"));
        assert_eq!(sidecar_of("cpu-17-2.pb.gz"), "cpu-17-2.json");
        assert!(age_key("x-9.pb.gz") < age_key("a-10.pb.gz"));
    }

    #[test]
    fn other_files_are_not_recognized() {
        for name in [
            "cpu.pb.gz",
            "cpu-1.pb",
            "cpu-1.json",
            "cpu-x.pb.gz",
            "-1.pb.gz",
            "a b-1.pb.gz",
            "cpu-1-2-3.pb.gz",
            "cpu-+1.pb.gz",
        ] {
            assert_eq!(age_key(name), None, "{name}");
        }
        for name in
            [".spanprof-x-1-1-0.tmp", ".spanprof-1-1.tmp", "cpu-1.pb.gz", ".spanprof-1-1-1-zzzzzzzzzzzzzzzz.tmp"]
        {
            assert_eq!(writer(name), None, "{name}");
        }
    }

    #[test]
    fn the_name_of_an_unfinished_file_identifies_its_writer() {
        let this = WriterProcess { process_id: 42, namespace: 4_026_531_836, start_time: 99 };
        assert_eq!(writer(&unfinished(this, 7)), Some(this));
        assert_eq!(age_key(&unfinished(this, 7)), None);
    }
}
