//! Wall-clock samples that the program collects itself, with real threads.

use super::profiler::{burn, one_at_a_time, start_native, without_destination};
use spanprof_config::Config;
use spanprof_profiler::binding::{objects_in_use, WallCollection};
use spanprof_profiler::CapturedProfile;
use spanprof_read::decode::{self, DecodeLimits};
use std::time::{Duration, Instant};

const WORK: Duration = Duration::from_millis(400);

fn wall_ns(profile: &CapturedProfile) -> i64 {
    let data = decode::pprof::decode(&profile.pprof(), &DecodeLimits::default()).unwrap();
    let profiles = data.profiles().filter(|(_, profile)| profile.type_name() == "wall");
    profiles.flat_map(|(_, profile)| profile.samples.iter().map(|sample| profile.weight(sample))).sum()
}

/// Ticks are 10 ms apart, and later on a loaded machine.
fn assert_time(is_ns: i64, elapsed: Duration) {
    let elapsed_ns = elapsed.as_nanos() as i64;
    assert!(is_ns > elapsed_ns / 2 && is_ns < elapsed_ns + 300_000_000, "{is_ns} of {elapsed_ns} ns");
}

#[test]
fn a_collection_has_the_time_of_its_thread_and_changes_nothing_of_the_profiler() {
    let _serial = one_at_a_time();
    let profiler = start_native(without_destination()).unwrap();
    // The first window reads the debug information of this program, for which the end of a collection would wait.
    burn(WORK / 4);
    assert!(profiler.flush(Duration::from_secs(100)));
    let begun = Instant::now();
    let collection = WallCollection::begin();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (begun, other) = (Instant::now(), WallCollection::begin());
            std::thread::sleep(WORK / 2);
            assert_time(wall_ns(&other.end()), begun.elapsed());
        });
        burn(WORK);
        assert_time(wall_ns(&collection.end()), begun.elapsed());
        other.join().unwrap();
    });
    assert_eq!(profiler.stats().counter("samples.wall"), 0);
    assert!(profiler.stats().counter("samples.cpu") > 0);
    drop(WallCollection::begin());
    assert!(objects_in_use().is_none(), "a program without the allocator has no heap profile");
    profiler.stop();
    assert!(WallCollection::begin().end().is_empty(), "without a profiler there are no samples");
}

#[test]
fn a_collection_keeps_its_samples_when_the_profiler_stops_and_continues_with_the_next_one() {
    let _serial = one_at_a_time();
    let profiler = start_native(without_destination()).unwrap();
    let begun = Instant::now();
    let mut collection = WallCollection::begin();
    burn(WORK);
    profiler.stop();
    let first = begun.elapsed();
    std::thread::sleep(WORK);
    let profiler = start_native(Config { wall: true, ..without_destination() }).unwrap();
    let begun = Instant::now();
    collection.resume();
    collection.resume();
    burn(WORK);
    assert_time(wall_ns(&collection.end()), first + begun.elapsed());
    profiler.stop();
}
