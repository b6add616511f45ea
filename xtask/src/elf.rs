//! Reads what an ELF library requires of the system: symbol versions (section `.gnu.version_r`), libraries, writable code. 64-bit files
//! only. Called by `artifact`.

use object::elf::{FileHeader64, DF_TEXTREL, DT_FLAGS, DT_NEEDED, DT_NULL, DT_TEXTREL};
use object::read::elf::{Dyn, FileHeader};
use object::Endianness;

use crate::step::{StepFailure, StepResult};

/// A required version, e.g. library `libc.so.6` and version `GLIBC_2.17`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredVersion {
    /// File that provides the version.
    pub library: String,
    /// Name of the version.
    pub version: String,
}

/// What a library requires.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Sorted.
    pub versions: Vec<RequiredVersion>,
    /// Names of libraries, in the order of the file.
    pub libraries: Vec<String>,
    /// Whether the loader has to change the code, which some systems forbid.
    pub text_relocations: bool,
}

/// What a library requires.
pub fn requirements(file: &[u8]) -> StepResult<Requirements> {
    read(file).map_err(|error| StepFailure::new("symbol audit", format!("not a complete 64-bit ELF file: {error}")))
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

fn read(file: &[u8]) -> object::Result<Requirements> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, file)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let mut requirements = Requirements::default();
    if let Some((entries, names)) = sections.dynamic(endian, file)? {
        let names = sections.strings(endian, file, names)?;
        for entry in entries.iter().take_while(|entry| entry.tag(endian) != DT_NULL) {
            match entry.tag(endian) {
                DT_NEEDED => requirements.libraries.push(text(entry.string(endian, names)?)),
                DT_TEXTREL => requirements.text_relocations = true,
                DT_FLAGS => requirements.text_relocations |= entry.val(endian) & DF_TEXTREL.0 != 0,
                _ => {}
            }
        }
    }
    let Some((mut libraries, names)) = sections.gnu_verneed(endian, file)? else { return Ok(requirements) };
    let names = sections.strings(endian, file, names)?;
    let required = &mut requirements.versions;
    while let Some((library, mut versions)) = libraries.next()? {
        let library = text(library.file(endian, names)?);
        while let Some(version) = versions.next()? {
            let version = text(version.name(endian, names)?);
            required.push(RequiredVersion { library: library.clone(), version });
        }
    }
    required.sort();
    Ok(requirements)
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
        let required = requirements(&file).unwrap();
        assert!(required.libraries.iter().any(|name| name == "libc.so.6") && !required.text_relocations);
        assert!(required
            .versions
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
            assert!(requirements(&file[..length]).is_err());
        }
    }
}
