//! Offsets in bytes of the CPython structures that the walk reads: one file per version, with its differences from the version
//! before; 3.9, 3.11 and 3.12 are complete. Taken from each version's headers. 3.13 and later also publish most of them at
//! run time, which the start compares (`detection`). Read by the walk, the resolver and the self-check.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 | `PyFrameObject` (`Include/cpython/frameobject.h`), `PyThreadState.frame` (`Include/cpython/pystate.h`) | `v3_9.rs` |
//! | 3.10 | `CFrame` (`Include/cpython/pystate.h`); `f_lasti` counts code units; `co_linetable` replaces `co_lnotab` (`Include/cpython/code.h`) | `v3_10.rs` |
//! | 3.11 | `_PyInterpreterFrame` (`Include/internal/pycore_frame.h`), `_PyCFrame`, `native_thread_id`, data stack (`Include/cpython/pystate.h`) | `v3_11.rs` |
//! | 3.12 | `use_tracing` is gone from `_PyCFrame`; `co_framesize`; `lv_tag` of `int` (`Include/cpython/longintrepr.h`); `wstr` is gone from `str` (PEP 623) | `v3_12.rs` |
//! | 3.13 | `current_frame` in the thread state; `_Py_DebugOffsets` (`Include/internal/pycore_runtime.h`) | `v3_13.rs` |
//! | 3.14 | `_PyStackRef` in frames (`Include/internal/pycore_interpframe_structs.h`); flags beside the reference count; the fields of `_Py_DebugOffsets` moved (`Include/internal/pycore_debug_offsets.h`) | `v3_14.rs` |
//! | 3.15 | fields of the thread state moved (`context`, `native_thread_id`, data stack) | `v3_15.rs` |

mod v3_10;
mod v3_11;
mod v3_12;
mod v3_13;
mod v3_14;
mod v3_15;
mod v3_9;

/// The layout of one version on a 64-bit machine, with the GIL.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterLayout {
    /// Major and minor number.
    pub version: (u8, u8),
    /// Fields of the thread state.
    pub thread: ThreadLayout,
    pub frames: FrameChain,
    /// Fields of the code object.
    pub code: CodeLayout,
    /// Fields of `str`.
    pub text: TextLayout,
    /// How `int` stores its size.
    pub integer: IntegerForm,
    pub line_table: LineTableFormat,
    /// Whether only the low 32 bits are the reference count (the bits above are flags).
    pub short_reference_count: bool,
    /// Whether `PyCode_AddWatcher` exists.
    pub has_code_watchers: bool,
    /// The offsets that `_PyRuntime` publishes, with the values that this layout expects.
    pub published: &'static [PublishedOffset],
}

/// Fields of `PyThreadState`. `next` is at 8 and `interp` at 16 in every version.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLayout {
    /// The current `Context`, or null; the count of switches (64 bits) follows it in every version.
    pub context: usize,
    /// The thread's id.
    pub id: ThreadId,
}

/// How a thread state identifies its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadId {
    /// `native_thread_id`: the kernel's thread id.
    Kernel(usize),
    /// `thread_id`: the `pthread_t`, which is the address of the C library's thread descriptor (`struct pthread`).
    Pthread(usize),
}

/// The frame chain of a thread.
#[derive(Clone, Copy, Debug)]
pub enum FrameChain {
    /// Up to 3.10: linked frame objects.
    Objects(FrameObjectLayout),
    /// From 3.11: interpreter frames on the data stack.
    Interpreter(InterpreterFrameLayout),
}

/// `PyFrameObject` up to 3.10.
#[derive(Clone, Copy, Debug)]
pub struct FrameObjectLayout {
    /// The current frame, in the thread state.
    pub current: usize,
    /// The caller's frame.
    pub back: usize,
    /// The code object.
    pub code: usize,
    /// Index of the last instruction (32 bits, -1 before the first).
    pub last_instruction: usize,
    /// From 3.10: the `CFrame` of the current activation, in the thread state, and that of the previous one, in the `CFrame`. Each
    /// frame has one, on the C stack.
    pub activation: Option<(usize, usize)>,
    /// Bytes of bytecode per step of that index: 1 when it counts bytes, 2 when it counts code units.
    pub bytes_per_step: i64,
}

/// `_PyInterpreterFrame` from 3.11. All fields lie in its first 80 bytes.
#[derive(Clone, Copy, Debug)]
pub struct InterpreterFrameLayout {
    pub current: CurrentFrame,
    /// The code object; from 3.14 with tag bits in the low three bits.
    pub code: usize,
    /// The caller's frame.
    pub previous: usize,
    /// Pointer to the last (3.13: current) instruction.
    pub instruction: usize,
    /// The frame's owner (`enum _frameowner`).
    pub owner: usize,
    /// Owners from this value on are entry frames of the interpreter itself, without Python code.
    pub first_entry_owner: u8,
    /// End of the used part of the data stack's current chunk, in the thread state; the pointer to the chunk is 8 bytes before.
    pub data_stack_top: usize,
    /// Size of a frame.
    pub size: FrameSize,
}

/// Location of the frame size in the code object.
#[derive(Clone, Copy, Debug)]
pub enum FrameSize {
    /// The whole in words (32 bits).
    Words(usize),
    /// Two parts in words (32 bits each), and a header of nine words (3.11).
    Parts {
        /// Operand stack.
        stack: usize,
        /// Local variables and cells.
        locals: usize,
    },
}

/// Location of the current frame.
#[derive(Clone, Copy, Debug)]
pub enum CurrentFrame {
    /// Through a `_PyCFrame` on the C stack, one per activation of the interpreter loop (3.11, 3.12).
    OnCStack {
        /// The `_PyCFrame`, in the thread state.
        holder: usize,
        /// The frame, in the `_PyCFrame`.
        frame: usize,
        /// The `_PyCFrame` of the previous activation, in the `_PyCFrame`.
        below: usize,
        /// How the bottom frame of an activation is marked.
        bottom: ActivationBottom,
    },
    /// In the thread state (from 3.13).
    InThread(usize),
}

/// How the bottom frame of one activation of the interpreter loop is marked.
#[derive(Clone, Copy, Debug)]
pub enum ActivationBottom {
    /// A flag byte of the frame (3.11).
    Flag(usize),
    /// An entry frame without Python code (3.12).
    EntryFrame,
}

/// Fields of `PyCodeObject`.
#[derive(Clone, Copy, Debug)]
pub struct CodeLayout {
    /// Qualified name; up to 3.10 the plain name.
    pub name: usize,
    pub file: usize,
    /// First line (32 bits).
    pub first_line: usize,
    pub line_table: usize,
    /// First instruction and `_co_firsttraceable`, where frames hold instruction pointers (from 3.11).
    pub instructions: Option<InstructionsLayout>,
}

/// The bytecode inside the code object.
#[derive(Clone, Copy, Debug)]
pub struct InstructionsLayout {
    /// The first instruction.
    pub first: usize,
    /// Index of the first instruction at which the frame is complete (32 bits).
    pub first_traceable: usize,
}

/// Sizes of the headers of `str`. `length` is at 16 and `state` at 32 in every version.
#[derive(Clone, Copy, Debug)]
pub struct TextLayout {
    /// Start of the characters of a compact ASCII string.
    pub ascii_bytes: usize,
    /// Start of the characters of another compact string; a non-compact string has its pointer there.
    pub compact_bytes: usize,
}

/// How `int` stores its size; the 30-bit digits start at 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerForm {
    /// `ob_size` at 16: number of digits, negative for negative numbers (up to 3.11).
    SignedSize,
    /// `lv_tag` at 16: number of digits above three bits, sign in the low two (from 3.12).
    Tag,
}

/// Format of the table that maps instructions to lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTableFormat {
    /// 3.9: pairs of unsigned bytecode deltas and signed line deltas.
    Lnotab,
    /// 3.10: ranges of bytecode with signed line deltas (PEP 626).
    Ranges,
    /// 3.11 and later: variable-length entries with columns (PEP 657).
    Locations,
}

/// One offset that `_PyRuntime` publishes (3.13 and later).
#[derive(Clone, Copy, Debug)]
pub struct PublishedOffset {
    /// Structure and field.
    pub name: &'static str,
    /// Offset in `_PyRuntime` (64 bits).
    pub at: usize,
    /// The expected value.
    pub offset: u64,
}

/// Offsets that are the same from 3.9 to 3.15; the self-checks confirm each.
pub mod fixed {
    /// `ob_type` of every object.
    pub const TYPE: usize = 8;
    /// `ob_size` of every variable-sized object.
    pub const SIZE: usize = 16;
    /// `ob_sval` of `bytes`.
    pub const BYTES: usize = 32;
    /// `length` of `str`.
    pub const TEXT_LENGTH: usize = 16;
    /// `state` of `str` (32 bits).
    pub const TEXT_STATE: usize = 32;
    /// The id in the binding's `ContextValue`.
    pub const CONTEXT_ID: usize = 16;
    /// First digit of `int`.
    pub const DIGITS: usize = 24;
    /// `next` of the thread state.
    pub const NEXT_THREAD: usize = 8;
    /// `interp` of the thread state.
    pub const INTERPRETER: usize = 16;
    /// `tp_dealloc` of a type object.
    pub const DEALLOCATOR: usize = 48;
    /// `ctx_vars` of `Context`.
    pub const CONTEXT_VARIABLES: usize = 24;
    /// `h_root` of the context table.
    pub const TABLE_ROOT: usize = 16;
    /// `b_bitmap` of a bitmap node (32 bits).
    pub const BITMAP: usize = 24;
    /// First key of a bitmap node or a collision node.
    pub const NODE_PAIRS: usize = 32;
    /// First child of an array node.
    pub const NODE_CHILDREN: usize = 16;
}

/// The layout of a version; `None` for an unsupported version.
pub fn for_version(version: (u8, u8)) -> Option<&'static InterpreterLayout> {
    Some(match version {
        (3, 9) => &v3_9::LAYOUT,
        (3, 10) => &v3_10::LAYOUT,
        (3, 11) => &v3_11::LAYOUT,
        (3, 12) => &v3_12::LAYOUT,
        (3, 13) => &v3_13::LAYOUT,
        (3, 14) => &v3_14::LAYOUT,
        (3, 15) => &v3_15::LAYOUT,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_supported_version_has_the_layout_with_its_number() {
        for minor in 9..=15 {
            assert_eq!(for_version((3, minor)).unwrap().version, (3, minor));
        }
    }

    #[test]
    fn an_unsupported_version_has_no_layout() {
        for version in [(2, 7), (3, 8), (3, 16), (4, 0)] {
            assert!(for_version(version).is_none());
        }
    }

    #[test]
    fn the_fields_of_an_interpreter_frame_fit_into_one_copy() {
        for minor in 11..=15 {
            let FrameChain::Interpreter(frame) = for_version((3, minor)).unwrap().frames else {
                panic!("3.{minor} has interpreter frames");
            };
            assert!(
                frame.code + 8 <= 80 && frame.previous + 8 <= 80 && frame.instruction + 8 <= 80 && frame.owner < 80
            );
        }
    }
}
