//! Exact values in OTLP, which has one value type per profile: they become a profile of their own behind the one that
//! counts periods, as in conversions of pprof files by other programs. [`join_exact_values`] is the reverse. As an
//! attribute of each sample, nearly every value would be an entry of the dictionary. Conversions only: the profiler's own
//! requests would have twice the samples.

use hashbrown::HashMap;

use crate::*;

/// Moves exact values that are not the count times the period into a profile of their own. Encode the result as OTLP only:
/// in the model both profiles have the same type.
pub fn separate_exact_values(mut data: ProfilesData) -> ProfilesData {
    for resource in &mut data.resources {
        let mut profiles = Vec::with_capacity(resource.profiles.len());
        for profile in resource.profiles.drain(..) {
            let measured = measured_profile(&profile);
            profiles.push(profile);
            profiles.extend(measured);
        }
        resource.profiles = profiles;
    }
    data
}

fn measured_profile(counted: &Profile) -> Option<Profile> {
    let exact_type = counted.exact_type.as_ref()?;
    let derived = |sample: &Sample| sample.total().saturating_mul(counted.period);
    if counted.counts_periods() && counted.samples.iter().all(|sample| sample.exact_value == derived(sample)) {
        return None;
    }
    let measured = |sample: &Sample| Sample {
        values: vec![sample.exact_value],
        timestamps_unix_nano: time_of(sample).into_iter().collect(),
        exact_value: 0,
        ..sample.clone()
    };
    let samples = counted.samples.iter().filter(|sample| sample.exact_value != 0).map(measured).collect();
    Some(Profile {
        sample_type: exact_type.clone(),
        profile_id: [0; 16],
        samples,
        exact_type: None,
        period_type: counted.period_type.clone(),
        ..*counted
    })
}

/// Joins each profile of `samples`/`count` with the profile behind it if that has the same window and the type of the
/// period. Separate, both would count as the type of the period.
pub fn join_exact_values(profiles: &mut Vec<Profile>) {
    let mut at = 1;
    while at < profiles.len() {
        if is_pair(&profiles[at - 1], &profiles[at]) {
            let measured = profiles.remove(at);
            join(&mut profiles[at - 1], measured);
        } else {
            at += 1;
        }
    }
}

fn is_pair(counted: &Profile, measured: &Profile) -> bool {
    let window =
        |profile: &Profile| (profile.time_unix_nano, profile.duration_nano, profile.period, profile.attributes);
    (&*counted.sample_type.kind, &*counted.sample_type.unit) == ("samples", "count")
        && counted.exact_type.is_none()
        && !counted.period_type.is_empty()
        && counted.period_type != counted.sample_type
        && measured.sample_type == counted.period_type
        && measured.period_type == counted.period_type
        && window(counted) == window(measured)
}

fn join(counted: &mut Profile, measured: Profile) {
    let identity = |sample: &Sample| (sample.stack, sample.attributes, sample.link, time_of(sample));
    let mut known = HashMap::with_capacity(counted.samples.len());
    for (at, sample) in counted.samples.iter().enumerate() {
        known.entry(identity(sample)).or_insert(at);
    }
    for mut sample in measured.samples {
        let exact_value = sample.total();
        match known.get(&identity(&sample)) {
            Some(&at) => {
                let exact = &mut counted.samples[at].exact_value;
                *exact = exact.saturating_add(exact_value);
            }
            None => {
                known.insert(identity(&sample), counted.samples.len());
                sample.timestamps_unix_nano = time_of(&sample).into_iter().collect();
                counted.samples.push(Sample { values: vec![0], exact_value, ..sample });
            }
        }
    }
    counted.exact_type = Some(measured.sample_type);
}

/// The time of a sample that was not aggregated.
fn time_of(sample: &Sample) -> Option<u64> {
    match (&sample.timestamps_unix_nano[..], sample.values.len()) {
        (&[time], 1) => Some(time),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(exact_values: [i64; 3]) -> ProfilesData {
        let cpu = ValueType::new("cpu", "nanoseconds");
        let samples = exact_values.into_iter().enumerate().map(|(nth, exact_value)| Sample {
            stack: StackId(nth as u32),
            values: vec![nth as i64],
            timestamps_unix_nano: vec![7],
            exact_value,
            ..Sample::default()
        });
        let profile = Profile {
            sample_type: ValueType::new("samples", "count"),
            period_type: cpu.clone(),
            period: 10,
            samples: samples.collect(),
            exact_type: Some(cpu),
            ..Profile::default()
        };
        let resources = vec![ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() }];
        ProfilesData { resources, ..ProfilesData::default() }
    }

    #[test]
    fn measured_values_become_a_profile_and_are_joined_again() {
        let data = counted([3, 0, 21]);
        let mut separate = separate_exact_values(data.clone());
        let profiles = &mut separate.resources[0].profiles;
        let values: Vec<_> = profiles[1].samples.iter().map(|sample| sample.total()).collect();
        assert_eq!((profiles[1].type_name(), values), ("cpu", vec![3, 21]));
        // OTLP carries neither exact values nor samples of 0.
        profiles[0].exact_type = None;
        profiles[0].samples.iter_mut().for_each(|sample| sample.exact_value = 0);
        profiles[0].samples.remove(0);
        join_exact_values(profiles);
        let mut expected = data.resources[0].profiles.clone();
        expected[0].samples.rotate_left(1);
        assert_eq!(*profiles, expected);
    }

    #[test]
    fn values_that_follow_from_the_period_stay() {
        let data = counted([0, 10, 20]);
        assert_eq!(separate_exact_values(data.clone()).resources, data.resources);
    }

    #[test]
    fn profiles_of_different_windows_are_not_joined() {
        let mut profiles = separate_exact_values(counted([3, 0, 21])).resources.remove(0).profiles;
        profiles[0].exact_type = None;
        profiles[1].time_unix_nano = 1;
        join_exact_values(&mut profiles);
        assert_eq!(profiles.len(), 2);
    }
}
