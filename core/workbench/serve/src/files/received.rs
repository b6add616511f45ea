//! Recognizes duplicate profiles. Delivery is at least once: a sender or a Collector that lost the response repeats its
//! request. The index has eight bytes per stored profile. Called by `intake` and `store`.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use spanprof_profile::{Profile, ProfilesData, ResourceProfiles};

/// Identities of the stored profiles.
#[derive(Debug, Default)]
pub(crate) struct ReceivedProfiles(Mutex<HashSet<u64>>);

/// Identities that a request added, and the number of its duplicates.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    added: Vec<u64>,
    pub duplicates: u64,
}

impl ReceivedProfiles {
    /// Removes the profiles of earlier requests from `data`, and adds the rest to the index.
    pub(crate) fn claim(&self, data: &mut ProfilesData) -> Claim {
        let mut claim = Claim::default();
        let mut index = self.lock();
        for resource in &mut data.resources {
            let mut profiles = std::mem::take(&mut resource.profiles);
            profiles.retain(|profile| match identity(resource, profile) {
                Some(identity) if index.contains(&identity) => {
                    claim.duplicates += 1;
                    false
                }
                identity => {
                    claim.added.extend(identity);
                    true
                }
            });
            resource.profiles = profiles;
        }
        // After the loop: a request is not compared with itself.
        index.extend(&claim.added);
        claim
    }

    /// Reverts the claim of a request that could not be stored.
    pub(crate) fn withdraw(&self, claim: &Claim) {
        self.remove(&claim.added);
    }

    /// Adds profiles found in files.
    pub(crate) fn add(&self, identities: &[u64]) {
        self.lock().extend(identities);
    }

    /// Removes profiles that are no longer stored.
    pub(crate) fn remove(&self, identities: &[u64]) {
        let mut index = self.lock();
        for identity in identities {
            index.remove(identity);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identities of the profiles of a request; those without an id have none.
pub(crate) fn identities(data: &ProfilesData) -> Vec<u64> {
    data.profiles().filter_map(|(resource, profile)| identity(resource, profile)).collect()
}

/// The profile id and a digest of the content, so that senders with constant ids or with split profiles lose nothing.
fn identity(resource: &ResourceProfiles, profile: &Profile) -> Option<u64> {
    if profile.profile_id == [0; 16] {
        return None;
    }
    let total = profile.samples.iter().fold(0i64, |sum, sample| sum.wrapping_add(sample.total()));
    let mut hasher = DefaultHasher::new();
    (profile.profile_id, profile.time_unix_nano, profile.duration_nano).hash(&mut hasher);
    (&profile.sample_type, resource.service_name(), profile.samples.len(), total).hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_profile::{Sample, ValueType};

    fn request(id: u8, time: u64, values: &[i64]) -> ProfilesData {
        let sample = |value: &i64| Sample { values: vec![*value], ..Sample::default() };
        let profile = Profile {
            sample_type: ValueType::new("wall", "nanoseconds"),
            profile_id: [id; 16],
            time_unix_nano: time,
            samples: values.iter().map(sample).collect(),
            ..Profile::default()
        };
        let resource = ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() };
        ProfilesData { resources: vec![resource], ..ProfilesData::default() }
    }

    fn duplicates(received: &ReceivedProfiles, mut data: ProfilesData) -> u64 {
        received.claim(&mut data).duplicates
    }

    #[test]
    fn the_same_profile_is_received_once() {
        let received = ReceivedProfiles::default();
        let mut first = request(1, 10, &[1, 2]);
        assert_eq!((received.claim(&mut first).duplicates, first.sample_count()), (0, 2));
        let mut again = request(1, 10, &[1, 2]);
        assert_eq!((received.claim(&mut again).duplicates, again.sample_count()), (1, 0));
    }

    #[test]
    fn profiles_that_share_an_id_and_differ_are_all_kept() {
        let received = ReceivedProfiles::default();
        let different = [request(1, 10, &[1]), request(1, 20, &[1]), request(1, 10, &[2]), request(1, 10, &[1, 0])];
        assert_eq!(different.map(|data| duplicates(&received, data)), [0; 4]);
        assert_eq!([0; 2].map(|id| duplicates(&received, request(id, 10, &[1]))), [0; 2], "no id");
    }

    #[test]
    fn a_request_that_could_not_be_stored_may_be_repeated() {
        let received = ReceivedProfiles::default();
        let claim = received.claim(&mut request(1, 10, &[1]));
        received.withdraw(&claim);
        assert_eq!(duplicates(&received, request(1, 10, &[1])), 0);
    }
}
