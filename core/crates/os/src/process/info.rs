//! Resident memory of the process. Normal threads only.

/// Resident memory of the process; 0 when /proc is hidden.
pub fn resident_bytes() -> u64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    pages.unwrap_or(0) * page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_program_has_resident_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
