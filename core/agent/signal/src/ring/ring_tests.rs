//! The ring under random cases and real threads. No system calls: also runs under Miri.

use crate::context::{Context, InlineContext};
use crate::drop_reason::DropReason;
use crate::ring::entry::FIXED_WORDS;
use crate::ring::entry::MAX_FRAMES;
use crate::ring::sample::{RawFrame, RawSample, SampleFlags, SampleKind};
use crate::ring::sample_ring::Ring;
use core::sync::atomic::AtomicU64;

fn ring(words: usize) -> Ring {
    Ring::new(Box::leak((0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice())).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A sample of any shape.
fn any_sample<'a>(random: &mut Random, frames: &'a mut Vec<RawFrame>, deepest: u64) -> RawSample<'a> {
    frames.clear();
    for _ in 0..random.below(deepest + 1) {
        frames.push(RawFrame { code: random.below(u64::MAX), at: random.below(u64::MAX) });
    }
    let context = match random.below(3) {
        0 => Context::None,
        1 => Context::Id(random.below(u64::MAX)),
        _ => Context::Inline(InlineContext {
            label_set: random.below(u32::MAX as u64) as u32,
            trace_id: core::array::from_fn(|_| random.below(256) as u8),
            span_id: core::array::from_fn(|_| random.below(256) as u8),
            local_root_span_id: core::array::from_fn(|_| random.below(256) as u8),
            capture: random.below(u32::MAX as u64) as u32,
        }),
    };
    RawSample {
        kind: SampleKind::from_code(1 + random.below(7) as u8).unwrap(),
        flags: SampleFlags(random.below(256) as u8),
        thread_id: random.below(u32::MAX as u64) as u32,
        time_ns: random.below(u64::MAX),
        values: [random.below(u64::MAX), random.below(u64::MAX)],
        key: random.below(u64::MAX),
        context,
        frames,
    }
}

fn assert_same(a: &RawSample<'_>, b: &RawSample<'_>) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

fn plain(key: u64, frames: &[RawFrame]) -> RawSample<'_> {
    RawSample {
        kind: SampleKind::Alloc,
        flags: SampleFlags(0),
        thread_id: 1,
        time_ns: key,
        values: [key, key],
        key,
        context: Context::None,
        frames,
    }
}

#[test]
fn every_entry_is_drained_unchanged_in_order_at_its_position() {
    let ring = ring(512);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let rounds = if cfg!(miri) { 10 } else { 5_000 };
    let (mut frames, mut read) = (Vec::new(), 0);
    for _ in 0..rounds {
        let mut expected = Vec::new();
        for _ in 0..random.below(6) {
            let sample = any_sample(&mut random, &mut frames, MAX_FRAMES.min(40) as u64);
            let head = ring.head();
            match ring.push(&sample) {
                Ok(position) => {
                    assert_eq!(position, head);
                    expected.push((position, format!("{sample:?}")));
                }
                Err(reason) => {
                    assert_eq!(reason, DropReason::RingFull);
                    assert_eq!(ring.head(), head, "a dropped sample reserves no words");
                }
            }
        }
        let mut got = Vec::new();
        read += ring.drain(ring.head(), &mut |position, sample| got.push((position, format!("{sample:?}"))));
        assert_eq!(got, expected);
        assert!(ring.is_empty() && !ring.has_committed());
    }
    assert!(read >= rounds, "{read} entries");
}

#[test]
fn every_word_outside_the_used_part_is_zero() {
    let words: &'static [AtomicU64] =
        Box::leak((0..64).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice());
    let ring = Ring::new(words).unwrap();
    let frames = [RawFrame { code: 1, at: 2 }; 7];
    for key in 0..40 {
        ring.push(&plain(key, &frames[..(key % 8) as usize])).unwrap();
        assert_eq!(ring.drain(ring.head(), &mut |_, _| {}), 1);
        assert!(words.iter().all(|word| word.load(core::sync::atomic::Ordering::Relaxed) == 0));
    }
}

#[test]
fn a_full_ring_drops_the_new_sample_and_keeps_the_old_ones() {
    let ring = ring(64);
    let fits = 64 / FIXED_WORDS as u64;
    for key in 0..fits {
        ring.push(&plain(key, &[])).unwrap();
    }
    assert_eq!(ring.push(&plain(99, &[])), Err(DropReason::RingFull));
    let mut keys = Vec::new();
    ring.drain(ring.head(), &mut |_, sample| keys.push(sample.key));
    assert_eq!(keys, (0..fits).collect::<Vec<_>>());
    ring.push(&plain(100, &[])).unwrap();
}

#[test]
fn draining_up_to_a_position_leaves_later_entries() {
    let ring = ring(128);
    ring.push(&plain(1, &[])).unwrap();
    ring.push(&plain(2, &[])).unwrap();
    let code_ended = ring.head();
    ring.push(&plain(3, &[])).unwrap();
    let mut keys = Vec::new();
    assert_eq!(
        ring.drain(code_ended, &mut |position, sample| {
            assert!(position < code_ended);
            keys.push(sample.key);
        }),
        2
    );
    assert_eq!(
        ring.drain(ring.head(), &mut |position, sample| {
            assert!(position >= code_ended);
            keys.push(sample.key);
        }),
        1
    );
    assert_eq!(keys, [1, 2, 3]);
}

#[test]
fn a_stack_deeper_than_an_entry_is_cut_at_the_root_and_flagged() {
    let ring = ring((FIXED_WORDS + 2 * MAX_FRAMES).next_power_of_two());
    let frames: Vec<RawFrame> = (0..MAX_FRAMES as u64 + 10).map(|n| RawFrame { code: 5000 + n, at: n }).collect();
    ring.push(&plain(1, &frames)).unwrap();
    ring.drain(ring.head(), &mut |_, sample| {
        assert_eq!(sample.frames, &frames[..MAX_FRAMES]);
        assert!(sample.flags.has(SampleFlags::TRUNCATED));
    });
}

#[test]
fn an_entry_larger_than_the_ring_is_dropped() {
    let ring = ring(16);
    let frames = [RawFrame::default(); 8];
    assert_eq!(ring.push(&plain(1, &frames)), Err(DropReason::RingFull));
    ring.push(&plain(2, &frames[..5])).unwrap();
    assert_eq!(ring.drain(ring.head(), &mut |_, sample| assert_same(&sample, &plain(2, &frames[..5]))), 1);
}

#[test]
fn a_nested_drain_gets_no_entry() {
    let ring = ring(64);
    ring.push(&plain(1, &[])).unwrap();
    let mut inner = usize::MAX;
    ring.drain(ring.head(), &mut |_, _| inner = ring.drain(ring.head(), &mut |_, _| {}));
    assert_eq!(inner, 0);
    ring.push(&plain(2, &[])).unwrap();
    assert_eq!(ring.drain(ring.head(), &mut |_, _| {}), 1);
}

#[test]
fn a_panic_of_the_reader_loses_one_entry_and_keeps_the_rest() {
    let ring = ring(64);
    ring.push(&plain(1, &[])).unwrap();
    ring.push(&plain(2, &[])).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ring.drain(ring.head(), &mut |_, _| panic!("panic of the test"));
    }));
    assert!(panicked.is_err());
    let mut keys = Vec::new();
    ring.drain(ring.head(), &mut |_, sample| keys.push(sample.key));
    assert_eq!(keys, [2]);
}

#[test]
fn an_invalid_header_stops_the_reader() {
    let words: &'static [AtomicU64] =
        Box::leak((0..16).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice());
    let ring = Ring::new(words).unwrap();
    ring.push(&plain(1, &[])).unwrap();
    words[0].store(0xdead_beef_dead_beef, core::sync::atomic::Ordering::Relaxed);
    assert_eq!(ring.drain(ring.head(), &mut |_, _| {}), 0);
}

#[test]
fn the_ring_is_empty_in_a_forked_child_despite_uncommitted_entries() {
    let ring = ring(64);
    ring.push(&plain(1, &[])).unwrap();
    let uncommitted = ring.reserve(FIXED_WORDS as u64).unwrap();
    ring.push(&plain(2, &[])).unwrap();
    ring.reset_after_fork();
    assert!(ring.is_empty() && ring.head() > uncommitted);
    ring.push(&plain(3, &[])).unwrap();
    let mut keys = Vec::new();
    ring.drain(ring.head(), &mut |_, sample| keys.push(sample.key));
    assert_eq!(keys, [3]);
}

#[test]
fn a_ring_requires_a_power_of_two() {
    for words in [0, 3, 48, 100] {
        let words: &'static [AtomicU64] =
            Box::leak((0..words).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().into_boxed_slice());
        assert!(Ring::new(words).is_none());
    }
}

#[test]
fn writers_and_a_reader_on_real_threads_lose_no_accepted_entry() {
    let ring = ring(256);
    let each = if cfg!(miri) { 8 } else { 20_000 };
    let (mut accepted, mut read, mut mark) = (0u64, 0u64, 0u64);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3u64)
            .map(|writer| {
                let ring = &ring;
                scope.spawn(move || {
                    let mut accepted = (0, 0u64);
                    for turn in 0..each {
                        let frames = [RawFrame { code: writer, at: turn }; 9];
                        if ring.push(&plain(writer << 32 | turn, &frames[..(turn % 10) as usize])).is_ok() {
                            accepted = (accepted.0 + 1, accepted.1.wrapping_add(writer << 32 | turn));
                        }
                    }
                    accepted
                })
            })
            .collect();
        let mut last = [0; 4];
        let mut drain = || {
            read += ring.drain(ring.head(), &mut |_, sample| {
                let (writer, turn) = (sample.key >> 32, sample.key & 0xffff_ffff);
                assert_eq!(sample.frames.len() as u64, turn % 10);
                assert!(sample.frames.iter().all(|frame| frame.code == writer && frame.at == turn));
                assert!(turn == 0 || turn > last[writer as usize], "one writer's entries stay in order");
                last[writer as usize] = turn;
                mark = mark.wrapping_add(sample.key);
            }) as u64;
        };
        while writers.iter().any(|writer| !writer.is_finished()) {
            drain();
        }
        drain();
        let mut sum = 0u64;
        for writer in writers {
            let (count, keys) = writer.join().unwrap();
            accepted += count;
            sum = sum.wrapping_add(keys);
        }
        drain();
        assert_eq!(mark, sum);
    });
    assert_eq!(read, accepted);
}
