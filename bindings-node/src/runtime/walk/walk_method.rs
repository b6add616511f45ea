//! The walk method, which the self-test selects and the handler reads. Safe in handlers.

use std::sync::atomic::{AtomicU8, Ordering};

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WalkMethod {
    /// Along frame pointers; by V8 where their chain breaks.
    FramePointers = 0,
    /// By V8's `GetStackSample` alone.
    V8 = 1,
    /// None was selected yet, or none passed the self-test: stacks are not walked.
    None = 2,
}

static WALK_METHOD: AtomicU8 = AtomicU8::new(WalkMethod::None as u8);

pub fn selected() -> WalkMethod {
    match WALK_METHOD.load(Ordering::Relaxed) {
        0 => WalkMethod::FramePointers,
        1 => WalkMethod::V8,
        _ => WalkMethod::None,
    }
}

impl WalkMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::FramePointers => "own",
            Self::V8 => "v8",
            Self::None => "none",
        }
    }
}

/// Selects the method of all later walks.
pub fn select(method: WalkMethod) {
    WALK_METHOD.store(method as u8, Ordering::Release);
}
