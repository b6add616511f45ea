//! The loaded files with code: their addresses and their unwind information, read from the memory of this process. Normal threads only.
//!
//! `/proc/self/maps` lists them, so that no lock of the dynamic linker is taken: a forked child may have inherited it held, and `dlopen`
//! would wait while tables are copied. A library may be unloaded, or replaced at its address, at any time. All its memory is
//! therefore read by the kernel, and a copy is used only if the same file is mapped there afterwards.
//!
//! # Layouts
//! | what | source | versions |
//! |---|---|---|
//! | a line of `maps` | `show_map_vma` (fs/proc/task_mmu.c) | Linux 2.6–6.18 |
//! | header of a file, segments | `Elf64_Ehdr`, `Elf64_Phdr` (System V ABI) | all |
//! | `.eh_frame_hdr` begins with version 1 and the address of `.eh_frame` as a difference of four bytes (`DW_EH_PE_pcrel`, `DW_EH_PE_sdata4`) | Linux Standard Base 5.0, 10.6.2 | what all linkers write |

use std::ops::Range;

use spanprof_signal::guarded;

use crate::snapshot::Image;

const MAX_SEGMENTS: usize = 64;
/// Unwind information of one file: that of Chromium takes 20 MB.
const MAX_UNWIND_BYTES: usize = 64 << 20;
const CHUNK_BYTES: usize = 256 << 10;

/// The copied `.eh_frame` of an image.
pub(super) struct UnwindInformation {
    pub bytes: Vec<u8>,
    /// Its address in the process.
    pub address: u64,
}

/// One line of the list of mappings.
struct MappedRange<'a> {
    addresses: Range<u64>,
    is_code: bool,
    offset: u64,
    /// Device, inode and path.
    file: &'a str,
}

impl<'a> MappedRange<'a> {
    fn of_line(line: &'a str) -> Option<Self> {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let (offset, file) = rest.split_once(' ')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let addresses = number(start)?..number(end)?;
        let is_code = permissions.as_bytes().get(2) == Some(&b'x');
        Some(Self { addresses, is_code, offset: number(offset)?, file })
    }

    /// Whether it is of a file, or of the kernel's own library.
    fn has_file(&self) -> bool {
        self.file.contains('/') || self.file.ends_with("[vdso]")
    }
}

/// The images of this process. Empty where the list of mappings cannot be read.
pub(super) fn images() -> Vec<Image> {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return Vec::new() };
    images_of(&maps)
}

fn images_of(maps: &str) -> Vec<Image> {
    let mut images: Vec<Image> = Vec::new();
    // The mapping that contains the header of a file; its other ones follow.
    let mut header: Option<MappedRange<'_>> = None;
    for mapping in maps.lines().filter_map(MappedRange::of_line).filter(MappedRange::has_file) {
        if mapping.offset != 0 && header.as_ref().is_none_or(|header| header.file != mapping.file) {
            continue;
        }
        let base = match &header {
            Some(header) if mapping.offset != 0 => header.addresses.start,
            _ => mapping.addresses.start,
        };
        if mapping.is_code {
            match images.last_mut().filter(|image| image.base == base) {
                Some(image) => image.code.end = mapping.addresses.end,
                None => images.push(Image { code: mapping.addresses.clone(), base, file: mapping.file.into() }),
            }
        }
        if mapping.offset == 0 {
            header = Some(mapping);
        }
    }
    images
}

/// A program segment of a loaded file.
struct ProgramSegment {
    kind: u32,
    addresses: Range<u64>,
}

impl Image {
    /// Its unwind information; `None` if it has none, or another file is mapped there meanwhile.
    pub(super) fn unwind_information(&self) -> Option<UnwindInformation> {
        let segments = self.segments()?;
        let index = segments.iter().find(|segment| segment.kind == libc::PT_GNU_EH_FRAME)?.addresses.start;
        let [1, 0x1b, _, _, a, b, c, d] = read(index)? else { return None };
        let address = index.checked_add(4)?.checked_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))?;
        let is_loaded =
            |segment: &&ProgramSegment| segment.kind == libc::PT_LOAD && segment.addresses.contains(&address);
        let end = segments.iter().find(is_loaded)?.addresses.end;
        let bytes = copy_unwind_entries(address..end)?;
        let is_same = images().iter().any(|image| image == self);
        is_same.then_some(UnwindInformation { bytes, address })
    }

    fn segments(&self) -> Option<Vec<ProgramSegment>> {
        const HEADER_BYTES: u64 = 56;
        let header = |offset: u64| read::<8>(self.base.checked_add(offset)?).map(u64::from_le_bytes);
        // Magic number, 64 bits, little endian.
        if header(0)? & 0xffff_ffff_ffff != 0x0102_464c_457f {
            return None;
        }
        let table = self.base.checked_add(header(32)?)?;
        let count = usize::from((header(56)? & 0xffff) as u16).min(MAX_SEGMENTS);
        let mut segments = Vec::with_capacity(count);
        let mut bias = None;
        for position in 0..count as u64 {
            let words: [u64; 6] = {
                let bytes = read::<48>(table.checked_add(position * HEADER_BYTES)?)?;
                std::array::from_fn(|word| {
                    bytes.as_chunks::<8>().0.get(word).map_or(0, |word| u64::from_le_bytes(*word))
                })
            };
            let [kind, offset, address, _, _, length] = words;
            let kind = kind as u32;
            if kind == libc::PT_LOAD && bias.is_none() {
                // The first segment contains the header of the file.
                bias = Some(self.base.wrapping_sub(address.wrapping_sub(offset)));
            }
            segments.push((kind, address, length));
        }
        let bias = bias?;
        let segment = |(kind, address, length): (u32, u64, u64)| {
            let start = bias.wrapping_add(address);
            ProgramSegment { kind, addresses: start..start.saturating_add(length) }
        };
        Some(segments.into_iter().map(segment).collect())
    }
}

/// Copies the entries up to the terminator, which has length zero.
fn copy_unwind_entries(addresses: Range<u64>) -> Option<Vec<u8>> {
    let length = usize::try_from(addresses.end.checked_sub(addresses.start)?).ok()?.min(MAX_UNWIND_BYTES);
    let mut bytes = Vec::new();
    let mut entry = 0usize;
    loop {
        let Some(entry_length) = bytes.get(entry..).and_then(|rest: &[u8]| rest.first_chunk::<4>()) else {
            if bytes.len() >= length {
                return Some(bytes);
            }
            let copied = bytes.len();
            bytes.resize(length.min(copied + CHUNK_BYTES), 0);
            let start = addresses.start + copied as u64;
            if !read_into(start, bytes.get_mut(copied..)?) {
                return None;
            }
            continue;
        };
        match u32::from_le_bytes(*entry_length) {
            // 64-bit entries are written by nobody.
            0 | u32::MAX => {
                bytes.truncate(entry);
                return Some(bytes);
            }
            entry_length => entry = entry.saturating_add(4 + entry_length as usize),
        }
    }
}

fn read<const BYTES: usize>(address: u64) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    read_into(address, &mut bytes).then_some(bytes)
}

fn read_into(address: u64, bytes: &mut [u8]) -> bool {
    guarded::copy_of_unknown(bytes, address as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a0000000-55d0a0002000 r--p 00000000 fe:00 100                        /usr/bin/program
55d0a0002000-55d0a0008000 r-xp 00002000 fe:00 100                        /usr/bin/program
55d0a0008000-55d0a0009000 rw-p 00007000 fe:00 100                        /usr/bin/program
55d0a1000000-55d0a1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 r-xp 00000000 00:00 0
7f0000100000-7f0000104000 r-xp 00000000 fe:00 7                          /opt/one segment.so
7f0000104000-7f0000105000 rw-p 00004000 fe:00 7                          /opt/one segment.so
7f0000200000-7f0000210000 r--p 00000000 fe:00 8                          /lib/libjvm.so
7f0000210000-7f0000310000 r-xp 00010000 fe:00 8                          /lib/libjvm.so
7f0000310000-7f0000320000 r-xp 00110000 fe:00 8                          /lib/libjvm.so
7fffd0000000-7fffd0002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn each_mapped_file_with_code_is_an_image() {
        let ranges: Vec<_> = images_of(MAPS).into_iter().map(|image| (image.base, image.code)).collect();
        let expected = [
            (0x55d0_a000_0000, 0x55d0_a000_2000..0x55d0_a000_8000),
            (0x7f00_0010_0000, 0x7f00_0010_0000..0x7f00_0010_4000),
            (0x7f00_0020_0000, 0x7f00_0021_0000..0x7f00_0032_0000),
            (0x7fff_d000_0000, 0x7fff_d000_0000..0x7fff_d000_2000),
        ];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn the_program_and_the_c_library_have_unwind_information() {
        let images = images();
        for address in [read_into as *const () as u64, libc::getenv as *const () as u64] {
            let image = images.iter().find(|image| image.code.contains(&address)).expect("an image");
            let information = image.unwind_information().expect("unwind information");
            assert!(information.bytes.len() > 10_000, "{}", information.bytes.len());
        }
    }

    #[test]
    fn an_image_that_is_no_longer_mapped_has_no_unwind_information() {
        let images = images();
        let c_library = images.iter().find(|image| image.code.contains(&(libc::getenv as *const () as u64))).unwrap();
        let other = Image { file: "fe:00 1 /tmp/other.so".into(), ..c_library.clone() };
        assert!(other.unwind_information().is_none());
        assert!(Image { base: 4096, ..other }.unwind_information().is_none());
    }
}
