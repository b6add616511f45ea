//! The key `output`: writes the whole run to one file at its end, without a receiver. Windows are merged as they close;
//! memory is bounded by `MAX_STACKS`. Not here: destinations with a file for each window (`windows`).

use std::path::{Path, PathBuf};

use spanprof_profile::encode::{folded, pprof};
use spanprof_profile::{transform, LinkId, ProfilesData};
use spanprof_view::page::{self, PageContext};

use spanprof_aggregate::{SumLabels, WindowSum};
use spanprof_config::{Error, ErrorKind, OutputFormat};

fn encode(format: OutputFormat, data: &ProfilesData, context: &PageContext) -> Vec<u8> {
    match format {
        OutputFormat::Pprof => pprof::encode(data),
        OutputFormat::FlameGraph => page_of(data, context).into_bytes(),
        OutputFormat::Folded => folded_stacks(data).into_bytes(),
    }
}

/// The content of a file whose name selects the format; `None` for an unknown one.
pub(crate) fn encode_file(name: &str, data: &ProfilesData) -> Option<Vec<u8>> {
    OutputFormat::of(name).map(|format| encode(format, data, &PageContext::default()))
}

/// The folded stacks of the most important type.
pub(crate) fn folded_stacks(data: &ProfilesData) -> String {
    folded::encode(&transform::tree(data, page::type_shown(data)))
}

/// The page of all types. It shows the most important one first.
pub(crate) fn flame_graph(data: &ProfilesData) -> String {
    page_of(data, &PageContext::default())
}

fn page_of(data: &ProfilesData, context: &PageContext) -> String {
    let service = data.resources.first().map_or("", |resource| resource.service_name());
    page::html_with(data, page::type_shown(data), service, context)
}

/// The file of the whole run, written when the run ends.
pub(crate) struct OutputFile {
    path: PathBuf,
    /// Temporary file beside `path`: reserves the name, and is renamed to `path` when it is complete.
    claim: PathBuf,
    format: OutputFormat,
    run: WindowSum,
}

impl OutputFile {
    /// Claims the file, by its absolute path, with an empty file beside it, which also proves that the directory is writable. A
    /// forked child, and a process that finds the claim of another one, writes its own file with its process id in the name.
    ///
    /// # Errors
    /// When the directory does not exist or cannot be written.
    pub fn start(name: &str, max_stacks: u32, is_forked: bool) -> Result<Self, Error> {
        let invalid = |problem: String| {
            let hint = "set output to a file that ends in .html, .pb.gz or .folded, in a directory that exists";
            Error::new(ErrorKind::InvalidDestination, format!("output `{name}` {problem}"), hint)
        };
        let format = OutputFormat::of(name).ok_or_else(|| invalid("has no known format".to_owned()))?;
        let mut path = PathBuf::from(name);
        let directory = path.parent().unwrap_or(&path);
        if !directory.is_dir() {
            return Err(invalid(format!("cannot be written: there is no directory `{}`", directory.display())));
        }
        if path.is_dir() {
            return Err(invalid("is a directory".to_owned()));
        }
        let claim = claim_of(&path, std::process::id());
        std::fs::write(&claim, []).map_err(|error| invalid(format!("cannot be written: {error}")))?;
        if is_forked || is_claimed_by_another(&path) {
            path = with_suffix(&path, &std::process::id().to_string());
        }
        let labels = match format {
            OutputFormat::Pprof => SumLabels::Kept,
            // A page without labels is better than one without stacks.
            OutputFormat::FlameGraph => SumLabels::KeptIfTheyFit,
            OutputFormat::Folded => SumLabels::Dropped,
        };
        Ok(Self { path, claim, format, run: WindowSum::new(max_stacks as usize, labels) })
    }

    pub fn add(&mut self, window: &ProfilesData) {
        self.run.add(reduced(window));
    }

    /// Writes the file; a page with the samples that the run lost, by reason. Returns a message for the outcome line, as `Ok` or as
    /// `Err` with the reason.
    pub fn write(&mut self, losses: Vec<(&'static str, u64)>) -> Result<String, String> {
        let merged = self.run.merged();
        let shown = self.path.display().to_string();
        if merged.sample_count() == 0 {
            return Err(format!("{shown} not written: there are no samples"));
        }
        let context = PageContext { losses: Some(losses), ..PageContext::default() };
        let bytes = encode(self.format, merged, &context);
        let lack = if self.run.lacks_labels() { " without labels: there are too many stacks" } else { "" };
        self.replace(&bytes)
            .map(|()| format!("{shown} written{lack}"))
            .map_err(|error| format!("{shown} not written: {error}"))
    }

    /// Replaces the file atomically: a process killed meanwhile leaves the previous file. An earlier process of this command keeps
    /// its file under another name.
    fn replace(&self, bytes: &[u8]) -> std::io::Result<()> {
        // The claim cannot be written if the program has dropped the privileges with which it was made.
        let own = self.claim.with_extension("own");
        let written = std::fs::write(&self.claim, bytes).map(|()| &self.claim);
        let written = written.or_else(|_| std::fs::write(&own, bytes).map(|()| &own));
        let replaced = written.and_then(|written| {
            if is_of_this_command(&self.path) {
                set_aside(&self.path);
            }
            std::fs::rename(written, &self.path)
        });
        replaced.inspect_err(|_| _ = std::fs::remove_file(&own))
    }
}

/// Whether a file was written since this command began: by an earlier process of a script, which is the leader of the process
/// group. A file of an earlier command is out of date. An empty file is none that a profiler wrote.
fn is_of_this_command(path: &Path) -> bool {
    let age = path.metadata().ok().filter(|file| file.len() > 0).and_then(|file| file.modified().ok()?.elapsed().ok());
    age.zip(spanprof_os::age_of_group_leader()).is_some_and(|(file, leader)| file < leader)
}

/// Maximum number of files that are set aside.
const MAX_SET_ASIDE: u32 = 1000;

/// Renames `flame.html` to `flame.earlier-1.html`, or to the first free number.
fn set_aside(path: &Path) {
    // Fails for a name that is taken. Without hard links, the file is replaced.
    let mut names = (1..=MAX_SET_ASIDE).map(|number| with_suffix(path, &format!("earlier-{number}")));
    _ = names.find(|name| match std::fs::hard_link(path, name) {
        Err(error) => error.kind() != std::io::ErrorKind::AlreadyExists,
        Ok(()) => true,
    });
}

/// Removes links and timestamps, which grow with the run and occur in none of the formats.
fn reduced(window: &ProfilesData) -> ProfilesData {
    let mut window = window.clone();
    for profile in window.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        for sample in &mut profile.samples {
            sample.values = vec![sample.total()];
            sample.timestamps_unix_nano = Vec::new();
            sample.link = LinkId::default();
        }
    }
    window
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // Fails once the claim was renamed to the file.
        let _ = std::fs::remove_file(&self.claim);
    }
}

/// Path of the claim of a process on a file, which is also the temporary file while it is written.
fn claim_of(path: &Path, process_id: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{process_id}.part"))
}

/// Whether a running process has claimed the file. Removes claims of processes that have ended.
fn is_claimed_by_another(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (Some(directory), prefix) = (path.parent(), format!(".{name}.")) else { return false };
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let mut is_claimed = false;
    for entry in entries.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let process_id = file.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".part"));
        let Some(process_id) = process_id.and_then(|digits| digits.parse::<u32>().ok()) else { continue };
        if process_id == std::process::id() {
            continue;
        }
        if Path::new("/proc").join(process_id.to_string()).exists() {
            is_claimed = true;
        } else {
            // Another process may have removed it.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    is_claimed
}

/// `flame.html` becomes `flame.7.html` with the suffix `7`.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, extension) = name.split_once('.').unwrap_or((&name, ""));
    path.with_file_name(format!("{stem}.{suffix}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_aggregate::window::sum::MIN_PENDING_SAMPLES;
    use spanprof_profile::{Function, Line, Location, Profile, ResourceProfiles, Sample, ValueType};

    /// A window with one sample of `ns` nanoseconds for each number.
    fn window(stacks: std::ops::Range<u32>, ns: i64) -> ProfilesData {
        let mut data = ProfilesData::default();
        let samples = stacks.map(|number| {
            let name = data.dictionary.string(&format!("function_{number}"));
            let function = data.dictionary.function(Function { name, ..Function::default() });
            let lines = [Line { function, ..Line::default() }];
            let location = data.dictionary.location(Location { lines: &lines, ..Location::default() });
            let stack = data.dictionary.stack(&[location]);
            Sample { stack, values: vec![ns], ..Sample::default() }
        });
        let samples = samples.collect();
        let cpu = ValueType::new("cpu", "nanoseconds");
        let profile = Profile { sample_type: cpu.clone(), period_type: cpu, samples, ..Profile::default() };
        data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
        data
    }

    /// The page of windows whose samples have the label `user` with each of these values, and the outcome.
    fn labeled_page(windows: u32, users: std::ops::Range<u32>) -> (String, String) {
        let directory = std::env::temp_dir().join(format!("spanprof-labels-{}-{}", std::process::id(), users.end));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("run.html");
        let mut output = OutputFile::start(path.to_str().unwrap(), 100, false).unwrap();
        for _ in 0..windows {
            let mut data = window(0..20, 7);
            let unlabeled = std::mem::take(&mut data.resources[0].profiles[0].samples);
            for user in users.clone() {
                let label =
                    data.dictionary.attribute("user", spanprof_profile::Value::String(&format!("user-{user}")), "");
                let attributes = data.dictionary.attribute_set(&[label]);
                let labeled = unlabeled.iter().map(|sample| Sample { attributes, ..sample.clone() });
                data.resources[0].profiles[0].samples.extend(labeled);
            }
            output.add(&data);
        }
        let outcome = output.write(vec![("queue_full", 3)]).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        (page, outcome)
    }

    #[test]
    fn the_page_has_the_labels_if_all_stacks_with_them_fit_however_many_windows_repeat_them() {
        let (page, outcome) = labeled_page(50, 0..4);
        assert!(outcome.ends_with("run.html written"), "{outcome}");
        assert!((0..4).all(|user| page.contains(&format!("[\"user\",\"user-{user}\"]"))));
        assert!(!page.contains("[too_many_stacks]"));
        assert!(page.contains("\"losses\":[[\"queue_full\",\"3\"]]"));
    }

    #[test]
    fn the_page_has_no_label_rather_than_less_stacks() {
        let (page, outcome) = labeled_page(50, 0..10);
        assert!(outcome.ends_with("run.html written without labels: there are too many stacks"), "{outcome}");
        assert!(!page.contains("[\"user\",") && !page.contains("[too_many_stacks]"));
        assert!((0..20).all(|number| page.contains(&format!("\"function_{number}\""))));
    }

    fn folded_run(max_stacks: u32, windows: impl Iterator<Item = ProfilesData>) -> String {
        let directory = std::env::temp_dir().join(format!("spanprof-output-{}-{max_stacks}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("run.folded");
        let mut output = OutputFile::start(path.to_str().unwrap(), max_stacks, false).unwrap();
        for window in windows {
            output.add(&window);
            let stored = output.run.stored_samples();
            assert!(stored <= 2 * max_stacks as usize + 2 * MIN_PENDING_SAMPLES, "{stored} samples are stored");
        }
        output.write(Vec::new()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "no unfinished file is left");
        std::fs::remove_dir_all(&directory).unwrap();
        text
    }

    #[test]
    fn the_file_holds_the_sum_of_all_windows() {
        let text = folded_run(1000, (0..100).map(|_| window(0..3, 7)));
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["function_0 700", "function_1 700", "function_2 700"]);
    }

    #[test]
    fn the_file_holds_the_objects_in_use_of_the_last_window_only() {
        let text = folded_run(
            999,
            (0..50u32).map(|number| {
                let mut data = window(number..number + 2, i64::from(number) + 1);
                data.resources[0].profiles[0].sample_type = ValueType::new("inuse_space", "bytes");
                data
            }),
        );
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["function_49 50", "function_50 50"]);
    }

    #[test]
    fn a_run_with_too_many_stacks_keeps_the_heaviest_and_the_total() {
        let hot = (0..50).map(|_| window(0..1, 1000));
        let text = folded_run(100, hot.chain((0..200).map(|number| window(number * 50..number * 50 + 50, 1))));
        let total: i64 = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()).sum();
        assert_eq!(total, 50 * 1000 + 200 * 50);
        assert!(text.lines().count() <= 101 && text.contains("[too_many_stacks] "), "{text}");
        assert!(text.lines().any(|line| line == "function_0 50001"), "{text}");
    }

    #[test]
    fn a_forked_child_and_a_second_process_write_files_of_their_own() {
        assert_eq!(with_suffix(Path::new("/a/flame.html"), "7"), Path::new("/a/flame.7.html"));
        assert_eq!(with_suffix(Path::new("run.pb.gz"), "7"), Path::new("run.7.pb.gz"));
        let directory = std::env::temp_dir().join(format!("spanprof-claims-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("flame.html");
        let name = path.to_str().unwrap();
        let own = with_suffix(&path, &std::process::id().to_string());
        assert_eq!(OutputFile::start(name, 1, false).unwrap().path, path);
        assert_eq!(OutputFile::start(name, 1, true).unwrap().path, own);
        // No process has the largest id; process 1 always runs.
        std::fs::write(claim_of(&path, u32::MAX), []).unwrap();
        assert_eq!(OutputFile::start(name, 1, false).unwrap().path, path);
        std::fs::write(claim_of(&path, 1), []).unwrap();
        assert_eq!(OutputFile::start(name, 1, false).unwrap().path, own);
        let left: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [claim_of(&path, 1)], "claims of ended processes are removed");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_is_written_without_its_claim_and_keeps_earlier_ones_of_the_command() {
        let directory = std::env::temp_dir().join(format!("spanprof-earlier-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("run.folded");
        let mut output = OutputFile::start(path.to_str().unwrap(), 10, false).unwrap();
        // As after the program has changed its user.
        std::fs::remove_file(&output.claim).and_then(|()| std::fs::create_dir(&output.claim)).unwrap();
        output.add(&window(0..1, 7));
        output.write(Vec::new()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "function_0 7\n");
        std::fs::remove_dir(&output.claim).unwrap();
        for earlier in 1..=2 {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, format!("{earlier}")).unwrap();
            set_aside(&path);
        }
        let kept = |number| std::fs::read_to_string(directory.join(format!("run.earlier-{number}.folded"))).unwrap();
        assert_eq!([kept(1), kept(2)], ["1", "2"]);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 3);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_in_a_missing_directory_is_an_error() {
        let missing = OutputFile::start("/nonexistent/flame.html", 1, false).err().unwrap();
        assert!(missing.message.contains("there is no directory `/nonexistent`"), "{}", missing.message);
    }
}
