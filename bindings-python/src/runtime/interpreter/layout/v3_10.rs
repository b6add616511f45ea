//! CPython 3.10.

use super::*;

pub const LAYOUT: InterpreterLayout = InterpreterLayout {
    version: (3, 10),
    frames: FrameChain::Objects(FrameObjectLayout {
        last_instruction: 96,
        activation: Some((48, 8)),
        bytes_per_step: 2,
        ..v3_9::FRAME
    }),
    line_table: LineTableFormat::Ranges,
    ..v3_9::LAYOUT
};
