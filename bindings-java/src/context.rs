//! A thread's context as five words (label set, trace id in two halves, span id, local root span id), and operations that
//! add labels to it. No state.

use spanprof::context::{self, ContextRow, LabelSetId, Link};

/// Label set, trace id in two halves, span id, local root span id: the bytes of ids in memory order.
pub type Words = [u64; 5];

/// Converts words into a context row.
pub fn row_of(words: &Words) -> ContextRow {
    let mut trace_id = [0; 16];
    trace_id[..8].copy_from_slice(&words[1].to_ne_bytes());
    trace_id[8..].copy_from_slice(&words[2].to_ne_bytes());
    ContextRow {
        label_set: LabelSetId(words[0] as u32),
        link: Link { trace_id, span_id: words[3].to_ne_bytes() },
        local_root_span_id: words[4].to_ne_bytes(),
        capture: (words[0] >> 32) as u32,
    }
}

fn words_of(row: &ContextRow) -> Words {
    let half = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&row.link.trace_id[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    [
        u64::from(row.label_set.0) | u64::from(row.capture) << 32,
        half(0),
        half(8),
        u64::from_ne_bytes(row.link.span_id),
        u64::from_ne_bytes(row.local_root_span_id),
    ]
}

/// `parent` with additional labels `[key, value, key, value, …]`; valid `trace_id` and `span_id` become the span link.
pub fn child(parent: &Words, keys_and_values: &[String]) -> Words {
    let pairs: Vec<(&str, &str)> =
        keys_and_values.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    words_of(&context::with_labels(row_of(parent), &pairs))
}

/// `parent` merged with a prepared context.
pub fn merged(parent: &Words, prepared: &Words) -> Words {
    words_of(&context::merge(row_of(parent), row_of(prepared)))
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
            &[0; 5],
            &texts(&["trace_id", "4bf92f3577b34da6a3ce929d0e0e4736", "span_id", "00f067aa0ba902b7", "a", "1"]),
        );
        assert_eq!(outer[1].to_ne_bytes(), [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6]);
        let inner = child(&outer, &texts(&["b", "2"]));
        assert_eq!(inner[1..], outer[1..]);
        assert_eq!(labels_of(inner[0] as u32), texts(&["a", "1", "b", "2"]));
        assert_eq!(merged(&outer, &child(&[0; 5], &texts(&["b", "2"]))), inner);
    }
}
