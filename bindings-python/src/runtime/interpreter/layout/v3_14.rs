//! CPython 3.14.

use super::*;

pub const FRAME: InterpreterFrameLayout = InterpreterFrameLayout { owner: 74, ..v3_13::FRAME };

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 14),
    frames: FrameChain::Interpreter(FRAME),
    code: CodeLayout {
        instructions: Some(InstructionsLayout { first: 208, first_traceable: 192 }),
        ..v3_13::LAYOUT.code
    },
    short_reference_count: true,
    published: &[
        PublishedOffset { name: "free_threaded", at: 16, offset: 0 },
        PublishedOffset { name: "thread_state.next", at: 192, offset: 8 },
        PublishedOffset { name: "thread_state.interp", at: 200, offset: 16 },
        PublishedOffset { name: "thread_state.current_frame", at: 208, offset: 72 },
        PublishedOffset { name: "thread_state.native_thread_id", at: 224, offset: 160 },
        PublishedOffset { name: "interpreter_frame.previous", at: 256, offset: 8 },
        PublishedOffset { name: "interpreter_frame.executable", at: 264, offset: 0 },
        PublishedOffset { name: "interpreter_frame.instr_ptr", at: 272, offset: 56 },
        PublishedOffset { name: "interpreter_frame.owner", at: 288, offset: 74 },
        PublishedOffset { name: "code_object.filename", at: 320, offset: 112 },
        PublishedOffset { name: "code_object.qualname", at: 336, offset: 128 },
        PublishedOffset { name: "code_object.linetable", at: 344, offset: 136 },
        PublishedOffset { name: "code_object.firstlineno", at: 352, offset: 68 },
        PublishedOffset { name: "code_object.co_code_adaptive", at: 384, offset: 208 },
        PublishedOffset { name: "pyobject.ob_type", at: 408, offset: 8 },
        PublishedOffset { name: "long_object.lv_tag", at: 576, offset: 16 },
        PublishedOffset { name: "long_object.ob_digit", at: 584, offset: 24 },
        PublishedOffset { name: "bytes_object.ob_sval", at: 608, offset: 32 },
        PublishedOffset { name: "unicode_object.state", at: 624, offset: 32 },
        PublishedOffset { name: "unicode_object.length", at: 632, offset: 16 },
        PublishedOffset { name: "unicode_object.asciiobject_size", at: 640, offset: 40 },
    ],
    ..v3_13::LAYOUT
};
