//! Self-test of the own stack walker in this VM, run once before handlers use it: walks and names known stacks, and decodes
//! samples of compiled code. Not here: the fallback if it fails (`mod`).

use spanprof_signal::{ProcessMemory, RawFrame, RawStack};

use super::capture::thread_rows;
use super::names::methods::MethodNames;
use super::threads::registry;
use super::vm::layout::VmLayout;
use super::vm::memory::word;
use super::vm::raw_frame::{self, FrameKind};
use super::walk::code_heap::{blob_of, code_begin, kind_of};
use super::walk::environment::BlobKind;
use super::walk::scopes::{decode, DecodeResult, Inlined};
use super::walk::walker;

/// The native method that starts the profiler.
const CALLER: &str = "io.spanprof.Native.start";
const MAX_FRAMES: usize = 128;
/// Addresses probed per code heap.
const PROBES: usize = 64;
/// Minimum number of nmethods for the test of their debug info.
const MIN_NMETHODS: usize = 8;

/// Runs the self-test. `own_thread` is the calling thread's JavaThread. The error completes a sentence "because …".
pub fn run(layout: &VmLayout, own_thread: usize, names: &mut MethodNames) -> Result<(), String> {
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut stack = RawStack::new(&mut frames);
    if walker::walk_waiting(ProcessMemory, layout, own_thread, &mut stack) {
        let leaf_names: Vec<_> = stack.frames().iter().take(2).map(|frame| name_of(layout, names, *frame)).collect();
        if !is_expected(&leaf_names) {
            return Err(format!("the stack of the starting thread resolves to {leaf_names:?}"));
        }
    } else {
        waiting_threads_resolve(layout, names)?;
    }
    nmethods_decode(layout, names)
}

/// The native method that starts the profiler, and a caller that has a name.
fn is_expected(leaf_names: &[Option<String>]) -> bool {
    matches!(leaf_names, [Some(caller), Some(_)] if caller == CALLER)
}

/// If the agent starts before this thread has a Java frame, waiting threads are walked instead.
fn waiting_threads_resolve(layout: &VmLayout, names: &mut MethodNames) -> Result<(), String> {
    let mut frames = [RawFrame::default(); MAX_FRAMES];
    let mut threads = Vec::new();
    registry::each_program_thread(|thread_id| threads.push(thread_id));
    for thread_id in threads {
        let mut stack = RawStack::new(&mut frames);
        let java_thread = thread_rows::of(thread_id).map_or(0, thread_rows::ThreadRow::java_thread);
        let walked = java_thread != 0 && walker::walk_waiting(ProcessMemory, layout, java_thread, &mut stack);
        if walked && stack.frames().iter().all(|frame| name_of(layout, names, *frame).is_some()) {
            return Ok(());
        }
    }
    Err("no stack could be walked".to_owned())
}

/// Decodes nmethods sampled across the code heaps.
fn nmethods_decode(layout: &VmLayout, names: &mut MethodNames) -> Result<(), String> {
    let (mut probed, mut decoded) = (0, 0);
    for heap in layout.heaps.iter().take_while(|heap| **heap != 0) {
        let (Some(low), Some(high)) = (word(heap + layout.heap_low), word(heap + layout.heap_high)) else { continue };
        let step = high.saturating_sub(low) / PROBES;
        for pc in (0..PROBES).map(|probe| low + probe * step) {
            let Some(blob) = blob_of(ProcessMemory, layout, pc)
                .filter(|blob| kind_of(ProcessMemory, layout, *blob) == Some(BlobKind::Compiled))
            else {
                continue;
            };
            let Some(begin) = code_begin(ProcessMemory, layout, blob) else { continue };
            let mut inlined = Inlined::new();
            probed += 1;
            let result = decode(ProcessMemory, layout, blob, begin, pc.max(begin), true, &mut inlined);
            let named = inlined.frames().iter().all(|frame| name_of(layout, names, *frame).is_some());
            decoded += usize::from(matches!(result, DecodeResult::Exact | DecodeResult::NextPcDesc) && named);
        }
    }
    if probed >= MIN_NMETHODS && decoded * 4 < probed {
        return Err(format!("of {probed} nmethods {decoded} could be decoded"));
    }
    Ok(())
}

fn name_of(layout: &VmLayout, names: &mut MethodNames, frame: RawFrame) -> Option<String> {
    match raw_frame::decode(frame) {
        FrameKind::Method { address, fingerprint, index } => {
            names.frames(layout, address, fingerprint, index).pop().map(|frame| frame.function.to_string())
        }
        // Stubs are named elsewhere, and frames in the heap are not methods.
        FrameKind::Stub(_) | FrameKind::FramesInHeap => Some(String::new()),
        FrameKind::Thread(_) | FrameKind::MethodId { .. } | FrameKind::Class(_) | FrameKind::Collection(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_as_expected_if_it_begins_with_the_starting_native_method() {
        let name = |text: &str| Some(text.to_owned());
        assert!(is_expected(&[name(CALLER), name("io.spanprof.Spanprof.start")]));
        for wrong in [vec![], vec![name(CALLER)], vec![name(CALLER), None], vec![name("a.b"), name(CALLER)]] {
            assert!(!is_expected(&wrong), "{wrong:?}");
        }
    }
}
