//! The names under `/debug/pprof/`, and the parameters of a request.

use std::time::Duration;

use super::{HttpRequest, HttpResponse};
use spanprof_profile::kinds::{self, ProfileKind};
use spanprof_signal::SampleKind;

/// Longest duration of a pull.
const MAX_DURATION: Duration = Duration::from_secs(60);
/// Duration of `profile` and `wall` without the parameter, as in Go.
const DEFAULT_DURATION: Duration = Duration::from_secs(30);

/// A profile that can be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileName {
    Profile,
    Wall,
    Heap,
    Allocs,
    Block,
    Mutex,
    Goroutine,
    Threads,
}

impl ProfileName {
    pub const ALL: [Self; 8] =
        [Self::Profile, Self::Wall, Self::Heap, Self::Allocs, Self::Block, Self::Mutex, Self::Goroutine, Self::Threads];

    /// Name in the path.
    pub fn text(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Wall => "wall",
            Self::Heap => "heap",
            Self::Allocs => "allocs",
            Self::Block => "block",
            Self::Mutex => "mutex",
            Self::Goroutine => "goroutine",
            Self::Threads => "threads",
        }
    }

    pub fn description(self) -> &'static str {
        match self {
            Self::Profile => "CPU time of `seconds` (default 30)",
            Self::Wall => "wall-clock time of `seconds` (default 30)",
            Self::Heap => "objects in use, and allocations since the start or of `seconds`",
            Self::Allocs => "the same, with allocations shown first",
            Self::Block => "waits for locks since the start or of `seconds`",
            Self::Mutex => "as block",
            Self::Goroutine => "as threads",
            Self::Threads => "stacks of all threads now",
        }
    }

    /// The kind that readers show first.
    pub fn shown_kind(self) -> &'static ProfileKind {
        match self {
            Self::Profile => &kinds::CPU,
            Self::Wall => &kinds::WALL,
            Self::Heap => &kinds::IN_USE,
            Self::Allocs => &kinds::ALLOCATIONS,
            Self::Block | Self::Mutex => &kinds::LOCK,
            Self::Goroutine | Self::Threads => &kinds::THREADS,
        }
    }

    /// The kinds of its samples, in the order of its sample types.
    pub fn kinds(self) -> &'static [SampleKind] {
        match self {
            Self::Profile => &[SampleKind::Cpu],
            Self::Wall => &[SampleKind::Wall],
            Self::Heap | Self::Allocs => &[SampleKind::Alloc, SampleKind::InUse],
            Self::Block | Self::Mutex => &[SampleKind::Lock],
            Self::Goroutine | Self::Threads => &[SampleKind::Threads],
        }
    }

    fn default_duration(self) -> Option<Duration> {
        matches!(self, Self::Profile | Self::Wall).then_some(DEFAULT_DURATION)
    }

    /// Whether it shows a moment instead of a duration.
    pub fn is_moment(self) -> bool {
        matches!(self, Self::Goroutine | Self::Threads)
    }
}

/// A valid request for a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProfileRequest {
    pub name: ProfileName,
    /// `None`: since the start, or now.
    pub duration: Option<Duration>,
    /// Whether to respond with text instead of pprof.
    pub is_text: bool,
}

impl ProfileRequest {
    /// Parses the parameters of a request for `name`.
    pub fn parse(name: ProfileName, request: &HttpRequest) -> Result<Self, HttpResponse> {
        let seconds = parameter(&request.query, "seconds");
        let duration = match seconds.as_deref() {
            None | Some("" | "0") => name.default_duration(),
            Some(text) => Some(duration(text)?),
        };
        let is_text = parameter(&request.query, "debug").is_some_and(|level| !matches!(&*level, "" | "0"));
        Ok(Self { name, duration: duration.filter(|_| !name.is_moment()), is_text })
    }
}

fn duration(text: &str) -> Result<Duration, HttpResponse> {
    // `1e9` and `NaN` are numbers too; only those in range are durations.
    let seconds =
        text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.001 && *seconds <= MAX_DURATION.as_secs_f64());
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        HttpResponse::refusal(400, &format!("seconds must be a number between 0.001 and {}", MAX_DURATION.as_secs()))
    })
}

/// The first value of a parameter of a query.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (key == name).then_some(value)
    })?;
    Some(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: ProfileName, query: &str) -> Result<(Option<u64>, bool), u16> {
        let request = HttpRequest { query: query.to_owned(), ..HttpRequest::default() };
        ProfileRequest::parse(name, &request)
            .map(|request| (request.duration.map(|duration| duration.as_millis() as u64), request.is_text))
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn seconds_lie_between_a_millisecond_and_a_minute() {
        assert_eq!(parsed(ProfileName::Profile, ""), Ok((Some(30_000), false)));
        assert_eq!(parsed(ProfileName::Profile, "seconds=0"), Ok((Some(30_000), false)));
        assert_eq!(parsed(ProfileName::Profile, "seconds=5"), Ok((Some(5000), false)));
        assert_eq!(parsed(ProfileName::Wall, "gc=1&seconds=0.5&debug=1"), Ok((Some(500), true)));
        assert_eq!(parsed(ProfileName::Heap, "debug=0"), Ok((None, false)));
        assert_eq!(parsed(ProfileName::Heap, "seconds=60"), Ok((Some(60_000), false)));
        assert_eq!(parsed(ProfileName::Threads, "seconds=5"), Ok((None, false)));
        for seconds in ["1e9", "-1", "NaN", "inf", "-inf", "60.1", "1e-9", "5s", "0x5", "+", "%00", "5%20"] {
            assert_eq!(parsed(ProfileName::Profile, &format!("seconds={seconds}")), Err(400), "{seconds}");
        }
    }
}
