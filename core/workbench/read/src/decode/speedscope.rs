//! Decoder of speedscope files (<https://www.speedscope.app/file-format-schema.json>) with sampled and evented
//! profiles, which spanprof, py-spy and others write. Of a file that spanprof wrote, the name of a profile is its type. Others name threads there: the type
//! follows from the unit.

use hashbrown::HashMap;
use serde::Deserialize;

use super::{json_bound, DecodeError, DecodeLimits};
use spanprof_profile::*;

const WHAT: &str = "speedscope file";
const SCHEMA: &[u8] = b"://www.speedscope.app/file-format-schema.json\"";
/// The schema is named at the start or at the end.
const INSPECTED_BYTES: usize = 1024;

#[derive(Deserialize)]
struct SpeedscopeFile {
    #[serde(default)]
    exporter: String,
    shared: SharedFrames,
    profiles: Vec<SpeedscopeProfile>,
}

#[derive(Deserialize)]
struct SharedFrames {
    frames: Vec<SpeedscopeFrame>,
}

#[derive(Deserialize)]
struct SpeedscopeFrame {
    name: String,
    file: Option<String>,
    line: Option<i64>,
}

#[derive(Deserialize)]
struct SpeedscopeProfile {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    unit: String,
    /// Indices of frames, root first.
    #[serde(default)]
    samples: Vec<Vec<usize>>,
    #[serde(default)]
    weights: Vec<f64>,
    /// Of an evented profile, in the order of time.
    #[serde(default)]
    events: Vec<FrameEvent>,
}

/// A frame that begins or ends.
#[derive(Deserialize)]
struct FrameEvent {
    #[serde(rename = "type")]
    kind: EventKind,
    frame: usize,
    at: f64,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum EventKind {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

fn decode_error(at: String, expected: impl Into<String>, got: impl Into<String>) -> DecodeError {
    DecodeError { what: WHAT, at, expected: expected.into(), got: got.into() }
}

/// Whether JSON names the schema of speedscope.
pub(super) fn is_speedscope(body: &[u8]) -> bool {
    let length = body.len().min(INSPECTED_BYTES);
    let names_schema = |part: &[u8]| part.windows(SCHEMA.len()).any(|text| text == SCHEMA);
    body.trim_ascii_start().first() == Some(&b'{')
        && (names_schema(&body[..length]) || names_schema(&body[body.len() - length..]))
}

pub(super) fn check_size(body: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    match json_bound::memory_bytes(body) > limits.memory_bytes {
        true => {
            Err(decode_error(String::new(), format!("JSON of at most {} bytes in memory", limits.memory_bytes), "more"))
        }
        false => Ok(()),
    }
}

pub(super) fn decode_decompressed(body: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    check_size(body, limits)?;
    let file: SpeedscopeFile =
        serde_json::from_slice(body).map_err(|error| decode_error(String::new(), "its schema", error.to_string()))?;
    let mut dictionary = Dictionary::new();
    let locations: Vec<LocationId> = file.shared.frames.iter().map(|frame| location(&mut dictionary, frame)).collect();
    let is_own = file.exporter == "spanprof";
    // Threads of one type are one profile.
    let mut profiles: Vec<Profile> = Vec::new();
    for (nth, mut profile) in file.profiles.into_iter().enumerate() {
        let at = format!("profiles[{nth}]");
        match profile.kind.as_str() {
            "sampled" => {}
            "evented" => (profile.samples, profile.weights) = stacks_of_events(&profile.events, &at, limits)?,
            other => return Err(decode_error(at, "a sampled or evented profile", format!("the type {other:?}"))),
        }
        if profile.samples.len() != profile.weights.len() {
            let expected = format!("{} weights", profile.samples.len());
            return Err(decode_error(at, expected, profile.weights.len().to_string()));
        }
        let (usual_type, unit, factor) = match profile.unit.as_str() {
            "seconds" => ("time", "nanoseconds", 1e9),
            "milliseconds" => ("time", "nanoseconds", 1e6),
            "microseconds" => ("time", "nanoseconds", 1e3),
            "nanoseconds" => ("time", "nanoseconds", 1.0),
            "bytes" => ("space", "bytes", 1.0),
            _ => ("samples", "count", 1.0),
        };
        let type_name = if is_own && !profile.name.is_empty() { &profile.name } else { usual_type };
        let samples = samples(&profile, factor, &locations, &mut dictionary, limits)
            .map_err(|error| DecodeError { at: format!("{at}.{}", error.at), ..error })?;
        let sample_type = ValueType::new(type_name, unit);
        match profiles.iter_mut().find(|known| known.sample_type == sample_type) {
            Some(known) => known.samples.extend(samples),
            None => profiles.push(Profile { sample_type, samples, ..Profile::default() }),
        }
    }
    let resources = vec![ResourceProfiles {
        resource: Vec::new(),
        scope: Scope::default(),
        profiles,
        ..ResourceProfiles::default()
    }];
    Ok(ProfilesData { dictionary, resources })
}

fn location(dictionary: &mut Dictionary, frame: &SpeedscopeFrame) -> LocationId {
    let name = dictionary.string(&frame.name);
    let filename = dictionary.string(frame.file.as_deref().unwrap_or_default());
    let function = dictionary.function(Function { name, filename, ..Function::default() });
    let line = Line { function, line: frame.line.unwrap_or_default(), ..Line::default() };
    dictionary.location(Location { lines: &[line], ..Location::default() })
}

/// The stacks between events, root first, with their durations.
fn stacks_of_events(
    events: &[FrameEvent],
    at: &str,
    limits: &DecodeLimits,
) -> Result<(Vec<Vec<usize>>, Vec<f64>), DecodeError> {
    let (mut stacks, mut weights) = (Vec::new(), Vec::new());
    let mut open: Vec<usize> = Vec::new();
    let mut frames = 0;
    let mut last = events.first().map_or(0.0, |event| event.at);
    for (nth, event) in events.iter().enumerate() {
        let wrong = |expected: String, got: String| decode_error(format!("{at}.events[{nth}]"), expected, got);
        if event.at < last {
            return Err(wrong(format!("a time of at least {last}"), event.at.to_string()));
        }
        if event.at > last && !open.is_empty() {
            frames += open.len();
            if frames * std::mem::size_of::<usize>() > limits.memory_bytes / 2 {
                let expected = format!("stacks of at most {} bytes", limits.memory_bytes / 2);
                return Err(wrong(expected, "more".to_owned()));
            }
            stacks.push(open.clone());
            weights.push(event.at - last);
        }
        last = event.at;
        match event.kind {
            EventKind::Open => open.push(event.frame),
            EventKind::Close => match open.pop() {
                Some(frame) if frame == event.frame => {}
                Some(frame) => return Err(wrong(format!("the end of frame {frame}"), event.frame.to_string())),
                None => return Err(wrong("an open frame".to_owned(), event.frame.to_string())),
            },
        }
        if open.len() > limits.stack_depth {
            return Err(wrong(format!("at most {} open frames", limits.stack_depth), open.len().to_string()));
        }
    }
    Ok((stacks, weights))
}

/// The samples of one profile, those of equal stacks added up.
fn samples(
    profile: &SpeedscopeProfile,
    factor: f64,
    locations: &[LocationId],
    dictionary: &mut Dictionary,
    limits: &DecodeLimits,
) -> Result<Vec<Sample>, DecodeError> {
    let mut sums: HashMap<StackId, f64> = HashMap::new();
    let mut order = Vec::new();
    for (nth, (frames, weight)) in profile.samples.iter().zip(&profile.weights).enumerate() {
        let at = || format!("samples[{nth}]");
        if frames.len() > limits.stack_depth {
            return Err(decode_error(at(), format!("at most {} frames", limits.stack_depth), frames.len().to_string()));
        }
        let leaf_first = frames.iter().rev().map(|frame| {
            let wrong = || decode_error(at(), format!("an index below {}", locations.len()), frame.to_string());
            locations.get(*frame).copied().ok_or_else(wrong)
        });
        let stack = dictionary.stack(&leaf_first.collect::<Result<Vec<_>, _>>()?);
        *sums.entry(stack).or_insert_with(|| {
            order.push(stack);
            0.0
        }) += weight * factor;
    }
    let sample = |stack: StackId| Sample { stack, values: vec![sums[&stack].round() as i64], ..Sample::default() };
    Ok(order.into_iter().map(sample).filter(|sample| sample.values[0] != 0).collect())
}

#[cfg(test)]
mod tests {
    use crate::decode::{any, DecodeLimits, Format};
    use spanprof_profile::encode::folded;
    use spanprof_profile::transform::tree;
    use spanprof_view::speedscope;

    #[test]
    fn an_encoded_file_is_read_back() {
        let (_, data) = any(b"main;read file 3\nmain;serve;cart 12\n", &DecodeLimits::default()).unwrap();
        let text = speedscope::encode(&[tree(&data, "samples")], "shop");
        let (format, read) = any(text.as_bytes(), &DecodeLimits::default()).unwrap();
        assert_eq!(format, Format::Speedscope);
        assert_eq!(folded::encode(&tree(&read, "samples")), "main;read file 3\nmain;serve;cart 12\n");
    }

    #[test]
    fn threads_of_another_tool_are_one_profile_of_time() {
        let text = r#"{"shared":{"frames":[{"name":"main","file":"a.py","line":3},{"name":"work"}]},"profiles":[
            {"type":"sampled","name":"Thread 1","unit":"seconds","startValue":0,"endValue":1,"samples":[[0,1],[0]],"weights":[0.25,0.5]},
            {"type":"sampled","name":"Thread 2","unit":"milliseconds","startValue":0,"endValue":1,"samples":[[0,1]],"weights":[10]}],
            "$schema":"https://www.speedscope.app/file-format-schema.json"}"#;
        let (_, data) = any(text.as_bytes(), &DecodeLimits::default()).unwrap();
        assert_eq!(folded::encode(&tree(&data, "time")), "main 500000000\nmain;work 260000000\n");
    }

    #[test]
    fn an_evented_profile_is_the_time_between_its_events() {
        let text = r#"{"$schema":"https://www.speedscope.app/file-format-schema.json",
            "shared":{"frames":[{"name":"main"},{"name":"work"}]},"profiles":[
            {"type":"evented","name":"t","unit":"microseconds","startValue":0,"endValue":9,"events":[
            {"type":"O","frame":0,"at":1},{"type":"O","frame":1,"at":2},{"type":"C","frame":1,"at":5},
            {"type":"C","frame":0,"at":6},{"type":"O","frame":0,"at":8},{"type":"C","frame":0,"at":9}]}]}"#;
        let (_, data) = any(text.as_bytes(), &DecodeLimits::default()).unwrap();
        assert_eq!(folded::encode(&tree(&data, "time")), "main 3000\nmain;work 3000\n");
    }

    #[test]
    fn malformed_files_are_rejected_with_their_path() {
        let error = |profile: &str| {
            let text = format!(
                r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{{"frames":[{{"name":"a"}}]}},"profiles":[{profile}]}}"#
            );
            any(text.as_bytes(), &DecodeLimits { stack_depth: 2, ..DecodeLimits::default() }).unwrap_err().to_string()
        };
        for (profile, words) in [
            (r#"{"type":"timed"}"#, "expected a sampled or evented profile, got the type \"timed\""),
            (
                r#"{"type":"evented","events":[{"type":"C","frame":0,"at":1}]}"#,
                "events[0]: expected an open frame, got 0",
            ),
            (
                r#"{"type":"evented","events":[{"type":"O","frame":0,"at":1},{"type":"C","frame":1,"at":2}]}"#,
                "profiles[0].events[1]: expected the end of frame 0, got 1",
            ),
            (
                r#"{"type":"evented","events":[{"type":"O","frame":0,"at":1},{"type":"C","frame":0,"at":0}]}"#,
                "expected a time of at least 1, got 0",
            ),
            (r#"{"type":"sampled","samples":[[0]],"weights":[]}"#, "profiles[0]: expected 1 weights, got 0"),
            (
                r#"{"type":"sampled","samples":[[0],[1]],"weights":[1,1]}"#,
                "profiles[0].samples[1]: expected an index below 1",
            ),
            (r#"{"type":"sampled","samples":[[0,0,0]],"weights":[1]}"#, "at most 2 frames"),
            (r#"{"type":"sampled","samples":[[-1]],"weights":[1]}"#, "its schema"),
        ] {
            assert!(error(profile).contains(words), "{}", error(profile));
        }
    }
}
