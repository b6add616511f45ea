//! Whether stacks can be walked in this Node, found out at the first start: two JavaScript functions whose names nobody
//! else has call the door one inside the other; where their code lies is known from the code events; a walk that is right
//! meets both, the inner one first. Our own walk is tried, then V8's. Not here: what follows from it (`lib/`).

use std::sync::atomic::{AtomicU8, Ordering};

use spanprof_signal::{RawFrame, RawStack};

use super::capture_signal::{Registers, Walk};
use super::code_events;
use super::js_thread_signal::{self, JsThread};

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Means {
    /// Along frame pointers by ourselves; by V8 where these break.
    Own = 0,
    /// By V8's `GetStackSample` alone.
    ByV8 = 1,
    /// Not at all.
    None = 2,
}

static MEANS: AtomicU8 = AtomicU8::new(Means::Own as u8);

/// Asked by the handler.
pub fn means() -> Means {
    match MEANS.load(Ordering::Relaxed) {
        0 => Means::Own,
        1 => Means::ByV8,
        _ => Means::None,
    }
}

impl Means {
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::ByV8 => "v8",
            Self::None => "none",
        }
    }
}

/// Names of the two functions; `lib/self_test.js` has them.
pub const INNER: &str = "spanprofSelfTestInner";
pub const OUTER: &str = "spanprofSelfTestOuter";

/// Where code of the two lies.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    pub is_inner: bool,
    pub start: usize,
    pub len: usize,
}

/// Words above the stack pointer among which our own frame is looked for.
const OWN_WORDS: usize = 1024;

/// Called by the inner function. Sets the means, the best of those allowed, and tells them.
pub fn judge(own_is_allowed: bool) -> Means {
    let judged = tried(own_is_allowed).unwrap_or(Means::None);
    MEANS.store(judged as u8, Ordering::Release);
    judged
}

fn tried(own_is_allowed: bool) -> Option<Means> {
    let probes = code_events::take_probes();
    let thread = js_thread_signal::by_thread_id(spanprof::sys::thread_id())?;
    let walk = Walk::of(super::published_v8()?, js_thread_signal::landmarks()?, thread);
    let registers = Registers::here();
    let mut frames = [RawFrame::default(); 64];
    let mut right = |walk: &dyn Fn(&mut RawStack<'_>) -> bool| {
        let mut stack = RawStack::new(&mut frames);
        walk(&mut stack) && meets(&probes, stack.frames())
    };
    // This code of ours may have no frame pointer, unlike all that a handler interrupts: its caller's frame lies above.
    let above = (0..OWN_WORDS).map(|word| registers.sp + word * 8).filter(|frame| *frame + 16 < high(thread));
    let mut places = std::iter::once(registers.fp).chain(above);
    if own_is_allowed && places.any(|fp| right(&|stack| walk.own(&Registers { fp, ..registers }, stack))) {
        return Some(Means::Own);
    }
    right(&|stack| walk.by_v8(&registers, stack)).then_some(Means::ByV8)
}

fn high(thread: &JsThread) -> usize {
    thread.stack_high.load(Ordering::Relaxed)
}

fn meets(probes: &[Probe], frames: &[RawFrame]) -> bool {
    let place_of = |wanted: bool| {
        frames.iter().position(|frame| {
            let address = (frame.code + frame.at) as usize;
            let holds = |probe: &Probe| probe.is_inner == wanted && address.wrapping_sub(probe.start) < probe.len;
            frame.native_pc().is_none() && probes.iter().any(holds)
        })
    };
    matches!((place_of(true), place_of(false)), (Some(inner), Some(outer)) if inner < outer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::capture_signal::place;

    #[test]
    fn a_walk_is_right_when_it_meets_the_inner_function_above_the_outer_one() {
        let probes =
            [Probe { is_inner: true, start: 0x5000, len: 16 }, Probe { is_inner: false, start: 0x7f00, len: 512 }];
        let (inner, outer, other) = (place(0x5004), place(0x8001), place(0x9000));
        assert!(meets(&probes, &[other, inner, other, outer]));
        for wrong in [vec![outer, inner], vec![inner], vec![outer], vec![RawFrame::native(0x5004), outer], vec![]] {
            assert!(!meets(&probes, &wrong), "{wrong:?}");
        }
    }
}
