//! What the kernel records of each overflow of a perf event (perf_event_open(2)): the moment, and the registers of the thread in
//! user mode. Read by the handler from the event's ring buffer. Setting the event up is `sys`.

use core::sync::atomic::{fence, Ordering};

/// Bytes of an event's ring buffer: the control page, and one page of records.
pub const RING_BYTES: usize = 2 * PAGE;
/// `sample_type` of perf_event_attr: PERF_SAMPLE_TIME and PERF_SAMPLE_REGS_USER.
pub const SAMPLE_TYPE: u64 = 1 << 2 | 1 << 12;
/// `sample_regs_user` of perf_event_attr: PERF_REG_X86_AX and PERF_REG_X86_IP.
pub const REGISTERS: u64 = 1 << 0 | 1 << 8;

pub(crate) const PAGE: usize = 4096;
/// `data_head` in `perf_event_mmap_page`.
pub(crate) const HEAD_OFFSET: usize = 1024;
pub(crate) const RECORD_BYTES: u64 = 40;
/// `perf_event_header` of a record, without the processor mode: PERF_RECORD_SAMPLE and its size.
const SAMPLE: u64 = 9 | RECORD_BYTES << 48;
const MODE_SHIFT: u32 = 32;
/// The processor mode in a header; 1 is the kernel.
const MODE_MASK: u64 = 7;
/// The bits of the header that are not compared: the processor mode, and flags.
const HEADER_MASK: u64 = 0xffff_0000_ffff_ffff;
const KERNEL_MODE: u64 = 1;
/// PERF_SAMPLE_REGS_ABI_64.
const ABI_64: u64 = 2;

/// A signal that arrives later than this waited for the processor, or was blocked. A time slice is 0.7 ms or longer
/// (`sysctl_sched_base_slice` in kernel/sched/fair.c); 99 of 100 deliveries took less than 55 µs on a virtual machine.
const LONGEST_DELIVERY_NS: u64 = 500_000;

/// A record of the last overflow. Words: header, time, ABI, `rax`, `rip`.
pub(crate) struct Record([u64; 5]);

impl Record {
    /// The newest record; `None` when there is none of this form.
    ///
    /// # Safety
    /// `ring` is the address of a mapped ring buffer of an event that records [`SAMPLE_TYPE`], of the calling thread.
    pub unsafe fn last(ring: usize) -> Option<Self> {
        // SAFETY: the caller's promise: the control page is mapped.
        let head = unsafe { ((ring + HEAD_OFFSET) as *const u64).read_volatile() };
        fence(Ordering::Acquire);
        let start = head.checked_sub(RECORD_BYTES)?;
        let word = |index: usize| {
            let offset = (start as usize + 8 * index) % PAGE;
            // SAFETY: inside the page of records, aligned, since records are made of words.
            unsafe { ((ring + PAGE + offset) as *const u64).read_volatile() }
        };
        (word(0) & HEADER_MASK == SAMPLE).then(|| Self([0, 1, 2, 3, 4].map(word)))
    }

    /// CLOCK_MONOTONIC at the overflow.
    fn time_ns(&self) -> u64 {
        self.0[1]
    }

    /// `rax` and `rip` with which the thread had entered the kernel, if the event overflowed there.
    pub fn kernel_entry(&self) -> Option<(u64, u64)> {
        let [header, _, abi, rax, rip] = self.0;
        (header >> MODE_SHIFT & MODE_MASK == KERNEL_MODE && abi == ABI_64).then_some((rax, rip))
    }

    /// Time from the overflow to `now_ns`, in which the kernel delivered the signal; 0 where the signal waited.
    pub fn delivery_ns(&self, now_ns: u64) -> u64 {
        match now_ns.saturating_sub(self.time_ns()) {
            delivery_ns if delivery_ns <= LONGEST_DELIVERY_NS => delivery_ns,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_is_the_time_since_the_overflow_unless_the_signal_waited() {
        let record = Record([SAMPLE, 1_000_000, ABI_64, 0, 0]);
        assert_eq!(record.delivery_ns(1_020_000), 20_000);
        assert_eq!(record.delivery_ns(3_000_000), 0, "another thread ran in between");
        assert_eq!(record.delivery_ns(999_999), 0);
    }
}
