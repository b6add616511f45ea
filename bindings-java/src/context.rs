//! A thread's context as Java passes it, and operations that add labels to it. No state.

use spanprof_aggregate::context::{self, ContextRow, LabelSetId, Link};

/// A context as Java passes it, a `long[5]` (`ThreadScope.WORDS`). The words of ids have the ids' bytes in memory order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextWords {
    /// The label set in the lower half, the number of the capture in the upper half.
    label_set_and_capture: u64,
    trace_id: [u64; 2],
    span_id: u64,
    local_root_span_id: u64,
}

impl ContextWords {
    /// Number of words.
    pub const COUNT: usize = 5;

    pub fn from_array([label_set_and_capture, trace_high, trace_low, span_id, local_root]: [u64; Self::COUNT]) -> Self {
        Self { label_set_and_capture, trace_id: [trace_high, trace_low], span_id, local_root_span_id: local_root }
    }

    pub fn to_array(self) -> [u64; Self::COUNT] {
        let [trace_high, trace_low] = self.trace_id;
        [self.label_set_and_capture, trace_high, trace_low, self.span_id, self.local_root_span_id]
    }

    /// The context with this link, labels and capture.
    pub fn row(self) -> ContextRow {
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&self.trace_id[0].to_ne_bytes());
        trace_id[8..].copy_from_slice(&self.trace_id[1].to_ne_bytes());
        ContextRow {
            label_set: LabelSetId(self.label_set_and_capture as u32),
            link: Link { trace_id, span_id: self.span_id.to_ne_bytes() },
            local_root_span_id: self.local_root_span_id.to_ne_bytes(),
            capture: (self.label_set_and_capture >> 32) as u32,
        }
    }

    fn from_row(row: &ContextRow) -> Self {
        let half = |start: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&row.link.trace_id[start..start + 8]);
            u64::from_ne_bytes(word)
        };
        Self {
            label_set_and_capture: u64::from(row.label_set.0) | u64::from(row.capture) << 32,
            trace_id: [half(0), half(8)],
            span_id: u64::from_ne_bytes(row.link.span_id),
            local_root_span_id: u64::from_ne_bytes(row.local_root_span_id),
        }
    }
}

/// `parent` with additional labels `[key, value, key, value, …]`; valid `trace_id` and `span_id` become the span link.
pub fn child(parent: ContextWords, keys_and_values: &[String]) -> ContextWords {
    let pairs: Vec<(&str, &str)> =
        keys_and_values.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    ContextWords::from_row(&context::with_labels(parent.row(), &pairs))
}

/// `parent` merged with a prepared context.
pub fn merged(parent: ContextWords, prepared: ContextWords) -> ContextWords {
    ContextWords::from_row(&context::merge(parent.row(), prepared.row()))
}

/// The labels of a set: key, value, key, value, ….
pub fn labels_of(label_set: u32) -> Vec<String> {
    context::labels_of(LabelSetId(label_set)).into_iter().flat_map(|(key, value)| [key, value]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_child_has_the_parents_labels_and_link_and_its_own() {
        let outer = child(
            ContextWords::default(),
            &texts(&["trace_id", "4bf92f3577b34da6a3ce929d0e0e4736", "span_id", "00f067aa0ba902b7", "a", "1"]),
        );
        assert_eq!(outer.trace_id[0].to_ne_bytes(), [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6]);
        let inner = child(outer, &texts(&["b", "2"]));
        assert_eq!(inner.to_array()[1..], outer.to_array()[1..]);
        assert_eq!(labels_of(inner.label_set_and_capture as u32), texts(&["a", "1", "b", "2"]));
        assert_eq!(merged(outer, child(ContextWords::default(), &texts(&["b", "2"]))), inner);
    }

    #[test]
    fn the_words_of_an_array_are_in_the_order_of_thread_scope() {
        let words = ContextWords::from_array([7 << 32 | 3, 1, 2, 4, 5]);
        let row = words.row();
        assert_eq!((row.label_set, row.capture), (LabelSetId(3), 7));
        assert_eq!(row.link.trace_id[8..], 2u64.to_ne_bytes());
        assert_eq!(row.local_root_span_id, 5u64.to_ne_bytes());
        assert_eq!(ContextWords::from_row(&row), words);
        assert_eq!(words.to_array(), [7 << 32 | 3, 1, 2, 4, 5]);
    }
}
