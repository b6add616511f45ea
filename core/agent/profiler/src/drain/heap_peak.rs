//! The key `heap_peak_directory`: keeps the live objects at the last maximum of live bytes in a file that outlives a killed
//! process, and finds the files of ended processes at the next start. Called by the drain thread. Not here: the file
//! (`spanprof_os`), its format (`spanprof_profile::heap_peak`), the profile (`heap`).
//!
//! The drain thread wakes twice per second and writes if the estimate of live bytes exceeds the last record by 0.4 %; after a
//! write it pauses for 50 times its duration, at most 0.9 s. The largest 4,096 stacks are kept: 2 to 3 µs each. Files of ended
//! processes are renamed and not sent: a profile of another process misleads in a back end that shows the current one.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::host_log::{log, LogLevel};
use crate::session::Session;
use spanprof_aggregate::{Engine, Resource};
use spanprof_config::{Config, Error, ErrorKind};
use spanprof_os::PeakFile;
use spanprof_profile::heap_peak::{self, PeakProcess, PeakRecord, PAGE_BYTES, RECORD_BYTES};
use spanprof_signal::heap::HEAP;

/// Shortest and longest time between two checks for a new maximum. With the time of a write, the file is at most 1 s old.
const CHECK_INTERVALS_NS: [u64; 2] = [500_000_000, 900_000_000];
/// A write is followed by a pause of this many times its duration, within these intervals: 2 % of a processor.
const PAUSE_FACTOR: u64 = 50;
/// A maximum is new if it is larger by this part of the last one.
const STEP_DIVISOR: u64 = 256;
/// Size of a profile per sample of `heap_live_samples`; samples of equal stacks and labels share one entry.
const BYTES_PER_LIVE_SAMPLE: u64 = 64;
/// Kept files of ended processes.
const MAX_KEPT: usize = 10;
/// Consecutive failed writes after which no more are tried.
const MAX_ERRORS: u64 = 3;
/// A file without a valid header may be one that a process is creating.
const CREATION_TIME: Duration = Duration::from_secs(60);

/// Creates the file of this process. A forked child creates it at its first write: many children end soon.
///
/// # Errors
/// When the directory cannot be used or has no space, if it was set in code. If it was set in the environment, and in a
/// forked child, the key is reset with a warning.
pub(crate) fn start(config: &mut Config, resource: &Resource) -> Result<Option<PeakFile>, Error> {
    let Some(directory) =
        config.heap_peak_directory.as_ref().filter(|_| config.heap && spanprof_signal::fork_generation() == 0)
    else {
        return Ok(None);
    };
    let problem = match create(Path::new(directory), config, resource) {
        Ok(file) => return Ok(Some(file)),
        Err(error) => format!("heap_peak_directory `{directory}` cannot be used: {error}"),
    };
    if !config.is_set_outside_code("heap_peak_directory") {
        let hint = format!(
            "give heap_peak_directory a directory that this process may write, with {} MiB of free space",
            heap_peak::file_bytes(half_bytes(config)).div_ceil(1 << 20)
        );
        return Err(Error::new(ErrorKind::InvalidDestination, problem, hint));
    }
    log(LogLevel::Warning, &format!("spanprof: {problem} ({}); it is ignored", config.sources["heap_peak_directory"]));
    config.reset("heap_peak_directory");
    Ok(None)
}

/// The directory of the files.
pub(crate) fn directory(config: &Config) -> Option<PathBuf> {
    config.heap_peak_directory.as_ref().map(PathBuf::from)
}

fn half_bytes(config: &Config) -> u64 {
    PAGE_BYTES as u64 + BYTES_PER_LIVE_SAMPLE * u64::from(config.heap_live_samples)
}

fn process(resource: &Resource) -> PeakProcess {
    PeakProcess {
        process_id: std::process::id(),
        start_ticks: spanprof_os::process_start_ticks(),
        pid_namespace: spanprof_os::pid_namespace(),
        service_name: resource.service_name.clone(),
    }
}

fn file_name(process: &PeakProcess) -> String {
    format!("heap-{}-{}", process.process_id, process.start_ticks)
}

fn create(directory: &Path, config: &Config, resource: &Resource) -> std::io::Result<PeakFile> {
    let (process, half_bytes) = (process(resource), half_bytes(config));
    let file = PeakFile::create(directory, &file_name(&process), heap_peak::file_bytes(half_bytes))?;
    file.store(0, &heap_peak::header_page(&process, half_bytes))?;
    Ok(file)
}

/// Writes the peak file of this process. Dropping it removes the file.
pub(crate) struct HeapPeakRecorder {
    directory: PathBuf,
    file: Option<PeakFile>,
    sequence: u64,
    /// Live bytes of the last record.
    peak_bytes: u64,
    /// Samples in the live set up to the last check: without a new one there is no new maximum. `None`: not checked.
    samples: Option<u64>,
    next_check_ns: u64,
    errors: u64,
}

impl HeapPeakRecorder {
    /// `None` without `heap_peak_directory`.
    pub fn new(config: &Config, file: Option<PeakFile>) -> Option<Self> {
        let directory = directory(config)?;
        Some(Self { directory, file, sequence: 0, peak_bytes: 0, samples: None, next_check_ns: 0, errors: 0 })
    }

    /// Monotonic time of the next check; `None` while there are none.
    pub fn due_ns(&self, session: &Session) -> Option<u64> {
        (HEAP.is_running() && session.config.active.load().heap && self.errors < MAX_ERRORS)
            .then_some(self.next_check_ns)
    }

    /// Whether a check is due.
    pub fn is_due(&self, session: &Session) -> bool {
        self.due_ns(session).is_some_and(|due_ns| due_ns <= spanprof_os::monotonic_ns())
    }

    /// Writes the live objects if they are a new maximum. The runtime must have submitted its samples, and the ring must be
    /// drained.
    pub fn check(&mut self, engine: &mut Engine, session: &Session) {
        let begun_ns = spanprof_os::monotonic_ns();
        let [shortest_ns, longest_ns] = CHECK_INTERVALS_NS;
        self.next_check_ns = begun_ns + shortest_ns;
        let samples = Some(engine.live_samples_added());
        if std::mem::replace(&mut self.samples, samples) == samples {
            return;
        }
        let live_bytes = engine.live_bytes();
        if live_bytes <= self.peak_bytes + self.peak_bytes / STEP_DIVISOR {
            return;
        }
        match self.write(live_bytes, engine, session) {
            Ok(()) => {
                self.errors = 0;
                session.counters.heap_peak_writes.add(1);
                session.counters.heap_peak_bytes.set(live_bytes);
                let elapsed_ns = spanprof_os::monotonic_ns().saturating_sub(begun_ns);
                session.counters.heap_peak_write_ns.add(elapsed_ns);
                self.next_check_ns = begun_ns + (PAUSE_FACTOR * elapsed_ns).clamp(shortest_ns, longest_ns);
            }
            Err(error) => {
                session.counters.heap_peak_errors.add(1);
                self.errors += 1;
                self.file = None;
                // The next check writes a new file.
                self.samples = None;
                if self.errors == MAX_ERRORS {
                    let directory = self.directory.display();
                    log(
                        LogLevel::Warning,
                        &format!("spanprof: the heap at its peak is no longer kept in {directory}: {error}"),
                    );
                }
            }
        }
    }

    fn write(&mut self, live_bytes: u64, engine: &mut Engine, session: &Session) -> std::io::Result<()> {
        let config = session.config.active.load();
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(create(&self.directory, &config, &session.outputs.resource.load())?),
        };
        let half_bytes = half_bytes(&config);
        let time_unix_ns = spanprof_os::unix_ns();
        let max_bytes = half_bytes as usize - RECORD_BYTES;
        let peak = engine
            .heap_peak(time_unix_ns, max_bytes)
            .ok_or_else(|| std::io::Error::other("the resource attributes alone exceed its size"))?;
        let record = PeakRecord {
            sequence: self.sequence + 1,
            time_unix_ns,
            live_bytes,
            live_objects: peak.objects,
            resident_bytes: spanprof_os::resident_bytes(),
            limit_bytes: spanprof_os::memory_limit().map(|limit| limit.bytes),
            omitted_stacks: peak.omitted_stacks,
            profile: peak.profile.into(),
        };
        for store in heap_peak::record_stores(&record, half_bytes) {
            file.store(store.offset, &store.bytes)?;
        }
        session.counters.heap_peak_omitted.add(record.omitted_stacks);
        self.sequence = record.sequence;
        self.peak_bytes = live_bytes;
        Ok(())
    }
}

/// Keeps the files of ended processes under another name without their free space, removes the oldest, and logs one line.
/// Takes milliseconds: not for host threads.
pub(crate) fn recover(directory: &Path, resource: &Resource) {
    let own = process(resource);
    let own_file = directory.join(file_name(&own)).with_extension(spanprof_os::PEAK_EXTENSION);
    let mut found = Vec::new();
    for path in spanprof_os::peak_files(directory, spanprof_os::PEAK_EXTENSION) {
        if path.file_name() != own_file.file_name() && is_of_ended_process(&path, own.pid_namespace) {
            found.extend(keep(&path));
        }
    }
    for path in spanprof_os::peak_files(directory, spanprof_os::CRASH_EXTENSION).iter().skip(MAX_KEPT) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(path);
    }
    if let Some((process, live_bytes)) = found.first() {
        let others = match found.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more processes"),
        };
        log(
            LogLevel::Warning,
            &format!(
                "spanprof: process {} ({}) ended without stop() and left its heap of {:.1} MiB at the peak{others}; \
                 `spanprof heap --last-crash {}` shows it",
                process.process_id,
                process.service_name,
                *live_bytes as f64 / f64::from(1 << 20),
                directory.display()
            ),
        );
    }
}

fn is_of_ended_process(path: &Path, own_pid_namespace: u64) -> bool {
    if !spanprof_os::is_unlocked(path) {
        return false;
    }
    match read_process(path) {
        // In another pid namespace only the lock decides.
        Some(process) => {
            process.pid_namespace != own_pid_namespace
                || !spanprof_os::is_process_running(process.process_id, process.start_ticks)
        }
        None => {
            let modified = path.metadata().and_then(|metadata| metadata.modified());
            modified
                .is_ok_and(|modified| SystemTime::now().duration_since(modified).is_ok_and(|age| age > CREATION_TIME))
        }
    }
}

fn read_process(path: &Path) -> Option<PeakProcess> {
    use std::os::unix::fs::FileExt;
    let mut page = vec![0; PAGE_BYTES];
    std::fs::File::open(path).ok()?.read_exact_at(&mut page, 0).ok()?;
    heap_peak::decode_process(&page).ok()
}

/// Renames the file and removes its free space; returns its process and live bytes. `None` for a file without a record, which is
/// removed, and when another process was first.
fn keep(path: &Path) -> Option<(PeakProcess, u64)> {
    let kept = path.with_extension(spanprof_os::CRASH_EXTENSION);
    std::fs::rename(path, &kept).ok()?;
    let bytes = std::fs::read(&kept).ok()?;
    let content = heap_peak::decode(&bytes).ok();
    let Some((process, record)) = content.and_then(|content| Some((content.process, content.record?))) else {
        let _ = std::fs::remove_file(&kept);
        return None;
    };
    // An error leaves the whole file, which has the same content.
    let compact = heap_peak::compact(&process, &record);
    let part = kept.with_extension("part");
    let replaced = std::fs::write(&part, compact).and_then(|()| std::fs::rename(&part, &kept));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    Some((process, record.live_bytes))
}
