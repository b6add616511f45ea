//! CPython 3.11.

use super::*;

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 11),
    thread: ThreadLayout { context: 224, id: ThreadId::Kernel(160) },
    frames: FrameChain::Interpreter(InterpreterFrameLayout {
        current: CurrentFrame::OnCStack { holder: 56, frame: 8, below: 16, bottom: ActivationBottom::Flag(68) },
        code: 32,
        previous: 48,
        instruction: 56,
        owner: 69,
        // None.
        first_entry_owner: u8::MAX,
        data_stack_top: 304,
        size: FrameSize::Parts { stack: 68, locals: 76 },
    }),
    code: CodeLayout {
        name: 128,
        file: 112,
        first_line: 72,
        line_table: 136,
        instructions: Some(InstructionsLayout { first: 184, first_traceable: 168 }),
    },
    text: TextLayout { ascii_bytes: 48, compact_bytes: 72 },
    integer: IntegerForm::SignedSize,
    line_table: LineTableFormat::Locations,
    short_reference_count: false,
    has_code_watchers: false,
    published: &[],
};
