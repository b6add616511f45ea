//! The line table of a unit: which source line an instruction belongs to. Rows are decoded on demand, from the start of the
//! sequence (usually one function) that contains the address.

use std::path::Path;

use gimli::{ColumnType, CompleteLineProgram, FileEntry, LineProgramHeader, LineSequence, UnitRef};

use super::Slice;

/// The decoded header and the sequences of a line program.
pub(super) struct Lines {
    program: CompleteLineProgram<Slice>,
    /// Sorted by address.
    sequences: Box<[LineSequence<Slice>]>,
}

/// A source position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SourcePosition {
    /// Index into the files of the line table.
    pub file: Option<u64>,
    /// 0 when unknown.
    pub line: u32,
    /// 0 when unknown.
    pub column: u32,
}

impl Lines {
    /// The line table of `unit`.
    pub fn read(unit: UnitRef<'_, Slice>) -> Option<Self> {
        let (program, mut sequences) = unit.line_program.clone()?.sequences().ok()?;
        sequences.retain(|sequence| sequence.start < sequence.end);
        sequences.sort_unstable_by_key(|sequence| sequence.start);
        Some(Self { program, sequences: sequences.into() })
    }

    /// Approximate size.
    pub fn bytes(&self) -> usize {
        let header = self.program.header();
        size_of_val(header.file_names()) + size_of_val(header.include_directories()) + size_of_val(&*self.sequences)
    }

    /// The address ranges that have lines.
    pub fn ranges(&self) -> impl Iterator<Item = gimli::Range> + '_ {
        self.sequences.iter().map(|sequence| gimli::Range { begin: sequence.start, end: sequence.end })
    }

    /// The position of the instruction at `address`.
    pub fn position(&self, address: u64) -> Option<SourcePosition> {
        let after = self.sequences.partition_point(|sequence| sequence.start <= address);
        let sequence = self.sequences.get(after.checked_sub(1)?).filter(|sequence| address < sequence.end)?;
        let mut rows = self.program.resume_from(sequence);
        let mut position = None;
        while let Some((_, row)) = rows.next_row().ok()?.filter(|(_, row)| row.address() <= address) {
            let line = row.line().map_or(0, |line| line.get() as u32);
            let column = match row.column() {
                ColumnType::Column(column) if line != 0 => column.get() as u32,
                _ => 0,
            };
            position = Some(SourcePosition { file: Some(row.file_index()), line, column });
        }
        position
    }

    /// The path of a file: its directory and name, relative to the directory of the compilation.
    pub fn path(&self, unit: UnitRef<'_, Slice>, file: u64) -> Option<String> {
        let header = self.program.header();
        // Versions below 5 count files from 1.
        path(unit, header, header.file(file)?)
    }
}

fn path(unit: UnitRef<'_, Slice>, header: &LineProgramHeader<Slice>, file: &FileEntry<Slice>) -> Option<String> {
    let mut path = unit.comp_dir.map_or_else(String::new, |directory| directory.to_string_lossy().into_owned());
    let mut push = |part: gimli::AttributeValue<Slice>| {
        let part = unit.attr_string(part).ok()?;
        path = Path::new(&path).join(&*part.to_string_lossy()).to_string_lossy().into_owned();
        Some(())
    };
    // Directory 0 is that of the compilation.
    if file.directory_index() != 0 {
        if let Some(directory) = file.directory(header) {
            push(directory)?;
        }
    }
    push(file.path_name())?;
    Some(path)
}
