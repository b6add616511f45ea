//! Splits requests to a receiver's byte limit and to a number of samples per profile that every receiver accepts.

use prost::Message;

use super::{encode, Revision, MAX_SAMPLES_PER_PROFILE};
use crate::model::Transfer;
use crate::wire::otlp as wire;
use crate::*;

/// See [`super::encode_split`].
pub(super) fn encode_split(data: ProfilesData, revision: Revision, max_bytes: usize) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    parts(data, revision, max_bytes, &mut |_, body| bodies.push(body));
    bodies
}

/// See [`super::split()`].
pub(super) fn split(data: ProfilesData, max_bytes: usize) -> Vec<ProfilesData> {
    let mut all = Vec::new();
    parts(data, Revision::default(), max_bytes, &mut |part, _| all.push(part));
    all
}

fn parts(data: ProfilesData, revision: Revision, max_bytes: usize, emit: &mut dyn FnMut(ProfilesData, Vec<u8>)) {
    let mut pending = vec![cap_samples(data)];
    while let Some(part) = pending.pop() {
        let body = encode(&part, revision);
        if body.len() <= max_bytes || part.sample_count() < 2 {
            emit(part, body);
        } else {
            let [first, second] = halves(&part);
            pending.extend([second, first]);
        }
    }
}

/// Splits profiles with more samples than receivers accept into several of the same window, each with its own id.
fn cap_samples(mut data: ProfilesData) -> ProfilesData {
    for resource in &mut data.resources {
        if resource.profiles.iter().all(|profile| profile.samples.len() <= MAX_SAMPLES_PER_PROFILE) {
            continue;
        }
        let whole = std::mem::take(&mut resource.profiles);
        for mut profile in whole {
            let mut rest = std::mem::take(&mut profile.samples);
            let mut nth = 0u32;
            loop {
                let after = rest.split_off(rest.len().min(MAX_SAMPLES_PER_PROFILE));
                resource.profiles.push(Profile {
                    samples: rest,
                    profile_id: nth_id(profile.profile_id, nth),
                    ..profile.clone()
                });
                if after.is_empty() {
                    break;
                }
                (rest, nth) = (after, nth + 1);
            }
        }
    }
    data
}

/// The id of part `nth` of a profile: parts of parts are distinct, a random id stays random, the empty id stays empty.
fn nth_id(id: [u8; 16], nth: u32) -> [u8; 16] {
    const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
    match u128::from_be_bytes(id) {
        0 => id,
        id => id.wrapping_mul(MULTIPLIER).wrapping_add(u128::from(nth) * 2 + 1).max(1).to_be_bytes(),
    }
}

/// Two requests of about half the samples each, each with a dictionary of its own.
fn halves(data: &ProfilesData) -> [ProfilesData; 2] {
    let middle = data.sample_count() / 2;
    [0..middle, middle..usize::MAX].map(|range| {
        let mut part = ProfilesData::default();
        let mut transfer = Transfer::new(&data.dictionary, &mut part.dictionary);
        let mut at = 0;
        for resource in &data.resources {
            let mut profiles = Vec::new();
            for profile in &resource.profiles {
                let mut kept = transfer.empty_profile(profile);
                for sample in &profile.samples {
                    if range.contains(&at) {
                        kept.samples.push(transfer.sample(sample));
                    }
                    at += 1;
                }
                if kept.samples.len() < profile.samples.len() {
                    kept.profile_id = nth_id(kept.profile_id, u32::from(range.start > 0));
                }
                if !kept.samples.is_empty() {
                    profiles.push(kept);
                }
            }
            if !profiles.is_empty() {
                part.resources.push(ResourceProfiles { profiles, ..without_profiles(resource) });
            }
        }
        part
    })
}

fn without_profiles(resource: &ResourceProfiles) -> ResourceProfiles {
    ResourceProfiles { resource: resource.resource.clone(), scope: resource.scope.clone(), profiles: Vec::new() }
}

/// See [`super::split_encoded`].
pub(super) fn split_encoded(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let limits = decode::DecodeLimits {
        decompressed_bytes: usize::MAX,
        memory_bytes: usize::MAX,
        ..decode::DecodeLimits::default()
    };
    let request = wire::ProfilesData::decode(body).ok()?;
    let data = decode::otlp::from_wire(&request, &limits).ok()?;
    if data.sample_count() < 2 {
        return None;
    }
    Some(halves(&data).iter().map(|half| encode(half, Revision::default())).collect())
}
