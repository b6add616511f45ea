//! Shapes of recorded stacks, by the features that their walk met. Used by the recorder in handlers, and by the tests that
//! replay the recordings.

use super::code_heap::blob_of;
use super::environment::WalkFeature;
use super::observed::WalkObservation;
use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::memory::VmMemory;

/// The entry bytecode index of code that is entered at its begin (`InvocationEntryBci`).
const INVOCATION_ENTRY_BCI: i32 = -1;

/// A shape of a stack.
#[derive(Debug)]
pub struct StackShape {
    /// Name of the fixture, and argument of the program `RecordedShapes`.
    pub name: &'static str,
    /// The first frames from the leaf. `[…` stands for a stub or native code whose name contains the rest; a name that ends with `…`
    /// goes on differently in some versions.
    pub functions: &'static [&'static str],
    /// Whether a walk has the shape.
    pub is_met: fn(&WalkObservation) -> bool,
    /// The leaf is code that was entered by on-stack replacement.
    pub is_osr: bool,
}

impl StackShape {
    /// Whether the frames begin with the functions of this shape.
    pub fn is_named<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> bool {
        let mut names = names.into_iter();
        self.functions.iter().all(|expected| {
            names.next().is_some_and(|name| match (expected.strip_prefix('['), expected.strip_suffix('…')) {
                (Some(part), _) => name.starts_with('[') && name.contains(part),
                (None, Some(begin)) => name.starts_with(begin),
                (None, None) => name == *expected,
            })
        })
    }
}

/// Every shape.
pub static SHAPES: [StackShape; 14] = [
    shape("compiled", &["RecordedShapes.compiled", "RecordedShapes.compiledCaller"], |walk| {
        walk.is_leaf(WalkFeature::Compiled) && has_frame(walk) && !walk.has(WalkFeature::Inlined)
    }),
    shape(
        "inlined",
        &["RecordedShapes.inlinedCallee", "RecordedShapes.inlined", "RecordedShapes.inlinedCaller"],
        |walk| walk.is_leaf(WalkFeature::Inlined) && has_frame(walk),
    ),
    shape("partial_frame", &["RecordedShapes.partialFrame", "RecordedShapes.partialFrameCaller"], |walk| {
        walk.is_leaf(WalkFeature::Compiled) && walk.has(WalkFeature::PartialFrame)
    }),
    shape("interpreted", &["RecordedShapes.interpreted", "RecordedShapes.interpretedCaller"], |walk| {
        walk.is_leaf(WalkFeature::Interpreted)
    }),
    shape("interpreter_entry", &["RecordedShapes.interpreterEntry", "RecordedShapes.interpreterEntryCaller"], |walk| {
        walk.is_leaf(WalkFeature::PartialInterpretedFrame)
    }),
    shape("stub", &["[arraycopy", "RecordedShapes.stub", "RecordedShapes.stubCaller"], |walk| {
        walk.is_leaf(WalkFeature::Stub)
    }),
    shape("adapter", &["[I2C/C2I adapters", "RecordedShapes.adapterCaller"], |walk| walk.is_leaf(WalkFeature::Stub)),
    shape(
        "native_leaf",
        &["[native", "java.util.zip.Deflater.deflateBytes…", "java.util.zip.Deflater.deflate"],
        |walk| walk.is_leaf(WalkFeature::Native) && walk.has(WalkFeature::Anchor),
    ),
    shape(
        "upcall",
        &["RecordedShapes.compiled", "RecordedShapes.compiledCaller", "RecordedShapes$UpcallRound.<clinit>"],
        |walk| {
            walk.is_leaf(WalkFeature::Compiled) && walk.has(WalkFeature::EntryFrame) && walk.has(WalkFeature::Anchor)
        },
    ),
    shape("exception", &["[native", "[xception", "RecordedShapes.exceptionCaller"], |walk| walk.has(WalkFeature::Stub)),
    shape("fault", &["[native", "RecordedShapes.fault", "RecordedShapes.faultCaller"], |walk| {
        walk.has(WalkFeature::Fault)
    }),
    shape(
        "deoptimization",
        &[
            "RecordedShapes.compiled",
            "RecordedShapes.compiledCaller",
            "RecordedShapes$DeoptRound.deoptimization",
            "RecordedShapes$DeoptRound.deoptimizationCaller",
        ],
        |walk| walk.has(WalkFeature::OriginalPc),
    ),
    StackShape {
        is_osr: true,
        ..shape("osr", &["RecordedShapes.osr", "RecordedShapes.osrCaller"], |walk| {
            walk.is_leaf(WalkFeature::Compiled) && has_frame(walk)
        })
    },
    shape("frames_in_heap", &["RecordedShapes.compiled", "RecordedShapes.compiledCaller"], |walk| {
        walk.has(WalkFeature::FramesInHeap)
    }),
];

const fn shape(
    name: &'static str,
    functions: &'static [&'static str],
    is_met: fn(&WalkObservation) -> bool,
) -> StackShape {
    StackShape { name, functions, is_met, is_osr: false }
}

/// Whether the interrupted code has its frame.
fn has_frame(walk: &WalkObservation) -> bool {
    !walk.has(WalkFeature::PartialFrame) && !walk.has(WalkFeature::SlowPath)
}

/// Whether the code at `pc` was entered by on-stack replacement. `entry_bci` is the offset of `nmethod::_entry_bci`.
pub fn is_osr(memory: impl VmMemory, layout: &VmLayout, pc: usize, entry_bci: usize) -> bool {
    let entry = blob_of(memory, layout, pc).and_then(|blob| memory.int(blob + entry_bci));
    entry.is_some_and(|entry| entry != INVOCATION_ENTRY_BCI)
}
