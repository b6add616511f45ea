//! Splits requests to a receiver's byte limit and to a number of samples per profile that every receiver accepts.

use super::halve::{halves, nth_id};
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
