//! `spanprof heap`: the live objects that a killed process left behind in its `heap_peak_directory`.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{fcntl_lock, FlockOperation};
use serde_json::{Map, Value};
use spanprof_profile::encode::pprof;
use spanprof_profile::heap_peak::{self, PeakContent, PeakProcess, PeakRecord};
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeLimits};
use spanprof_read::query::{self, Granularity};

use super::top;
use crate::failure::Failure;
use crate::quantity::format_quantity;
use crate::{moment, output};

const TYPE: &str = "inuse_space";
/// Extensions of the files, of a process that runs or just ended, and of one that an earlier start found.
const EXTENSIONS: [&str; 2] = ["peak", "crash"];

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "spanprof heap --last-crash DIR|FILE [FLAGS]",
    before_help = "\
Shows the objects that were in use when their bytes had their last maximum, in the process that ended last without stop(): by
function and by line, with its resident memory and memory limit. The directory is the process's `heap_peak_directory`.",
    after_help = "\
Examples:
  spanprof heap --last-crash /var/lib/checkout/heap
  spanprof heap --last-crash /var/lib/checkout/heap -o heap.pb.gz"
)]
pub(crate) struct HeapArguments {
    /// the heap_peak_directory, or one file of it
    #[arg(long, value_name = "DIR|FILE", required = true)]
    pub last_crash: PathBuf,
    /// rows to print, 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    /// as JSON
    #[arg(long)]
    pub json: bool,
    /// write the objects as pprof to a file, - for stdout, instead of printing them
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
}

/// A process that left its heap behind.
struct CrashedHeap {
    path: PathBuf,
    process: PeakProcess,
    record: PeakRecord<'static>,
}

pub(crate) fn run(given: &HeapArguments) -> Result<i32, Failure> {
    let mut found = crashed(&given.last_crash)?;
    found.sort_by_key(|crashed| crashed.record.time_unix_ns);
    let directory = given.last_crash.display();
    let last = found.pop().ok_or_else(|| {
        Failure::new(format!("no process left its heap in {directory}"))
            .hint("a process does if it is killed while heap is on and heap_peak_directory names this directory")
    })?;
    if let Some(older) = found.last() {
        let count = found.len();
        output::note(&format!("{count} older: the latest is {} (give it to --last-crash)", older.path.display()));
    }
    let data = decode::pprof::decode(&last.record.profile, &DecodeLimits::default())
        .map_err(|error| Failure::new(format!("{}: {error}", last.path.display())))?;
    if let Some(path) = &given.output {
        output::write(path, &pprof::encode(&data))?;
        return Ok(0);
    }
    let limit = if given.limit == 0 { usize::MAX } else { given.limit };
    let text = if given.json {
        Value::Object(json(&last, &data, limit)).to_string() + "\n"
    } else {
        text(&last, &data, limit)
    };
    output::print(text.as_bytes())?;
    Ok(0)
}

/// The records of ended processes. An unreadable file is an error only if it is the argument.
fn crashed(path: &Path) -> Result<Vec<CrashedHeap>, Failure> {
    let unreadable = |reason: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {reason}", path.display()));
    if !path.is_dir() {
        return read(path).map(|found| found.into_iter().collect()).map_err(|reason| unreadable(&reason));
    }
    let entries = std::fs::read_dir(path).map_err(|error| unreadable(&error))?;
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| EXTENSIONS.iter().any(|known| path.extension().is_some_and(|own| own == *known)));
    let of_ended = files.filter(|path| !is_of_running_process(path));
    Ok(of_ended.filter_map(|path| read(&path).ok().flatten()).collect())
}

/// A running process holds a lock on its file.
fn is_of_running_process(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

fn read(path: &Path) -> Result<Option<CrashedHeap>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let PeakContent { process, record } = heap_peak::decode(&bytes).map_err(|error| error.to_string())?;
    let record = record.map(|record| PeakRecord { profile: record.profile.into_owned().into(), ..record });
    Ok(record.map(|record| CrashedHeap { path: path.to_owned(), process, record }))
}

fn json(crashed: &CrashedHeap, data: &ProfilesData, limit: usize) -> Map<String, Value> {
    let CrashedHeap { path, process, record } = crashed;
    let table = |by| Value::Object(top::members(&query::top(data, TYPE, by), limit));
    Map::from_iter([
        ("file".to_owned(), path.to_string_lossy().into()),
        ("service".to_owned(), process.service_name.as_str().into()),
        ("process_id".to_owned(), process.process_id.into()),
        ("time".to_owned(), moment::format_rfc3339(record.time_unix_ns).into()),
        ("time_unix_ns".to_owned(), record.time_unix_ns.into()),
        ("live_bytes".to_owned(), record.live_bytes.into()),
        ("live_objects".to_owned(), record.live_objects.into()),
        ("resident_bytes".to_owned(), record.resident_bytes.into()),
        ("limit_bytes".to_owned(), record.limit_bytes.into()),
        ("omitted_stacks".to_owned(), record.omitted_stacks.into()),
        ("functions".to_owned(), table(Granularity::Function)),
        ("lines".to_owned(), table(Granularity::Line)),
    ])
}

fn text(crashed: &CrashedHeap, data: &ProfilesData, limit: usize) -> String {
    let CrashedHeap { process, record, .. } = crashed;
    let bytes = |count: u64| format_quantity(i64::try_from(count).unwrap_or(i64::MAX), "bytes");
    let memory_limit = record.limit_bytes.map_or("none".to_owned(), bytes);
    let mut text = format!(
        "process {} ({}), heap at its peak on {}\nin use {} in {} objects, resident {}, memory limit {memory_limit}\n",
        process.process_id,
        process.service_name.escape_debug(),
        moment::format_rfc3339(record.time_unix_ns),
        bytes(record.live_bytes),
        record.live_objects,
        bytes(record.resident_bytes),
    );
    if record.omitted_stacks > 0 {
        text += &format!("{} small stacks did not fit: [too_many_stacks]\n", record.omitted_stacks);
    }
    for by in [Granularity::Function, Granularity::Line] {
        text += "\n";
        text += &top::table_text(&query::top(data, TYPE, by), limit);
    }
    text
}
