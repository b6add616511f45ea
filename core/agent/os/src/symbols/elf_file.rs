//! The ELF files of loaded objects: functions of a symbol table with their sizes, segments, and the build id. Headers and tables are read, whatever
//! the size of the file. Not here: what is kept of them (`file_symbols`).

use std::ops::Range;

use object::elf::{
    FileHeader64, ProgramHeader64, SectionType, ELF_NOTE_GNU, NT_GNU_BUILD_ID, PF_X, PT_GNU_EH_FRAME, PT_LOAD, STT_FUNC,
};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef};

use super::exported_symbols::SymbolRange;

const PAGE_MASK: u64 = 4095;
const SYMBOL_BYTES: usize = 24;
const CHUNK_SYMBOLS: usize = 2048;
const MAX_BUILD_ID_BYTES: usize = 64;

/// A part of a file that is mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeSegment {
    /// Its addresses in the file, whole pages.
    pub addresses: Range<u64>,
    /// Offset of its first byte in the file.
    pub file_offset: u64,
}

/// The headers of a file, and access to its bytes.
pub(super) struct ElfFile<'data, R: ReadRef<'data>> {
    header: &'data FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
}

impl<'data, R: ReadRef<'data>> ElfFile<'data, R> {
    /// `None` for other files than those of 64 bits.
    pub fn parse(data: R) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        Some(Self { header, endian: header.endian().ok()?, data })
    }

    fn program_headers(&self) -> &'data [ProgramHeader64<Endianness>] {
        self.header.program_headers(self.endian, self.data).unwrap_or_default()
    }

    /// The page-aligned address of the first segment in the file; 0 without segments.
    pub fn first_address(&self) -> u64 {
        let loaded = self.program_headers().iter().filter(|header| header.p_type(self.endian) == PT_LOAD);
        let first = loaded.map(|header| header.p_vaddr(self.endian)).min();
        first.unwrap_or_default() & !PAGE_MASK
    }

    /// The segments with code, as they are mapped: in whole pages.
    pub fn code_segments(&self) -> Vec<CodeSegment> {
        let is_code = |header: &&ProgramHeader64<Endianness>| {
            header.p_type(self.endian) == PT_LOAD && header.p_flags(self.endian).contains(PF_X)
        };
        let segment = |header: &ProgramHeader64<Endianness>| {
            let start = header.p_vaddr(self.endian);
            let end = start.checked_add(header.p_memsz(self.endian))?.checked_next_multiple_of(PAGE_MASK + 1)?;
            Some(CodeSegment {
                addresses: start & !PAGE_MASK..end,
                file_offset: header.p_offset(self.endian) & !PAGE_MASK,
            })
        };
        self.program_headers().iter().filter(is_code).filter_map(segment).collect()
    }

    /// Whether segments with code have bytes, which those of a debug file have not.
    pub fn has_code(&self) -> bool {
        let is_code = |header: &ProgramHeader64<Endianness>| {
            header.p_type(self.endian) == PT_LOAD && header.p_flags(self.endian).contains(PF_X)
        };
        self.program_headers().iter().any(|header| is_code(header) && header.p_filesz(self.endian) > 0)
    }

    /// The address of `.eh_frame_hdr`.
    pub fn unwind_index(&self) -> Option<u64> {
        let mut headers = self.program_headers().iter();
        let header = headers.find(|header| header.p_type(self.endian) == PT_GNU_EH_FRAME)?;
        Some(header.p_vaddr(self.endian))
    }

    /// The build id of the GNU linker (`NT_GNU_BUILD_ID`) in hex digits, from a note section, or a note segment of a file without
    /// sections.
    pub fn build_id(&self) -> Option<String> {
        let sections = self.header.sections(self.endian, self.data).ok()?;
        let of_sections = sections.iter().filter_map(|section| section.notes(self.endian, self.data).ok()?);
        let of_segments =
            self.program_headers().iter().filter_map(|header| header.notes(self.endian, self.data).ok()?);
        of_sections.chain(of_segments).find_map(|notes| self.build_id_of(notes))
    }

    fn build_id_of(&self, mut notes: NoteIterator<'data, FileHeader64<Endianness>>) -> Option<String> {
        while let Some(note) = notes.next().ok()? {
            let is_build_id = note.name() == ELF_NOTE_GNU && note.n_type(self.endian) == NT_GNU_BUILD_ID;
            if is_build_id && (1..=MAX_BUILD_ID_BYTES).contains(&note.desc().len()) {
                return Some(hex::encode(note.desc()));
            }
        }
        None
    }

    /// The contents of a section.
    pub fn section(&self, name: &[u8]) -> Option<&'data [u8]> {
        let sections = self.header.sections(self.endian, self.data).ok()?;
        let (_, section) = sections.section_by_name(self.endian, name)?;
        section.data(self.endian, self.data).ok()
    }

    /// The functions of a symbol table with at most `max_symbols`, relative to `first`, and the file range of their names. Read in
    /// chunks by `read`, since the table is larger than the result.
    pub fn functions(
        &self,
        table_type: SectionType,
        first: u64,
        max_symbols: usize,
        mut read: impl FnMut(u64, &mut [u8]) -> Option<()>,
    ) -> Option<(Vec<SymbolRange>, (u64, u64))> {
        let endian = self.endian;
        let sections = self.header.sections(endian, self.data).ok()?;
        let table = sections.iter().find(|section| section.sh_type(endian) == table_type)?;
        let strings = sections.section(object::SectionIndex(table.sh_link(endian) as usize)).ok()?;
        let (offset, len) = table.file_range(endian)?;
        let count = usize::try_from(len).ok()? / SYMBOL_BYTES;
        if count > max_symbols {
            return None;
        }
        let (mut functions, mut open_ended) = (Vec::with_capacity(count), Vec::new());
        let end_of_section = |section: u16| {
            let section = sections.section(object::SectionIndex(usize::from(section))).ok()?;
            section.sh_addr(endian).checked_add(section.sh_size(endian))
        };
        let mut chunk = vec![0; CHUNK_SYMBOLS * SYMBOL_BYTES];
        for from in (0..count).step_by(CHUNK_SYMBOLS) {
            let chunk = chunk.get_mut(..CHUNK_SYMBOLS.min(count - from) * SYMBOL_BYTES)?;
            read(offset.checked_add((from * SYMBOL_BYTES) as u64)?, chunk)?;
            for symbol in chunk.chunks_exact(SYMBOL_BYTES).filter_map(FunctionSymbol::read) {
                if symbol.len == 0 {
                    let len = end_of_section(symbol.section).and_then(|end| end.checked_sub(symbol.address));
                    open_ended
                        .extend(len.filter(|_| symbol.kind == STT_FUNC.0).and_then(|len| symbol.range(first, len)));
                } else {
                    functions.extend(symbol.range(first, symbol.len));
                }
            }
        }
        SymbolRange::sort(&mut functions);
        if !open_ended.is_empty() {
            SymbolRange::sort(&mut open_ended);
            end_at_next(&mut open_ended, &functions);
            functions.append(&mut open_ended);
            SymbolRange::sort(&mut functions);
        }
        (!functions.is_empty()).then_some((functions, strings.file_range(endian)?))
    }
}

/// The fields of an `Elf64_Sym`.
struct FunctionSymbol {
    kind: u8,
    section: u16,
    address: u64,
    len: u64,
    name: u32,
}

impl FunctionSymbol {
    fn read(symbol: &[u8]) -> Option<Self> {
        let word = |field: usize| symbol.get(field..field + 8)?.try_into().map(u64::from_le_bytes).ok();
        let section = u16::from_le_bytes([*symbol.get(6)?, *symbol.get(7)?]);
        let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
        Some(Self { kind: symbol.get(4)? & 15, section, address: word(8)?, len: word(16)?, name })
    }

    fn range(&self, first: u64, len: u64) -> Option<SymbolRange> {
        SymbolRange::of(self.kind, self.section, self.address.checked_sub(first)?, len, self.name)
    }
}

/// Ends functions without a size, such as those in assembly, at the next function. They may not name what lies behind their section:
/// the PLT follows `_init`. Both are sorted.
fn end_at_next(open_ended: &mut Vec<SymbolRange>, functions: &[SymbolRange]) {
    open_ended.retain(|range| SymbolRange::containing(functions, range.start).is_none());
    let starts: Vec<u32> = open_ended.iter().map(|range| range.start).collect();
    for range in open_ended {
        let next_function = functions.get(functions.partition_point(|function| function.start <= range.start));
        let next_start = starts.get(starts.partition_point(|start| *start <= range.start)).copied();
        let next = next_function.map(|function| function.start).into_iter().chain(next_start).min();
        range.len = range.len.min(next.map_or(u32::MAX, |next| next - range.start));
    }
}
