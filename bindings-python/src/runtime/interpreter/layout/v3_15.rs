//! CPython 3.15.

use super::*;

pub const FRAME: InterpreterFrameLayout = InterpreterFrameLayout { data_stack_top: 264, ..v3_14::FRAME };

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 15),
    thread: ThreadLayout { context: 232, id: ThreadId::Kernel(184) },
    frames: FrameChain::Interpreter(FRAME),
    published: &[
        PublishedOffset { name: "free_threaded", at: 16, offset: 0 },
        PublishedOffset { name: "thread_state.next", at: 192, offset: 8 },
        PublishedOffset { name: "thread_state.interp", at: 200, offset: 16 },
        PublishedOffset { name: "thread_state.current_frame", at: 208, offset: 72 },
        PublishedOffset { name: "thread_state.native_thread_id", at: 248, offset: 184 },
        PublishedOffset { name: "interpreter_frame.previous", at: 320, offset: 8 },
        PublishedOffset { name: "interpreter_frame.executable", at: 328, offset: 0 },
        PublishedOffset { name: "interpreter_frame.instr_ptr", at: 336, offset: 56 },
        PublishedOffset { name: "interpreter_frame.owner", at: 352, offset: 74 },
        PublishedOffset { name: "code_object.filename", at: 384, offset: 112 },
        PublishedOffset { name: "code_object.qualname", at: 400, offset: 128 },
        PublishedOffset { name: "code_object.linetable", at: 408, offset: 136 },
        PublishedOffset { name: "code_object.firstlineno", at: 416, offset: 68 },
        PublishedOffset { name: "code_object.co_code_adaptive", at: 448, offset: 208 },
        PublishedOffset { name: "pyobject.ob_type", at: 472, offset: 8 },
        PublishedOffset { name: "long_object.lv_tag", at: 672, offset: 16 },
        PublishedOffset { name: "long_object.ob_digit", at: 680, offset: 24 },
        PublishedOffset { name: "bytes_object.ob_sval", at: 704, offset: 32 },
        PublishedOffset { name: "unicode_object.state", at: 720, offset: 32 },
        PublishedOffset { name: "unicode_object.length", at: 728, offset: 16 },
        PublishedOffset { name: "unicode_object.asciiobject_size", at: 736, offset: 40 },
    ],
    ..v3_14::LAYOUT
};
