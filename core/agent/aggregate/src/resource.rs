//! The OTLP resource of the profiles. Not here: its attributes (the profiler).

use spanprof_profile::Attribute;

/// Receivers store each attribute as a label of every series. Pyroscope refuses more than 30 of them, with those of samples and of
/// the span link; resource detectors for Kubernetes alone find 10 to 20.
pub const MAX_RESOURCE_ATTRIBUTES: usize = 20;

/// An attribute of the resource, always a string. The Collector's exporters (`otlp_http` from 0.161, `otlp_grpc` from
/// 0.163) rewrite keys and strings to dictionary references. Pyroscope (1.21 to 2.2.1) does not resolve references: an
/// attribute that keeps an inline number then has a value without a key, and the request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceAttribute {
    pub key: String,
    pub value: String,
}

impl From<&ResourceAttribute> for Attribute {
    fn from(attribute: &ResourceAttribute) -> Self {
        Self::string(attribute.key.as_str(), attribute.value.as_str())
    }
}

/// The resource of this process, redacted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub attributes: Vec<ResourceAttribute>,
    pub service_name: String,
    /// Attributes beyond the limit.
    pub dropped: u64,
    /// Attributes for the side-cars of files only, redacted as well.
    pub deployment: Vec<Attribute>,
}

impl Resource {
    /// Adds an attribute, unless it is empty or its key is known. Beyond the limit it is counted only.
    pub fn add(&mut self, key: &str, value: &str) {
        if key.is_empty() || value.is_empty() || self.attributes.iter().any(|attribute| attribute.key == key) {
            return;
        }
        if self.attributes.len() == MAX_RESOURCE_ATTRIBUTES {
            self.dropped += 1;
            return;
        }
        self.attributes.push(ResourceAttribute { key: key.to_owned(), value: value.to_owned() });
    }

    /// The value of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.key == key).map(|attribute| attribute.value.as_str())
    }
}
