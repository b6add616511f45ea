//! A descriptor of ours, together with the identity of the file behind it. A host may close every descriptor that it does not
//! know (`os.closerange`, daemonizing) and open files of its own under the same numbers; those are neither read, written nor
//! closed here. The check costs one `fstat`. A host that does so between the check and the call still collides.

use rustix::fs::fstat;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};

/// See the head of the module.
pub(crate) struct Owned<T: AsFd + IntoRawFd> {
    /// Only `drop` takes it.
    inner: Option<T>,
    identity: (u64, u64),
}

impl<T: AsFd + IntoRawFd> Owned<T> {
    /// Takes a descriptor that was opened just now.
    pub fn new(inner: T) -> io::Result<Self> {
        let identity = identity(&inner)?;
        Ok(Self { inner: Some(inner), identity })
    }

    /// The descriptor, after checking that it is still ours.
    pub fn get(&self) -> io::Result<&T> {
        let inner = self.inner.as_ref().filter(|inner| identity(*inner).is_ok_and(|now| now == self.identity));
        inner.ok_or_else(|| io::Error::other("the program closed the profiler's descriptor"))
    }
}

impl<T: AsFd + IntoRawFd> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.get().is_err() {
            // Not ours to close: the number is free, or a file of the program has it.
            self.inner.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

fn identity(file: &impl AsFd) -> io::Result<(u64, u64)> {
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::Owned;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn a_descriptor_of_ours_is_given_and_closed() {
        let file = Owned::new(tempfile::tempfile().unwrap()).unwrap();
        let link = format!("/proc/self/fd/{}", file.get().unwrap().as_raw_fd());
        let ours = std::fs::read_link(&link).unwrap();
        drop(file);
        assert_ne!(std::fs::read_link(&link).ok(), Some(ours));
    }

    #[test]
    fn a_descriptor_that_the_program_replaced_is_neither_given_nor_closed() {
        let mut ours = Owned::new(tempfile::tempfile().unwrap()).unwrap();
        let theirs = tempfile::tempfile().unwrap();
        let number = ours.get().unwrap().as_raw_fd();
        // As the program does it: another file under our number.
        let mut borrowed = ours.inner.take().map(std::os::fd::OwnedFd::from).unwrap();
        rustix::io::dup2(theirs.as_fd(), &mut borrowed).unwrap();
        ours.inner = Some(File::from(borrowed));
        assert!(ours.get().is_err());
        drop(ours);
        assert!(std::fs::metadata(format!("/proc/self/fd/{number}")).is_ok(), "the program's file is still open");
    }
}
