//! A span with the local root of its tree: samples have the innermost span, a request has all samples of its tree.
//!
//! OTLP's links have no local root. Receivers such as Pyroscope make a series of each value of a sample's attribute, so the local
//! roots are one attribute of the profile, which they ignore (Pyroscope 1.21 to 2.4, `pkg/ingester/otlp`): local root, `=`, the spans
//! below it separated by commas, in hex; trees are separated by `;`.

use std::collections::BTreeMap;
use std::fmt::Write;

use hashbrown::HashMap;

use super::Link;

/// A span of a sample, and the local root of its tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeSpan {
    /// Trace and span.
    pub link: Link,
    /// Span id of the local root; all zeros if it is unknown, or the span itself.
    local_root_span_id: [u8; 8],
}

impl From<Link> for TreeSpan {
    fn from(link: Link) -> Self {
        Self { link, local_root_span_id: [0; 8] }
    }
}

impl TreeSpan {
    /// The span `link` below a local root; all zeros for an unknown one.
    pub fn below(link: Link, local_root_span_id: [u8; 8]) -> Self {
        let is_root = local_root_span_id == link.span_id || link.trace_id == [0; 16];
        Self { link, local_root_span_id: if is_root { [0; 8] } else { local_root_span_id } }
    }

    /// Whether it is below another span.
    pub fn is_below(self) -> bool {
        self.local_root_span_id != [0; 8]
    }

    /// The local root: the request.
    pub fn root(self) -> Link {
        let span_id = if self.is_below() { self.local_root_span_id } else { self.link.span_id };
        Link { span_id, ..self.link }
    }

    /// Whether its trace is that of a request without one (`spanprof_aggregate::context::in_request`).
    pub fn has_own_trace(self) -> bool {
        let root = self.root().span_id;
        root != [0; 8] && self.link.trace_id == own_trace(root)
    }
}

/// The trace of a request without one: a hash of its local root (SplitMix64), and the root itself.
pub fn own_trace(root: [u8; 8]) -> [u8; 16] {
    let root = u64::from_be_bytes(root);
    let mixed = (root ^ root >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (u128::from(mixed ^ mixed >> 31) << 64 | u128::from(root)).to_be_bytes()
}

/// Local roots by span id: the attribute [`LocalRoots::KEY`] of a profile.
#[derive(Clone, Debug, Default)]
pub struct LocalRoots(HashMap<[u8; 8], [u8; 8]>);

impl LocalRoots {
    /// Key of the attribute.
    pub const KEY: &'static str = "spanprof.local_roots";

    /// The value of the attribute; `None` if no span is below another.
    pub fn text(spans: impl Iterator<Item = TreeSpan>) -> Option<String> {
        let mut trees: BTreeMap<[u8; 8], Vec<[u8; 8]>> = BTreeMap::new();
        for span in spans.filter(|span| span.is_below()) {
            trees.entry(span.local_root_span_id).or_default().push(span.link.span_id);
        }
        let mut text = String::new();
        for (root, mut spans) in trees {
            let _ = write!(text, "{}{}", if text.is_empty() { "" } else { ";" }, hex::encode(root));
            spans.sort_unstable();
            spans.dedup();
            for (nth, span) in spans.iter().enumerate() {
                let _ = write!(text, "{}{}", if nth == 0 { '=' } else { ',' }, hex::encode(span));
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// Reads the value of the attribute; parts that are not valid are left out.
    pub fn parse(text: &str) -> Self {
        fn id(text: &str) -> Option<[u8; 8]> {
            let mut id = [0; 8];
            hex::decode_to_slice(text, &mut id).ok().map(|()| id)
        }
        let mut roots = HashMap::new();
        for (root, spans) in text.split(';').filter_map(|tree| tree.split_once('=')) {
            let Some(root) = id(root) else { continue };
            roots.extend(spans.split(',').filter_map(id).map(|span| (span, root)));
        }
        Self(roots)
    }

    /// The span `link` below its local root.
    pub fn place(&self, link: Link) -> TreeSpan {
        TreeSpan::below(link, self.0.get(&link.span_id).copied().unwrap_or_default())
    }

    /// Whether it has no span.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_roots_of_a_profile_are_read_as_they_were_written() {
        let link = |span| Link { trace_id: [1; 16], span_id: [span; 8] };
        let spans =
            [(2, 1), (3, 1), (1, 1), (5, 4), (6, 0), (3, 1)].map(|(span, root)| TreeSpan::below(link(span), [root; 8]));
        let text = LocalRoots::text(spans.into_iter()).unwrap();
        assert_eq!(text, "0101010101010101=0202020202020202,0303030303030303;0404040404040404=0505050505050505");
        let roots = LocalRoots::parse(&format!("x;=;zz=1;{text}"));
        for span in spans {
            assert_eq!(roots.place(span.link), span);
        }
        assert_eq!((spans[0].root(), spans[2].root()), (link(1), link(1)));
        assert_eq!(LocalRoots::text([TreeSpan::from(link(1))].into_iter()), None);
    }
}
