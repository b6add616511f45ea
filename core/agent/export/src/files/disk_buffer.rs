//! Requests of one destination as files: they outlive an outage of the receiver and the process. Runs on threads that may
//! block; `spool` decides when a request is stored, `deliver` when it is removed.
//!
//! Layout: `<buffer directory>/<service>-<kind>-<checksum>/<process>/<request>`. Each exporter holds an exclusive `flock` on
//! its own process directory for as long as it runs. A directory without a lock belongs to a process that has exited, and the
//! next exporter of the same destination adopts its requests.
//!
//! # Decisions
//! 1. One file per request, renamed, with a checksum and without `fsync`: `rename` is enough for `kill -9`, the checksum detects
//!    the torn file of a power failure. A segmented log needs rewriting and scanning.
//! 2. Written before the first attempt: `kill -9` during it would lose the request.
//! 3. `flock` and not `fcntl`: the host's `close` of any descriptor of the file would release the lock. In a forked child the
//!    copy of the descriptor is closed. A process id in the name does not identify a process of another container.
//! 4. A failed or late write leaves the request in memory and is counted. A request is sent twice if the process is killed
//!    between the response and the removal; profiles have ids, by which `spanprof serve` counts them once.

use crate::connect::owned_descriptor::OwnedDescriptor;
use crate::error::{ExportError, ExportErrorKind};
use crate::queue::bounded_queue::QueuedPayload;
use crate::queue::buffered_request::{self, RequestHeader, StoredRequest};
use crate::settings::BufferSettings;
use bytes::Bytes;
use rustix::fs::{self as rfs, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Suffix of a complete request.
const COMPLETE: &str = ".request";
/// Suffix of a request that is being written.
const INCOMPLETE: &str = ".tmp";
/// Prefix of a process directory whose lock is not held yet.
const NEW_DIRECTORY: &str = ".new-";
/// Attempts to create a directory that processes which start at the same time take for an abandoned one.
const MAX_CREATIONS: u32 = 100;

/// A request of a process that has exited.
#[derive(Debug)]
pub(crate) struct AdoptedRequest {
    pub request: StoredRequest,
    pub header: RequestHeader,
}

/// Reason why a stored request cannot be sent.
#[derive(Debug)]
pub(crate) enum LoadFailure {
    /// Another process adopted it, after the host closed the descriptor that holds the lock.
    Missing,
    /// Its length or checksum is wrong, or it cannot be read.
    Torn(String),
}

/// The disk buffer of one destination and one process.
pub(crate) struct DiskBuffer {
    /// Directory of this destination, shared by the processes of the service.
    shared: PathBuf,
    own: Mutex<OwnDirectory>,
}

enum OwnDirectory {
    /// Not created yet, or released in a forked child.
    Absent,
    Locked(Arc<ProcessDirectory>),
    /// After [`DiskBuffer::finish`]. A write that outlives the exporter must not create a directory that nobody removes.
    Finished,
}

/// The locked directory of this exporter.
struct ProcessDirectory {
    descriptor: OwnedDescriptor<OwnedFd>,
    name: String,
    /// Part of each file's name: files of several processes meet in one directory after an adoption.
    id: u64,
}

impl DiskBuffer {
    /// Creates the directories. `destination` identifies the destination across restarts.
    pub fn start(settings: &BufferSettings, kind: &str, destination: &str) -> Result<Arc<Self>, ExportError> {
        let shared = settings.directory.join(directory_name(&settings.service, kind, destination));
        let buffer = Self { shared, own: Mutex::new(OwnDirectory::Absent) };
        buffer.own().map_err(|error| {
            ExportError::new(
                ExportErrorKind::File,
                format!("the directory `{}` for the buffer cannot be used: {error}", settings.directory.display()),
                "give buffer_directory a directory on a local disk that only this user may write",
            )
        })?;
        Ok(Arc::new(buffer))
    }

    /// Name of a request: the start of its window, its number, and its process. The same for every attempt to store it.
    pub fn name(&self, unix_ms: u64, sequence: u64) -> Arc<str> {
        let id = match &*self.lock() {
            OwnDirectory::Locked(own) => own.id,
            OwnDirectory::Absent | OwnDirectory::Finished => 0,
        };
        format!("{unix_ms:013}-{sequence:010}-{id:016x}{COMPLETE}").into()
    }

    /// Writes a request. Its file is complete or absent after a kill. It is not synchronized: after a power failure, the
    /// checksum detects a torn file.
    pub fn store(&self, name: &str, payload: &QueuedPayload) -> io::Result<()> {
        let own = self.own()?;
        let directory = own.descriptor.get()?;
        let unfinished = format!("{name}.{:016x}{INCOMPLETE}", random());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rfs::openat(directory, unfinished.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        let file = OwnedDescriptor::new(file)?;
        let header = RequestHeader { samples: payload.samples, time_unix_ms: payload.time_unix_ms };
        let written = file
            .get()
            .and_then(|mut file| {
                file.write_all(&buffered_request::encode_header(header, &payload.body))?;
                file.write_all(&payload.body)
            })
            .and_then(|()| Ok(rfs::renameat(directory, unfinished.as_str(), directory, name)?));
        if written.is_err() {
            // Nothing to do if this fails as well: the next process removes it.
            let _ = rfs::unlinkat(directory, unfinished.as_str(), AtFlags::empty());
        }
        written
    }

    /// Reads the body of a request and verifies it.
    pub fn load(&self, request: &StoredRequest) -> Result<Bytes, LoadFailure> {
        let read = || -> io::Result<Vec<u8>> {
            let own = self.own()?;
            let file = open_request(own.descriptor.get()?, &request.name)?;
            let mut content = Vec::with_capacity(request.bytes as usize + buffered_request::HEADER_BYTES);
            let limit = request.bytes + buffered_request::HEADER_BYTES as u64 + 1;
            file.take(limit).read_to_end(&mut content)?;
            Ok(content)
        };
        match read() {
            Ok(content) => match buffered_request::decode(content.into()) {
                Some((_, body)) => Ok(body),
                None => Err(LoadFailure::Torn(format!("{} in the buffer is torn", request.name))),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Err(LoadFailure::Missing),
            Err(error) => Err(LoadFailure::Torn(format!("{} in the buffer cannot be read: {error}", request.name))),
        }
    }

    /// Removes requests that are settled.
    pub fn remove(&self, requests: &[StoredRequest]) {
        let Ok(own) = self.own() else { return };
        let Ok(directory) = own.descriptor.get() else { return };
        for request in requests {
            // Another process may have adopted it.
            let _ = rfs::unlinkat(directory, &*request.name, AtFlags::empty());
        }
    }

    /// Moves the requests of exited processes into the own directory, oldest first. Returns the torn ones as a count.
    pub fn adopt(&self) -> io::Result<(Vec<AdoptedRequest>, u64)> {
        let own = self.own()?;
        let directory = own.descriptor.get()?;
        let shared = open_directory(rfs::CWD, &self.shared)?;
        let (mut adopted, mut torn) = (Vec::new(), 0);
        for name in names(&shared)? {
            // Also directories whose creation was interrupted; a live creator holds the lock or fails and tries again.
            let Ok(exited) = open_directory(&shared, &name) else { continue };
            if rfs::flock(&exited, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            for file in names(&exited)? {
                let header = if file.ends_with(COMPLETE) { read_header(&exited, &file) } else { None };
                match header {
                    Some((header, bytes)) => {
                        rfs::renameat(&exited, file.as_str(), directory, file.as_str())?;
                        let request = StoredRequest { name: file.into(), bytes };
                        adopted.push(AdoptedRequest { request, header });
                    }
                    None => {
                        torn += u64::from(file.ends_with(COMPLETE));
                        let _ = rfs::unlinkat(&exited, file.as_str(), AtFlags::empty());
                    }
                }
            }
            // Empty now; if not, the next start tries again.
            let _ = rfs::unlinkat(&shared, name.as_str(), AtFlags::REMOVEDIR);
        }
        adopted.sort_by(|one, other| one.request.name.cmp(&other.request.name));
        Ok((adopted, torn))
    }

    /// Removes the own directory when it is empty, so that it does not outlive the process, and releases it: an operation that
    /// `stop` interrupted, or a process that another thread is starting, may hold the descriptor for longer.
    pub fn finish(&self) {
        if let OwnDirectory::Locked(own) = std::mem::replace(&mut *self.lock(), OwnDirectory::Finished) {
            if let Ok(shared) = open_directory(rfs::CWD, &self.shared) {
                let _ = rfs::unlinkat(&shared, own.name.as_str(), AtFlags::REMOVEDIR);
            }
            let _ = own.descriptor.get().map(|descriptor| rfs::flock(descriptor, FlockOperation::Unlock));
        }
    }

    /// See [`crate::Exporter::release_locks_in_child`].
    pub fn release_lock_in_child(&self) {
        // A thread that does not exist here may hold the mutex; the copy is then closed by the end or `exec` of the child.
        if let Ok(mut own) = self.own.try_lock() {
            *own = OwnDirectory::Absent;
        }
    }

    /// The own directory; created again when the host closed its descriptor or removed it.
    fn own(&self) -> io::Result<Arc<ProcessDirectory>> {
        let mut own = self.lock();
        match &*own {
            OwnDirectory::Locked(usable) if usable.is_linked() => return Ok(usable.clone()),
            OwnDirectory::Finished => return Err(io::Error::other("the exporter has stopped")),
            OwnDirectory::Locked(_) | OwnDirectory::Absent => {}
        }
        let created = Arc::new(ProcessDirectory::create(&self.shared)?);
        *own = OwnDirectory::Locked(created.clone());
        Ok(created)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OwnDirectory> {
        // Only assigned as a whole under the lock.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessDirectory {
    /// Creates and locks a directory. It gets its final name under the lock, so that no process adopts it before.
    fn create(shared_path: &std::path::Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(shared_path)?;
        let shared = open_directory(rfs::CWD, shared_path)?;
        let stat = rfs::fstat(&shared)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            let message = format!("`{}` belongs to another user or is writable by others", shared_path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, message));
        }
        for _ in 0..MAX_CREATIONS {
            let id = random();
            let final_name = format!("{}-{}-{id:016x}", unix_ms(), std::process::id());
            let new_name = format!("{NEW_DIRECTORY}{final_name}");
            rfs::mkdirat(&shared, new_name.as_str(), Mode::RWXU)?;
            let locked = || -> io::Result<OwnedDescriptor<OwnedFd>> {
                let descriptor = open_directory(&shared, &new_name)?;
                rfs::flock(&descriptor, FlockOperation::NonBlockingLockExclusive)?;
                rfs::renameat(&shared, new_name.as_str(), &shared, final_name.as_str())?;
                OwnedDescriptor::new(descriptor)
            };
            match locked() {
                // Another process that starts took it for an abandoned one.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotFound) => {}
                Ok(descriptor) => return Ok(Self { descriptor, name: final_name, id }),
                Err(error) => {
                    let _ = rfs::unlinkat(&shared, new_name.as_str(), AtFlags::REMOVEDIR);
                    return Err(error);
                }
            }
        }
        Err(ErrorKind::ResourceBusy.into())
    }

    /// Whether the descriptor is still ours and its directory exists.
    fn is_linked(&self) -> bool {
        let stat = self.descriptor.get().and_then(|descriptor| Ok(rfs::fstat(descriptor)?));
        stat.is_ok_and(|stat| stat.st_nlink > 0)
    }
}

/// `<service>-<kind>-<checksum>`: readable, and distinct for each receiver.
fn directory_name(service: &str, kind: &str, destination: &str) -> String {
    let safe = |character: char| if character.is_ascii_alphanumeric() || character == '_' { character } else { '_' };
    let readable: String = service.chars().take(48).map(safe).collect();
    let mut checksum = flate2::Crc::new();
    checksum.update(format!("{service}\0{kind}\0{destination}").as_bytes());
    format!("{readable}-{kind}-{:08x}", checksum.sum())
}

fn open_directory(parent: impl AsFd, path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rfs::openat(parent, path, flags, Mode::empty())?)
}

/// Opens a regular file only. `NONBLOCK` avoids waiting on a pipe in its place.
fn open_request(directory: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rfs::openat(directory, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(rfs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"));
    }
    Ok(File::from(file))
}

/// The header of a request, and the bytes of its body; `None` when the file does not have the length in the header.
fn read_header(directory: impl AsFd, name: &str) -> Option<(RequestHeader, u64)> {
    let mut file = open_request(directory, name).ok()?;
    let mut start = [0; buffered_request::HEADER_BYTES];
    file.read_exact(&mut start).ok()?;
    let (header, bytes) = buffered_request::decode_header(&start)?;
    let length = file.metadata().ok()?.len();
    (length == bytes.checked_add(start.len() as u64)?).then_some((header, bytes))
}

/// Names in a directory, without `.` and `..` and without names that are not UTF-8, which this module never writes.
fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let entries = Dir::read_from(directory)?.filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
    names.sort_unstable();
    Ok(names)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Differs between threads, processes and calls: a forked child inherits the keys of `RandomState`.
fn random() -> u64 {
    RandomState::new().hash_one((std::process::id(), SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn started(directory: &std::path::Path) -> Arc<DiskBuffer> {
        let settings = BufferSettings {
            directory: directory.to_owned(),
            service: "shop".to_owned(),
            max_bytes: 1 << 20,
            max_age: Duration::MAX,
            split: None,
        };
        DiskBuffer::start(&settings, "otlp_http", "http://127.0.0.1:4318").unwrap()
    }

    fn store(buffer: &DiskBuffer, name: &str) -> io::Result<()> {
        let payload = QueuedPayload {
            body: Bytes::from_static(b"profiles"),
            profile_type: None,
            time_unix_ms: 1,
            samples: 1,
            split: None,
            sidecar: None,
            expires_at: Duration::MAX,
            stored: None,
        };
        buffer.store(name, &payload)
    }

    #[test]
    fn a_write_that_outlives_the_exporter_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let buffer = started(directory.path());
        let name = buffer.name(1, 0);

        buffer.finish();

        assert!(store(&buffer, &name).is_err());
        assert_eq!(std::fs::read_dir(&buffer.shared).unwrap().count(), 0);
    }

    #[test]
    fn an_operation_that_outlives_the_exporter_does_not_keep_its_requests_from_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let buffer = started(directory.path());
        store(&buffer, &buffer.name(1, 0)).unwrap();
        let _operation = buffer.own().unwrap();

        buffer.finish();

        let (adopted, torn) = started(directory.path()).adopt().unwrap();
        assert_eq!((adopted.len(), torn), (1, 0));
    }
}
