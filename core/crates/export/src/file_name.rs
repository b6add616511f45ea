//! Names of profile files and of their unfinished forms: made here, recognised here. Touches no file.

/// Ending of a finished file.
const FINISHED: &str = ".pb.gz";
/// Ending of an unfinished one.
const UNFINISHED: &str = ".tmp";
/// Beginning of an unfinished one; the dot hides it from globs.
const UNFINISHED_PREFIX: &str = ".spanprof-";

/// `<type>-<unix ms>.pb.gz`; further files of the same millisecond are `<type>-<unix ms>-<n>.pb.gz`.
pub(crate) fn finished(profile_type: Option<&str>, unix_ms: u64, duplicate: u32) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() || character == '_' { character } else { '_' };
    let name: String = profile_type.unwrap_or("profile").chars().take(64).map(safe).collect();
    let name = if name.is_empty() { "profile" } else { &name };
    match duplicate {
        0 => format!("{name}-{unix_ms}{FINISHED}"),
        _ => format!("{name}-{unix_ms}-{duplicate}{FINISHED}"),
    }
}

/// Age of a finished file as its name tells it, to be sorted by; `None` for a file that is not ours.
pub(crate) fn order(name: &str) -> Option<(u64, u32)> {
    let stem = name.strip_suffix(FINISHED)?;
    let mut parts = stem.split('-');
    let profile_type = parts.next()?;
    let of_a_type = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if profile_type.is_empty() || !profile_type.chars().all(of_a_type) {
        return None;
    }
    let unix_ms = number(parts.next()?)?;
    let duplicate = parts.next().map_or(Some(0), number)?;
    parts.next().is_none().then_some((unix_ms, u32::try_from(duplicate).ok()?))
}

fn number(digits: &str) -> Option<u64> {
    digits.chars().all(|character| character.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Who writes: a process, within the process namespace in which its number means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub process_id: u32,
    /// 0 when the system does not tell.
    pub namespace: u64,
    /// When it started, so that a later process of the same number is told apart.
    pub started: u64,
}

/// Name of an unfinished file; `unique` keeps threads and leftovers apart.
pub(crate) fn unfinished(writer: Writer, unique: u64) -> String {
    let Writer { process_id, namespace, started } = writer;
    format!("{UNFINISHED_PREFIX}{process_id}-{namespace}-{started}-{unique:016x}{UNFINISHED}")
}

/// The writer of an unfinished file; `None` for a file that is none.
pub(crate) fn writer(name: &str) -> Option<Writer> {
    let mut parts = name.strip_prefix(UNFINISHED_PREFIX)?.strip_suffix(UNFINISHED)?.split('-');
    let process_id = u32::try_from(number(parts.next()?)?).ok()?;
    let namespace = number(parts.next()?)?;
    let started = number(parts.next()?)?;
    let unique = parts.next()?;
    let is_unique = unique.len() == 16 && unique.chars().all(|character| character.is_ascii_hexdigit());
    (is_unique && parts.next().is_none()).then_some(Writer { process_id, namespace, started })
}

#[cfg(test)]
mod tests {
    use super::{finished, order, unfinished, writer, Writer};

    #[test]
    fn a_name_leads_back_to_its_age_and_stays_in_its_directory() {
        assert_eq!(finished(Some("cpu"), 17, 0), "cpu-17.pb.gz");
        assert_eq!(finished(Some("cpu"), 17, 2), "cpu-17-2.pb.gz");
        assert_eq!(finished(None, 17, 0), "profile-17.pb.gz");
        assert_eq!(finished(Some("../../etc/x-1"), 17, 0), "______etc_x_1-17.pb.gz");
        assert_eq!(order(&finished(Some("a/-\0b"), u64::MAX, 3)), Some((u64::MAX, 3)));
        assert!(order("cpu-17.pb.gz") < order("alloc_space-17-1.pb.gz") && order("x-9.pb.gz") < order("a-10.pb.gz"));
    }

    #[test]
    fn files_of_others_are_not_recognised() {
        for name in
            ["cpu.pb.gz", "cpu-1.pb", "cpu-x.pb.gz", "-1.pb.gz", "a b-1.pb.gz", "cpu-1-2-3.pb.gz", "cpu-+1.pb.gz"]
        {
            assert_eq!(order(name), None, "{name}");
        }
        for name in
            [".spanprof-x-1-1-0.tmp", ".spanprof-1-1.tmp", "cpu-1.pb.gz", ".spanprof-1-1-1-zzzzzzzzzzzzzzzz.tmp"]
        {
            assert_eq!(writer(name), None, "{name}");
        }
    }

    #[test]
    fn an_unfinished_file_names_its_writer() {
        let us = Writer { process_id: 42, namespace: 4_026_531_836, started: 99 };
        assert_eq!(writer(&unfinished(us, 7)), Some(us));
        assert_eq!(order(&unfinished(us, 7)), None);
    }
}
