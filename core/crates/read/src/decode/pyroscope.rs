//! Decoder of Pyroscope's push requests: series of labels with pprof profiles.

use prost::Message;

use super::{decompress, DecodeError, DecodeLimits};
use crate::wire::messages::HasSchema;
use crate::wire::{pyroscope as wire, scan};

const WHAT: &str = "push request";
/// Far above the batches of any agent.
const MAX_PROFILES: usize = 1000;

/// One profile of a push request.
#[derive(Clone, Copy, Debug)]
pub struct PushedProfile<'a> {
    /// Names and values of its series' labels.
    pub labels: &'a [(String, String)],
    /// pprof, decompressed.
    pub pprof: &'a [u8],
}

/// Calls `visit` with each profile of plain or gzipped bytes until it fails. The limit of decompressed bytes applies to the
/// sum of the profiles. One profile at a time is in memory.
///
/// # Errors
/// The error of `visit`, or that of a malformed request. Earlier profiles were visited.
pub fn for_each_pushed<E: From<DecodeError>>(
    bytes: &[u8],
    limits: &DecodeLimits,
    mut visit: impl FnMut(PushedProfile<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let decode_error = |expected: String, got: String| DecodeError { what: WHAT, at: String::new(), expected, got };
    let body = decompress::decompress(WHAT, bytes, limits)?;
    scan::scan(WHAT, &body, wire::PushRequest::schema(), limits)?;
    let request = wire::PushRequest::decode(&body[..])
        .map_err(|error| decode_error("a push.v1.PushRequest".to_owned(), error.to_string()))?;
    drop(body);
    let profiles: usize = request.series.iter().map(|series| series.samples.len()).sum();
    if profiles > MAX_PROFILES {
        return Err(decode_error(format!("at most {MAX_PROFILES} profiles"), profiles.to_string()).into());
    }
    let mut left = limits.decompressed_bytes;
    for series in request.series {
        let labels: Vec<_> = series.labels.into_iter().map(|label| (label.name, label.value)).collect();
        for sample in series.samples {
            let limits = DecodeLimits { decompressed_bytes: left, ..*limits };
            let pprof = decompress::decompress(super::pprof::WHAT, &sample.raw_profile, &limits)?;
            left -= pprof.len();
            visit(PushedProfile { labels: &labels, pprof: &pprof })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn request(profiles: usize, raw_profile: &[u8]) -> Vec<u8> {
        let label = wire::Label { name: "service_name".to_owned(), value: "a".to_owned() };
        let samples = vec![wire::RawSample { raw_profile: raw_profile.to_vec() }; profiles];
        wire::PushRequest { series: vec![wire::Series { labels: vec![label], samples }] }.encode_to_vec()
    }

    fn visited(bytes: &[u8], limits: &DecodeLimits) -> (Vec<usize>, Option<DecodeError>) {
        let mut sizes = Vec::new();
        let outcome = for_each_pushed(bytes, limits, |pushed| {
            assert_eq!(pushed.labels, [("service_name".to_owned(), "a".to_owned())]);
            sizes.push(pushed.pprof.len());
            Ok::<(), DecodeError>(())
        });
        (sizes, outcome.err())
    }

    #[test]
    fn the_limit_of_bytes_applies_to_all_profiles_of_a_request() {
        let mut zeros = Vec::new();
        flate2::read::GzEncoder::new(&[0; 1000][..], flate2::Compression::fast()).read_to_end(&mut zeros).unwrap();
        let limits = DecodeLimits { decompressed_bytes: 2500, ..DecodeLimits::default() };
        assert_eq!(visited(&request(2, &zeros), &limits), (vec![1000, 1000], None));
        let (sizes, error) = visited(&request(3, &zeros), &limits);
        assert_eq!((sizes.len(), error.unwrap().expected.as_str()), (2, "at most 500 bytes, decompressed"));
    }

    #[test]
    fn requests_of_very_many_profiles_are_rejected() {
        let (sizes, error) = visited(&request(MAX_PROFILES + 1, b""), &DecodeLimits::default());
        assert!(sizes.is_empty() && error.unwrap().to_string().contains("at most 1000 profiles, got 1001"));
    }
}
