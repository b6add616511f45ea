//! A code object of V8 and its kind. Kept by the code map, and after its end by the retired code.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::positions::names::CodeName;
use crate::positions::{Inlining, LineTable};

/// Size of a code object without its positions.
pub const CODE_BYTES: usize = 128;
/// Determines how positions in the code are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    Bytecode,
    /// Machine code that follows the bytecode instruction by instruction.
    Baseline,
    /// Machine code that may contain inlined functions.
    Optimized,
    Other,
}

impl CodeKind {
    /// From the tier marker in the logged name.
    pub fn of(logged: &str, is_bytecode: bool) -> Self {
        let name = logged.split_once(':').map_or("", |(_, name)| name);
        match is_bytecode {
            true => Self::Bytecode,
            false if ["*", "+", "o*", "o+"].iter().any(|mark| name.starts_with(mark)) => Self::Optimized,
            false if name.starts_with('^') => Self::Baseline,
            false => Self::Other,
        }
    }
}

/// A code object: bytecode or machine code.
#[derive(Clone, Debug)]
pub struct CodeObject {
    pub start: usize,
    pub len: usize,
    pub isolate: usize,
    pub name: Arc<CodeName>,
    /// Number of the script in this process; 0 when unknown.
    pub script: u32,
    pub kind: CodeKind,
    pub lines: Arc<LineTable>,
    pub inlining: Option<Arc<Inlining>>,
    /// Of bytecode: the map word of its object. V8 logs no event when bytecode is collected, and other objects reuse its memory.
    pub map_word: Option<NonZeroU64>,
    /// Ring position at which it was added.
    pub added_at: u64,
}

impl CodeObject {
    pub fn contains(&self, address: usize, position: u64) -> bool {
        address >= self.start && address - self.start < self.len && self.added_at <= position
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let inlining = self.inlining.as_ref().map_or(0, |inlining| inlining.bytes());
        CODE_BYTES + self.lines.bytes() + inlining
    }
}
