//! Ends a step that takes too long, with everything it started: a test that hangs must become a failure that names its
//! step, before whoever runs us gives up without a word. Called by `step`.

use rustix::process::{kill_process, Pid, Signal};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Set in a watched child's environment and inherited by all that it starts: finds those that left the family.
const MARK: &str = "XTASK_STEP";

/// Marks a command before it is started; give the mark to [`Deadline::watch`].
pub fn mark(command: &mut Command) -> String {
    static STEPS: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}.{}", std::process::id(), STEPS.fetch_add(1, Ordering::Relaxed));
    command.env(MARK, &mark);
    mark
}

/// Watches one child until it is called off.
pub struct Deadline {
    call_off: Sender<()>,
    watcher: JoinHandle<bool>,
}

impl Deadline {
    /// Kills process `id`, its descendants and whoever carries `mark` when `limit` is over before
    /// [`Deadline::was_missed`] is asked.
    pub fn watch(id: u32, mark: String, limit: Duration) -> Self {
        let (call_off, called_off) = channel();
        let watcher = std::thread::spawn(move || {
            let missed = called_off.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if missed {
                end_family(id, &mark);
            }
            missed
        });
        Self { call_off, watcher }
    }

    /// Calls the watch off; whether it had already struck. Ask before the child is waited for a last time, or after.
    pub fn was_missed(self) -> bool {
        let _ = self.call_off.send(());
        self.watcher.join().unwrap_or(false)
    }
}

/// Kills a process and all that descend from it or carry its mark. Parents first, so that none of them starts another.
fn end_family(id: u32, mark: &str) {
    let mut family = vec![id];
    let mut at = 0;
    while let Some(member) = family.get(at).copied() {
        send(member, Signal::STOP);
        let found = processes().filter(|id| parent_of(*id) == Some(member) || (at == 0 && carries(*id, mark)));
        let new: Vec<u32> = found.filter(|id| !family.contains(id)).collect();
        family.extend(new);
        at += 1;
    }
    family.into_iter().for_each(|id| send(id, Signal::KILL));
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

fn carries(id: u32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

/// The parent that a process names in `/proc` (proc_pid_stat(5), field 4).
fn parent_of(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The command's name stands in parentheses and may hold any character.
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
        // The second has left for another parent by the time the first ends.
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
        while grandchildren.iter().any(|id| lives(*id)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "the child's own children live on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn lives(id: u32) -> bool {
        matches!(std::fs::read_to_string(format!("/proc/{id}/stat")), Ok(stat) if !stat.contains(") Z"))
    }

    #[test]
    fn a_child_in_time_is_left_alone() {
        let mut command = Command::new("true");
        let mark = mark(&mut command);
        let mut child = command.spawn().unwrap();
        let deadline = Deadline::watch(child.id(), mark, Duration::from_secs(60));
        assert!(child.wait().unwrap().success());
        assert!(!deadline.was_missed());
    }
}
