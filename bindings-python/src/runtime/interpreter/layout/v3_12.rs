//! CPython 3.12.

use super::*;

pub const FRAME: InterpreterFrameLayout = InterpreterFrameLayout {
    current: CurrentFrame::OnCStack { holder: 56, frame: 0, below: 8, bottom: ActivationBottom::EntryFrame },
    code: 0,
    previous: 8,
    instruction: 56,
    owner: 70,
    first_entry_owner: 3,
    data_stack_top: 240,
    size: FrameSize::Words(76),
};

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 12),
    thread: ThreadLayout { context: 208, id: ThreadId::Kernel(144) },
    frames: FrameChain::Interpreter(FRAME),
    code: CodeLayout {
        name: 128,
        file: 112,
        first_line: 68,
        line_table: 136,
        instructions: Some(InstructionsLayout { first: 192, first_traceable: 176 }),
    },
    text: TextLayout { ascii_bytes: 40, compact_bytes: 56 },
    integer: IntegerForm::Tag,
    line_table: LineTableFormat::Locations,
    short_reference_count: false,
    has_code_watchers: true,
    published: &[],
};
