//! Reads which versions of libc an ELF library asks for (its `.gnu.version_r`), to keep the promise that a
//! package runs on every Linux since some glibc. 64-bit little-endian files only; no symbols, no code. Called by `artefact`.

use crate::step::{Failure, Outcome};

/// A needed version, e.g. library `libc.so.6` and version `GLIBC_2.17`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needed {
    /// File the version is asked from.
    pub library: String,
    /// Name of the version.
    pub version: String,
}

const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;

/// Every needed version of a library.
pub fn needed_versions(file: &[u8]) -> Outcome<Vec<Needed>> {
    read(file).ok_or_else(|| Failure::new("symbol audit", "not a whole 64-bit little-endian ELF file"))
}

/// Those above `floor` of glibc, e.g. (2, 17). A version that is no number (`GLIBC_PRIVATE`) is above every floor.
pub fn above_glibc(needed: &[Needed], floor: (u32, u32)) -> Vec<&Needed> {
    needed
        .iter()
        .filter(|needed| {
            needed
                .version
                .strip_prefix("GLIBC_")
                .is_some_and(|text| number(text) > Some(floor) || number(text).is_none())
        })
        .collect()
}

fn number(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn read(file: &[u8]) -> Option<Vec<Needed>> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let sections_at = usize::try_from(word64(file, 40)?).ok()?;
    let (entry_bytes, count) = (usize::from(word16(file, 58)?), usize::from(word16(file, 60)?));
    let section = |index: usize| sections_at.checked_add(index.checked_mul(entry_bytes)?);
    let mut needed = Vec::new();
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
                needed.push(Needed { library: library.clone(), version });
                version_at += word32(file, version_at + 12)? as usize;
            }
            at += word32(file, at + 12)? as usize;
        }
    }
    needed.sort();
    Some(needed)
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

    fn needed(version: &str) -> Needed {
        Needed { library: "libc.so.6".into(), version: version.into() }
    }

    #[test]
    fn our_own_program_asks_for_libc() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needed = needed_versions(&file).unwrap();
        assert!(needed
            .iter()
            .any(|needed| needed.library.starts_with("libc.so") && needed.version.starts_with("GLIBC_2.")));
    }

    #[test]
    fn versions_are_compared_as_numbers_not_as_text() {
        let all = [needed("GLIBC_2.2.5"), needed("GLIBC_2.17"), needed("GLIBC_2.4"), needed("GLIBC_2.100")];
        assert_eq!(above_glibc(&all, (2, 17)), [&needed("GLIBC_2.100")]);
    }

    #[test]
    fn a_private_version_is_above_every_floor() {
        assert_eq!(above_glibc(&[needed("GLIBC_PRIVATE")], (2, 17)).len(), 1);
    }

    #[test]
    fn a_cut_file_is_an_error_and_no_panic() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in [0, 5, 6, 63, 64, 200] {
            assert!(needed_versions(&file[..length]).is_err());
        }
    }
}
