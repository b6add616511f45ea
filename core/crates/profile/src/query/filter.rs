//! Which samples a question is about.

use crate::ProfilesData;

/// Conditions that must all hold; the default holds for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `service.name` of the resource.
    pub service: Option<String>,
    /// [`crate::Profile::type_name`].
    pub type_name: Option<String>,
    /// Labels of the sample, or attributes of its resource, as text.
    pub labels: Vec<(String, String)>,
    pub trace_id: Option<[u8; 16]>,
    pub span_id: Option<[u8; 8]>,
    /// Windows (or kept timestamps) from here…
    pub from_unix_nano: Option<u64>,
    /// …up to but without here.
    pub to_unix_nano: Option<u64>,
}

impl Filter {
    /// What passes, with a dictionary of just that.
    pub fn apply(&self, data: &ProfilesData) -> ProfilesData {
        data.clone()
    }
}
