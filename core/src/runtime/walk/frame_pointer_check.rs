//! Tells whether the program was compiled with frame pointers, by which the handler walks: compares the callers of `start` by
//! frame pointers with those by unwind tables. Normal threads only.

use std::hint::black_box;

use super::calling_thread::{walk_from, WalkStart};
use super::frame_pointers::walk_frame_pointers;
use super::unwind_tables::{load_unwind_tables, with_unwind_tables};

/// Callers that are compared: functions of this crate and of the program. Behind them may be C code, which most distributions build
/// without frame pointers; in a static program it is in the same object.
const COMPARED_CALLERS: usize = 2;
/// Callers by frame pointers, among which the compared ones must be.
const MAX_CALLERS: usize = 64;

/// Whether callers of this function that belong to the program lack frame pointers. The fault guard must be installed.
#[inline(never)]
pub(crate) fn is_without_frame_pointers() -> bool {
    load_unwind_tables();
    let start = WalkStart::here();
    let [by_tables, by_frame_pointers] = [walk_from, walk_by_frame_pointers].map(|walk| {
        let mut callers = Vec::with_capacity(MAX_CALLERS);
        walk(&start, &mut |return_address| {
            callers.push(return_address);
            callers.len() < MAX_CALLERS
        });
        callers
    });
    let in_program = |address: &u64| with_unwind_tables(0, |tables, _| tables.is_in_program(*address)) == Some(true);
    // Keeps the frame of this function until both walks have ended.
    black_box(&start);
    is_incomplete(&by_tables, &by_frame_pointers, in_program)
}

fn walk_by_frame_pointers(start: &WalkStart, push: &mut dyn FnMut(u64) -> bool) {
    walk_frame_pointers(start.stack_pointer, start.frame_pointer, push);
}

/// Whether a walk by frame pointers lacks one of the nearest callers in the program.
fn is_incomplete(by_tables: &[u64], by_frame_pointers: &[u64], in_program: impl Fn(&u64) -> bool) -> bool {
    let mut compared = by_tables.iter().take(COMPARED_CALLERS).take_while(|address| in_program(address));
    compared.any(|address| !by_frame_pointers.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_caller_in_the_program_tells_that_frame_pointers_are_missing() {
        let in_program = |address: &u64| *address < 100;
        assert!(!is_incomplete(&[1, 2, 3, 700], &[1, 2, 3], in_program));
        assert!(is_incomplete(&[1, 2, 3, 700], &[3, 700], in_program));
        assert!(is_incomplete(&[1, 2], &[], in_program));
        // A C library without frame pointers, linked into the program.
        assert!(!is_incomplete(&[1, 2, 3], &[1, 2], in_program));
        // The start was called by a library without frame pointers, or the tables are unknown.
        assert!(!is_incomplete(&[700, 1, 2], &[], in_program));
        assert!(!is_incomplete(&[], &[], in_program));
    }

    #[test]
    fn walks_by_unwind_tables_begin_with_the_caller() {
        load_unwind_tables();
        let start = WalkStart::here();
        let mut callers = Vec::new();
        walk_from(&start, &mut |return_address| {
            callers.push(return_address);
            true
        });
        black_box(&start);
        assert!(callers.len() > 3);
        assert_eq!(with_unwind_tables(0, |tables, _| tables.is_in_program(callers[0])), Some(true));
    }
}
