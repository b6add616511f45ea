//! Optimised code that lies there and that V8 does not list: loops that it compiled while they ran, and code whose function
//! has newer code by now. It is searched for in the resident executable memory around what was listed: all machine code begins
//! with the same word, and says what function it is of at the same place, both learnt from listed pieces. On the isolate's own
//! thread, right after the listing. Not here: the functions' names (the listing).

use super::resident::resident;
use super::{code_fields, copy, field, is_object, Layout, HEADER_WORDS, WORD};

/// A piece of machine code that was listed.
#[derive(Clone, Copy)]
pub struct Listed {
    pub start: usize,
    pub len: usize,
    /// The function of optimised code; 0 of other code.
    pub function: u64,
}

/// A piece that was not, and its function.
pub struct Found {
    pub start: usize,
    pub len: usize,
    pub function: u64,
}

/// What is at the same place in all machine code.
#[derive(Debug, PartialEq)]
pub struct Shape {
    /// The word with which a piece begins, and how far before the instructions it lies.
    map: u64,
    header_bytes: usize,
    /// Of what is said of a piece: how many words, which half of a word is its length, which word its data.
    words: usize,
    length_at: usize,
    data_at: usize,
}

/// Pieces that are learnt from.
const LEARNT_FROM: usize = 16;
const ALIGNMENT: usize = 32;
const MAX_CODE_BYTES: usize = 16 << 20;
/// V8 makes an isolate's machine code within so many bytes.
const CODE_RANGE_BYTES: usize = 128 << 20;
/// V8 allocates memory for code in pages of this size (`kRegularPageSize`, src/base/build_config.h, V8 10 to 14).
const CODE_PAGE_BYTES: usize = 256 << 10;
const CHUNK_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

impl Layout {
    /// What the pieces have in common; `None` when they do not agree, or too little of it is seen.
    pub fn shape(&self, pieces: &[Listed]) -> Option<Shape> {
        let mut shape: Option<Shape> = None;
        let (mut lengths, mut data) = (u128::MAX, None);
        for piece in pieces.iter().rev().take(LEARNT_FROM) {
            let said = said_of(piece.start);
            let header = said.get(said.len().checked_sub(HEADER_WORDS)?..)?;
            let Some(at) = header.iter().rposition(|word| self.is_map_of_code(*word)) else { continue };
            let of_piece = Shape {
                map: header[at],
                header_bytes: (HEADER_WORDS - at) * WORD,
                words: said.len(),
                length_at: 0,
                data_at: 0,
            };
            if shape.get_or_insert(Shape { ..of_piece }) != &of_piece {
                return None;
            }
            let is_length = |at: &usize| half(&said, *at) == Some(piece.len as u32);
            lengths &= (0..said.len() * 2).filter(is_length).fold(0, |mask, at| mask | 1 << at);
            let is_data = |word: &u64| match piece.function {
                0 => is_object(*word) && self.type_of(*word) == Some(self.byte_code_type),
                function => self.is_data_of(*word, function),
            };
            if let Some(at) = said.iter().position(is_data) {
                if *data.get_or_insert(at) != at {
                    return None;
                }
            }
        }
        let length_at = (lengths != 0).then_some(lengths.trailing_zeros() as usize)?;
        Some(Shape { length_at, data_at: data?, ..shape? })
    }

    fn is_map_of_code(&self, word: u64) -> bool {
        let is_map = || {
            let kind = field(word, 0)?;
            (field(kind, 0)? == kind).then_some(())?;
            Some(self.type_of_map(word)? == self.code_type)
        };
        is_object(word) && is_map() == Some(true)
    }

    /// Optimised code in `ranges` that is not among `listed`, which is sorted, and whose function `is_known`.
    pub fn unlisted(
        &self,
        shape: &Shape,
        ranges: &[(usize, usize)],
        listed: &[Listed],
        is_known: &dyn Fn(u64) -> bool,
    ) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        let mut free_from = 0;
        for start in searched(ranges, listed).into_iter().flat_map(|range| shape.beginnings(range)) {
            let next = listed.partition_point(|piece| piece.start < start);
            let before = next.checked_sub(1).and_then(|at| listed.get(at)).map_or(0, |piece| piece.start + piece.len);
            if start < before.max(free_from) {
                continue;
            }
            let Some((len, data)) = shape.read(start) else { continue };
            if listed.get(next).is_some_and(|piece| piece.start < start + len) {
                continue;
            }
            if let Some(function) = self.functions_of(data).into_iter().flatten().find(|function| is_known(*function)) {
                free_from = start + len;
                found.push(Found { start, len, function });
            }
        }
        found
    }
}

impl Shape {
    /// Where instructions may begin in a range of memory.
    fn beginnings(&self, (low, high): (usize, usize)) -> Vec<usize> {
        let mut chunk = vec![0; CHUNK_BYTES.min(high - low)];
        let map = self.map.to_le_bytes();
        let mut beginnings = Vec::new();
        for from in (low..high).step_by(CHUNK_BYTES) {
            let chunk = &mut chunk[..CHUNK_BYTES.min(high - from)];
            if !copy(chunk, from) {
                // Some of its pages are not there.
                for (page, at) in chunk.chunks_mut(PAGE).zip((from..).step_by(PAGE)) {
                    if !copy(page, at) {
                        page.fill(0);
                    }
                }
            }
            let met = memchr::memmem::find_iter(chunk, &map).filter(|at| at % WORD == 0);
            let starts = met.map(|at| from + at + self.header_bytes);
            beginnings.extend(starts.filter(|start| start % ALIGNMENT == 0 && *start < high));
        }
        beginnings
    }

    /// Length and data of the piece at `start`, if there is one.
    fn read(&self, start: usize) -> Option<(usize, u64)> {
        let said = said_of(start);
        let len = half(&said, self.length_at)? as usize;
        let data = *said.get(self.data_at)?;
        (said.len() == self.words && (1..=MAX_CODE_BYTES).contains(&len)).then_some((len, data))
    }
}

/// The parts of `ranges` worth reading: resident ones, or where the kernel does not report them, V8's pages with listed code.
fn searched(ranges: &[(usize, usize)], listed: &[Listed]) -> Vec<(usize, usize)> {
    resident(ranges).unwrap_or_else(|| code_pages(ranges, listed))
}

fn code_pages(ranges: &[(usize, usize)], listed: &[Listed]) -> Vec<(usize, usize)> {
    let mut pages: Vec<usize> = listed.iter().map(|piece| piece.start & !(CODE_PAGE_BYTES - 1)).collect();
    pages.dedup();
    let overlap = |page: usize, (low, high): (usize, usize)| {
        let overlap = (low.max(page), high.min(page + CODE_PAGE_BYTES));
        (overlap.0 < overlap.1).then_some(overlap)
    };
    pages.iter().flat_map(|page| ranges.iter().filter_map(|range| overlap(*page, *range))).collect()
}

/// The words that describe a piece, and those before its first instruction.
fn said_of(start: usize) -> Vec<u64> {
    code_fields(start).concat()
}

fn half(words: &[u64], at: usize) -> Option<u32> {
    words.get(at / 2).map(|word| (word >> (at % 2 * 32)) as u32)
}

/// Executable memory without a file from which the isolate's machine code comes, when some of it lies at `places`.
pub fn executable_near(places: &[usize]) -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    ranges_near(&maps, places)
}

fn ranges_near(maps: &str, places: &[usize]) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (low, high) = words.next()?.split_once('-')?;
        let is_code = words.next()?.contains('x') && matches!(words.nth(3), None | Some("[anon:v8]"));
        let hex = |text| usize::from_str_radix(text, 16).ok();
        is_code.then_some((hex(low)?, hex(high)?))
    };
    let is_near = |(low, high): &(usize, usize)| {
        places.iter().any(|place| place.abs_diff(*low) < CODE_RANGE_BYTES || (*low..*high).contains(place))
    };
    maps.lines().filter_map(range).filter(is_near).collect()
}

#[cfg(test)]
mod tests {
    use super::super::resident::tests::Reserved;
    use super::*;

    #[test]
    fn only_executable_memory_without_a_file_near_known_code_is_looked_at() {
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
    fn a_search_reads_no_memory_that_is_reserved_only() {
        let shape = Shape { map: 0x7f12_3401, header_bytes: 64, words: 20, length_at: 0, data_at: 0 };
        let memory = Reserved::new(128 << 20);
        memory.write(90 << 20, shape.map);
        let found: Vec<usize> =
            searched(&[memory.range()], &[]).into_iter().flat_map(|range| shape.beginnings(range)).collect();
        assert_eq!(found, [memory.low + (90 << 20) + 64]);
        let resident: usize = resident(&[memory.range()]).unwrap().iter().map(|(low, high)| high - low).sum();
        assert!(resident <= 64 << 10, "{resident} bytes are resident after the search");
    }

    #[test]
    fn where_residency_is_not_reported_v8s_pages_with_listed_code_are_searched() {
        let piece = |start| Listed { start, len: 64, function: 0 };
        let listed = [piece(0x7f00_0004_1000), piece(0x7f00_0004_2000), piece(0x7f00_0010_0000), piece(0x1000)];
        let ranges = [(0x7f00_0000_0000, 0x7f00_0007_0000), (0x7f00_0010_0000, 0x7f00_0020_0000)];
        let expected = [(0x7f00_0004_0000, 0x7f00_0007_0000), (0x7f00_0010_0000, 0x7f00_0014_0000)];
        assert_eq!(code_pages(&ranges, &listed), expected);
    }

    #[test]
    fn code_begins_where_its_first_word_is_met_and_no_further_than_its_memory() {
        let shape = Shape { map: 0x7f12_3401, header_bytes: 64, words: 20, length_at: 0, data_at: 0 };
        #[repr(align(4096))]
        struct Memory([u64; 3 * CHUNK_BYTES / WORD]);
        let mut memory = Box::new(Memory([0; 3 * CHUNK_BYTES / WORD]));
        let placed = [8, CHUNK_BYTES / WORD - 4, 2 * CHUNK_BYTES / WORD + 4, 3 * CHUNK_BYTES / WORD - 8];
        for at in placed.into_iter().chain([17]) {
            memory.0[at] = shape.map;
        }
        let low = memory.0.as_ptr() as usize;
        let high = low + size_of::<Memory>();
        let expected: Vec<usize> = placed.iter().map(|at| low + at * WORD + 64).filter(|start| *start < high).collect();
        assert_eq!(expected.len(), 3, "the last one's instructions would lie outside");
        assert_eq!(shape.beginnings((low, high)), expected);
    }
}
