//! A descriptor together with the identity (device, inode) of its file. A host may close all descriptors (`os.closerange`,
//! daemonizing) and open its own files under the same numbers; the exporter must not read, write or close those. The check
//! costs one `fstat`. A host that replaces the descriptor between the check and the call still collides.

use rustix::fs::fstat;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};

/// A descriptor with the identity of its file.
pub struct OwnedDescriptor<T: AsFd + IntoRawFd> {
    /// Present until `drop`.
    inner: Option<T>,
    identity: (u64, u64),
}

impl<T: AsFd + IntoRawFd> OwnedDescriptor<T> {
    /// Wraps a descriptor directly after it was opened.
    pub fn new(inner: T) -> io::Result<Self> {
        let identity = identity(&inner)?;
        Ok(Self { inner: Some(inner), identity })
    }

    /// Device and inode of the file.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The descriptor, after checking the identity of its file.
    pub fn get(&self) -> io::Result<&T> {
        let inner = self.inner.as_ref().filter(|inner| identity(*inner).is_ok_and(|now| now == self.identity));
        inner.ok_or_else(|| io::Error::other("the program closed the profiler's descriptor"))
    }
}

impl<T: AsFd + IntoRawFd> Drop for OwnedDescriptor<T> {
    fn drop(&mut self) {
        if self.get().is_err() {
            // Must not be closed: the number is free or belongs to a file of the host.
            self.inner.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

fn identity(file: &impl AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::OwnedDescriptor;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn a_descriptor_is_returned_and_closed() {
        // A socket's number is not given again at once, as that of a file is.
        let socket = File::from(std::os::fd::OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0));
        let file = OwnedDescriptor::new(socket).unwrap();
        let link = format!("/proc/self/fd/{}", file.get().unwrap().as_raw_fd());
        let ours = std::fs::read_link(&link).unwrap();
        drop(file);
        assert_ne!(std::fs::read_link(&link).ok(), Some(ours));
    }

    #[test]
    fn a_descriptor_that_the_host_replaced_is_neither_returned_nor_closed() {
        let mut ours = OwnedDescriptor::new(tempfile::tempfile().unwrap()).unwrap();
        let theirs = tempfile::tempfile().unwrap();
        let number = ours.get().unwrap().as_raw_fd();
        // The host opens another file under the same number.
        let mut borrowed = ours.inner.take().map(std::os::fd::OwnedFd::from).unwrap();
        rustix::io::dup2(theirs.as_fd(), &mut borrowed).unwrap();
        ours.inner = Some(File::from(borrowed));
        assert!(ours.get().is_err());
        drop(ours);
        assert!(std::fs::metadata(format!("/proc/self/fd/{number}")).is_ok(), "the program's file is still open");
    }
}
