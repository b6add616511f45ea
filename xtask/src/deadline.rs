//! Kills a step that exceeds its time limit, with all its descendants, so that a hung test becomes a failure with the name of
//! its step before the CI job times out; and the time limit of all steps of `test`. Called by `step` and the test suites.

use rustix::process::{kill_process, Pid, Signal};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Environment variable of a watched child, inherited by its descendants: identifies those with another parent.
const MARK: &str = "XTASK_STEP";

/// Marks a command before it is started; the mark is an argument of [`Deadline::watch`].
pub fn mark(command: &mut Command) -> String {
    static STEPS: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}.{}", std::process::id(), STEPS.fetch_add(1, Ordering::Relaxed));
    command.env(MARK, &mark);
    mark
}

/// Time limit of all steps together. Beyond it the running step is killed and the remaining ones fail at once, so that the
/// sums are printed.
const TOTAL_LIMIT: Duration = Duration::from_secs(75 * 60);

/// Time limit of a step: `minutes`, and at most the rest of [`TOTAL_LIMIT`].
pub fn at_most(minutes: u64) -> Duration {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let left = TOTAL_LIMIT.saturating_sub(BEGUN.get_or_init(Instant::now).elapsed());
    left.min(Duration::from_secs(minutes * 60))
}

/// Watches one child until it is cancelled.
pub struct Deadline {
    cancel: Sender<()>,
    watcher: JoinHandle<bool>,
}

impl Deadline {
    /// Kills process `id`, its descendants and each process with `mark` when `limit` passes before
    /// [`Deadline::was_missed`] is called.
    pub fn watch(id: u32, mark: String, limit: Duration) -> Self {
        let (cancel, cancelled) = channel();
        let watcher = std::thread::spawn(move || {
            let missed = cancelled.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if missed {
                kill_tree(id, &mark);
            }
            missed
        });
        Self { cancel, watcher }
    }

    /// Cancels the watch and returns whether the limit had passed. May be called before or after the last wait for the child.
    pub fn was_missed(self) -> bool {
        let _ = self.cancel.send(());
        self.watcher.join().unwrap_or(false)
    }
}

/// Kills a process, its descendants and the processes with its mark. Stops parents first, so that none starts another.
fn kill_tree(id: u32, mark: &str) {
    let mut members = vec![id];
    let mut next = 0;
    while let Some(member) = members.get(next).copied() {
        send(member, Signal::STOP);
        let relatives = processes().filter(|id| parent_of(*id) == Some(member) || (next == 0 && has_mark(*id, mark)));
        let new: Vec<u32> = relatives.filter(|id| !members.contains(id)).collect();
        members.extend(new);
        next += 1;
    }
    members.into_iter().for_each(|id| send(id, Signal::KILL));
}

fn send(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn has_mark(id: u32, mark: &str) -> bool {
    let variable = format!("{MARK}={mark}");
    let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// Parent of a process (proc_pid_stat(5), field 4).
fn parent_of(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The command's name is in parentheses and may contain any character.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    use std::time::Instant;

    #[test]
    fn a_child_that_takes_too_long_ends_with_its_own_children() {
        // The second is reparented before the first ends.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 61 & (sleep 61 & echo $!); echo $!; wait"]).stdout(Stdio::piped());
        let mark = mark(&mut command);
        let mut child = command.spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut started = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim().parse::<u32>().unwrap()
        };
        let grandchildren = [started(), started()];
        let deadline = Deadline::watch(child.id(), mark, Duration::from_millis(100));
        assert!(!child.wait().unwrap().success());
        assert!(deadline.was_missed());
        let begun = Instant::now();
        while grandchildren.iter().any(|id| is_alive(*id)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "the child's own children are alive");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_alive(id: u32) -> bool {
        matches!(std::fs::read_to_string(format!("/proc/{id}/stat")), Ok(stat) if !stat.contains(") Z"))
    }

    #[test]
    fn a_child_within_its_limit_is_not_killed() {
        let mut command = Command::new("true");
        let mark = mark(&mut command);
        let mut child = command.spawn().unwrap();
        let deadline = Deadline::watch(child.id(), mark, Duration::from_secs(60));
        assert!(child.wait().unwrap().success());
        assert!(!deadline.was_missed());
    }
}
