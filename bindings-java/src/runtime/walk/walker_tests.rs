//! Tests of the walker on a small memory written by hand: two interpreted frames below an entry frame.

use std::collections::BTreeMap;

use spanprof_recorded_stack::RecordedMemory;
use spanprof_signal::{DropReason, Memory, RawFrame, RawStack};

use super::environment::{NativeCaller, WalkEnvironment, WalkFeature};
use super::observed::{ObservedMemory, WalkObservation};
use super::pc_cache::{PcInfo, MAX_CACHED};
use super::registers::JavaRegisters;
use super::walker::walk;
use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::layout_tables;
use crate::runtime::vm::raw_frame::{self, FrameKind};

const THREAD: u64 = 0x7000_0000;
const STACK: u64 = 0x7100_0000;
const STACK_BASE: u64 = STACK + 0x1000;
const INTERPRETER: u64 = 0x7200_0000;
const CALL_STUB_RETURN: u64 = INTERPRETER + 0x2000;
const METHODS: [u64; 2] = [0x7300_0000, 0x7300_1000];
/// Size of `ConstMethod`; the bytecodes follow.
const CONST_METHOD_BYTES: u64 = 64;

fn layout() -> VmLayout {
    let mut tables = BTreeMap::new();
    // All other numbers are not used by these frames.
    while let Err(name) = layout_tables::read(&tables) {
        tables.insert(name, 0);
    }
    for (name, number) in [
        ("code_low", INTERPRETER),
        ("code_high", INTERPRETER + 0x10_000),
        ("interpreter_begin", INTERPRETER),
        ("interpreter_end", INTERPRETER + 0x1000),
        ("call_stub_return", CALL_STUB_RETURN),
        ("stack_base", 0x100),
        ("const_method", 8),
        ("const_method_size", CONST_METHOD_BYTES),
        ("constants", 8),
        ("code_size", 16),
        ("call_wrapper", -48i64 as u64),
        ("wrapper_anchor", 32),
        ("anchor_pc", 8),
        ("anchor_fp", 16),
    ] {
        tables.insert(name.to_owned(), number);
    }
    layout_tables::read(&tables).unwrap()
}

/// Two frames: `METHODS[0]` at bytecode 3, called by `METHODS[1]` at bytecode 5, called by native code.
fn memory() -> RecordedMemory {
    let mut memory = RecordedMemory::default();
    memory.set(THREAD + 0x100, STACK_BASE);
    for method in METHODS {
        let const_method = method + 0x100;
        memory.set(method + 8, const_method);
        memory.set(const_method + 8, method + 0x200);
        memory.set(const_method + 16, 20);
    }
    let frames = [STACK + 0x100, STACK + 0x200, STACK + 0x300];
    for (index, return_to) in [(0, INTERPRETER + 0x20), (1, CALL_STUB_RETURN)] {
        let frame = frames[index];
        memory.set(frame, frames[index + 1]);
        memory.set(frame + 8, return_to);
        memory.set(frame - 8, frame + 16);
        memory.set(frame - 24, METHODS[index]);
        memory.set(frame - 64, METHODS[index] + 0x100 + CONST_METHOD_BYTES + 3 + 2 * index as u64);
    }
    // The entry frame's call wrapper, with an empty anchor.
    memory.set(frames[2] - 48, STACK + 0x400);
    memory.set(STACK + 0x400 + 32, 0);
    memory
}

fn registers() -> JavaRegisters {
    let stack = STACK as usize;
    JavaRegisters { pc: INTERPRETER as usize + 4, sp: stack + 0x80, fp: stack + 0x100, ..JavaRegisters::default() }
}

fn walked(memory: &RecordedMemory, registers: &JavaRegisters) -> (Vec<RawFrame>, WalkObservation) {
    let mut frames = [RawFrame::default(); 16];
    let mut stack = RawStack::new(&mut frames);
    let observed = WalkObservation::default();
    let memory = ObservedMemory { memory, observed: &observed, native_caller: Some(NativeCaller::default()) };
    walk(memory, &layout(), (registers, None), THREAD as usize, None, &mut stack);
    (stack.frames().to_vec(), observed)
}

fn methods(frames: &[RawFrame]) -> Vec<(u64, u16)> {
    let method = |frame: &RawFrame| match raw_frame::decode(*frame) {
        FrameKind::Method { address, index, .. } => Some((address as u64, index)),
        _ => None,
    };
    frames.iter().filter_map(method).collect()
}

#[test]
fn interpreted_frames_are_walked_to_the_entry_frame() {
    let (frames, observed) = walked(&memory(), &registers());
    assert_eq!(methods(&frames), [(METHODS[0], 3), (METHODS[1], 5)]);
    assert_eq!(frames.len(), 2);
    assert!(observed.is_leaf(WalkFeature::Interpreted) && observed.has(WalkFeature::EntryFrame));
    assert!(!observed.has(WalkFeature::Compiled));
}

#[test]
fn the_bytecode_pointer_in_a_register_precedes_that_of_the_frame() {
    let bcp = (METHODS[0] + 0x100 + CONST_METHOD_BYTES + 7) as usize;
    let (frames, _) = walked(&memory(), &JavaRegisters { bcp, ..registers() });
    assert_eq!(methods(&frames), [(METHODS[0], 7), (METHODS[1], 5)]);
}

#[test]
fn an_entered_method_that_keeps_words_on_top_of_its_return_address_has_its_caller() {
    // As `Math.pow` of Java 8 does: the word on top is no return address, though it points into the code.
    let (mut memory, sp, sender_sp) = (memory(), STACK + 0x60, STACK + 0x80);
    memory.set(sp, INTERPRETER + 0x5000);
    memory.set(sender_sp - 8, INTERPRETER + 0x20);
    let method = METHODS[0] as usize;
    let (fp, bcp) = (STACK as usize + 0x200, sender_sp as usize);
    let (frames, _) = walked(&memory, &JavaRegisters { sp: sp as usize, fp, bcp, method, ..registers() });
    assert_eq!(methods(&frames), [(METHODS[0], raw_frame::NO_INDEX), (METHODS[1], 5)]);
    assert_eq!(frames.len(), 2);
}

#[test]
fn an_unreadable_link_ends_the_walk_in_a_reason_frame() {
    let mut memory = memory();
    memory.set(STACK + 0x200 - 8, 0);
    let (frames, _) = walked(&memory, &registers());
    assert_eq!(methods(&frames[..2]), [(METHODS[0], 3), (METHODS[1], 5)]);
    assert_eq!(frames[2..], [RawFrame::reason(DropReason::InvalidFrame)]);
}

#[test]
fn a_chain_of_entry_frames_that_never_advances_ends_in_a_reason_frame() {
    let mut memory = memory();
    let anchor = STACK + 0x400 + 32;
    // The anchor of the entry frame leads to the same entry frame.
    memory.set(anchor, STACK + 0x210);
    memory.set(anchor + 8, CALL_STUB_RETURN);
    memory.set(anchor + 16, STACK + 0x300);
    let (frames, _) = walked(&memory, &registers());
    assert_eq!(methods(&frames[..2]), [(METHODS[0], 3), (METHODS[1], 5)]);
    assert_eq!(frames[2..], [RawFrame::reason(DropReason::InvalidFrame)]);
}

#[test]
fn native_code_is_left_where_its_tables_lead_unless_the_anchor_was_missed() {
    let both = vec![(METHODS[0], 3), (METHODS[1], 5)];
    let native = JavaRegisters { pc: 0x7500_0000, sp: STACK as usize + 0x40, ..JavaRegisters::default() };
    let caller = NativeCaller {
        pc: INTERPRETER as usize + 4,
        sp: STACK as usize + 0x80,
        fp: STACK as usize + 0x100,
        context: 0,
    };
    for (anchor_sp, anchor_fp, expected) in [
        (0, 0, both.clone()),
        (STACK + 0x90, STACK + 0x100, both.clone()),
        // The walk missed the frame of the anchor.
        (STACK + 0x50, STACK + 0x200, vec![(METHODS[1], 5)]),
        // Native code called generated code since.
        (STACK + 0x180, STACK + 0x200, both),
    ] {
        let mut memory = memory();
        memory.set(THREAD, anchor_sp);
        memory.set(THREAD + 8, INTERPRETER + 0x20);
        memory.set(THREAD + 16, anchor_fp);
        let (mut frames, observed) = ([RawFrame::default(); 16], WalkObservation::default());
        let mut stack = RawStack::new(&mut frames);
        let memory = ObservedMemory { memory: &memory, observed: &observed, native_caller: Some(caller) };
        walk(memory, &layout(), (&native, None), THREAD as usize, None, &mut stack);
        assert_eq!(stack.frames()[0], RawFrame::native(native.pc as u64));
        assert_eq!(methods(&stack.frames()[1..]), expected, "{anchor_sp:x}");
    }
}

/// Memory in which all code outside of the interpreter is that of one compiled method, with a frame of four words.
#[derive(Clone, Copy)]
struct CompiledCode<'a>(&'a RecordedMemory);

impl Memory for CompiledCode<'_> {
    fn word(&self, address: usize) -> Option<usize> {
        self.0.word(address)
    }
}

impl WalkEnvironment for CompiledCode<'_> {
    fn find_pc(self, _pc: usize, frames: &mut [RawFrame; MAX_CACHED]) -> Option<(PcInfo, usize)> {
        frames[0] = raw_frame::method(METHODS[1] as usize, 0, 9);
        Some((PcInfo { blob: THREAD as usize + 0x200, compile_id: 7, frame_bytes: 32, before_frame: false }, 1))
    }
}

#[test]
fn the_interpreted_caller_of_compiled_code_is_found_by_the_saved_frame_pointer_or_by_the_register() {
    let caller = STACK + 0x100;
    let walked = |saved: u64, in_register: u64| {
        let mut memory = memory();
        memory.set(THREAD + 0x200, 7);
        // The code does not save it elsewhere.
        memory.set(STACK + 0x40 + 16, saved);
        memory.set(STACK + 0x40 + 24, INTERPRETER + 0x30);
        let registers = JavaRegisters {
            pc: INTERPRETER as usize + 0x3000,
            sp: STACK as usize + 0x40,
            fp: in_register as usize,
            ..JavaRegisters::default()
        };
        let mut frames = [RawFrame::default(); 16];
        let mut stack = RawStack::new(&mut frames);
        walk(CompiledCode(&memory), &layout(), (&registers, None), THREAD as usize, None, &mut stack);
        methods(stack.frames())
    };
    let whole = [(METHODS[1], 9), (METHODS[0], 3), (METHODS[1], 5)];
    assert_eq!(walked(caller, 77), whole, "the code uses the register");
    assert_eq!(walked(caller, STACK + 0x200), whole, "the register has the pointer of a frame further up");
    assert_eq!(walked(77, caller), whole, "the word was not written");
    assert_eq!(walked(STACK + 0x200, caller), whole, "the word is of an earlier call");
}
