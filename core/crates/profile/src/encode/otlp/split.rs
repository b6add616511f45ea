//! Splits requests to a receiver's byte limit and to a number of samples per profile that every receiver accepts.

use super::halve::halves;
use super::{encode, EncodedRequest, Revision, MAX_SAMPLES_PER_PROFILE};
use crate::*;

/// See [`super::encode_split`].
pub(super) fn encode_split(data: ProfilesData, revision: Revision, max_bytes: usize) -> Vec<EncodedRequest> {
    let data = cap_samples(data);
    let mut requests = Vec::new();
    let mut pending = vec![(encode(&data, revision), data.sample_count())];
    while let Some((body, samples)) = pending.pop() {
        match (body.len() > max_bytes).then(|| halves(&body)).flatten() {
            Some([first, second]) => pending.extend([second, first]),
            None => requests.push(EncodedRequest { body, samples }),
        }
    }
    requests
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
pub(super) fn nth_id(id: [u8; 16], nth: u32) -> [u8; 16] {
    const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
    match u128::from_be_bytes(id) {
        0 => id,
        id => id.wrapping_mul(MULTIPLIER).wrapping_add(u128::from(nth) * 2 + 1).max(1).to_be_bytes(),
    }
}
