//! Object storage by URL: Amazon S3 and compatible servers, Google Cloud Storage, Azure Blob Storage. Used by the reading verbs,
//! by outputs, `upload` and the destinations of `scrape`. Builds without the feature `object-storage` reject such URLs.
//!
//! The crate `object_store` signs, lists and retries, on the connections of the destinations: with `reqwest` it has 167 crates
//! and a second TLS provider. Own signatures for S3 alone are about 300 lines, and credentials of instances and pods more. Names
//! are chosen without reading the storage (`<type>-<ms>-<hash>.pb.gz`), so a repeated attempt replaces its own object;
//! conditional writes are not supported everywhere. `upload` never replaces. Credentials of `~/.aws` are not read.

#[cfg(feature = "object-storage")]
mod access;
#[cfg(feature = "object-storage")]
mod connections;
#[cfg(feature = "object-storage")]
mod environment;
#[cfg(feature = "object-storage")]
mod errors;
#[cfg(not(feature = "object-storage"))]
mod unavailable;
mod url;

#[cfg(feature = "object-storage")]
pub(crate) use access::ObjectStorage;
#[cfg(not(feature = "object-storage"))]
pub(crate) use unavailable::NoObjectStorage as ObjectStorage;
pub(crate) use url::{path_of_file_url, ObjectUrl};

use std::path::Path;

use spanprof_export::{PayloadWriter, WriteError, WriteErrorKind};

use spanprof_answers::failure::Failure;
use spanprof_answers::profile_name::has_profile_suffix;

/// Clocks of the storage and of profiled machines may differ by this.
const CLOCK_TOLERANCE_NS: u64 = 3_600_000_000_000;

/// An object of a listing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedObject {
    pub key: String,
    pub bytes: u64,
    pub modified_unix_nano: u64,
}

/// An operation that failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StorageError {
    pub message: String,
    pub hint: Option<&'static str>,
    pub kind: WriteErrorKind,
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        let failure = Failure::new(error.message);
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Of a listing, the profiles: no side-cars, nothing hidden, and with `from_unix_nano` nothing that was complete long before.
pub(crate) fn profiles(mut listed: Vec<ListedObject>, from_unix_nano: Option<u64>) -> Vec<ListedObject> {
    listed.sort_by(|left, right| left.key.cmp(&right.key));
    let keys: std::collections::HashSet<String> = listed.iter().map(|object| object.key.clone()).collect();
    let is_sidecar = |key: &str| key.strip_suffix(".json").is_some_and(|stem| keys.contains(&format!("{stem}.pb.gz")));
    listed.retain(|object| {
        let name = object.key.rsplit('/').next().unwrap_or_default();
        let is_recent =
            from_unix_nano.is_none_or(|from| object.modified_unix_nano >= from.saturating_sub(CLOCK_TOLERANCE_NS));
        is_recent && !name.starts_with('.') && has_profile_suffix(Path::new(name)) && !is_sidecar(&object.key)
    });
    listed
}

/// The destination of `scrape` below a prefix.
#[derive(Debug)]
pub(crate) struct ObjectWriter {
    storage: ObjectStorage,
}

impl ObjectWriter {
    /// Reads the credentials; sends no request.
    pub(crate) fn open(prefix: &ObjectUrl) -> Result<Self, Failure> {
        ObjectStorage::open(prefix).map(|storage| Self { storage })
    }
}

impl PayloadWriter for ObjectWriter {
    fn kind(&self) -> &'static str {
        "object_storage"
    }

    fn shown(&self) -> String {
        self.storage.url().to_string()
    }

    fn write(&self, name: &str, body: &[u8]) -> Result<(), WriteError> {
        let key = self.storage.url().key_below(name);
        self.storage.put(&key, body.to_vec()).map_err(|StorageError { message, kind, .. }| WriteError { message, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, modified_unix_nano: u64) -> ListedObject {
        ListedObject { key: key.to_owned(), bytes: 1, modified_unix_nano }
    }

    #[test]
    fn profiles_of_a_listing_exclude_side_cars_hidden_and_other_objects() {
        let keys =
            ["p/b/cpu-2.pb.gz", "p/cpu-1.pb.gz", "p/cpu-1.json", "p/x.json", "p/.hidden.pb.gz", "p/readme.md", "p/"];
        let found = profiles(keys.iter().map(|key| object(key, 0)).collect(), None);
        let found: Vec<_> = found.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(found, ["p/b/cpu-2.pb.gz", "p/cpu-1.pb.gz", "p/x.json"]);
    }

    #[test]
    fn objects_complete_long_before_the_range_are_not_requested() {
        let hour = CLOCK_TOLERANCE_NS;
        let found = profiles(vec![object("old.pb.gz", hour - 1), object("new.pb.gz", hour)], Some(2 * hour));
        assert_eq!(found, [object("new.pb.gz", hour)]);
    }
}
