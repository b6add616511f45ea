//! CPython 3.9.

use super::*;

pub const FRAME: FrameObjectLayout =
    FrameObjectLayout { current: 24, back: 24, code: 32, last_instruction: 104, activation: None, bytes_per_step: 1 };

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 9),
    thread: ThreadLayout { context: 240, id: ThreadId::Pthread(176) },
    frames: FrameChain::Objects(FRAME),
    code: CodeLayout { name: 112, file: 104, first_line: 40, line_table: 120, instructions: None },
    text: TextLayout { ascii_bytes: 48, compact_bytes: 72 },
    integer: IntegerForm::SignedSize,
    line_table: LineTableFormat::Lnotab,
    short_reference_count: false,
    has_code_watchers: false,
    published: &[],
};
