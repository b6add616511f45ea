//! The functions that one piece of optimised code holds, and where each was called. Pure.

use super::{Entry, NOWHERE};

/// One function that was inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the script of the inlined function; 0 unknown.
    pub script: u32,
    /// Where it is called, in the text of its caller; `NOWHERE` unknown.
    pub called_at: u32,
    /// As [`Entry::inlining`].
    pub caller: u16,
}

/// The places of one piece of optimised code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlining {
    entries: Box<[Entry]>,
    calls: Box<[Call]>,
    /// V8 told the same places; otherwise they are to be checked against the function's own.
    pub was_told: bool,
}

/// A frame that machine code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the inlined function's script; `None` for the function that the code belongs to.
    pub inlined_from: Option<u32>,
    /// Offset in that function's script; `NOWHERE` unknown.
    pub script_offset: u32,
}

impl Inlining {
    /// `None` when the parts do not fit together: a caller comes before what it calls.
    pub fn new(entries: Vec<Entry>, calls: Vec<Call>, was_told: bool) -> Option<Self> {
        let ordered = calls.iter().enumerate().all(|(index, call)| call.caller as usize <= index);
        let known = entries.iter().all(|entry| entry.inlining as usize <= calls.len());
        let sorted = entries.is_sorted_by_key(|entry| entry.code_offset);
        (ordered && known && sorted).then(|| Self { entries: entries.into(), calls: calls.into(), was_told })
    }

    /// The frames at `offset` in the code, innermost first; empty before the first place.
    pub fn chain(&self, offset: u32) -> Vec<Step> {
        let after = self.entries.partition_point(|entry| entry.code_offset <= offset);
        let Some(entry) = after.checked_sub(1).map(|at| self.entries[at]) else { return Vec::new() };
        let (mut script_offset, mut inlining) = (entry.script_offset, entry.inlining);
        let mut steps = Vec::new();
        if script_offset == NOWHERE && inlining == 0 {
            return steps;
        }
        while let Some(call) = (inlining as usize).checked_sub(1).and_then(|at| self.calls.get(at)) {
            steps.push(Step { inlined_from: Some(call.script), script_offset });
            (script_offset, inlining) = (call.called_at, call.caller);
        }
        steps.push(Step { inlined_from: None, script_offset });
        steps
    }

    /// Places of the function that the code belongs to.
    pub fn own_places(&self) -> impl Iterator<Item = u32> + '_ {
        let own = self.entries.iter().filter(|entry| entry.inlining == 0).map(|entry| entry.script_offset);
        own.chain(self.calls.iter().filter(|call| call.caller == 0).map(|call| call.called_at))
    }

    /// Numbers of the scripts of inlined functions.
    pub fn scripts(&self) -> impl Iterator<Item = u32> + '_ {
        self.calls.iter().map(|call| call.script)
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.entries) + size_of_val(&*self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code_offset: u32, script_offset: u32, inlining: u16) -> Entry {
        Entry { code_offset, script_offset, inlining }
    }

    fn call(script: u32, called_at: u32, caller: u16) -> Call {
        Call { script, called_at, caller }
    }

    #[test]
    fn a_chain_leads_from_the_innermost_function_to_the_codes_own() {
        let entries = vec![entry(4, 100, 0), entry(10, 900, 2), entry(20, 300, 1), entry(30, 101, 0)];
        let inlining = Inlining::new(entries, vec![call(7, 110, 0), call(8, 310, 1)], true).unwrap();
        let chain = |offset| {
            inlining.chain(offset).iter().map(|step| (step.inlined_from, step.script_offset)).collect::<Vec<_>>()
        };
        assert_eq!(chain(3), []);
        assert_eq!(chain(4), [(None, 100)]);
        assert_eq!(chain(12), [(Some(8), 900), (Some(7), 310), (None, 110)]);
        assert_eq!(chain(29), [(Some(7), 300), (None, 110)]);
        assert_eq!(chain(1000), [(None, 101)]);
    }

    #[test]
    fn parts_that_do_not_fit_together_are_refused() {
        assert_eq!(
            Inlining::new(vec![entry(0, 1, 2)], vec![call(1, 2, 0)], true),
            None,
            "an inlining that is not there"
        );
        assert_eq!(
            Inlining::new(vec![entry(0, 1, 1)], vec![call(1, 2, 1)], true),
            None,
            "a function that calls itself in"
        );
        assert_eq!(Inlining::new(vec![entry(9, 1, 0), entry(0, 1, 0)], vec![], true), None, "not in order");
    }
}
