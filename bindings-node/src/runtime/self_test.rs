//! Selects the walk method at the first start. Two JavaScript functions with unique names call the addon, one inside the other;
//! code events give the addresses of their code. A correct walk contains both, the inner one first. The walk along frame
//! pointers is tried first, then V8's. Not here: the use of the result (`lib/`).

use std::sync::atomic::Ordering;

use spanprof_signal::{RawFrame, RawStack};

use super::capture::V8StackWalk;
use super::v8;
use super::walk::js_thread::{self, JsThread};
use super::walk::native_code::StackRegisters;
use super::walk::walk_method::{self, WalkMethod};

/// Names of the two functions, as in `lib/self_test.js`.
pub const INNER: &str = "spanprofSelfTestInner";
pub const OUTER: &str = "spanprofSelfTestOuter";

/// Code of one of the two functions.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub is_inner: bool,
    pub start: usize,
    pub len: usize,
}

/// Words above the stack pointer that are searched for the caller's frame.
const SEARCHED_WORDS: usize = 1024;

/// Called by the inner function, with the code of both. Selects and returns the best allowed method.
pub fn select_method(allow_frame_pointers: bool, probes: &[Probe]) -> WalkMethod {
    let method = best_method(allow_frame_pointers, probes).unwrap_or(WalkMethod::None);
    walk_method::select(method);
    method
}

fn best_method(allow_frame_pointers: bool, probes: &[Probe]) -> Option<WalkMethod> {
    let thread = js_thread::by_thread_id(spanprof_os::thread_id())?;
    let walk = V8StackWalk::new(v8::published()?, js_thread::builtin_ranges()?, thread);
    let registers = StackRegisters::here();
    let mut frames = [RawFrame::default(); 64];
    let mut is_correct = |walk: &dyn Fn(&mut RawStack<'_>) -> bool| {
        let mut stack = RawStack::new(&mut frames);
        walk(&mut stack) && contains_both(probes, stack.frames())
    };
    // Unlike interrupted code, this function may have no frame pointer: its caller's frame lies above.
    let above = (0..SEARCHED_WORDS).map(|word| registers.sp + word * 8).filter(|frame| *frame + 16 < high(thread));
    let mut frame_pointers = std::iter::once(registers.fp).chain(above);
    if allow_frame_pointers
        && frame_pointers
            .any(|fp| is_correct(&|stack| walk.walk_frame_pointers(&StackRegisters { fp, ..registers }, stack)))
    {
        return Some(WalkMethod::FramePointers);
    }
    is_correct(&|stack| walk.walk_by_v8(&registers, stack)).then_some(WalkMethod::V8)
}

fn high(thread: &JsThread) -> usize {
    thread.stack_high.load(Ordering::Relaxed)
}

fn contains_both(probes: &[Probe], frames: &[RawFrame]) -> bool {
    let index_of = |is_inner: bool| {
        frames.iter().position(|frame| {
            let address = (frame.code + frame.at) as usize;
            let contains = |probe: &Probe| probe.is_inner == is_inner && address.wrapping_sub(probe.start) < probe.len;
            frame.native_pc().is_none() && probes.iter().any(contains)
        })
    };
    matches!((index_of(true), index_of(false)), (Some(inner), Some(outer)) if inner < outer)
}

#[cfg(test)]
mod tests {
    use super::super::walk::frame_pointers::code_frame;
    use super::*;

    #[test]
    fn a_walk_is_correct_when_it_contains_the_inner_function_above_the_outer_one() {
        let probes =
            [Probe { is_inner: true, start: 0x5000, len: 16 }, Probe { is_inner: false, start: 0x7f00, len: 512 }];
        let (inner, outer, other) = (code_frame(0x5004), code_frame(0x8001), code_frame(0x9000));
        assert!(contains_both(&probes, &[other, inner, other, outer]));
        for wrong in [vec![outer, inner], vec![inner], vec![outer], vec![RawFrame::native(0x5004), outer], vec![]] {
            assert!(!contains_both(&probes, &wrong), "{wrong:?}");
        }
    }
}
