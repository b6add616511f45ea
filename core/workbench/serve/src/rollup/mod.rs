//! Files that each merge the windows of a minute, ten minutes or an hour.

pub(crate) mod buckets;
pub(crate) mod merged;
pub(crate) mod stored;
