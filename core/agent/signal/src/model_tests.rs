//! Loom models of the ring, its wakeup, the slot, the exchange of wall requests, the live set and the owners of countdowns, up to
//! the preemption bound. Built only with `RUSTFLAGS="--cfg loom" cargo test -p spanprof-signal --lib model`.

use crate::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::context::Context;
use crate::drop_reason::DropReason;
use crate::heap::address_filter::AddressFilter;
use crate::heap::live_set::{LiveSet, LiveSlot};
use crate::heap::sampler_table::SamplerTable;
use crate::ring::entry::{Header, FIXED_WORDS};
use crate::ring::inbox::{Inbox, WakeReason};
use crate::ring::sample::{RawSample, SampleFlags, SampleKind};
use crate::ring::sample_ring::Ring;
use crate::signals::slot::{EnterOutcome, Slot, SlotInit};
use crate::walk::buffer_pool::{claim_buffer, PooledBuffer};
use crate::walk::exchange::{Requester, Round, WallRequest};
use crate::walk::published::Published;
use loom::sync::Arc;
use loom::thread;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS may only raise the bound.
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.check(model);
}

fn words(count: usize) -> &'static [AtomicU64] {
    let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    Box::leak(words.into_boxed_slice())
}

fn ring(count: usize) -> Arc<Ring> {
    Arc::new(Ring::new(words(count)).unwrap())
}

/// A sample whose words all derive from `mark`, which detects a torn entry.
fn sample(mark: u64) -> RawSample<'static> {
    RawSample {
        kind: SampleKind::Cpu,
        flags: SampleFlags(0),
        thread_id: mark as u32,
        time_ns: mark,
        values: [mark, mark],
        key: mark,
        context: Context::None,
        frames: &[],
    }
}

/// Drains once; returns the marks in order.
fn drain(ring: &Ring) -> Vec<u64> {
    let mut marks = Vec::new();
    let mut last = None;
    ring.drain(ring.head(), &mut |position, s| {
        assert!(last.is_none_or(|last| last < position));
        last = Some(position);
        let mark = s.key;
        assert_eq!((s.thread_id as u64, s.time_ns, s.values), (mark, mark, [mark, mark]), "a torn entry");
        marks.push(mark);
    });
    marks
}

#[test]
fn model_two_writers_and_a_reader_lose_and_tear_no_entry() {
    check(2, || {
        let ring = ring(16);
        let writers: Vec<_> = [1, 2]
            .map(|mark| {
                let ring = ring.clone();
                thread::spawn(move || ring.push(&sample(mark)).unwrap())
            })
            .into_iter()
            .collect();
        let mut marks = drain(&ring);
        for writer in writers {
            writer.join().unwrap();
        }
        marks.extend(drain(&ring));
        marks.sort_unstable();
        assert_eq!(marks, [1, 2]);
        assert!(ring.is_empty());
    });
}

#[test]
fn model_a_signal_between_reserve_and_commit_only_delays_the_reader() {
    check(3, || {
        let ring = ring(16);
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let interrupted = sample(1);
                let header = Header::of(&interrupted);
                let position = ring.reserve(header.words() as u64).unwrap();
                // The signal arrives here.
                let nested = ring.push(&sample(2)).unwrap();
                assert!(nested > position);
                ring.fill(position, &interrupted, header);
                ring.commit(position, header);
            })
        };
        let mut marks = drain(&ring);
        writer.join().unwrap();
        marks.extend(drain(&ring));
        assert_eq!(marks, [1, 2], "in the order of their positions");
    });
}

#[test]
fn model_a_full_ring_drops_the_new_sample_and_reuses_drained_words() {
    check(2, || {
        // Two entries fit, a third does not; entries wrap word by word.
        let ring = ring(16);
        assert!(FIXED_WORDS * 2 <= 16 && FIXED_WORDS * 3 > 16);
        ring.push(&sample(1)).unwrap();
        ring.push(&sample(2)).unwrap();
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || match ring.push(&sample(3)) {
                Ok(position) => {
                    assert_eq!(position, 2 * FIXED_WORDS as u64);
                    1
                }
                Err(reason) => {
                    assert_eq!(reason, DropReason::RingFull);
                    0
                }
            })
        };
        let mut marks = drain(&ring);
        let accepted = writer.join().unwrap();
        marks.extend(drain(&ring));
        assert_eq!(marks.len(), 2 + accepted);
        assert_eq!(marks[..2], [1, 2]);
    });
}

#[test]
fn model_the_first_sample_wakes_a_reader_that_waits_without_a_deadline() {
    check(3, || {
        let inbox = Arc::new(Inbox::new(words(8)).unwrap());
        let writer = {
            let inbox = inbox.clone();
            thread::spawn(move || inbox.submit(&sample(1)).unwrap())
        };
        // A lost wakeup would spin here forever, which loom reports.
        let mut marks = Vec::new();
        while marks.is_empty() {
            inbox.wait(None);
            marks = drain(inbox.ring());
        }
        writer.join().unwrap();
        assert_eq!(marks, [1]);
    });
}

#[test]
fn model_no_wakeup_is_lost() {
    check(3, || {
        let inbox = Arc::new(Inbox::new(words(8)).unwrap());
        let waker = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                inbox.scan_due();
                inbox.wake();
            })
        };
        let mut reasons = Vec::new();
        while reasons.len() < 2 {
            reasons.push(inbox.wait(None));
        }
        waker.join().unwrap();
        assert!(reasons.contains(&WakeReason::Requested) && reasons.contains(&WakeReason::ScanDue), "{reasons:?}");
    });
}

#[test]
fn model_a_closed_quiescent_slot_has_no_active_handler() {
    check(3, || {
        let slot = Arc::new(Slot::new());
        let init = SlotInit { thread_id: 7, accounted_cpu_ns: 0, first_of_thread: false, seed: 1 };
        let generation = slot.open(&init);
        // The resource that rule 2 protects: used by the active handler, released by the closing thread.
        let released = Arc::new(AtomicU32::new(0));
        let handler = {
            let (slot, released) = (slot.clone(), released.clone());
            thread::spawn(move || {
                if slot.enter(generation) == EnterOutcome::Entered {
                    assert_eq!(released.load(Ordering::Relaxed), 0, "used after its release");
                    assert_eq!(slot.thread_id(), 7);
                    slot.leave();
                }
            })
        };
        slot.close();
        if slot.is_quiescent() {
            released.store(1, Ordering::Relaxed);
            slot.free();
            // A late signal of the first generation must not touch the second.
            slot.open(&SlotInit { thread_id: 8, ..init });
        }
        handler.join().unwrap();
    });
}

/// A response of two halves, which detects a torn write.
type TwoHalves = [AtomicU32; 2];
type Responder = &'static WallRequest<'static, TwoHalves>;

fn round() -> &'static Round {
    Box::leak(Box::new(Round::new()))
}

fn request(round: &'static Round) -> (Requester<'static, TwoHalves>, Responder) {
    Box::leak(Box::new(WallRequest::new(round, [AtomicU32::new(0), AtomicU32::new(0)]))).split()
}

/// The handler on thread `thread_id`: responds with the thread id in both halves.
fn respond(responder: Responder, thread_id: u32) -> bool {
    responder.respond(thread_id, |halves| halves.iter().for_each(|half| half.store(thread_id, Ordering::Relaxed)))
}

/// The thread id in the response that the sampler reads.
fn response(requester: &Requester<'static, TwoHalves>) -> Option<u32> {
    requester.response().map(|halves| {
        let [first, second] = [0, 1].map(|half| halves[half].load(Ordering::Relaxed));
        assert_eq!(first, second, "a torn response");
        first
    })
}

#[test]
fn model_the_last_response_of_a_round_wakes_the_sampler_which_reads_all() {
    check(3, || {
        let round = round();
        round.begin();
        let requests = [1, 2].map(|thread_id| {
            let (mut requester, responder) = request(round);
            assert!(requester.issue(thread_id));
            (requester, thread::spawn(move || assert!(respond(responder, thread_id))))
        });
        // A lost wakeup would spin here forever, which loom reports.
        assert!(round.wait(|| 1));
        assert_eq!([0, 1].map(|index| response(&requests[index].0)), [Some(1), Some(2)]);
        for (_, thread) in requests {
            thread.join().unwrap();
        }
    });
}

#[test]
fn model_a_cancelled_request_takes_no_response_for_the_next_thread() {
    check(3, || {
        let round = round();
        let (mut requester, responder) = request(round);
        round.begin();
        assert!(requester.issue(1));
        let late = thread::spawn(move || respond(responder, 1));
        let is_reissued = requester.cancel() && requester.issue(2);
        if is_reissued {
            assert!(respond(responder, 2));
            assert_eq!(response(&requester), Some(2));
        }
        assert_eq!(late.join().unwrap(), !is_reissued);
        assert_eq!(response(&requester), Some(if is_reissued { 2 } else { 1 }));
        assert!(round.wait(|| 1), "each request was counted once");
    });
}

#[test]
fn model_a_late_response_does_not_end_the_next_round() {
    check(3, || {
        let round = round();
        let ((mut early, responder), (mut next, _)) = (request(round), request(round));
        round.begin();
        assert!(early.issue(1));
        let late = thread::spawn(move || assert!(respond(responder, 1)));
        round.wait(|| 0);
        round.begin();
        assert!(next.issue(2));
        assert!(!round.wait(|| 0), "the second request is pending");
        late.join().unwrap();
        assert_eq!(response(&early), Some(1));
    });
}

fn live_set(slots: usize) -> Arc<LiveSet> {
    let slots: Vec<LiveSlot> = (0..slots).map(|_| LiveSlot::free()).collect();
    let filter: &'static AddressFilter = Box::leak(Box::new(AddressFilter::new()));
    Arc::new(LiveSet::new(Box::leak(slots.into_boxed_slice()), filter).unwrap())
}

#[test]
fn model_a_freed_and_a_thinned_sample_are_removed_once_and_the_address_is_usable_again() {
    check(3, || {
        let set = live_set(2);
        let sample = set.insert(64, 10, 100).unwrap();
        let drain = {
            let set = set.clone();
            thread::spawn(move || set.remove_sample(sample))
        };
        // The host frees the object and allocates another one at the same address.
        let freed = set.remove(64);
        let next = set.insert(64, 20, 200);
        let thinned = drain.join().unwrap();
        assert_ne!(freed.is_some(), thinned, "exactly one removal gets the sample");
        assert!(!set.contains(sample));
        let next = next.unwrap();
        assert!(next != sample && set.contains(next));
        assert_eq!(set.remove(64).map(|object| (object.sample, object.size, object.interval)), Some((next, 20, 200)));
        assert!(set.is_empty() && set.remove(64).is_none());
    });
}

#[test]
fn model_inserts_of_two_threads_get_different_slots_and_a_reader_sees_whole_objects() {
    check(3, || {
        let set = live_set(2);
        let inserter = {
            let set = set.clone();
            thread::spawn(move || set.insert(64, 1, 1))
        };
        let own = set.insert(128, 2, 2).unwrap();
        for object in set.objects() {
            assert_eq!(object.size, object.interval);
        }
        let other = inserter.join().unwrap().unwrap();
        assert_ne!(own, other);
        assert_eq!(set.insert(192, 3, 3), None, "a full set refuses");
        assert_eq!((set.remove(64).unwrap().sample, set.remove(128).unwrap().sample), (other, own));
    });
}

#[test]
fn model_a_buffer_has_one_user_at_a_time_and_passes_on_its_content() {
    check(3, || {
        let pool: Arc<[_; 1]> = Arc::new([PooledBuffer::new(0u64)]);
        let add = |pool: &[PooledBuffer<u64>]| {
            // Loom fails if two threads access the content at once, or without a happens-before relation.
            claim_buffer(pool, 0).map(|mut buffer| buffer.with(|value| *value += 1)).is_some()
        };
        let other = {
            let pool = pool.clone();
            thread::spawn(move || add(&*pool))
        };
        let own = add(&*pool);
        let other = other.join().unwrap();
        let users = claim_buffer(&*pool, 0).unwrap().with(|value| *value);
        assert_eq!(users, u64::from(own) + u64::from(other));
        assert!(own || other);
    });
}

#[test]
fn model_a_replaced_value_is_freed_only_when_no_reader_uses_it() {
    check(3, || {
        let published = Arc::new(Published::<AtomicU32>::new());
        // A value is alive (1) or freed (0); it is leaked, so that a wrong read is seen.
        let value = || Box::leak(Box::new(AtomicU32::new(1)));
        // SAFETY: leaked.
        unsafe { published.replace(value()) };
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let published = published.clone();
                thread::spawn(move || {
                    let borrowed = published.borrow().unwrap();
                    assert_eq!(borrowed.get().load(Ordering::SeqCst), 1, "freed before the read");
                    thread::yield_now();
                    assert_eq!(borrowed.get().load(Ordering::SeqCst), 1, "freed during the read");
                })
            })
            .collect();
        // SAFETY: leaked.
        let replaced = unsafe { &*published.replace(value()) };
        if published.is_unused() {
            replaced.store(0, Ordering::SeqCst);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(published.is_unused());
    });
}

#[test]
fn model_a_countdown_has_one_owner_which_loses_no_count() {
    check(3, || {
        let table = Arc::new(SamplerTable::with(|| AtomicU64::new(0)));
        // All three have the same slot.
        let count = |table: &SamplerTable<AtomicU64>, thread: u64| {
            let before = table.owned(thread).is_some();
            let claimed = table.claim(thread);
            for _ in 0..2 {
                // As a countdown counts: not atomic.
                claimed.inspect(|bytes| bytes.store(bytes.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
            }
            assert!(!before && table.owned(thread).is_some() == claimed.is_some());
            claimed.map(|bytes| bytes.load(Ordering::Relaxed))
        };
        let threads: Vec<_> = [1, 2]
            .map(|thread| {
                let table = table.clone();
                thread::spawn(move || count(&table, thread))
            })
            .into_iter()
            .collect();
        let mut counts = vec![count(&table, 3)];
        counts.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        assert_eq!(counts.into_iter().flatten().collect::<Vec<_>>(), [2]);
    });
}
