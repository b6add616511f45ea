//! Buffers for stacks that are walked outside of signal handlers, on any thread. They are reused: there are as many as were
//! in use at the same time, at most [`KEPT`]. Not on the thread's stack, since a Java thread may have little left.

use std::sync::atomic::{AtomicPtr, Ordering};

use spanprof_signal::{RawFrame, MAX_FRAMES};

/// Buffers that are kept for the next walk, 32 KiB each.
const KEPT: usize = 32;

static BUFFERS: [AtomicPtr<FrameBuffer>; KEPT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; KEPT];

/// Frames of the deepest stack.
type FrameBuffer = [RawFrame; MAX_FRAMES];

/// Calls `body` with a buffer of at least `MAX_FRAMES` frames.
pub fn with_buffer<T>(body: impl FnOnce(&mut [RawFrame]) -> T) -> T {
    let mut buffer = take();
    let result = body(&mut buffer[..]);
    keep(buffer);
    result
}

fn take() -> Box<FrameBuffer> {
    let kept = BUFFERS.iter().map(|buffer| buffer.swap(std::ptr::null_mut(), Ordering::Acquire));
    match kept.into_iter().find(|buffer| !buffer.is_null()) {
        // SAFETY: `keep` stored a leaked box, and the swap above took it out.
        Some(kept) => unsafe { Box::from_raw(kept) },
        None => {
            let frames = vec![RawFrame::default(); MAX_FRAMES].into_boxed_slice();
            // SAFETY: a boxed slice of `MAX_FRAMES` frames has the layout of the array.
            unsafe { Box::from_raw(Box::into_raw(frames).cast()) }
        }
    }
}

fn keep(buffer: Box<FrameBuffer>) {
    let pointer = Box::into_raw(buffer);
    let free = BUFFERS
        .iter()
        .any(|kept| kept.compare_exchange(std::ptr::null_mut(), pointer, Ordering::Release, Ordering::Relaxed).is_ok());
    if !free {
        // SAFETY: leaked above, and stored nowhere.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_walks_get_separate_buffers_and_the_next_one_reuses_them() {
        with_buffer(|outer| {
            outer[0] = RawFrame::native(4096);
            with_buffer(|inner| inner[0] = RawFrame::native(8192));
            assert_eq!((outer[0], outer.len()), (RawFrame::native(4096), MAX_FRAMES));
        });
        assert!(BUFFERS.iter().any(|buffer| !buffer.load(Ordering::Relaxed).is_null()));
    }
}
