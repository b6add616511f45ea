//! The functions inlined into one piece of optimized code, and their call positions. Pure.

use super::{PositionTableEntry, NO_POSITION};

/// One inlined function (V8: `InliningPosition`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InliningPosition {
    /// Number of the script of the inlined function; 0 unknown.
    pub script: u32,
    /// Offset of the call in its caller's source; `NO_POSITION` when unknown.
    pub call_offset: u32,
    /// As [`PositionTableEntry::inlining`].
    pub caller: u16,
}

/// The source positions of one piece of optimized code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlining {
    entries: Box<[PositionTableEntry]>,
    inlined: Box<[InliningPosition]>,
    /// V8 reported the same positions; otherwise they are checked against the function's own.
    pub is_reported: bool,
}

/// A frame at a machine code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InliningFrame {
    /// Number of the inlined function's script; `None` for the function that the code belongs to.
    pub inlined_from: Option<u32>,
    /// Offset in that function's script; `NO_POSITION` unknown.
    pub script_offset: u32,
}

impl Inlining {
    /// `None` for inconsistent parts: a caller must precede its callees.
    pub fn new(entries: Vec<PositionTableEntry>, inlined: Vec<InliningPosition>, is_reported: bool) -> Option<Self> {
        let ordered = inlined.iter().enumerate().all(|(index, call)| call.caller as usize <= index);
        let refers_to_calls = entries.iter().all(|entry| entry.inlining as usize <= inlined.len());
        let sorted = entries.is_sorted_by_key(|entry| entry.code_offset);
        (ordered && refers_to_calls && sorted).then(|| Self {
            entries: entries.into(),
            inlined: inlined.into(),
            is_reported,
        })
    }

    /// The frames at `offset` in the code, innermost first; empty before the first position.
    pub fn chain(&self, offset: u32) -> Vec<InliningFrame> {
        let after = self.entries.partition_point(|entry| entry.code_offset <= offset);
        let Some(entry) = after.checked_sub(1).map(|at| self.entries[at]) else { return Vec::new() };
        let (mut script_offset, mut inlining) = (entry.script_offset, entry.inlining);
        let mut frames = Vec::new();
        if script_offset == NO_POSITION && inlining == 0 {
            return frames;
        }
        while let Some(call) = (inlining as usize).checked_sub(1).and_then(|at| self.inlined.get(at)) {
            frames.push(InliningFrame { inlined_from: Some(call.script), script_offset });
            (script_offset, inlining) = (call.call_offset, call.caller);
        }
        frames.push(InliningFrame { inlined_from: None, script_offset });
        frames
    }

    /// Positions in the function that the code belongs to.
    pub fn own_positions(&self) -> impl Iterator<Item = u32> + '_ {
        let own = self.entries.iter().filter(|entry| entry.inlining == 0).map(|entry| entry.script_offset);
        own.chain(self.inlined.iter().filter(|call| call.caller == 0).map(|call| call.call_offset))
    }

    /// Numbers of the scripts of inlined functions.
    pub fn scripts(&self) -> impl Iterator<Item = u32> + '_ {
        self.inlined.iter().map(|call| call.script)
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.entries) + size_of_val(&*self.inlined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code_offset: u32, script_offset: u32, inlining: u16) -> PositionTableEntry {
        PositionTableEntry { code_offset, script_offset, inlining }
    }

    fn call(script: u32, call_offset: u32, caller: u16) -> InliningPosition {
        InliningPosition { script, call_offset, caller }
    }

    #[test]
    fn a_chain_runs_from_the_innermost_function_to_the_codes_own() {
        let entries = vec![entry(4, 100, 0), entry(10, 900, 2), entry(20, 300, 1), entry(30, 101, 0)];
        let inlining = Inlining::new(entries, vec![call(7, 110, 0), call(8, 310, 1)], true).unwrap();
        let chain = |offset| {
            inlining.chain(offset).iter().map(|frame| (frame.inlined_from, frame.script_offset)).collect::<Vec<_>>()
        };
        assert_eq!(chain(3), []);
        assert_eq!(chain(4), [(None, 100)]);
        assert_eq!(chain(12), [(Some(8), 900), (Some(7), 310), (None, 110)]);
        assert_eq!(chain(29), [(Some(7), 300), (None, 110)]);
        assert_eq!(chain(1000), [(None, 101)]);
    }

    #[test]
    fn inconsistent_parts_are_refused() {
        assert_eq!(Inlining::new(vec![entry(0, 1, 2)], vec![call(1, 2, 0)], true), None, "a missing inlining position");
        assert_eq!(
            Inlining::new(vec![entry(0, 1, 1)], vec![call(1, 2, 1)], true),
            None,
            "a function inlined into itself"
        );
        assert_eq!(Inlining::new(vec![entry(9, 1, 0), entry(0, 1, 0)], vec![], true), None, "unsorted");
    }
}
