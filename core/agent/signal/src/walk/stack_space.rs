//! Where the stack of a handler ends. A handler runs on the signal stack of its thread, or below the interrupted code: threads of musl
//! have 128 KiB, those of glibc as little as 16 KiB, signal stacks of Rust's threads 8 KiB, of which the kernel's frame takes 3.4 KiB
//! with AVX-512.

use crate::signals::mapped_stack::MappedStack;
use crate::walk::guarded;

/// Least page size: guard pages are multiples of it.
const PAGE: usize = 4096;

/// Stack of the handler of a fault in a walk, with the kernel's frame. Not provided for on a signal stack, which is small: no fault is
/// part of normal operation.
const FAULT_BYTES: usize = 5 << 10;

/// Stack below a handler that is looked at: the largest that a walk asks for is 16 KiB.
const EXAMINED_BYTES: usize = 24 << 10;

/// Stack that a walk takes at most unless it asks for more. Measured on painted stacks, x86-64: 1.6 KiB with frames of an interpreter, 1.0 in native code.
/// Handlers on the signal stack of a thread of Rust have 4 KiB left.
pub(crate) const WALK_BYTES: usize = 5 << 9;

/// The end of the running handler's stack: the lowest address that it may use. On the signal stack as the kernel recorded it at the
/// delivery (`save_altstack_ex`), else where the memory below is not mapped or a guard page; 0 without a context.
///
/// # Safety
/// `ucontext` is null or the kernel's argument to the running handler.
#[inline(never)]
pub(crate) unsafe fn limit(ucontext: *mut libc::c_void, mapped: &MappedStack) -> usize {
    let local = 0u8;
    let here = &raw const local as usize;
    // SAFETY: the caller's contract: null or a valid context.
    let Some(context) = (unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() }) else { return 0 };
    signal_stack_below(context, here).unwrap_or_else(|| lowest_known(mapped, here & !(PAGE - 1)) + FAULT_BYTES)
}

/// The lowest page, at least down to [`EXAMINED_BYTES`] below, that is known to be mapped with all pages up to `page`, which the running
/// handler uses.
fn lowest_known(mapped: &MappedStack, page: usize) -> usize {
    let (known, end) = (mapped.lowest_below(page), page.saturating_sub(EXAMINED_BYTES));
    if let Some(lowest) = known.filter(|lowest| *lowest <= end) {
        return lowest;
    }
    let lowest = lowest_mapped(known.unwrap_or(page), end);
    mapped.extend(lowest, page);
    lowest
}

/// Whether the running handler finds `bytes` of stack below `here`.
#[cfg(target_arch = "x86_64")] // Waits are resumed there only.
pub(crate) fn has_stack(context: &libc::ucontext_t, here: usize, bytes: usize) -> bool {
    let end = here.saturating_sub(bytes);
    signal_stack_below(context, here).unwrap_or_else(|| lowest_mapped(here & !(PAGE - 1), end)) <= end
}

/// The lowest address of the signal stack; `None` if `here` is on another one.
fn signal_stack_below(context: &libc::ucontext_t, here: usize) -> Option<usize> {
    let lowest = context.uc_stack.ss_sp as usize;
    (lowest..lowest.saturating_add(context.uc_stack.ss_size)).contains(&here).then_some(lowest)
}

/// The lowest page, down to the one at `end`, that is mapped with all pages from it up to `page`, and no guard page. The main thread's
/// stack grows meanwhile, up to its limit.
fn lowest_mapped(mut page: usize, end: usize) -> usize {
    while page > end {
        // The eight bytes are in two pages: one call for both.
        match page.checked_sub(PAGE + 4) {
            Some(both) if guarded::is_readable(both) => page -= 2 * PAGE,
            _ if guarded::is_readable(page - 8) => return page - PAGE,
            _ => break,
        }
    }
    page
}

#[cfg(all(test, target_arch = "x86_64", not(miri), not(loom)))] // Memory of the system.
mod tests {
    use super::*;

    /// A stack of eight pages above a guard page: its lowest address.
    fn stack_with_guard_page() -> usize {
        // SAFETY: maps new memory and protects its first page.
        unsafe {
            let (all, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let memory = libc::mmap(core::ptr::null_mut(), 9 * PAGE, all, flags, -1, 0);
            assert_eq!(libc::mprotect(memory, PAGE, libc::PROT_NONE), 0);
            memory as usize + PAGE
        }
    }

    #[test]
    fn space_ends_at_the_guard_page_or_with_the_signal_stack() {
        let lowest = stack_with_guard_page();
        // SAFETY: an all-zero context is a valid value.
        let mut context = unsafe { core::mem::zeroed::<libc::ucontext_t>() };
        for pages in 1..8 {
            let here = lowest + pages * PAGE + 8;
            assert!(has_stack(&context, here, pages * PAGE), "{pages} pages above a guard page");
            assert!(!has_stack(&context, here, pages * PAGE + 9), "{pages} pages above a guard page");
        }
        context.uc_stack.ss_sp = (lowest + PAGE) as *mut libc::c_void;
        context.uc_stack.ss_size = 4 * PAGE;
        assert!(has_stack(&context, lowest + 2 * PAGE, PAGE), "a signal stack");
        assert!(!has_stack(&context, lowest + 2 * PAGE, PAGE + 1), "a signal stack");
    }

    #[test]
    fn pages_that_were_found_mapped_are_not_looked_at_again() {
        let lowest = stack_with_guard_page();
        let mapped = MappedStack::new();
        let [middle, top] = [lowest + PAGE, lowest + 7 * PAGE];
        assert_eq!(lowest_known(&mapped, middle), lowest);
        assert!(lowest_known(&mapped, top) <= lowest + PAGE, "above the known ones");
        assert_eq!(lowest_known(&mapped, middle), lowest, "below the known ones");
        // SAFETY: this test's own memory.
        assert_eq!(unsafe { libc::mprotect(lowest as *mut libc::c_void, 2 * PAGE, libc::PROT_NONE) }, 0);
        assert_eq!(lowest_known(&mapped, top), lowest, "known");
        mapped.clear();
        assert_eq!(lowest_known(&mapped, top), lowest + 2 * PAGE);
    }
}
