//! The rules of one loaded object by address, in four bytes an entry. The same form as the stack deltas of OpenTelemetry's eBPF
//! profiler (`StackDelta`), with pages of 4 KB. Immutable; safe in handlers, except what builds it.

use crate::rule::{RuleNumber, NO_RULE};

/// An entry: the address in its page in the upper 12 bits, whether a function begins there, and the number of the rule in the lower 16.
const ADDRESS_SHIFT: u32 = 20;
const FUNCTION_START: u32 = 1 << 16;
const PAGE_BITS: u32 = 12;
const PAGE_MASK: u32 = (1 << PAGE_BITS) - 1;

/// A row before it is an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// First address, relative to the first code of the object.
    pub address: u32,
    pub rule: RuleNumber,
    pub begins_function: bool,
}

/// The rules of one object. An entry is valid up to the next one.
#[derive(Debug, Default)]
pub(crate) struct UnwindTable {
    /// The first entry of each page, and the number of entries.
    pages: Box<[u32]>,
    entries: Box<[u32]>,
}

impl UnwindTable {
    /// From rows in any order. Where a function begins at the end of another one, the row of its beginning is valid.
    pub fn of_rows(mut rows: Vec<Row>, code_bytes: u32) -> Self {
        rows.sort_by_key(|row| (row.address, row.begins_function));
        let mut entries: Vec<u32> = Vec::with_capacity(rows.len());
        let mut pages = vec![0; (code_bytes >> PAGE_BITS) as usize + 2];
        let mut previous: Option<Row> = None;
        for row in rows.into_iter().filter(|row| row.address < code_bytes) {
            let replaces = previous.is_some_and(|previous| previous.address == row.address);
            let repeats = previous.is_some_and(|previous| previous.rule == row.rule) && !row.begins_function;
            if repeats && !replaces {
                continue;
            }
            let page = (row.address >> PAGE_BITS) as usize;
            if replaces {
                entries.pop();
            } else {
                pages[page + 1] += 1;
            }
            let start = if row.begins_function { FUNCTION_START } else { 0 };
            entries.push((row.address & PAGE_MASK) << ADDRESS_SHIFT | start | u32::from(row.rule));
            previous = Some(row);
        }
        for page in 1..pages.len() {
            pages[page] += pages[page - 1];
        }
        Self { pages: pages.into(), entries: entries.into() }
    }

    /// The rule at an address that is relative to the first code.
    #[inline]
    pub fn rule(&self, address: u32) -> RuleNumber {
        match self.entry(address) {
            Some(entry) => self.entries.get(entry).map_or(NO_RULE, |entry| *entry as RuleNumber),
            None => NO_RULE,
        }
    }

    /// The index of the last entry at or before the address.
    #[inline]
    fn entry(&self, address: u32) -> Option<usize> {
        let page = (address >> PAGE_BITS) as usize;
        let (first, end) = (*self.pages.get(page)? as usize, *self.pages.get(page + 1)? as usize);
        let in_page = self.entries.get(first..end)?;
        let after = in_page.partition_point(|entry| entry >> ADDRESS_SHIFT <= address & PAGE_MASK);
        (first + after).checked_sub(1)
    }

    /// The address at which the function that contains `address` begins. Normal threads only.
    pub fn function_start(&self, address: u32) -> Option<u32> {
        let last = self.entry(address)?;
        let start = self.entries.get(..=last)?.iter().rposition(|entry| entry & FUNCTION_START != 0)?;
        let page = self.pages.partition_point(|first| *first as usize <= start).checked_sub(1)?;
        Some((page as u32) << PAGE_BITS | self.entries.get(start)? >> ADDRESS_SHIFT)
    }

    /// Memory of the table.
    pub fn bytes(&self) -> usize {
        (self.pages.len() + self.entries.len()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: u32, rule: RuleNumber, begins_function: bool) -> Row {
        Row { address, rule, begins_function }
    }

    #[test]
    fn an_entry_is_valid_up_to_the_next_one_also_over_pages() {
        let rows = vec![row(0x3001, 7, false), row(16, 5, true), row(20, 6, false), row(0x3000, 5, true)];
        let table = UnwindTable::of_rows(rows, 0x4800);
        let rules =
            [0, 15, 16, 19, 20, 0xfff, 0x1000, 0x2fff, 0x3000, 0x3001, 0x47ff].map(|address| table.rule(address));
        assert_eq!(rules, [0, 0, 5, 5, 6, 6, 6, 6, 5, 7, 7]);
        assert_eq!(table.rule(0x9000), NO_RULE, "beyond the code");
        let starts = [0, 16, 0x1234, 0x3000, 0x4000].map(|address| table.function_start(address));
        assert_eq!(starts, [None, Some(16), Some(16), Some(0x3000), Some(0x3000)]);
    }

    #[test]
    fn equal_neighbors_are_one_entry_unless_a_function_begins_there() {
        let rows = vec![row(0, 1, true), row(4, 1, false), row(8, 1, true), row(12, 2, true), row(12, 0, false)];
        let table = UnwindTable::of_rows(rows, 64);
        assert_eq!(table.entries.len(), 3);
        assert_eq!([4, 8, 12].map(|address| table.rule(address)), [1, 1, 2]);
        assert_eq!(table.function_start(11), Some(8));
    }
}
