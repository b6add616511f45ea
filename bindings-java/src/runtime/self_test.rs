//! Whether our own walk is right in this VM, found out once, before any handler uses it: stacks that are known are walked
//! and named, and compiled code here and there is read. Not here: what follows when it is not (`mod`).

use spanprof_signal::{RawFrame, RawStack};

use super::code_heap_signal::{blob_of, code_begin, kind_of, Kind};
use super::frame_word::{self, Place};
use super::layout::Layout;
use super::memory_signal::word;
use super::names::Names;
use super::scopes_signal::{decode, Found, Inlined};
use super::{threads_signal, walk_signal};

/// Who called us, when it was Java.
const CALLER: &str = "io.spanprof.Native.start";
const MAX_FRAMES: usize = 128;
/// Places looked at in each heap of code.
const PROBES: usize = 64;
/// Pieces of compiled code that must have been seen before any is missed.
const ENOUGH: usize = 8;

/// `own_thread` is the VM's structure of the calling thread. What is wrong is said as the end of "because …".
pub fn judge(layout: &Layout, own_thread: usize, names: &mut Names) -> Result<(), String> {
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut stack = RawStack::new(&mut frames);
    if walk_signal::walk_waiting(layout, own_thread, &mut stack) {
        let found: Vec<_> = stack.frames().iter().take(2).map(|frame| name_of(layout, names, *frame)).collect();
        if !is_right(&found) {
            return Err(format!("the stack of its own start reads {found:?}"));
        }
    } else {
        others_are_named(layout, names)?;
    }
    compiled_code(layout, names)
}

/// The native method that asked for this, and a caller that has a name.
fn is_right(found: &[Option<String>]) -> bool {
    matches!(found, [Some(caller), Some(_)] if caller == CALLER)
}

/// Begun by the VM itself, before there is any Java code on this thread: threads that wait stand in.
fn others_are_named(layout: &Layout, names: &mut Names) -> Result<(), String> {
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut threads = Vec::new();
    threads_signal::each_of_the_program(|thread_id| threads.push(thread_id));
    for thread_id in threads {
        let mut stack = RawStack::new(&mut frames);
        let java_thread = threads_signal::of(thread_id).map_or(0, threads_signal::Row::java_thread);
        let walked = java_thread != 0 && walk_signal::walk_waiting(layout, java_thread, &mut stack);
        if walked && stack.frames().iter().all(|frame| name_of(layout, names, *frame).is_some()) {
            return Ok(());
        }
    }
    Err("no stack could be followed".to_owned())
}

/// Pieces of compiled code, as they lie across the heaps of code.
fn compiled_code(layout: &Layout, names: &mut Names) -> Result<(), String> {
    let (mut seen, mut read) = (0, 0);
    for heap in layout.heaps.iter().take_while(|heap| **heap != 0) {
        let (Some(low), Some(high)) = (word(heap + layout.heap_low), word(heap + layout.heap_high)) else { continue };
        let step = high.saturating_sub(low) / PROBES;
        for pc in (0..PROBES).map(|probe| low + probe * step) {
            let Some(blob) = blob_of(layout, pc).filter(|blob| kind_of(layout, *blob) == Some(Kind::Compiled)) else {
                continue;
            };
            let Some(begin) = code_begin(layout, blob) else { continue };
            let mut inlined = Inlined::new();
            seen += 1;
            let found = decode(layout, blob, begin, pc.max(begin), true, &mut inlined);
            let named = inlined.frames().iter().all(|frame| name_of(layout, names, *frame).is_some());
            read += usize::from(matches!(found, Found::Scopes | Found::Near) && named);
        }
    }
    if seen >= ENOUGH && read * 4 < seen {
        return Err(format!("of {seen} pieces of compiled code {read} could be read"));
    }
    Ok(())
}

fn name_of(layout: &Layout, names: &mut Names, frame: RawFrame) -> Option<String> {
    match frame_word::read(frame) {
        Place::Method { address, fingerprint, index } => {
            names.frame(layout, address, fingerprint, index).map(|frame| frame.function.to_string())
        }
        // Stubs have names of their own, and what lies in the heap is no method.
        Place::Stub(_) | Place::FramesInHeap => Some(String::new()),
        Place::Thread(_) | Place::MethodId { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_right_when_it_begins_with_who_called_us() {
        let name = |text: &str| Some(text.to_owned());
        assert!(is_right(&[name(CALLER), name("io.spanprof.Spanprof.start")]));
        for wrong in [vec![], vec![name(CALLER)], vec![name(CALLER), None], vec![name("a.b"), name(CALLER)]] {
            assert!(!is_right(&wrong), "{wrong:?}");
        }
    }
}
