//! The kernel's record of each overflow of a perf event (perf_event_open(2)): its time, and the thread's user-mode
//! registers. The handler reads it from the event's ring buffer. `spanprof_os` creates the event.

use core::sync::atomic::{fence, AtomicUsize, Ordering};

/// `sample_type` of perf_event_attr: PERF_SAMPLE_TIME and PERF_SAMPLE_REGS_USER.
pub const SAMPLE_TYPE: u64 = 1 << 2 | 1 << 12;
/// `sample_regs_user` of perf_event_attr: the register of a system call's result and the program counter, PERF_REG_X86_AX and
/// PERF_REG_X86_IP or PERF_REG_ARM64_X0 and PERF_REG_ARM64_PC.
pub const REGISTERS: u64 = 1 << 0 | if cfg!(target_arch = "x86_64") { 1 << 8 } else { 1 << 32 };

/// `data_head` in `perf_event_mmap_page`.
pub(crate) const HEAD_OFFSET: usize = 1024;
pub(crate) const RECORD_BYTES: u64 = 40;
/// `perf_event_header` of a record, without the processor mode: PERF_RECORD_SAMPLE and its size.
const SAMPLE_HEADER: u64 = 9 | RECORD_BYTES << 48;
const MODE_SHIFT: u32 = 32;
/// The processor mode in a header.
const MODE_MASK: u64 = 7;
/// The header bits that are compared. Excluded: the processor mode and the flags.
const HEADER_MASK: u64 = 0xffff_0000_ffff_ffff;
const KERNEL_MODE: u64 = 1;
/// PERF_SAMPLE_REGS_ABI_64.
const ABI_64: u64 = 2;

/// A signal that arrives later than this was blocked, or its thread was preempted. A time slice is 0.7 ms or longer
/// (`sysctl_sched_base_slice` in kernel/sched/fair.c); 99 of 100 deliveries took less than 55 µs on a virtual
/// machine.
const MAX_DELIVERY_NS: u64 = 500_000;

/// Bytes of a page of memory; kernels for AArch64 have pages of 4, 16 or 64 KiB.
pub(crate) fn page_bytes() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: reads the auxiliary vector.
            let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Bytes of an event's ring buffer: the control page, and one page of records.
pub fn buffer_bytes() -> usize {
    2 * page_bytes()
}

/// Number of overflows of an event since it was opened. The kernel writes the record before it sends the signal
/// (`__perf_event_overflow` in kernel/events/core.c), so an overflow is known even if its signal was merged with another
/// one. The event writes no other records: it has no throttling at the rates in use, and it overwrites old records.
///
/// # Safety
/// `buffer` is the address of the mapped ring buffer of an event that records [`SAMPLE_TYPE`].
pub(crate) unsafe fn count(buffer: usize) -> u64 {
    // SAFETY: the control page is mapped, by the caller's contract.
    let head = unsafe { ((buffer + HEAD_OFFSET) as *const u64).read_volatile() };
    fence(Ordering::Acquire);
    head / RECORD_BYTES
}

/// The record of an overflow. Words: header, time, ABI, the register of a system call's result, the program counter.
pub(crate) struct OverflowRecord([u64; 5]);

impl OverflowRecord {
    /// The record of overflow `number`, from 1; `None` if it was overwritten or has another format.
    ///
    /// # Safety
    /// As for [`count`]; the event has at least `number` overflows.
    pub unsafe fn read(buffer: usize, number: u64) -> Option<Self> {
        let start = number.checked_sub(1)? * RECORD_BYTES;
        let page_bytes = page_bytes();
        let word = |index: usize| {
            let offset = (start as usize + 8 * index) & (page_bytes - 1);
            // SAFETY: within the page of records, whose size is a power of two, and aligned, since records consist of words.
            unsafe { ((buffer + page_bytes + offset) as *const u64).read_volatile() }
        };
        let record = Self([0, 1, 2, 3, 4].map(word));
        // The kernel may have overwritten the record meanwhile.
        fence(Ordering::Acquire);
        // SAFETY: the caller's contract.
        let is_kept = unsafe { count(buffer) } < number + page_bytes as u64 / RECORD_BYTES;
        (is_kept && record.0[0] & HEADER_MASK == SAMPLE_HEADER).then_some(record)
    }

    /// CLOCK_MONOTONIC at the overflow.
    fn time_ns(&self) -> u64 {
        self.0[1]
    }

    /// The register of a system call's result and the program counter, as the thread will have them in user mode, if the event
    /// overflowed in kernel mode.
    pub fn kernel_entry(&self) -> Option<(u64, u64)> {
        let [header, _, abi, result, pc] = self.0;
        (header >> MODE_SHIFT & MODE_MASK == KERNEL_MODE && abi == ABI_64).then_some((result, pc))
    }

    /// Delivery time of the signal, from the overflow to `now_ns`; 0 if the signal was delayed by blocking or
    /// preemption.
    pub fn delivery_ns(&self, now_ns: u64) -> u64 {
        match now_ns.saturating_sub(self.time_ns()) {
            delivery_ns if delivery_ns <= MAX_DELIVERY_NS => delivery_ns,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_is_the_time_since_the_overflow_unless_the_signal_was_delayed() {
        let record = OverflowRecord([SAMPLE_HEADER, 1_000_000, ABI_64, 0, 0]);
        assert_eq!(record.delivery_ns(1_020_000), 20_000);
        assert_eq!(record.delivery_ns(3_000_000), 0, "another thread ran in between");
        assert_eq!(record.delivery_ns(999_999), 0);
    }
}
