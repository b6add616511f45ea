//! Measures how long each turn of an event loop blocks it: one libuv prepare handle, which runs once per turn before the loop
//! waits. A turn above the threshold becomes samples of the kind `EventLoop`, whose values add up to its duration. Its CPU time
//! is shared among the running stacks, each with its labels and span. The rest is shared among the stacks in which the wall
//! sampler or `block_watch` found the thread waiting; without such a stack it is the frame `(not on the CPU)`. No wakeup is added.
//! Not here: the stacks themselves (`turn_stacks`).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind};

use crate::runtime::v8::lookup;
use crate::runtime::walk::js_thread::JsThread;
use crate::runtime::walk::ring_position::{self, RingPosition};
use crate::runtime::walk::synthetic_frame;
use crate::runtime::walk::turn_stacks::{ObservedStack, ObservedWaits};

/// Threshold above which turns are reported; 0 reports none.
static THRESHOLD_NS: AtomicU64 = AtomicU64::new(0);

/// Upper bounds of the histogram, in milliseconds, and their statistics; the last bucket has no bound.
const BOUNDS_MS: [(u64, &str); 9] = [
    (1, "node.loop_turns_up_to_1_ms"),
    (5, "node.loop_turns_up_to_5_ms"),
    (10, "node.loop_turns_up_to_10_ms"),
    (20, "node.loop_turns_up_to_20_ms"),
    (50, "node.loop_turns_up_to_50_ms"),
    (100, "node.loop_turns_up_to_100_ms"),
    (200, "node.loop_turns_up_to_200_ms"),
    (500, "node.loop_turns_up_to_500_ms"),
    (u64::MAX, "node.loop_turns_longer"),
];
static TURNS: [AtomicU64; BOUNDS_MS.len()] = [const { AtomicU64::new(0) }; BOUNDS_MS.len()];
static BLOCKS: AtomicU64 = AtomicU64::new(0);
static LONGEST_NS: AtomicU64 = AtomicU64::new(0);

/// `UV_METRICS_IDLE_TIME` and `UV_PREPARE`.
const MEASURE_IDLE_TIME: c_int = 1;
const PREPARE: c_int = 9;
/// Upper bound of the handle's size in words: larger than in any libuv so far.
const HANDLE_WORDS: usize = 64;

/// libuv's functions, exported by every Node.js.
struct Uv {
    configure: unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_int,
    idle_time: unsafe extern "C" fn(*mut c_void) -> u64,
    prepare_init: unsafe extern "C" fn(*mut c_void, *mut Handle) -> c_int,
    prepare_start: unsafe extern "C" fn(*mut Handle, extern "C" fn(*mut Handle)) -> c_int,
    unref: unsafe extern "C" fn(*mut Handle),
    close: unsafe extern "C" fn(*mut Handle, Option<extern "C" fn(*mut Handle)>),
    handle_size: unsafe extern "C" fn(c_int) -> usize,
}

/// `uv_prepare_t`, which starts with `data`, followed by our own fields.
#[repr(C)]
struct Handle {
    data: *mut c_void,
    rest: [usize; HANDLE_WORDS],
    loop_: *mut c_void,
    thread: &'static JsThread,
    last_ns: u64,
    last_idle_ns: u64,
    turn: u64,
    /// The thread's CPU clock, and the time of that reading. A reading costs more than the rest of this callback, so it is
    /// reused for some time.
    cpu_ns: u64,
    cpu_read_ns: u64,
}

/// Maximum age of a CPU clock reading at a turn's start, and the resolution of off-CPU time in a turn.
const CPU_READING_NS: u64 = 10_000_000;

/// A completed turn.
struct Turn {
    number: u64,
    busy_ns: u64,
    /// Upper bound of the turn's CPU time.
    on_cpu_ns: u64,
    ended_ns: u64,
}

fn uv() -> Option<&'static Uv> {
    static UV: OnceLock<Option<Uv>> = OnceLock::new();
    UV.get_or_init(|| {
        Some(Uv {
            configure: lookup::function!(c"uv_loop_configure")?,
            idle_time: lookup::function!(c"uv_metrics_idle_time")?,
            prepare_init: lookup::function!(c"uv_prepare_init")?,
            prepare_start: lookup::function!(c"uv_prepare_start")?,
            unref: lookup::function!(c"uv_unref")?,
            close: lookup::function!(c"uv_close")?,
            handle_size: lookup::function!(c"uv_handle_size")?,
        })
    })
    .as_ref()
}

/// Sets the threshold of every loop; 0 reports none.
pub fn set_threshold_ns(threshold_ns: u64) {
    THRESHOLD_NS.store(threshold_ns, Ordering::Relaxed);
}

/// The threshold; 0 while none is reported.
pub fn threshold_ns() -> u64 {
    THRESHOLD_NS.load(Ordering::Relaxed)
}

/// Starts to measure the loop of the calling thread. False when it is measured already.
pub fn begin(thread: &'static JsThread, event_loop: usize) -> bool {
    if thread.loop_handle.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let (Some(uv), event_loop) = (uv(), event_loop as *mut c_void) else { return false };
    // SAFETY: on the loop's thread, while it lives; the signatures are those of libuv's public header. The handle is larger than
    // `uv_handle_size` and lives until libuv has closed it.
    unsafe {
        if event_loop.is_null() || (uv.handle_size)(PREPARE) > size_of::<usize>() * HANDLE_WORDS {
            return false;
        }
        (uv.configure)(event_loop, MEASURE_IDLE_TIME);
        let handle = Box::into_raw(Box::new(Handle {
            data: std::ptr::null_mut(),
            rest: [0; HANDLE_WORDS],
            loop_: event_loop,
            thread,
            last_ns: spanprof_os::monotonic_ns(),
            last_idle_ns: (uv.idle_time)(event_loop),
            turn: 0,
            cpu_ns: 0,
            cpu_read_ns: 0,
        }));
        if (uv.prepare_init)(event_loop, handle) != 0 {
            drop(Box::from_raw(handle));
            return false;
        }
        (uv.prepare_start)(handle, before_waiting);
        // The handle does not keep the loop alive.
        (uv.unref)(handle);
        thread.loop_handle.store(handle as usize, Ordering::Relaxed);
        // The entry may hold stacks of the previous thread's loop.
        if let Some(turn_stacks) = thread.turn_stacks() {
            turn_stacks.take(|_| {});
        }
    }
    true
}

/// The calling thread's environment ends.
pub fn end(thread: &JsThread) {
    let handle = thread.loop_handle.swap(0, Ordering::Relaxed) as *mut Handle;
    if let (false, Some(uv)) = (handle.is_null(), uv()) {
        // SAFETY: on the loop's thread, which Node.js still runs before it closes the loop; the handle was opened above.
        unsafe { (uv.close)(handle, Some(closed)) };
    }
}

extern "C" fn closed(handle: *mut Handle) {
    // SAFETY: libuv's close callback of a handle that `begin` boxed; libuv does not use it again.
    drop(unsafe { Box::from_raw(handle) });
}

extern "C" fn before_waiting(handle: *mut Handle) {
    // A panic must not unwind through libuv.
    spanprof_profiler::binding::ffi_guard((), || {
        // SAFETY: libuv passes the handle that `begin` boxed, on its own thread.
        let handle = unsafe { &mut *handle };
        handle.thread.turn_began_ns.store(0, Ordering::Relaxed);
        let Some(uv) = uv() else { return };
        let now_ns = spanprof_os::monotonic_ns();
        // SAFETY: the running loop.
        let idle_ns = unsafe { (uv.idle_time)(handle.loop_) };
        let request_ns = handle.thread.waits().map_or(0, ObservedWaits::take_idle_until);
        let idle_total_ns = idle_ns.wrapping_sub(handle.last_idle_ns) + uncounted_ns(handle.last_ns, request_ns);
        let busy_ns = now_ns.saturating_sub(handle.last_ns).saturating_sub(idle_total_ns);
        (handle.last_ns, handle.last_idle_ns) = (now_ns, idle_ns);
        handle.turn += 1;
        let mut turn = Turn { number: handle.turn, busy_ns, on_cpu_ns: busy_ns, ended_ns: now_ns };
        if now_ns - handle.cpu_read_ns > CPU_READING_NS && THRESHOLD_NS.load(Ordering::Relaxed) != 0 {
            let cpu_ns = spanprof_os::thread_cpu_ns(handle.thread.thread_id.load(Ordering::Relaxed)).unwrap_or(0);
            turn.on_cpu_ns = busy_ns.min(cpu_ns.saturating_sub(handle.cpu_ns));
            (handle.cpu_ns, handle.cpu_read_ns) = (cpu_ns, now_ns);
        }
        turn_ended(handle.thread, &turn);
    });
}

/// The wait that libuv does not count: a signal ends a call to `epoll_pwait`, and only the time of the next call is added to the
/// idle time (`uv__io_poll` in libuv, measured on Node.js 20 to 26). `began_ns`: start of the wait; `request_ns`: last request whose
/// signal ended a call, or 0. A wait that was over when the signal came is counted whole.
fn uncounted_ns(began_ns: u64, request_ns: u64) -> u64 {
    request_ns.saturating_sub(began_ns)
}

fn turn_ended(thread: &JsThread, turn: &Turn) {
    let busy_ns = turn.busy_ns;
    let threshold_ns = THRESHOLD_NS.load(Ordering::Relaxed);
    if threshold_ns == 0 {
        return;
    }
    let bucket = BOUNDS_MS.iter().position(|(bound_ms, _)| busy_ns <= bound_ms.saturating_mul(1_000_000));
    if let Some(turns) = bucket.and_then(|bucket| TURNS.get(bucket)) {
        turns.fetch_add(1, Ordering::Relaxed);
    }
    let (turn_stacks, waits) = (thread.turn_stacks(), thread.waits());
    let Some(profiler) = ProfilerHandle::running().filter(|_| busy_ns >= threshold_ns) else {
        // SAFETY: on the thread itself, outside its handler.
        unsafe {
            turn_stacks.into_iter().for_each(|turn_stacks| turn_stacks.take(|_| {}));
            waits.into_iter().for_each(|waits| waits.take(|_| {}));
        }
        return;
    };
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    LONGEST_NS.fetch_max(busy_ns, Ordering::Relaxed);
    let submit = |length_ns: u64, context: Context, frames: &[RawFrame]| {
        // The core counts a drop when the ring is full.
        let _ = profiler.submit(&RawSample {
            kind: SampleKind::EventLoop,
            flags: SampleFlags(0),
            thread_id: thread.thread_id.load(Ordering::Relaxed),
            time_ns: turn.ended_ns,
            values: [length_ns, busy_ns],
            key: turn.number,
            context,
            frames,
        });
    };
    let ring = RingPosition::now().ring;
    let is_valid = |stack: &&ObservedStack| stack.captured_at.ring == ring && !stack.frames().is_empty();
    let submit_shares = |whole_ns: u64, stacks: &[ObservedStack], fallback: RawFrame| {
        let stacks = || stacks.iter().filter(is_valid);
        let observations: Vec<u64> = stacks().map(|stack| stack.observations.into()).collect();
        if observations.is_empty() {
            return submit(whole_ns, Context::None, &[fallback]);
        }
        for (stack, length_ns) in stacks().zip(shares(whole_ns, &observations)) {
            let frames: Vec<RawFrame> =
                stack.frames().iter().map(|frame| at_position(*frame, stack.captured_at.head)).collect();
            submit(length_ns, stack.context, &frames);
        }
    };
    let off_cpu_ns = Some(busy_ns - turn.on_cpu_ns).filter(|off_ns| *off_ns > CPU_READING_NS).unwrap_or(0);
    let submit_waits = |stacks: &[ObservedStack]| {
        if off_cpu_ns > 0 {
            submit_shares(off_cpu_ns, stacks, synthetic_frame::OFF_CPU);
        }
    };
    let submit_work = |stacks: &[ObservedStack]| submit_shares(busy_ns - off_cpu_ns, stacks, synthetic_frame::NO_STACK);
    // SAFETY: on the thread itself, outside its handler.
    unsafe {
        match waits {
            Some(waits) => waits.take(submit_waits),
            None => submit_waits(&[]),
        }
        match turn_stacks {
            Some(turn_stacks) => turn_stacks.take(submit_work),
            None => submit_work(&[]),
        }
    }
}

/// A frame of a stack captured when the ring was at `position`: other code may lie at its address by now.
fn at_position(frame: RawFrame, position: u64) -> RawFrame {
    if synthetic_frame::is_code(frame) {
        ring_position::frame_at_position(position, frame.code + frame.at)
    } else {
        frame
    }
}

/// Splits `whole` in proportion to the weights; the parts add up to it.
fn shares(whole: u64, weights: &[u64]) -> Vec<u64> {
    let all: u64 = weights.iter().sum();
    let mut before = 0;
    let ends = weights.iter().scan(0, |sum, weight| {
        *sum += weight;
        Some((u128::from(whole) * u128::from(*sum) / u128::from(all.max(1))) as u64)
    });
    ends.map(|end| end - std::mem::replace(&mut before, end)).collect()
}

/// For `stats()`.
pub fn stats(out: &mut Vec<(&'static str, String)>) {
    for ((_, name), turns) in BOUNDS_MS.iter().zip(&TURNS) {
        out.push((name, turns.load(Ordering::Relaxed).to_string()));
    }
    out.push(("node.loop_blocks", BLOCKS.load(Ordering::Relaxed).to_string()));
    out.push(("node.loop_longest_us", (LONGEST_NS.load(Ordering::Relaxed) / 1000).to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_v8_get_the_position_of_their_capture_and_others_are_unchanged() {
        let others = [RawFrame::native(0x7000), synthetic_frame::COLLECTING, synthetic_frame::COMPILING];
        assert_eq!(others.map(|frame| at_position(frame, 5)), others);
        assert_eq!(
            ring_position::address_and_position(at_position(RawFrame { code: 0x7000, at: 0x12 }, 5), 9),
            (0x7012, 5)
        );
    }

    #[test]
    fn a_wait_that_a_wall_request_interrupts_is_idle_time_from_its_start() {
        assert_eq!(uncounted_ns(1_000, 1_250), 250);
        assert_eq!(uncounted_ns(1_000, 0), 0, "no request");
        assert_eq!(uncounted_ns(1_000, 900), 0, "the request was in an earlier wait");
    }

    #[test]
    fn the_parts_of_a_block_have_their_weights_and_add_up_to_it() {
        for (whole, weights) in [(50_000_003, &[1; 7][..]), (5, &[1; 5]), (3, &[1; 16]), (90_000_001, &[3, 1, 8])] {
            assert_eq!(shares(whole, weights).iter().sum::<u64>(), whole);
        }
        assert_eq!(shares(120, &[3, 1, 8]), [30, 10, 80]);
        assert!(shares(7, &[]).is_empty());
    }
}
