//! Resident memory of the process, and the age of the command that it belongs to. Normal threads only.

use std::time::Duration;

use spanprof_signal::arm::read_clock;

/// Resident memory of the process; 0 when /proc is hidden.
pub fn resident_bytes() -> u64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    pages.unwrap_or(0) * page
}

/// Time since the start of the leader of the process group, which is the program of a command; `None` if this process is the leader,
/// or the leader has ended.
pub fn age_of_group_leader() -> Option<Duration> {
    let leader = stat_field("self", 5)?;
    if leader == u64::from(std::process::id()) {
        return None;
    }
    // SAFETY: sysconf reads a constant of the system.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let start_ns = u128::from(stat_field(&leader.to_string(), 22)?) * 1_000_000_000 / u128::from(ticks_per_second);
    read_clock(libc::CLOCK_BOOTTIME)?.checked_sub(start_ns as u64).map(Duration::from_nanos)
}

/// A number of a process's `stat` file, counted from 1 (proc(5)). Field 2, the name of the program, may contain spaces and
/// parentheses.
pub(super) fn stat_field(process: &str, field: usize) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(field.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_program_has_resident_memory() {
        assert!(resident_bytes() > 100_000);
    }

    #[test]
    fn the_fields_of_stat_are_counted_from_one() {
        assert_eq!(stat_field("self", 4), Some(u64::from(std::os::unix::process::parent_id())));
        assert_eq!(stat_field("self", 2), None);
    }
}
