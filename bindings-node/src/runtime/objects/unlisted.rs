//! Finds machine code that exists and that V8 does not list: loops under on-stack replacement, code whose function has newer
//! code, and all of a worker thread that V8 does not list. The resident executable memory near listed code is searched. All machine
//! code objects start with the same map word and refer to their function at the same offset; both are learned from listed code.
//! Runs on the isolate's own thread, right after the listing. Not here: the functions' names (the listing).

use super::resident::resident;
use super::{code_fields, copy, field, is_object, HeapLayout, HEADER_WORDS, WORD};

/// A machine code object that V8 listed.
#[derive(Clone, Copy)]
pub struct ListedCode {
    pub start: usize,
    pub len: usize,
    /// The function of optimized code; 0 for other code.
    pub function: u64,
}

/// A machine code object that V8 did not list.
pub struct UnlistedCode {
    pub start: usize,
    pub len: usize,
    /// The first bytecode of its function.
    pub bytecode: usize,
    /// The function of optimized code; `None` for baseline code.
    pub function: Option<u64>,
}

/// The layout shared by all machine code objects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodeObjectLayout {
    /// The map word at the start of an object, and its distance to the first instruction.
    map: u64,
    header_bytes: usize,
    /// In the description: number of words, index of the half word with the length, index of the deoptimization data.
    words: usize,
    length_index: usize,
    data_index: usize,
}

/// Number of listed objects to learn from.
const MAX_SAMPLES: usize = 16;
const ALIGNMENT: usize = 32;
const MAX_CODE_BYTES: usize = 16 << 20;
/// Size limit of V8's code range of an isolate.
const CODE_RANGE_BYTES: usize = 128 << 20;
/// Page size of V8's code space (`kRegularPageSize`, src/base/build_config.h, V8 10 to 14).
const CODE_PAGE_BYTES: usize = 256 << 10;
const CHUNK_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

impl HeapLayout {
    /// The common layout of the listed objects; `None` when they differ or a part of it is not found.
    pub fn code_layout(&self, samples: &[ListedCode]) -> Option<CodeObjectLayout> {
        let mut code_layout: Option<CodeObjectLayout> = None;
        let (mut lengths, mut data) = (u128::MAX, None);
        for code in samples.iter().rev().take(MAX_SAMPLES) {
            let description = description_of(code.start);
            let header = description.get(description.len().checked_sub(HEADER_WORDS)?..)?;
            let Some(at) = header.iter().rposition(|word| self.is_map_of_code(*word)) else { continue };
            let candidate = CodeObjectLayout {
                map: header[at],
                header_bytes: (HEADER_WORDS - at) * WORD,
                words: description.len(),
                length_index: 0,
                data_index: 0,
            };
            if code_layout.get_or_insert(CodeObjectLayout { ..candidate }) != &candidate {
                return None;
            }
            let is_length = |at: &usize| half(&description, *at) == Some(code.len as u32);
            lengths &= (0..description.len() * 2).filter(is_length).fold(0, |mask, at| mask | 1 << at);
            let is_data = |word: &u64| match code.function {
                0 => is_object(*word) && self.type_of(*word) == Some(self.bytecode_type),
                function => self.is_deoptimization_data_of(*word, function),
            };
            if let Some(at) = description.iter().position(is_data) {
                if *data.get_or_insert(at) != at {
                    return None;
                }
            }
        }
        let length_index = (lengths != 0).then_some(lengths.trailing_zeros() as usize)?;
        Some(CodeObjectLayout { length_index, data_index: data?, ..code_layout? })
    }

    fn is_map_of_code(&self, word: u64) -> bool {
        let is_map = || {
            let meta_map = field(word, 0)?;
            (field(meta_map, 0)? == meta_map).then_some(())?;
            Some(self.type_of_map(word)? == self.code_type)
        };
        is_object(word) && is_map() == Some(true)
    }

    /// Code in `ranges` that is not in the sorted `listed`. `bytecode_of`: the first bytecode of listed functions; `is_bytecode`:
    /// whether a listed function has this bytecode.
    pub fn find_unlisted(
        &self,
        code_layout: &CodeObjectLayout,
        ranges: &[(usize, usize)],
        listed: &[ListedCode],
        bytecode_of: &dyn Fn(u64) -> Option<usize>,
        is_bytecode: &dyn Fn(usize) -> bool,
    ) -> Vec<UnlistedCode> {
        let mut unlisted: Vec<UnlistedCode> = Vec::new();
        let mut free_from = 0;
        for start in
            ranges_to_search(ranges, listed).into_iter().flat_map(|range| code_layout.instruction_starts(range))
        {
            let next = listed.partition_point(|code| code.start < start);
            let before = next.checked_sub(1).and_then(|at| listed.get(at)).map_or(0, |code| code.start + code.len);
            if start < before.max(free_from) {
                continue;
            }
            let Some((len, data)) = code_layout.read(start) else { continue };
            if listed.get(next).is_some_and(|code| code.start < start + len) {
                continue;
            }
            let optimized = || {
                let functions = self.functions_of(data).into_iter().flatten();
                functions.into_iter().find_map(|function| Some((bytecode_of(function)?, Some(function))))
            };
            let baseline = || Some((self.first_bytecode(data).filter(|start| is_bytecode(*start))?, None));
            if let Some((bytecode, function)) = baseline().or_else(optimized) {
                free_from = start + len;
                unlisted.push(UnlistedCode { start, len, bytecode, function });
            }
        }
        unlisted
    }
}

impl CodeObjectLayout {
    /// Addresses in a range at which instructions may start.
    fn instruction_starts(&self, (low, high): (usize, usize)) -> Vec<usize> {
        let mut chunk = vec![0; CHUNK_BYTES.min(high - low)];
        let map = self.map.to_le_bytes();
        let mut instruction_starts = Vec::new();
        for from in (low..high).step_by(CHUNK_BYTES) {
            let chunk = &mut chunk[..CHUNK_BYTES.min(high - from)];
            if !copy(chunk, from) {
                // Some of its pages are unmapped.
                for (page, at) in chunk.chunks_mut(PAGE).zip((from..).step_by(PAGE)) {
                    if !copy(page, at) {
                        page.fill(0);
                    }
                }
            }
            let matches = memchr::memmem::find_iter(chunk, &map).filter(|at| at % WORD == 0);
            let starts = matches.map(|at| from + at + self.header_bytes);
            instruction_starts.extend(starts.filter(|start| start % ALIGNMENT == 0 && *start < high));
        }
        instruction_starts
    }

    /// Length and deoptimization data of the object at `start`, if there is one.
    fn read(&self, start: usize) -> Option<(usize, u64)> {
        let description = description_of(start);
        let len = half(&description, self.length_index)? as usize;
        let data = *description.get(self.data_index)?;
        (description.len() == self.words && (1..=MAX_CODE_BYTES).contains(&len)).then_some((len, data))
    }
}

/// The parts of `ranges` to read: resident ones, or where the kernel does not report them, V8's pages with listed code.
fn ranges_to_search(ranges: &[(usize, usize)], listed: &[ListedCode]) -> Vec<(usize, usize)> {
    resident(ranges).unwrap_or_else(|| code_pages(ranges, listed))
}

fn code_pages(ranges: &[(usize, usize)], listed: &[ListedCode]) -> Vec<(usize, usize)> {
    let mut pages: Vec<usize> = listed.iter().map(|code| code.start & !(CODE_PAGE_BYTES - 1)).collect();
    pages.dedup();
    let overlap = |page: usize, (low, high): (usize, usize)| {
        let overlap = (low.max(page), high.min(page + CODE_PAGE_BYTES));
        (overlap.0 < overlap.1).then_some(overlap)
    };
    pages.iter().flat_map(|page| ranges.iter().filter_map(|range| overlap(*page, *range))).collect()
}

/// The words that describe a code object, and those before its first instruction.
fn description_of(start: usize) -> Vec<u64> {
    code_fields(start).concat()
}

fn half(words: &[u64], at: usize) -> Option<u32> {
    words.get(at / 2).map(|word| (word >> (at % 2 * 32)) as u32)
}

/// Anonymous executable memory within reach of `addresses`, in which the isolate's machine code lies.
pub fn executable_near(addresses: &[usize]) -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    ranges_near(&maps, addresses)
}

fn ranges_near(maps: &str, addresses: &[usize]) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (low, high) = words.next()?.split_once('-')?;
        let is_code = words.next()?.contains('x') && matches!(words.nth(3), None | Some("[anon:v8]"));
        let hex = |text| usize::from_str_radix(text, 16).ok();
        is_code.then_some((hex(low)?, hex(high)?))
    };
    let is_near = |(low, high): &(usize, usize)| {
        addresses.iter().any(|address| address.abs_diff(*low) < CODE_RANGE_BYTES || (*low..*high).contains(address))
    };
    maps.lines().filter_map(range).filter(is_near).collect()
}

#[cfg(test)]
mod tests {
    use super::super::resident::tests::Reserved;
    use super::*;

    #[test]
    fn only_anonymous_executable_memory_near_known_code_is_searched() {
        let maps = "\
            7f00000000-7f00040000 rwxp 00000000 00:00 0 \n\
            7f00040000-7f00080000 rw-p 00000000 00:00 0 \n\
            7f00080000-7f000c0000 r-xp 00000000 00:00 0 \n\
            7f000c0000-7f00100000 r-xp 00000000 08:01 77 /usr/lib/libc.so.6\n\
            7f00100000-7f00140000 rwxp 00000000 00:00 0 [anon:v8]\n\
            7fff000000-7fff001000 r-xp 00000000 00:00 0 [vdso]\n\
            7fff100000-7fff101000 rwxp 00000000 00:00 0 \n";
        let near = [(0x7f00000000, 0x7f00040000), (0x7f00080000, 0x7f000c0000), (0x7f00100000, 0x7f00140000)];
        assert_eq!(ranges_near(maps, &[0x7f00010000]), near);
        assert!(ranges_near(maps, &[]).is_empty());
    }

    #[test]
    fn a_search_reads_no_memory_that_is_only_reserved() {
        let code_layout =
            CodeObjectLayout { map: 0x7f12_3401, header_bytes: 64, words: 20, length_index: 0, data_index: 0 };
        let memory = Reserved::new(128 << 20);
        memory.write(90 << 20, code_layout.map);
        let found: Vec<usize> = ranges_to_search(&[memory.range()], &[])
            .into_iter()
            .flat_map(|range| code_layout.instruction_starts(range))
            .collect();
        assert_eq!(found, [memory.low + (90 << 20) + 64]);
        let resident: usize = resident(&[memory.range()]).unwrap().iter().map(|(low, high)| high - low).sum();
        assert!(resident <= 64 << 10, "{resident} bytes are resident after the search");
    }

    #[test]
    fn where_residency_is_not_reported_v8s_pages_with_listed_code_are_searched() {
        let code = |start| ListedCode { start, len: 64, function: 0 };
        let listed = [code(0x7f00_0004_1000), code(0x7f00_0004_2000), code(0x7f00_0010_0000), code(0x1000)];
        let ranges = [(0x7f00_0000_0000, 0x7f00_0007_0000), (0x7f00_0010_0000, 0x7f00_0020_0000)];
        let expected = [(0x7f00_0004_0000, 0x7f00_0007_0000), (0x7f00_0010_0000, 0x7f00_0014_0000)];
        assert_eq!(code_pages(&ranges, &listed), expected);
    }

    #[test]
    fn code_starts_after_a_map_word_and_inside_the_searched_range() {
        let code_layout =
            CodeObjectLayout { map: 0x7f12_3401, header_bytes: 64, words: 20, length_index: 0, data_index: 0 };
        #[repr(align(4096))]
        struct Memory([u64; 3 * CHUNK_BYTES / WORD]);
        let mut memory = Box::new(Memory([0; 3 * CHUNK_BYTES / WORD]));
        let placed = [8, CHUNK_BYTES / WORD - 4, 2 * CHUNK_BYTES / WORD + 4, 3 * CHUNK_BYTES / WORD - 8];
        for at in placed.into_iter().chain([17]) {
            memory.0[at] = code_layout.map;
        }
        let low = memory.0.as_ptr() as usize;
        let high = low + size_of::<Memory>();
        let expected: Vec<usize> = placed.iter().map(|at| low + at * WORD + 64).filter(|start| *start < high).collect();
        assert_eq!(expected.len(), 3, "the last one's instructions would lie outside");
        assert_eq!(code_layout.instruction_starts((low, high)), expected);
    }
}
