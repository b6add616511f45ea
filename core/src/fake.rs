//! A runtime without a language: scripted functions, no walking. Drives the whole engine in tests and in the conformance
//! suite, of this crate and of the bindings. Not part of the public API.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::{Ended, Frame, FrameType, Runtime};
use spanprof_signal::{CaptureFn, Captured, DropReason, HandlerContext, RawFrame, RawStack};

/// Code ids given by [`FakeRuntime::define`] start here.
const FIRST_CODE: u64 = 0x10_0000;

/// See the head of the module.
#[derive(Default)]
pub struct FakeRuntime {
    codes: Mutex<Codes>,
    resolved: AtomicU64,
}

#[derive(Default)]
struct Codes {
    /// By code: what it is now, and what it was until which position.
    now: HashMap<u64, Frame>,
    before: Vec<(u64, u64, Frame)>,
    by_name: HashMap<String, u64>,
    ended: Vec<Ended>,
    next: u64,
}

impl FakeRuntime {
    /// A runtime that knows no code.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Defines a function; gives its code. A frame of it with `at` = n executes line `start_line` + n.
    pub fn define(&self, function: &str, file: &str, start_line: u32) -> u64 {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.next += 1;
        let code = FIRST_CODE + codes.next * 16;
        codes.now.insert(code, frame(function, file, start_line));
        code
    }

    /// The code of a function by name, defined when new.
    pub fn code_of(&self, function: &str) -> u64 {
        let known = self.codes.lock().unwrap_or_else(PoisonError::into_inner).by_name.get(function).copied();
        known.unwrap_or_else(|| {
            let code = self.define(function, "fake", 1);
            self.codes.lock().unwrap_or_else(PoisonError::into_inner).by_name.insert(function.to_owned(), code);
            code
        })
    }

    /// The code is another function now, unannounced.
    pub fn redefine(&self, code: u64, function: &str, file: &str, start_line: u32) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.now.insert(code, frame(function, file, start_line));
    }

    /// The code ends at `position`, and another function takes its place when one is given.
    pub fn end(&self, code: u64, position: u64, reborn_as: Option<&str>) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = codes.now.remove(&code) {
            codes.before.push((code, position, old));
        }
        if let Some(function) = reborn_as {
            codes.now.insert(code, frame(function, "fake", 1));
        }
        codes.ended.push(Ended { code, position });
    }

    /// How often `resolve` was called.
    pub fn resolved(&self) -> u64 {
        self.resolved.load(Ordering::Relaxed)
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
    }
}

impl Runtime for FakeRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![("process.runtime.name".to_owned(), "fake".to_owned())]
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn ended(&self, out: &mut Vec<Ended>) {
        out.append(&mut self.codes.lock().unwrap_or_else(PoisonError::into_inner).ended);
    }

    fn resolve(&self, raw: RawFrame, position: u64, out: &mut Vec<Frame>) {
        self.resolved.fetch_add(1, Ordering::Relaxed);
        let codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let then = codes.before.iter().find(|(code, ended, _)| *code == raw.code && position < *ended);
        let frame = then.map(|(_, _, frame)| frame).or_else(|| codes.now.get(&raw.code));
        out.extend(frame.map(|frame| Frame { line: frame.start_line + raw.at as u32, ..frame.clone() }));
    }
}

/// Clocks that tick on this runtime find nothing to walk.
fn capture_nothing(_: &HandlerContext, _: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::NoThreadState)
}
