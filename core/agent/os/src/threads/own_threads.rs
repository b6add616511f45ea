//! The profiler's own threads: neither their CPU time nor their allocations are sampled, their CPU time counted as the profiler's. Static and lock-free: usable
//! before, between and after runs of the clocks, and in a forked child.

use super::thread_sampling::set_own_sampling;
use crate::system_calls::{self, SystemCall};
use crate::threads::listing::{thread_id, thread_ids};
use crate::time::{current_thread_cpu_ns, thread_cpu_ns};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static OWN: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
static ENDED_CPU_NS: AtomicU64 = AtomicU64::new(0);

/// Marks the calling thread as ours until dropped. Drop it on the same thread, last.
pub struct OwnThread {
    entry: Option<&'static AtomicU32>,
    mask_before: libc::sigset_t,
    sampling_before: spanprof_signal::ThreadSampling,
    _this_thread_only: PhantomData<*const ()>,
}

impl OwnThread {
    pub(crate) fn current() -> Self {
        let me = thread_id();
        let free = |entry: &&AtomicU32| entry.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let entry = if is_own(me) { None } else { OWN.iter().find(free) };
        Self {
            entry,
            mask_before: block_host_signals(),
            sampling_before: set_own_sampling(spanprof_signal::ThreadSampling::Excluded),
            _this_thread_only: PhantomData,
        }
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        discard_write_signals(&self.mask_before);
        set_own_sampling(self.sampling_before);
        // SAFETY: the mask was read from this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask_before, std::ptr::null_mut()) };
        if let Some(entry) = self.entry {
            ENDED_CPU_NS.fetch_add(current_thread_cpu_ns(), Ordering::Relaxed);
            entry.store(0, Ordering::Release);
        }
    }
}

/// Whether a thread is one of ours.
pub(crate) fn is_own(thread_id: u32) -> bool {
    OWN.iter().any(|entry| entry.load(Ordering::Acquire) == thread_id)
}

/// Appends the id of every thread of the process that is not the profiler's own.
pub fn host_thread_ids(out: &mut Vec<u32>) {
    thread_ids(out);
    out.retain(|thread_id| !is_own(*thread_id));
}

/// Counts CPU time that the calling thread used for the profiler. The clocks of our own threads have it already.
pub fn count_own_work(cpu_ns: u64) {
    if !is_own(thread_id()) {
        ENDED_CPU_NS.fetch_add(cpu_ns, Ordering::Relaxed);
    }
}

/// CPU time of our living and ended threads since the process began, and of [`count_own_work`].
pub fn own_cpu_ns() -> u64 {
    let living = OWN.iter().map(|entry| match entry.load(Ordering::Acquire) {
        0 => 0,
        thread_id => thread_cpu_ns(thread_id).unwrap_or(0),
    });
    living.sum::<u64>() + ENDED_CPU_NS.load(Ordering::Relaxed)
}

/// Resets the list in a forked child, where none of our threads exists.
pub(crate) fn reset_in_child() {
    for entry in &OWN {
        entry.store(0, Ordering::Relaxed);
    }
    ENDED_CPU_NS.store(0, Ordering::Relaxed);
}

/// Discards pending SIGPIPE and SIGXFSZ of this thread, left by a write to a closed pipe or beyond a file limit.
/// Unblocking would deliver them, and their default action ends the host. Signals that were blocked before belong to
/// the host.
fn discard_write_signals(mask_before: &libc::sigset_t) {
    if !system_calls::may_use(SystemCall::RtSigtimedwait) {
        return;
    }
    let no_wait = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: an all-zero set is a valid value.
        let mut only: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the calls access the locals and the given set; sigtimedwait takes a pending signal without waiting.
        unsafe {
            if libc::sigismember(mask_before, signal) == 0 {
                libc::sigemptyset(&mut only);
                libc::sigaddset(&mut only, signal);
                libc::sigtimedwait(&only, std::ptr::null_mut(), &no_wait);
            }
        }
    }
}

/// Blocks the host's signals on our threads. Fault signals stay unblocked, since a blocked fault ends the process.
fn block_host_signals() -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid value.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: an all-zero set is a valid value.
    let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the calls access the locals and this thread's own mask.
    unsafe {
        libc::sigfillset(&mut blocked);
        for synchronous in
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS]
        {
            libc::sigdelset(&mut blocked, synchronous);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::OwnThread;

    #[test]
    fn a_write_signal_left_on_an_own_thread_does_not_end_the_process() {
        std::thread::spawn(|| {
            let own = OwnThread::current();
            for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
                // SAFETY: the signal is blocked on this thread and stays pending there.
                unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
            }
            drop(own);
        })
        .join()
        .unwrap();
    }
}
