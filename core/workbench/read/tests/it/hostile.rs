//! Hostile input results in an error, never in a panic, a hang or exhausted memory (R26, R27). The limits on input and
//! allocation also limit the time, which `xtask/bench` measures.

use std::io::Write;

use flate2::write::GzEncoder;
use flate2::Compression;
use proptest::prelude::*;
use spanprof_profile::encode::otlp::{split_encoded, Revision};
use spanprof_profile::encode::{otlp, pprof};
use spanprof_profile::ProfilesData;
use spanprof_read::check::{check, CheckSettings};
use spanprof_read::decode::{self, DecodeLimits};

use crate::random::{profiles_data, ALL};

fn config() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 1 } else { 60 }, failure_persistence: None, ..ProptestConfig::default() }
}

/// Every decoder of untrusted bytes.
fn read_all(bytes: &[u8], limits: &DecodeLimits) -> Vec<Result<ProfilesData, String>> {
    let text = |error: decode::DecodeError| error.to_string();
    let _ = check(bytes, &CheckSettings { now_unix_nano: Some(1), limits: *limits });
    let _ = decode::detect(bytes, limits);
    vec![
        decode::otlp::decode(bytes, limits).map_err(text),
        decode::pprof::decode(bytes, limits).map_err(text),
        decode::any(bytes, limits).map(|(_, data)| data).map_err(text),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes, &DecodeLimits::default());
        split_encoded(&bytes);
    }

    #[test]
    fn corrupted_profiles_are_decoded_or_rejected(
        data in profiles_data(ALL),
        corruption in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut bytes in [otlp::encode(&data, Revision::One), pprof::encode_uncompressed(&data), pprof::encode(&data)] {
            for (at, value) in &corruption {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            for read in read_all(&bytes, &DecodeLimits::default()).into_iter().flatten() {
                // Decoded profiles can be encoded and decoded again.
                let _ = pprof::encode_uncompressed(&read);
                prop_assert!(decode::otlp::decode(&otlp::encode(&read, Revision::One), &DecodeLimits::default()).is_ok());
            }
            split_encoded(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            read_all(&bytes, &DecodeLimits::default());
        }
    }
}

fn all_reject(bytes: &[u8], limits: &DecodeLimits, reason: &str) {
    for outcome in read_all(bytes, limits) {
        match outcome {
            Ok(_) => panic!("read, expected {reason:?}"),
            Err(error) => assert!(error.contains(reason), "{error}, expected {reason:?}"),
        }
    }
}

#[test]
fn a_gzip_bomb_ends_at_the_limit() {
    // Miri inflates a thousand times slower.
    let (limit, size) = if cfg!(miri) { (4096, 8192) } else { (1 << 20, 64 << 20) };
    let limits = DecodeLimits { decompressed_bytes: limit, ..DecodeLimits::default() };
    let at_most = format!("expected at most {limit} bytes, decompressed, got ");
    let bomb = gzip(&vec![0u8; size]);
    all_reject(&bomb, &limits, &(at_most.clone() + "more"));
    all_reject(&gzip(&bomb), &DecodeLimits::default(), "gzip data again");
    all_reject(
        &bomb[..bomb.len() / 2],
        &DecodeLimits { decompressed_bytes: usize::MAX - 1, ..limits },
        "whole gzip data",
    );
    all_reject(&[0x1f, 0x8b], &limits, "whole gzip data");
    all_reject(&vec![0x0a; limit + 1], &limits, &at_most);
    // Empty gzip members need no memory.
    let members = gzip(b"").repeat(if cfg!(miri) { 3 } else { 1000 });
    assert!(decode::otlp::decode(&members, &limits).is_ok_and(|data| data.resources.is_empty()));
}

/// `times` messages of `field` with `body`.
fn messages(field: u8, body: &[u8], times: usize) -> Vec<u8> {
    let mut one = vec![field << 3 | 2, body.len() as u8];
    one.extend_from_slice(body);
    one.repeat(times)
}

fn wrap(field: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    let mut length = body.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(body);
    out
}

#[test]
fn the_memory_of_many_empty_entries_is_limited() {
    let times = if cfg!(miri) { 800 } else { 1_000_000 };
    let limits = DecodeLimits { memory_bytes: 40_000, table_entries: usize::MAX, ..DecodeLimits::default() };
    let rejected = |decoded: Result<ProfilesData, decode::DecodeError>| {
        let error = decoded.expect_err("decoded beyond the limit").to_string();
        assert!(error.contains("at most 40000 bytes in memory"), "{error}");
    };
    for table in 1..=7u8 {
        rejected(decode::otlp::decode(&wrap(2, &messages(table, b"", times)), &limits));
    }
    rejected(decode::otlp::decode(&messages(1, b"", times), &limits));
    let samples = wrap(1, &wrap(2, &wrap(2, &messages(2, b"", times))));
    rejected(decode::otlp::decode(&samples, &limits));
    let lines = wrap(2, &wrap(2, &messages(3, b"", times)));
    rejected(decode::otlp::decode(&lines, &limits));
    for field in 1..=6u8 {
        rejected(decode::pprof::decode(&messages(field, b"", times), &limits));
    }
    rejected(decode::pprof::decode(&wrap(2, &messages(3, b"", times)), &limits));
    let json = format!("{{\"dictionary\":{{\"linkTable\":[{}{{}}]}}}}", "{},".repeat(times));
    let error = decode::otlp::decode(json.as_bytes(), &limits).unwrap_err().to_string();
    assert!(error.contains("JSON of at most 40000 bytes in memory"), "{error}");
}

#[test]
fn memory_is_limited_over_all_requests_of_a_file() {
    // Each line is within the limit, all lines together are not.
    let line = "{\"dictionary\":{\"stringTable\":[\"\"]}}\n";
    let count = if cfg!(miri) { 200 } else { 2000 };
    let many = (0..count).map(|nth| line.replace("\"\"]", &format!("\"\",\"{nth:0100}\"]"))).collect::<String>();
    let limits = DecodeLimits { memory_bytes: 10_000, ..DecodeLimits::default() };
    let error = decode::otlp::decode(many.as_bytes(), &limits).unwrap_err().to_string();
    assert!(error.contains("in memory, got more"), "{error}");
    let wide = DecodeLimits { memory_bytes: 10_000_000, ..limits };
    assert!(decode::otlp::decode(many.as_bytes(), &wide).is_ok());
}

#[test]
fn invalid_lengths_and_varints_are_rejected() {
    let limits = DecodeLimits::default();
    all_reject(
        &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &limits,
        "18446744073709551615 more bytes",
    );
    all_reject(&[0x12], &limits, "a varint");
    all_reject(&[0x12, 0x01, 0x00], &limits, "a field number from 1");
}

#[test]
fn deep_nesting_is_rejected_in_both_encodings() {
    let mut value = vec![0x0a, 0x01, b'x'];
    for _ in 0..200 {
        value = wrap(5, &wrap(1, &value));
    }
    let attribute = wrap(1, &wrap(1, &wrap(1, &wrap(2, &value))));
    let error = decode::otlp::decode(&attribute, &DecodeLimits::default()).unwrap_err().to_string();
    assert!(error.contains("at most 32 nested messages"), "{error}");
    let depth = if cfg!(miri) { 200 } else { 10_000 };
    let json = format!(
        "{{\"resourceProfiles\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"k\",\"value\":{}{}}}]}}}}]}}",
        "{\"arrayValue\":{\"values\":[".repeat(depth),
        "]}}".repeat(depth)
    );
    let error = decode::otlp::decode(json.as_bytes(), &DecodeLimits::default()).unwrap_err().to_string();
    assert!(error.contains("recursion limit"), "{error}");
}

#[test]
fn the_error_of_an_invalid_pprof_file_has_the_path_of_the_field() {
    let strings = [wrap(6, b""), wrap(6, b"x")].concat();
    let error_of = |parts: &[Vec<u8>]| {
        let file = [strings.clone(), parts.concat()].concat();
        decode::pprof::decode(&file, &DecodeLimits::default()).unwrap_err().to_string()
    };
    assert_eq!(
        decode::pprof::decode(&wrap(6, b"not empty"), &DecodeLimits::default()).unwrap_err().to_string(),
        "cannot read pprof profile at string_table[0]: expected \"\", got \"not empty\""
    );
    for (part, reason) in [
        (wrap(5, &[0x08, 1, 0x10, 9]), "function[0].name: expected an index below 2, got 9"),
        (wrap(5, &[0x10, 1]), "function[0].id: expected an id that is not 0, got 0"),
        (wrap(5, &[0x08, 1]).repeat(2), "function[1].id: expected a unique id, got 1 again"),
        (wrap(4, &[0x08, 1, 0x10, 5]), "location[0].mapping_id: expected the id of an entry, or 0, got 5"),
        (
            wrap(4, &[0x08, 1, 0x22, 2, 0x08, 3]),
            "location[0].line[0].function_id: expected the id of an entry, or 0, got 3",
        ),
        (wrap(2, &[0x08, 7]), "sample[0].location_id[0]: expected the id of a location, got 7"),
        (wrap(2, &[0x10, 7]), "sample[0].value: expected 0 values, got 1"),
        (wrap(2, &[0x1a, 2, 0x08, 4]), "sample[0].label[0].key: expected an index below 2, got 4"),
        (wrap(1, &[0x08, 2]), "sample_type[0].type: expected an index below 2, got 2"),
        (
            vec![0x48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            "time_nanos: expected a time of at least 0",
        ),
        (vec![0x68, 3], "comment[0]: expected an index below 2, got 3"),
        (wrap(1, b"").repeat(65), "sample_type: expected at most 64 value types, got 65"),
        (wrap(2, &wrap(1, &[1u8; 40_000])), "sample[0].location_id: expected at most 16384 locations"),
    ] {
        let error = error_of(&[part]);
        assert!(error.contains(reason), "{error}, expected {reason}");
    }
}
