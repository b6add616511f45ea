//! The modes of the entries of a JAR. Maven's are those of the files in the work tree and of its build directory, which depend on the
//! umask of the user. Called by `package`.

use std::path::Path;

use crate::step::{StepFailure, StepResult};

/// Signatures of APPNOTE.TXT, sections 4.3.16 and 4.3.12.
const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
/// Length of the end record without a comment, which Maven does not write.
const END_LENGTH: usize = 22;

/// Sets the mode of each file to 644 and of each directory to 755.
pub fn set(jar: &Path) -> StepResult {
    let failure = |message: String| StepFailure::new("modes of the JAR", format!("{}: {message}", jar.display()));
    let mut bytes = std::fs::read(jar).map_err(|error| failure(error.to_string()))?;
    set_in(&mut bytes).ok_or_else(|| failure("expected a ZIP file without a comment".to_owned()))?;
    std::fs::write(jar, bytes).map_err(|error| failure(error.to_string()))
}

/// The modes are in the central directory only. `None` if it is not one.
fn set_in(jar: &mut [u8]) -> Option<()> {
    let number = |jar: &[u8], offset: usize| {
        Some(usize::from(u16::from_le_bytes(jar.get(offset..offset + 2)?.try_into().ok()?)))
    };
    let end = jar.len().checked_sub(END_LENGTH).filter(|end| jar[*end..].starts_with(END))?;
    let mut entry = u32::from_le_bytes(jar[end + 16..end + 20].try_into().ok()?) as usize;
    for _ in 0..number(jar, end + 10)? {
        if !jar.get(entry..)?.starts_with(ENTRY) {
            return None;
        }
        let name = entry + 46;
        let name_end = name + number(jar, entry + 28)?;
        let is_directory = jar.get(name..name_end)?.ends_with(b"/");
        // The mode of stat(2) in the upper half; in the lower one the attributes of MS-DOS, of which 0x10 is a directory.
        let attributes: u32 = if is_directory { (0o040_755 << 16) | 0x10 } else { 0o100_644 << 16 };
        jar[entry + 38..entry + 42].copy_from_slice(&attributes.to_le_bytes());
        entry = name_end + number(jar, entry + 30)? + number(jar, entry + 32)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A central directory alone, with the length of its extra fields and its attributes.
    fn directory(entries: &[(&str, u8, u32)]) -> Vec<u8> {
        let mut bytes = b"local entries".to_vec();
        let start = bytes.len() as u32;
        for (name, extra, attributes) in entries {
            let mut header = [ENTRY, &[0; 42]].concat();
            header[28] = name.len() as u8;
            header[30] = *extra;
            header[38..42].copy_from_slice(&attributes.to_le_bytes());
            bytes.extend([&header, name.as_bytes(), &vec![1; usize::from(*extra)]].concat());
        }
        let mut end = [END, &[0; END_LENGTH - 4]].concat();
        end[10] = entries.len() as u8;
        end[16..20].copy_from_slice(&start.to_le_bytes());
        [bytes, end].concat()
    }

    #[test]
    fn modes_do_not_depend_on_those_of_the_files() {
        let mut jar =
            directory(&[("a/", 4, (0o040_700 << 16) | 0x10), ("a/b", 0, 0o100_600 << 16), ("c", 9, 0o100_775 << 16)]);
        set_in(&mut jar).unwrap();
        let expected = [("a/", 4, (0o040_755 << 16) | 0x10), ("a/b", 0, 0o100_644 << 16), ("c", 9, 0o100_644 << 16)];
        assert_eq!(jar, directory(&expected));
    }

    #[test]
    fn other_bytes_are_refused() {
        let jar = directory(&[("a", 0, 0)]);
        for mut bytes in [Vec::new(), jar[1..].to_vec(), jar[..jar.len() - 1].to_vec()] {
            assert_eq!(set_in(&mut bytes), None);
        }
    }
}
