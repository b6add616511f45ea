//! Resident memory of the process, and the version of its kernel. Normal threads only.

use std::ffi::CStr;

/// Resident memory of the process; 0 when /proc is hidden.
pub fn resident_bytes() -> u64 {
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    // SAFETY: sysconf reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    pages.unwrap_or(0) * page
}

/// The kernel's major and minor version; zeros when unknown.
pub(crate) fn kernel_version() -> (u32, u32) {
    // SAFETY: an all-zero utsname is a valid value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: writes one utsname to a local.
    unsafe { libc::uname(&mut names) };
    // SAFETY: NUL-terminated by the kernel, or all zero.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) }.to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_version_is_known() {
        assert!(kernel_version() >= (3, 0), "{:?}", kernel_version());
    }

    #[test]
    fn a_running_program_has_resident_memory() {
        assert!(resident_bytes() > 100_000);
    }
}
