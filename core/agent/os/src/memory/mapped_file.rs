//! Files that are read in place: mapped once, never unmapped, so that slices of them stay valid. Their pages leave the
//! process's resident memory on request and are read from the page cache again at the next access. Normal threads only.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A read-only file mapping that is never unmapped. A copy is the same mapping.
#[derive(Clone, Copy, Debug)]
pub struct MappedFile(&'static [u8]);

impl MappedFile {
    /// Maps the whole file; `None` for an unreadable or empty file.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let len = usize::try_from(file.metadata().ok()?.len()).ok().filter(|len| *len > 0)?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice; affects no existing mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: `len` readable bytes that are never unmapped, and never written through this private mapping.
        Some(Self(unsafe { std::slice::from_raw_parts(start.cast(), len) }))
    }

    /// The content.
    pub fn bytes(self) -> &'static [u8] {
        self.0
    }

    /// Removes the pages from the process's resident memory.
    pub fn release_pages(self) {
        let start = self.0.as_ptr().cast_mut().cast();
        // SAFETY: the range of our own read-only file mapping; the next access reads the same bytes from the file.
        unsafe { libc::madvise(start, self.0.len(), libc::MADV_DONTNEED) };
    }
}
