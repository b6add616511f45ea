//! CPython 3.13.

use super::*;

pub const FRAME: InterpreterFrameLayout =
    InterpreterFrameLayout { current: CurrentFrame::InThread(72), ..v3_12::FRAME };

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 13),
    thread: ThreadLayout { context: 208, id: ThreadId::Kernel(160) },
    frames: FrameChain::Interpreter(FRAME),
    code: CodeLayout {
        instructions: Some(InstructionsLayout { first: 200, first_traceable: 184 }),
        ..v3_12::LAYOUT.code
    },
    published: &[
        PublishedOffset { name: "free_threaded", at: 16, offset: 0 },
        PublishedOffset { name: "thread_state.next", at: 168, offset: 8 },
        PublishedOffset { name: "thread_state.interp", at: 176, offset: 16 },
        PublishedOffset { name: "thread_state.current_frame", at: 184, offset: 72 },
        PublishedOffset { name: "thread_state.native_thread_id", at: 200, offset: 160 },
        PublishedOffset { name: "interpreter_frame.previous", at: 232, offset: 8 },
        PublishedOffset { name: "interpreter_frame.executable", at: 240, offset: 0 },
        PublishedOffset { name: "interpreter_frame.instr_ptr", at: 248, offset: 56 },
        PublishedOffset { name: "interpreter_frame.owner", at: 264, offset: 70 },
        PublishedOffset { name: "code_object.filename", at: 280, offset: 112 },
        PublishedOffset { name: "code_object.qualname", at: 296, offset: 128 },
        PublishedOffset { name: "code_object.linetable", at: 304, offset: 136 },
        PublishedOffset { name: "code_object.firstlineno", at: 312, offset: 68 },
        PublishedOffset { name: "code_object.co_code_adaptive", at: 344, offset: 200 },
        PublishedOffset { name: "pyobject.ob_type", at: 360, offset: 8 },
        PublishedOffset { name: "long_object.lv_tag", at: 496, offset: 16 },
        PublishedOffset { name: "long_object.ob_digit", at: 504, offset: 24 },
        PublishedOffset { name: "bytes_object.ob_sval", at: 528, offset: 32 },
        PublishedOffset { name: "unicode_object.state", at: 544, offset: 32 },
        PublishedOffset { name: "unicode_object.length", at: 552, offset: 16 },
        PublishedOffset { name: "unicode_object.asciiobject_size", at: 560, offset: 40 },
    ],
    ..v3_12::LAYOUT
};
