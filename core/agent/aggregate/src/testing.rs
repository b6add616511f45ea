//! A runtime with scripted functions, without a language and without walks. Drives the engine in tests and in the
//! conformance suite, of this crate and of the bindings. Not part of the public API.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use arc_swap::ArcSwap;

use crate::runtime::{EndedCode, EventRuntime, Frame, FrameType, ReportedEvents, Runtime};
use spanprof_signal::{CaptureFn, Captured, DropReason, HandlerContext, RawFrame, RawStack, SampleKind};

/// First code id of [`FakeRuntime::define`].
const FIRST_CODE: u64 = 0x10_0000;

/// A [`Runtime`] whose functions are defined and ended by the test.
#[derive(Default)]
pub struct FakeRuntime {
    /// Replaced in a forked child when a thread of the parent held the lock.
    codes: ArcSwap<Mutex<Codes>>,
    resolved: AtomicU64,
    reported_events: ArcSwap<ReportedEvents>,
}

#[derive(Default)]
struct Codes {
    /// Code → current function.
    current: HashMap<u64, Frame>,
    /// Functions whose code ended: code, position of the end, function.
    past: Vec<(u64, u64, Frame)>,
    by_name: HashMap<String, u64>,
    ended: Vec<EndedCode>,
    next: u64,
}

impl FakeRuntime {
    /// A runtime without code.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn with_codes<R>(&self, work: impl FnOnce(&mut Codes) -> R) -> R {
        work(&mut self.codes.load().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Defines a function and returns its code. A frame of it with `at` = n executes line `start_line` + n.
    pub fn define(&self, function: &str, file: &str, start_line: u32) -> u64 {
        self.with_codes(|codes| codes.define(frame(function, file, start_line)))
    }

    /// The code of a function by name. Defines the function on first use.
    pub fn code_of(&self, function: &str) -> u64 {
        self.with_codes(|codes| {
            codes.by_name.get(function).copied().unwrap_or_else(|| {
                let code = codes.define(frame(function, "fake", 1));
                codes.by_name.insert(function.to_owned(), code);
                code
            })
        })
    }

    /// Replaces the function of a code without reporting its end.
    pub fn redefine(&self, code: u64, function: &str, file: &str, start_line: u32) {
        self.with_codes(|codes| codes.current.insert(code, frame(function, file, start_line)));
    }

    /// Ends the code at `position`; another function may reuse its id.
    pub fn end(&self, code: u64, position: u64, reused_by: Option<&str>) {
        self.with_codes(|codes| {
            if let Some(old) = codes.current.remove(&code) {
                codes.past.push((code, position, old));
            }
            if let Some(function) = reused_by {
                codes.current.insert(code, frame(function, "fake", 1));
            }
            codes.ended.push(EndedCode { code, position });
        });
    }

    /// The events of the last call of `set_reported`.
    pub fn reported_events(&self) -> ReportedEvents {
        **self.reported_events.load()
    }

    /// Number of calls of `resolve`.
    pub fn resolved(&self) -> u64 {
        self.resolved.load(Ordering::Relaxed)
    }
}

impl Codes {
    fn define(&mut self, frame: Frame) -> u64 {
        self.next += 1;
        let code = FIRST_CODE + self.next * 16;
        self.current.insert(code, frame);
        code
    }
}

fn frame(function: &str, file: &str, start_line: u32) -> Frame {
    Frame {
        function: function.into(),
        file: file.into(),
        start_line,
        line: start_line,
        column: 0,
        frame_type: FrameType::Native,
        native: None,
    }
}

impl Runtime for FakeRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![("process.runtime.name".to_owned(), "fake".to_owned())]
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn ended(&self, out: &mut Vec<EndedCode>) {
        self.with_codes(|codes| out.append(&mut codes.ended));
    }

    fn after_fork_in_child(&self) {
        if let Err(TryLockError::WouldBlock) = self.codes.load().try_lock() {
            // It may be inconsistent, so its destructor must not run.
            std::mem::forget(self.codes.swap(Arc::default()));
        }
    }

    fn resolve(&self, raw: RawFrame, position: u64, out: &mut Vec<Frame>) {
        self.resolved.fetch_add(1, Ordering::Relaxed);
        self.with_codes(|codes| {
            let past = codes.past.iter().find(|(code, ended, _)| *code == raw.code && position < *ended);
            let frame = past.map(|(_, _, frame)| frame).or_else(|| codes.current.get(&raw.code));
            out.extend(frame.map(|frame| Frame { line: frame.start_line + raw.at as u32, ..frame.clone() }));
        });
    }

    fn events(&self) -> Option<&dyn EventRuntime> {
        Some(self)
    }
}

impl EventRuntime for FakeRuntime {
    fn submits(&self, _: SampleKind) -> bool {
        false
    }

    fn set_reported(&self, events: ReportedEvents) {
        self.reported_events.store(Arc::new(events));
    }
}

/// The capture function: there is no stack to walk.
fn capture_nothing(_: &HandlerContext, _: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::NoThreadState)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_forked_child_does_not_block_on_a_lock_held_by_a_thread_of_the_parent() {
        let runtime = FakeRuntime::new();
        runtime.code_of("before");
        let (send_held, held) = channel();
        let (release, until_released) = channel::<()>();
        let parent_runtime = runtime.clone();
        let holder = std::thread::spawn(move || {
            parent_runtime.with_codes(|_| {
                send_held.send("held").unwrap();
                // Returns also when the test fails, since its end of the channel is dropped.
                let _ = until_released.recv();
            });
        });
        assert_eq!(held.recv_timeout(Duration::from_secs(10)), Ok("held"));
        runtime.after_fork_in_child();
        let (send_code, code) = channel();
        let child_runtime = runtime.clone();
        std::thread::spawn(move || send_code.send(child_runtime.code_of("after")));
        assert!(code.recv_timeout(Duration::from_secs(10)).is_ok(), "the child waits for the parent's thread");
        drop(release);
        holder.join().unwrap();
    }

    #[test]
    fn a_forked_child_keeps_the_codes_when_their_lock_was_free() {
        let runtime = FakeRuntime::new();
        let code = runtime.code_of("kept");
        runtime.after_fork_in_child();
        assert_eq!(runtime.code_of("kept"), code);
    }
}
