//! Replays the stacks in `bindings-python/tests/recorded`, which `cargo xtask live python --record` recorded: without an
//! interpreter, the walk finds the recorded frames. Not here: replays with changed memory (`changed_memory_tests`).

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::OnceLock;

use spanprof_recorded_stack::{RecordedMemory, RecordedStack};
use spanprof_signal::{Captured, Context, Memory, RawFrame, RawStack};

use super::other_thread;
use crate::runtime::interpreter::context_probe::NodeTypes;
use crate::runtime::interpreter::Interpreter;
use crate::runtime::walk::activation::InterruptedRegisters;
use crate::runtime::walk::activation_list::ActivationList;
use crate::runtime::walk::frame::FrameReader;
use crate::runtime::walk::sampled_code::SampledCode;

/// The context id of the recorded programs.
pub const CONTEXT_ID: u64 = 0x5eed;
/// The depth limit of a replay, above the depth of each recorded stack.
pub const DEPTH: usize = 128;
/// Registers are recorded on x86-64. On arm64 that needs a machine: the thread state points to the record of the loop during four
/// instructions without a branch between them (CPython 3.11 of Debian 12), between which qemu-user delivers no signal. The other shapes
/// do not depend on the processor.
const HAS_REGISTERS: bool = cfg!(target_arch = "x86_64");
/// Minor versions of CPython 3 with recorded stacks.
const VERSIONS: std::ops::RangeInclusive<u8> = 9..=15;

/// Every recorded stack that this machine can replay.
pub fn recorded() -> &'static [RecordedStack] {
    static STACKS: OnceLock<Vec<RecordedStack>> = OnceLock::new();
    STACKS.get_or_init(|| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
        let stacks = RecordedStack::read_all(&directory).unwrap().into_iter().map(|(_, stack)| stack);
        stacks.filter(|stack| HAS_REGISTERS || stack.shape != "loop_entry").collect()
    })
}

/// Shape and version, for messages.
pub fn title(stack: &RecordedStack) -> String {
    format!("{} on CPython {}", stack.shape, stack.version)
}

/// `y` of the version 3.y.z.
pub fn minor(stack: &RecordedStack) -> u8 {
    stack.version.split('.').nth(1).unwrap().parse().unwrap()
}

/// The properties of the recorded interpreter.
pub fn interpreter(stack: &RecordedStack) -> Interpreter {
    let table = |name: &str| stack.tables[name] as usize;
    let mut interpreter = Interpreter::without_process(minor(stack));
    interpreter.main = table("main");
    interpreter.loop_entry = table("loop_entry");
    interpreter.code_type = table("code_type");
    interpreter.frame_type = table("frame_type");
    interpreter.int_type = table("int_type");
    interpreter.descriptor_id.store(table("descriptor_id"), Ordering::Relaxed);
    let types = NodeTypes { bitmap: table("context_bitmap_type"), array: table("context_array_type") };
    interpreter.context.register(table("context_variable"), table("context_hash") as u32, types);
    interpreter
}

/// Memory that counts its reads.
struct CountedMemory {
    memory: RecordedMemory,
    reads: Cell<usize>,
}

impl Memory for CountedMemory {
    fn word(&self, address: usize) -> Option<usize> {
        self.reads.set(self.reads.get() + 1);
        self.memory.word(address)
    }
}

/// Outcome of a replay.
#[derive(Debug, PartialEq, Eq)]
pub struct Replay {
    /// Outcome of the walk.
    pub captured: Captured,
    /// The frames that it wrote, also when it dropped the sample.
    pub frames: Vec<RawFrame>,
    pub context: Context,
    /// Whether the depth limit cut the stack.
    pub is_truncated: bool,
    /// Number of words that it read or failed to read.
    pub reads: usize,
}

/// Walks the recorded thread.
pub fn replay(stack: &RecordedStack) -> Replay {
    replay_with(stack, stack.registers["thread"], stack.memory(), DEPTH)
}

/// Walks the thread of the `PyThreadState` at `thread`, with this memory and depth limit.
pub fn replay_with(stack: &RecordedStack, thread: u64, memory: RecordedMemory, depth: usize) -> Replay {
    let interpreter = interpreter(stack);
    let memory = CountedMemory { memory, reads: Cell::new(0) };
    let sampled_code = Box::new(SampledCode::new());
    let reader = FrameReader { memory: &memory, interpreter: &interpreter, sampled_code: &sampled_code };
    let mut frames = vec![RawFrame::default(); depth];
    let mut output = RawStack::new(&mut frames);
    let thread = thread as usize;
    let captured = match stack.registers["thread_id"] {
        0 => with_registers(stack, |registers| {
            super::walk(&reader, thread, registers, &mut output, &mut ActivationList::empty())
        }),
        id => other_thread::walk(&reader, thread, id as u32, &mut output),
    };
    Replay {
        captured,
        context: output.context,
        is_truncated: output.is_truncated(),
        reads: memory.reads.get(),
        frames: output.frames().to_vec(),
    }
}

/// Calls `walk` with the recorded registers, if the walk depended on them.
fn with_registers<T>(stack: &RecordedStack, walk: impl FnOnce(Option<&InterruptedRegisters<'_>>) -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    {
        let words = stack.registers.iter().filter(|(name, _)| name.starts_with("register_"));
        let words: Vec<u64> = words.map(|(_, word)| *word).collect();
        if !words.is_empty() {
            let registers =
                crate::runtime::walk::activation::RecordedRegisters::new(stack.registers["program_counter"], &words);
            return walk(Some(&registers.interrupted()));
        }
    }
    walk(None)
}

/// The functions of a shape, leaf first.
fn functions(shape: &str, minor: u8) -> Vec<&'static str> {
    let mut names = match shape {
        "function" => vec!["leaf", "Number.__neg__", "negate", "function"],
        "generator" => vec!["numbers", "generator"],
        "coroutine" => vec![
            "query",
            "handle",
            "Handle._run",
            "BaseEventLoop._run_once",
            "BaseEventLoop.run_forever",
            "BaseEventLoop.run_until_complete",
            "Runner.run",
            "run",
            "coroutine",
        ],
        "c_call" => vec!["key", "c_call"],
        "recursion" => vec!["recursion"; 31],
        "loop_entry" => vec!["loop_entry"],
        "other_thread" => {
            return vec!["wait_for_byte", "wait", "Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap"];
        }
        _ => panic!("shape {shape} has no functions here"),
    };
    names.extend(["main", "<module>"]);
    if minor < 11 {
        names.retain(|name| *name != "Runner.run");
    }
    names
}

#[test]
fn a_replay_finds_the_recorded_frames_and_context() {
    for stack in recorded() {
        let replay = replay(stack);
        assert_eq!(replay.captured, Captured::Walked, "{}", title(stack));
        assert_eq!(replay.frames, stack.raw_frames(), "{}", title(stack));
        assert_eq!(replay.context, Context::Id(CONTEXT_ID), "{}", title(stack));
        assert!(!replay.is_truncated, "{}", title(stack));
    }
}

#[test]
fn the_recorded_frames_are_those_of_the_program() {
    for stack in recorded() {
        let names: Vec<_> = stack.frames.iter().map(|frame| frame.name.as_str()).collect();
        let functions = functions(&stack.shape, minor(stack));
        // Code objects have qualified names from 3.11 on.
        let unqualified = |name: &'static str| name.rsplit('.').next().unwrap();
        let expected: Vec<_> = match minor(stack) {
            ..=10 => functions.into_iter().map(unqualified).collect(),
            _ => functions,
        };
        assert_eq!(names, expected, "{}", title(stack));
    }
}

#[test]
fn each_version_has_a_recording_of_each_shape() {
    let recorded: Vec<_> = recorded().iter().map(|stack| (minor(stack), stack.shape.clone())).collect();
    for minor in VERSIONS {
        for shape in ["function", "generator", "coroutine", "c_call", "recursion", "other_thread"] {
            assert!(recorded.contains(&(minor, shape.to_owned())), "{shape} on CPython 3.{minor}");
        }
        // Only there is the start of the frame chain a record on the C stack.
        let has_entry = recorded.contains(&(minor, "loop_entry".to_owned()));
        assert_eq!(has_entry, HAS_REGISTERS && matches!(minor, 11 | 12), "loop_entry on CPython 3.{minor}");
    }
}

#[test]
fn at_the_entry_of_the_interpreter_loop_the_walk_needs_the_registers() {
    for stack in recorded().iter().filter(|stack| stack.shape == "loop_entry") {
        let mut without = stack.clone();
        without.registers.retain(|name, _| !name.starts_with("register_"));
        assert_eq!(replay(stack).captured, Captured::Walked, "{}", title(stack));
        assert_ne!(replay(&without).captured, Captured::Walked, "{}", title(stack));
    }
}
