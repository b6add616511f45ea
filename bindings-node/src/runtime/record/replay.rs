//! Replays a recorded stack: walks the recorded words from the recorded registers. Used by the recorder, which checks each
//! recording before it returns it, and by the tests.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use spanprof_recorded_stack::RecordedStack;
use spanprof_signal::{Memory, RawFrame, RawStack};

use crate::runtime::code::builtin_ranges::OwnedBuiltinRanges;
use crate::runtime::walk::context;
use crate::runtime::walk::frame_pointers::{FramePointerWalk, WalkTables, WalkedThread};
use crate::runtime::walk::js_thread::EmbeddedBuiltins;
use crate::runtime::walk::native_code::StackRegisters;
use crate::runtime::walk::synthetic_frame;

/// Upper bound of the frames of a replay.
pub const MAX_FRAMES: usize = 256;

/// Tables of address ranges: one entry per range, with the first address in its name and the end as its value.
pub const INTERPRETER: &str = "interpreter";
pub const HIDDEN: &str = "hidden";
pub const BUILTINS: &str = "builtins";
/// First address of a builtin, without its end.
pub const BUILTIN: &str = "builtin";
/// Offsets of the caller of a C function; 0 for none.
pub const FAST_CALL: [&str; 2] = ["fast_call_pc", "fast_call_fp"];
pub const CODE: &str = "code";
/// 1 while the thread collects, 2 while it compiles.
pub const ACTIVITY: &str = "activity";

/// V8's activity by its number in the table.
pub const ACTIVITIES: [Option<RawFrame>; 3] =
    [None, Some(synthetic_frame::COLLECTING), Some(synthetic_frame::COMPILING)];

/// Name of a range in the tables.
pub fn range_name(table: &str, start: usize) -> String {
    format!("{table} {start:x}")
}

#[derive(Debug)]
pub struct RecordedV8Thread {
    code: Vec<(usize, usize)>,
}

impl WalkedThread for RecordedV8Thread {
    fn has_code(&self, pc: usize) -> bool {
        self.code.iter().any(|(low, high)| (*low..*high).contains(&pc))
    }
}

/// The inputs of a recorded walk besides its memory.
pub struct RecordedV8Walk {
    pub registers: StackRegisters,
    pub builtin_ranges: OwnedBuiltinRanges,
    pub activity: Option<RawFrame>,
    thread: RecordedV8Thread,
    remapped_builtins: usize,
    root: usize,
    stack_high: usize,
    bytecode_array: isize,
    bytecode_offset: isize,
    pub bytecode_map: u64,
    continuation_slot: usize,
    storage: usize,
}

/// The result of a replay.
#[derive(Debug, PartialEq, Eq)]
pub struct V8Replay {
    /// Whether the walk reached a frame of V8.
    pub is_walked: bool,
    pub frames: Vec<RawFrame>,
    /// The context id; 0 for none.
    pub context: u64,
}

impl RecordedV8Walk {
    /// The inputs of a recording.
    ///
    /// # Errors
    /// The name of a missing or malformed register or table.
    pub fn of(stack: &RecordedStack) -> Result<Self, String> {
        let number = |numbers: &BTreeMap<String, u64>, name: &str| {
            numbers.get(name).map(|number| *number as usize).ok_or_else(|| name.to_owned())
        };
        let register = |name| number(&stack.registers, name);
        let table = |name| number(&stack.tables, name);
        let ranges = |table: &str| {
            let named = stack.tables.iter().filter_map(|(name, end)| {
                let (_, start) = name.split_once(' ').filter(|(prefix, _)| *prefix == table)?;
                Some(usize::from_str_radix(start, 16).map(|start| (start, *end as usize)).map_err(|_| name.clone()))
            });
            let mut ranges = named.collect::<Result<Vec<_>, _>>()?;
            ranges.sort_unstable();
            Ok::<_, String>(ranges)
        };
        let builtins = ranges(BUILTINS)?;
        let builtins = builtins.first().map(|(start, end)| EmbeddedBuiltins { start: *start, len: end - start });
        let [pc, fp] = FAST_CALL.map(table);
        let fast_call = [pc? as isize, fp? as isize];
        let activity = ACTIVITIES.get(table(ACTIVITY)?).ok_or(ACTIVITY)?;
        Ok(Self {
            registers: StackRegisters {
                pc: register("pc")?,
                sp: register("sp")?,
                fp: register("fp")?,
                // Recordings of x86-64 lack it.
                link: register("link").unwrap_or(0),
            },
            builtin_ranges: OwnedBuiltinRanges {
                interpreter: ranges(INTERPRETER)?,
                hidden: ranges(HIDDEN)?,
                builtins: builtins.ok_or(BUILTINS)?,
                starts: ranges(BUILTIN)?.into_iter().map(|(start, _)| start).collect(),
                fast_call: Some(fast_call).filter(|offsets| *offsets != [0, 0]),
            },
            activity: *activity,
            thread: RecordedV8Thread { code: ranges(CODE)? },
            remapped_builtins: table("remapped_builtins")?,
            root: table("root")?,
            stack_high: table("stack_high")?,
            bytecode_array: table("bytecode_array")? as isize,
            bytecode_offset: table("bytecode_offset")? as isize,
            bytecode_map: table("bytecode_map")? as u64,
            continuation_slot: table("continuation_slot")?,
            storage: table("storage")?,
        })
    }

    /// Walks these words.
    pub fn walk(&self, memory: &impl Memory) -> V8Replay {
        let bytecode_map = AtomicU64::new(self.bytecode_map);
        let mut frames = [RawFrame::default(); MAX_FRAMES];
        let mut stack = RawStack::new(&mut frames);
        let is_walked =
            self.prepared(memory, &bytecode_map).walk_frame_pointers(&self.registers, self.activity, &mut stack);
        let has_slot = self.continuation_slot != 0;
        let context = has_slot.then(|| context::stored(memory, self.continuation_slot, self.storage)).flatten();
        V8Replay { is_walked, frames: stack.frames().to_vec(), context: context.unwrap_or(0) }
    }

    /// A walk of these words. It stores the map of bytecode arrays that it learns in `bytecode_map`.
    pub fn prepared<'a, M: Memory>(
        &'a self,
        memory: M,
        bytecode_map: &'a AtomicU64,
    ) -> FramePointerWalk<'a, M, &'a RecordedV8Thread> {
        let tables = WalkTables {
            builtin_ranges: self.builtin_ranges.as_ranges(),
            remapped_builtins: self.remapped_builtins,
            root: self.root,
            stack_high: self.stack_high,
            bytecode_array: self.bytecode_array,
            bytecode_offset: self.bytecode_offset,
            bytecode_map,
        };
        FramePointerWalk::new(memory, &self.thread, tables)
    }
}
