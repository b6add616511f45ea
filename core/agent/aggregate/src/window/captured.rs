//! The samples of the open captures, on the drain thread: each has a window of its own over the tables of the open window.
//! Before these are cleared, the capture's window is closed into a part. Not here: the scope of a capture (`capture`).

use crate::hash::WordMap;
use crate::window::{CloseInput, WeighedSample, Window, WindowSettings, MAX_ENTRIES};
use spanprof_profile::redact::ProfileRedactor;
use spanprof_profile::{transform, ProfilesData};

/// Captures that may be open at once; further ones have no samples.
pub const MAX_CAPTURES: usize = 64;

/// Number of parts of one capture from which on they become one, so that their memory is bounded.
const MAX_PARTS: usize = 8;

pub(crate) struct CapturedSamples {
    window: Window,
    parts: Vec<ProfilesData>,
    /// Whether it takes no more samples, which bounds its memory.
    is_full: bool,
}

/// The windows of the open captures, by capture number.
#[derive(Default)]
pub(crate) struct CapturedWindows {
    pub open: WordMap<u32, CapturedSamples>,
}

impl CapturedWindows {
    pub fn begin(&mut self, number: u32, settings: WindowSettings, now_ns: u64) {
        if self.open.len() < MAX_CAPTURES {
            let settings = WindowSettings { strips_links: false, keep_timestamps: false, ..settings };
            let captured = CapturedSamples { window: Window::new(settings, now_ns), parts: Vec::new(), is_full: false };
            self.open.insert(number, captured);
        }
    }

    /// Adds a sample of capture `number`, if that is open. False when the capture is full.
    pub fn add(&mut self, number: u32, sample: &WeighedSample) -> bool {
        let Some(captured) = self.open.get_mut(&number) else { return true };
        if captured.is_full || captured.window.is_full() {
            return false;
        }
        captured.window.insert(sample);
        true
    }

    /// Ends a capture and returns its profile.
    pub fn end(&mut self, number: u32, input: CloseInput<'_>, redactor: &mut ProfileRedactor) -> ProfilesData {
        let Some(mut captured) = self.open.remove(&number) else { return ProfilesData::default() };
        captured.close_part(input, redactor);
        transform::merge(&captured.parts)
    }
}

impl CapturedSamples {
    /// Closes the window of the capture into a part; `input` has the tables of the window that ends.
    pub fn close_part(&mut self, input: CloseInput<'_>, redactor: &mut ProfileRedactor) {
        self.parts.extend(self.window.close(input).map(|closed| closed.redacted(redactor).data));
        if self.parts.len() >= MAX_PARTS {
            self.parts = vec![transform::merge(&self.parts)];
            self.is_full = self.parts[0].sample_count() >= MAX_ENTRIES;
        }
    }
}
