//! Replays a recorded stack: walks the recorded words from the recorded registers. Used by the recorder, which checks each
//! recording before it writes it, and by the tests.

use std::collections::BTreeMap;

use spanprof_recorded_stack::{RecordedMemory, RecordedStack};
use spanprof_signal::{RawFrame, RawStack};

use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::layout_tables;
use crate::runtime::walk::environment::NativeCaller;
use crate::runtime::walk::observed::{ObservedMemory, WalkObservation};
use crate::runtime::walk::recorded_shape::{is_osr, StackShape};
use crate::runtime::walk::registers::JavaRegisters;
use crate::runtime::walk::walker::walk;

/// Upper bound of the frames of a replay.
pub const MAX_FRAMES: usize = 256;
/// A table that is not part of the layout.
pub const ENTRY_BCI: &str = "entry_bci";

/// The inputs of a recorded walk besides its memory.
#[derive(Debug)]
pub struct ReplayInputs {
    pub layout: VmLayout,
    pub registers: JavaRegisters,
    pub java_thread: usize,
    native_caller: NativeCaller,
    entry_bci: usize,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    pub frames: Vec<RawFrame>,
    pub observed: WalkObservation,
    /// Whether the interrupted code was entered by on-stack replacement.
    pub is_osr: bool,
}

impl Replayed {
    /// Whether the walk has the shape.
    pub fn has_shape(&self, shape: &StackShape) -> bool {
        (shape.is_met)(&self.observed) && (self.is_osr || !shape.is_osr)
    }
}

impl ReplayInputs {
    /// The inputs of a recording.
    ///
    /// # Errors
    /// The name of a missing register or table.
    pub fn of(stack: &RecordedStack) -> Result<Self, String> {
        let number = |numbers: &BTreeMap<String, u64>, name: &str| {
            numbers.get(name).map(|number| *number as usize).ok_or_else(|| name.to_owned())
        };
        let register = |name: &str| number(&stack.registers, name);
        // Zero where native code is not the leaf, or has an anchor.
        let caller = |name: &str| register(name).unwrap_or(0);
        Ok(Self {
            layout: layout_tables::read(&stack.tables)?,
            registers: JavaRegisters {
                pc: register("pc")?,
                sp: register("sp")?,
                fp: register("fp")?,
                bcp: register("bcp")?,
                method: register("method")?,
                saved_return: register("saved_return")?,
                link: register("link")?,
            },
            java_thread: register("java_thread")?,
            native_caller: NativeCaller {
                pc: caller("native_caller_pc"),
                sp: caller("native_caller_sp"),
                fp: caller("native_caller_fp"),
                context: caller("native_caller_context"),
            },
            entry_bci: number(&stack.tables, ENTRY_BCI)?,
        })
    }

    /// Walks these words.
    pub fn walk(&self, memory: &RecordedMemory) -> Replayed {
        let observed = WalkObservation::default();
        let mut frames = [RawFrame::default(); MAX_FRAMES];
        let mut stack = RawStack::new(&mut frames);
        let environment = ObservedMemory { memory, observed: &observed, native_caller: Some(self.native_caller) };
        walk(environment, &self.layout, (&self.registers, None), self.java_thread, None, &mut stack);
        let is_osr = is_osr(environment, &self.layout, self.registers.pc, self.entry_bci);
        Replayed { frames: stack.frames().to_vec(), observed, is_osr }
    }
}
