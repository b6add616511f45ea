//! Finds the resident pages of an address range in `/proc/self/pagemap` (kernel documentation: admin-guide/mm/pagemap). V8
//! reserves hundreds of megabytes for machine code and uses little of it. Reading a page that was never written maps it, so a
//! search must skip such pages. `mincore` is not used: a seccomp filter may forbid it, but any filter that lets Node.js start
//! allows reading a file. Called by the search for unlisted code.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bit 63 of an entry. Swapped pages (bit 62) count as absent: code that has not run for so long is not worth the I/O.
const PRESENT: u64 = 1 << 63;
const ENTRY_BYTES: usize = 8;
const ENTRIES_PER_READ: usize = 8192;

/// The resident parts of `ranges`, adjacent pages joined; `None` where the kernel does not report them.
pub fn resident(ranges: &[(usize, usize)]) -> Option<Vec<(usize, usize)>> {
    let pagemap = File::open("/proc/self/pagemap").ok()?;
    let page = page_bytes();
    let mut parts = Vec::new();
    let mut entries = vec![0; ENTRIES_PER_READ * ENTRY_BYTES];
    for (low, high) in ranges {
        let (mut next, end) = (low / page, high.div_ceil(page));
        while next < end {
            let wanted = (end - next).min(ENTRIES_PER_READ) * ENTRY_BYTES;
            let entries = &mut entries[..wanted];
            pagemap.read_exact_at(entries, (next * ENTRY_BYTES) as u64).ok()?;
            for entry in entries.as_chunks::<ENTRY_BYTES>().0 {
                if u64::from_le_bytes(*entry) & PRESENT != 0 {
                    join(&mut parts, next * page, (next + 1) * page);
                }
                next += 1;
            }
        }
    }
    Some(parts)
}

fn join(ranges: &mut Vec<(usize, usize)>, low: usize, high: usize) {
    match ranges.last_mut() {
        Some(last) if last.1 == low => last.1 = high,
        _ => ranges.push((low, high)),
    }
}

fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Anonymous memory that is reserved and not resident.
    pub struct Reserved {
        pub low: usize,
        pub bytes: usize,
    }

    impl Reserved {
        pub fn new(bytes: usize) -> Self {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let low = unsafe {
                libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) as usize
            };
            assert_ne!(low as *mut libc::c_void, libc::MAP_FAILED);
            // SAFETY: our own mapping. A huge page would make its neighbors resident.
            unsafe { libc::madvise(low as *mut libc::c_void, bytes, libc::MADV_NOHUGEPAGE) };
            Self { low, bytes }
        }

        pub fn write(&self, offset: usize, word: u64) {
            assert!(offset + 8 <= self.bytes && offset.is_multiple_of(8));
            // SAFETY: inside our own writable mapping, aligned.
            unsafe { ((self.low + offset) as *mut u64).write_volatile(word) };
        }

        pub fn range(&self) -> (usize, usize) {
            (self.low, self.low + self.bytes)
        }
    }

    impl Drop for Reserved {
        fn drop(&mut self) {
            // SAFETY: our own mapping, which is not shared.
            unsafe { libc::munmap(self.low as *mut libc::c_void, self.bytes) };
        }
    }

    #[test]
    fn only_pages_that_were_written_are_resident() {
        let page = page_bytes();
        let memory = Reserved::new(64 << 20);
        assert_eq!(resident(&[memory.range()]).unwrap(), []);
        for offset in [0, page, 40 << 20, (64 << 20) - page] {
            memory.write(offset, 1);
        }
        let at = |offset: usize, pages: usize| (memory.low + offset, memory.low + offset + pages * page);
        assert_eq!(resident(&[memory.range()]).unwrap(), [at(0, 2), at(40 << 20, 1), at((64 << 20) - page, 1)]);
    }
}
