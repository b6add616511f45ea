//! Decoder of folded stacks, the text format of flame graph tools: `root;…;leaf weight` lines. The format has no unit and no
//! times: the profile has the type `samples`/`count` and no window. A line that begins with `#` is a comment, as in the
//! output of `perf` and its tools. A line with a weight only is a sample without frames: `py-spy record -f raw` writes one for
//! threads that have none (py-spy 0.3-0.4, src/flamegraph.rs).

use std::borrow::Cow;

use hashbrown::HashMap;

use super::{decompress, DecodeError, DecodeLimits};
use spanprof_profile::*;

const WHAT: &str = "folded stacks";

fn decode_error(line: usize, expected: impl Into<String>, got: impl Into<String>) -> DecodeError {
    DecodeError { what: WHAT, at: format!("line {}", line + 1), expected: expected.into(), got: got.into() }
}

/// Whether the first lines of a text are folded stacks.
pub(super) fn is_folded(text: &str) -> bool {
    const CHECKED_LINES: usize = 10;
    let lines = text.lines().filter(|line| !is_empty(line)).take(CHECKED_LINES).map(stack_and_weight);
    lines.collect::<Option<Vec<_>>>().is_some_and(|lines| lines.iter().any(|(frames, _)| !frames.is_empty()))
}

/// Decodes plain or gzipped bytes.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    decode_decompressed(decompress::decompress(WHAT, bytes, limits)?, limits)
}

pub(super) fn decode_decompressed(body: Cow<'_, [u8]>, limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    let mut dictionary = Dictionary::new();
    let mut samples: Vec<Sample> = Vec::new();
    let mut sample_of: HashMap<StackId, usize> = HashMap::new();
    let mut location_of: HashMap<&str, LocationId> = HashMap::new();
    let mut stack = Vec::new();
    let text = match std::str::from_utf8(&body) {
        Ok(text) => text,
        Err(error) => {
            let line = body[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            return Err(decode_error(line, "UTF-8", "other bytes"));
        }
    };
    for (nth, line) in text.lines().enumerate() {
        if is_empty(line) {
            continue;
        }
        let Some((frames, weight)) = stack_and_weight(line) else {
            let shown: String = line.chars().take(40).collect();
            return Err(decode_error(nth, "`frame;frame weight` with a whole number", format!("{shown:?}")));
        };
        stack.clear();
        for name in frames.rsplit(';').filter(|_| !frames.is_empty()) {
            stack.push(*location_of.entry(name).or_insert_with(|| location(&mut dictionary, name)));
        }
        if stack.len() > limits.stack_depth {
            return Err(decode_error(nth, format!("at most {} frames", limits.stack_depth), stack.len().to_string()));
        }
        let stack = dictionary.stack(&stack);
        let sample = *sample_of.entry(stack).or_insert(samples.len());
        match samples.get_mut(sample) {
            Some(sample) => sample.values[0] = sample.values[0].saturating_add(weight),
            None => samples.push(Sample { stack, values: vec![weight], ..Sample::default() }),
        }
        if samples.len() > limits.table_entries || location_of.len() > limits.table_entries {
            return Err(decode_error(nth, format!("at most {} stacks and functions", limits.table_entries), "more"));
        }
        if dictionary.memory_bytes() > limits.memory_bytes / 2 {
            return Err(decode_error(nth, format!("stacks of at most {} bytes", limits.memory_bytes / 2), "more"));
        }
    }
    samples.retain(|sample| sample.values[0] != 0);
    let sample_type = ValueType::new("samples", "count");
    let profiles = vec![Profile { sample_type, samples, ..Profile::default() }];
    let resources = vec![ResourceProfiles {
        resource: Vec::new(),
        scope: Scope::default(),
        profiles,
        ..ResourceProfiles::default()
    }];
    Ok(ProfilesData { dictionary, resources })
}

fn is_empty(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

fn stack_and_weight(line: &str) -> Option<(&str, i64)> {
    let (frames, weight) = line.trim_end().rsplit_once(' ')?;
    Some((frames, weight.parse().ok().filter(|weight| *weight >= 0)?))
}

fn location(dictionary: &mut Dictionary, name: &str) -> LocationId {
    let name = dictionary.string(name);
    let function = dictionary.function(Function { name, ..Function::default() });
    dictionary.location(Location { lines: &[Line { function, ..Line::default() }], ..Location::default() })
}

#[cfg(test)]
mod tests {
    use crate::decode::{any, DecodeLimits, Format};
    use spanprof_profile::encode::folded;
    use spanprof_profile::transform::tree;
    use spanprof_profile::ProfilesData;

    #[test]
    fn decoded_folded_stacks_are_encoded_unchanged() {
        let text = "main;read file 3\nmain;serve;cart 12\n";
        let (format, data) = any(text.as_bytes(), &DecodeLimits::default()).unwrap();
        assert_eq!(format, Format::Folded);
        assert_eq!(folded::encode(&tree(&data, "samples")), text);
    }

    #[test]
    fn equal_stacks_on_several_lines_are_one_sample() {
        let (_, data) =
            any(b"# comment\r\nmain;serve 2\r\n\r\nmain;serve 3\r\nmain 0\r\n", &DecodeLimits::default()).unwrap();
        assert_eq!(data.sample_count(), 1);
        assert_eq!(folded::encode(&tree(&data, "samples")), "main;serve 5\n");
    }

    #[test]
    fn a_line_without_frames_is_a_sample_without_a_stack() {
        let (format, data) = any(b"main;work 8\n 2\n", &DecodeLimits::default()).unwrap();
        assert_eq!(format, Format::Folded);
        let weights =
            |data: &ProfilesData| data.resources[0].profiles[0].samples.iter().map(|it| it.values[0]).sum::<i64>();
        assert_eq!((data.sample_count(), weights(&data)), (2, 10));
    }

    #[test]
    fn the_error_of_a_malformed_line_has_its_number() {
        let mut text = "main;serve 2\n".repeat(10);
        text += "main;serve\n";
        let error = any(text.as_bytes(), &DecodeLimits::default()).unwrap_err().to_string();
        assert!(error.contains("line 11") && error.contains("main;serve"), "{error}");
    }

    #[test]
    fn stacks_beyond_the_limits_are_rejected() {
        let limits = DecodeLimits { stack_depth: 3, table_entries: 2, ..DecodeLimits::default() };
        assert!(any(b"a;b;c;d 1\n", &limits).unwrap_err().to_string().contains("at most 3 frames"));
        assert!(any(b"a 1\nb 1\nc 1\n", &limits).unwrap_err().to_string().contains("at most 2 stacks"));
    }
}
