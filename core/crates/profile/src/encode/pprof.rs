//! pprof: one gzipped file of all profiles that share a window, each profile type a value type.

use crate::ProfilesData;

/// The file's bytes.
pub fn encode(data: &ProfilesData) -> Vec<u8> {
    let _ = data;
    Vec::new()
}
