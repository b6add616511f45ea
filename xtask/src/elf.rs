//! Reads the symbol versions that an ELF library requires (section `.gnu.version_r`), to check the oldest supported glibc of
//! a package. 64-bit little-endian files only. Called by `artifact`.

use crate::step::{StepFailure, StepResult};

/// A required version, e.g. library `libc.so.6` and version `GLIBC_2.17`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredVersion {
    /// File that provides the version.
    pub library: String,
    /// Name of the version.
    pub version: String,
}

const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;

/// Every version that a library requires.
pub fn required_versions(file: &[u8]) -> StepResult<Vec<RequiredVersion>> {
    read(file).ok_or_else(|| StepFailure::new("symbol audit", "not a complete 64-bit little-endian ELF file"))
}

/// Versions above `oldest` of glibc, e.g. (2, 17). A version without a number (`GLIBC_PRIVATE`) counts as above.
pub fn above_glibc(required: &[RequiredVersion], oldest: (u32, u32)) -> Vec<&RequiredVersion> {
    required
        .iter()
        .filter(|required| {
            required
                .version
                .strip_prefix("GLIBC_")
                .is_some_and(|text| number(text) > Some(oldest) || number(text).is_none())
        })
        .collect()
}

fn number(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn read(file: &[u8]) -> Option<Vec<RequiredVersion>> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let sections_at = usize::try_from(word64(file, 40)?).ok()?;
    let (entry_bytes, count) = (usize::from(word16(file, 58)?), usize::from(word16(file, 60)?));
    let section = |index: usize| sections_at.checked_add(index.checked_mul(entry_bytes)?);
    let mut required = Vec::new();
    for index in 0..count {
        let header = section(index)?;
        if word32(file, header + 4)? != SHT_GNU_VERNEED {
            continue;
        }
        let names = section(word32(file, header + 40)? as usize)?;
        let names_at = usize::try_from(word64(file, names + 24)?).ok()?;
        let entries = word32(file, header + 44)?;
        let mut at = usize::try_from(word64(file, header + 24)?).ok()?;
        for _ in 0..entries {
            let library = text(file, names_at + word32(file, at + 4)? as usize)?;
            let mut version_at = at + word32(file, at + 8)? as usize;
            for _ in 0..word16(file, at + 2)? {
                let version = text(file, names_at + word32(file, version_at + 8)? as usize)?;
                required.push(RequiredVersion { library: library.clone(), version });
                version_at += word32(file, version_at + 12)? as usize;
            }
            at += word32(file, at + 12)? as usize;
        }
    }
    required.sort();
    Some(required)
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn word16(file: &[u8], at: usize) -> Option<u16> {
    bytes(file, at).map(u16::from_le_bytes)
}

fn word32(file: &[u8], at: usize) -> Option<u32> {
    bytes(file, at).map(u32::from_le_bytes)
}

fn word64(file: &[u8], at: usize) -> Option<u64> {
    bytes(file, at).map(u64::from_le_bytes)
}

fn text(file: &[u8], at: usize) -> Option<String> {
    let rest = file.get(at..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(version: &str) -> RequiredVersion {
        RequiredVersion { library: "libc.so.6".into(), version: version.into() }
    }

    #[test]
    fn a_rust_program_requires_libc() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let required = required_versions(&file).unwrap();
        assert!(required
            .iter()
            .any(|required| required.library.starts_with("libc.so") && required.version.starts_with("GLIBC_2.")));
    }

    #[test]
    fn versions_are_compared_as_numbers_not_as_text() {
        let all = [required("GLIBC_2.2.5"), required("GLIBC_2.17"), required("GLIBC_2.4"), required("GLIBC_2.100")];
        assert_eq!(above_glibc(&all, (2, 17)), [&required("GLIBC_2.100")]);
    }

    #[test]
    fn a_private_version_is_above_every_number() {
        assert_eq!(above_glibc(&[required("GLIBC_PRIVATE")], (2, 17)).len(), 1);
    }

    #[test]
    fn a_truncated_file_is_an_error_and_no_panic() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in [0, 5, 6, 63, 64, 200] {
            assert!(required_versions(&file[..length]).is_err());
        }
    }
}
