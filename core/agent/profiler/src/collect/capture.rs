//! The profile of one piece of work: every sample of a scope and of all contexts that derive from it, on any thread. The
//! continuous profile has the same samples. Not here: the scope (`context`), the samples (`captured`), the request to the drain
//! thread (`profiler::session`).

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::deliver::output::encode_file;
use crate::lifecycle::ProfilerHandle;
use spanprof_config::{Error, ErrorKind};
use spanprof_profile::encode::pprof;
use spanprof_profile::{Profile, ProfilesData, ValueType};

/// Timeout for the samples at the end of a capture.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// An open capture. Dropping it discards its samples.
#[derive(Debug)]
pub struct RunningCapture {
    /// 0 without a profiler.
    number: u32,
}

impl RunningCapture {
    /// Begins a capture. Samples belong to it in contexts with its number.
    pub fn begin() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_begun = ProfilerHandle::running().is_some_and(|profiler| profiler.begin_capture(number));
        Self { number: if is_begun { number } else { 0 } }
    }

    /// The number that contexts carry; 0 without a profiler.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends the capture. Waits until the drain thread has processed the samples taken so far, at most 2 s.
    pub fn end(self) -> CapturedProfile {
        let data = self.finish();
        std::mem::forget(self);
        CapturedProfile(data)
    }

    fn finish(&self) -> ProfilesData {
        let profiler = if self.number == 0 { None } else { ProfilerHandle::running() };
        let deadline = Instant::now() + END_TIMEOUT;
        profiler.and_then(|profiler| profiler.end_capture(self.number, Some(deadline))).unwrap_or_default()
    }
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        if let Some(profiler) = ProfilerHandle::running().filter(|_| self.number != 0) {
            profiler.end_capture(self.number, None);
        }
    }
}

/// The samples of a capture.
#[derive(Clone, Debug, Default)]
pub struct CapturedProfile(pub(crate) ProfilesData);

impl CapturedProfile {
    /// The profile as gzip-compressed pprof, with labels and span links.
    pub fn pprof(&self) -> Vec<u8> {
        pprof::encode(&self.0)
    }

    /// A flame graph: one self-contained HTML page.
    pub fn flamegraph(&self) -> String {
        crate::deliver::output::flame_graph(&self.0)
    }

    /// The stacks of the flame graph as text: frames from the root, separated by `;`, and the value.
    pub fn folded(&self) -> String {
        crate::deliver::output::folded_stacks(&self.0)
    }

    /// Writes a file; its extension selects the format: `.html` (flame graph), `.pb.gz` or `.pprof`, `.folded`. Only the user
    /// of this process may read a new file (mode 0600).
    ///
    /// # Errors
    /// When the extension is unknown or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let invalid = |problem: String| {
            let hint = "save into a directory that exists, as .html, .pb.gz or .folded";
            Error::new(ErrorKind::InvalidDestination, format!("`{}` {problem}", path.display()), hint)
        };
        let bytes =
            encode_file(&path.to_string_lossy(), &self.0).ok_or_else(|| invalid("has no known format".to_owned()))?;
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(&bytes)).map_err(|error| invalid(format!("cannot be written: {error}")))
    }

    /// Sends the profile to the destinations of the running profiler, which queue and retry it like a window, and waits for the
    /// delivery, at most `timeout`. True when it was delivered; later, [`crate::stats::Stats`] count it as sent or lost. False without
    /// a running profiler or a destination.
    ///
    /// The types of this profile begin with `capture_` (`capture_cpu`): the continuous profile has the samples too, so that
    /// the totals of `cpu` must not contain them again.
    pub fn send(&self, timeout: Duration) -> bool {
        self.is_empty()
            || ProfilerHandle::running().is_some_and(|profiler| profiler.send_capture(self.as_own_types(), timeout))
    }

    /// The profiles under the names of [`CapturedProfile::send`], with weights in place of counted periods.
    fn as_own_types(&self) -> ProfilesData {
        let mut data = self.0.clone();
        for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
            let sample_type = ValueType::new(format!("capture_{}", profile.type_name()), profile.unit());
            let mut samples = std::mem::take(&mut profile.samples);
            for sample in &mut samples {
                (sample.values, sample.exact_value) = (vec![profile.weight(sample)], 0);
            }
            *profile = Profile { sample_type, exact_type: None, samples, ..std::mem::take(profile) };
        }
        data
    }

    /// Whether it has no sample.
    pub fn is_empty(&self) -> bool {
        self.0.sample_count() == 0
    }

    /// The names of the profile types that have samples.
    pub fn types(&self) -> Vec<String> {
        let with_samples = self.0.profiles().filter(|(_, profile)| !profile.samples.is_empty());
        with_samples.map(|(_, profile)| profile.type_name().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_may_read_a_saved_capture() {
        use std::os::unix::fs::PermissionsExt;

        let path = std::env::temp_dir().join(format!("capture-{}.html", std::process::id()));
        CapturedProfile::default().save(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mode & 0o777, 0o600);
    }
}
