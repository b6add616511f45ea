//! Guarded reads, and faults of the host.

use crate::{host_installs, one_at_a_time, status_of_child};
use spanprof_signal::forward::current_action;
use spanprof_signal::{guarded, CheckedMemory, Memory, ProcessMemory};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

fn page_bytes() -> usize {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Maps two pages, the second one unreadable. Returns the address of their border.
fn map_border() -> usize {
    let page = page_bytes();
    // SAFETY: maps new memory; accesses only its first page.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), 2 * page, protection, flags, -1, 0) as usize;
        assert_eq!(libc::mprotect((start + page) as *mut libc::c_void, page, libc::PROT_NONE), 0);
        for offset in 0..page {
            *((start + offset) as *mut u8) = offset as u8;
        }
        start + page
    }
}

#[test]
fn mapped_memory_is_read_and_unmapped_memory_is_none() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = map_border();
    let faults = guarded::faults();
    assert_eq!(guarded::read_u64(border - 8), Some(u64::from_le_bytes([248, 249, 250, 251, 252, 253, 254, 255])));
    assert_eq!(guarded::read_u64(border - 7), None, "the last byte is unreadable");
    assert_eq!(guarded::read_u64(border), None);
    assert_eq!(guarded::read_u64(0), None);
    assert_eq!(guarded::read_u64(0x1234_5678_9abc_def0), None, "not a canonical address");
    assert_eq!(guarded::faults(), faults + 3, "page zero is rejected without a fault");
}

#[test]
fn checked_memory_ends_without_a_fault() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = map_border();
    let faults = guarded::faults();
    let memory = CheckedMemory::default();
    assert_eq!(memory.word(border - 8).map(|word| word as u8), Some(248));
    assert_eq!([border - 7, border, 0, 0x1234_5678_9abc_def0, usize::MAX - 3].map(|at| memory.word(at)), [None; 5]);
    assert_eq!(memory.word(border - page_bytes()).map(|word| word as u8), Some(0));
    assert_eq!([border - 8, border].map(|at| ProcessMemory.guess(at).is_some()), [true, false]);
    assert_eq!(guarded::faults(), faults);
}

#[test]
fn ticks_notice_within_100_ms_that_our_handler_was_replaced() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        assert!(guarded::install());
        // Later than any tick of another test.
        let now_ns = u64::MAX / 2;
        guarded::check_if_due(now_ns);
        host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
        guarded::check_if_due(now_ns + 99_999_999);
        assert!(guarded::is_installed());
        guarded::check_if_due(now_ns + 100_000_000);
        assert!(!guarded::is_installed());
    });
    assert_eq!(status, 0);
}

#[test]
fn copies_across_the_border_fail() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = map_border();
    let mut frame = [0u8; 80];
    assert!(guarded::copy_80(&mut frame, border - 80));
    assert_eq!(frame[79], 255);
    for missing in 1..80 {
        assert!(!guarded::copy_80(&mut frame, border - 80 + missing));
    }
    let mut bytes = [0u8; 300];
    for length in [0, 1, 7, 8, 9, 31, 256, 300] {
        bytes.fill(0);
        // SAFETY: `bytes` holds `length` bytes.
        assert!(unsafe { guarded::copy(bytes.as_mut_ptr(), border - length, length) });
        let expected: Vec<u8> = (0..length).map(|n| (page_bytes() - length + n) as u8).collect();
        assert_eq!(&bytes[..length], expected);
        // SAFETY: `bytes` holds 300 bytes, and no length is greater.
        assert!(!unsafe { guarded::copy(bytes.as_mut_ptr(), border - length + 1, length.max(1)) });
    }
    // SAFETY: the call writes nothing, since the range wraps around.
    assert!(!unsafe { guarded::copy(bytes.as_mut_ptr(), usize::MAX - 3, 8) });
}

#[test]
fn a_read_beyond_a_truncated_mapped_file_fails() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    // SAFETY: maps a memory file of this test; truncates it without any access to the mapping.
    let address = unsafe {
        let file = libc::memfd_create(c"shrinks".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(file, page_bytes() as i64), 0);
        let start = libc::mmap(std::ptr::null_mut(), page_bytes(), libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_eq!(libc::ftruncate(file, 0), 0);
        libc::close(file);
        start as usize
    };
    assert_eq!(guarded::read_u64(address), None, "by SIGBUS");
}

#[test]
fn without_our_handler_reads_use_the_kernel() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = map_border();
    let ours = host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
    assert!(!guarded::check_installed());
    assert_eq!(guarded::read_u64(border), None, "a fault would have ended the process");
    assert_eq!(guarded::read_u64(border - 8).map(|word| word as u8), Some(248));
    let mut frame = [0u8; 80];
    assert!(guarded::copy_80(&mut frame, border - 80) && !guarded::copy_80(&mut frame, border - 79));
    assert!(guarded::install());
    assert!(guarded::check_installed());
    // Restores the chain for the other tests.
    host_installs(libc::SIGSEGV, ours.sa_sigaction, ours.sa_flags);
    assert!(guarded::check_installed());
}

#[test]
fn with_kernel_reads_forbidden_reads_without_our_handler_fail() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        assert!(guarded::install());
        let readable = map_border() - 8;
        guarded::forbid_kernel_reads();
        assert!(guarded::read_u64(readable).is_some());
        host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
        assert!(!guarded::check_installed());
        assert_eq!(guarded::read_u64(readable), None);
        assert!(!guarded::copy_80(&mut [0; 80], readable - 80));
        assert!(guarded::install());
        assert!(guarded::read_u64(readable).is_some());
    });
    assert_eq!(status, 0);
}

static UNPROTECTED_PAGE: AtomicUsize = AtomicUsize::new(0);
static HOST_FAULTS: AtomicU64 = AtomicU64::new(0);

/// A host handler of its own faults: makes the page readable and continues.
unsafe extern "C" fn host_unprotects_page(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo of a fault; the page is mapped by this test.
    unsafe {
        let page = (*info).si_addr() as usize & !(page_bytes() - 1);
        if page == UNPROTECTED_PAGE.load(Ordering::Relaxed) {
            libc::mprotect(page as *mut libc::c_void, page_bytes(), libc::PROT_READ);
            HOST_FAULTS.fetch_add(1, Ordering::Relaxed);
            *libc::__errno_location() = 77;
        } else {
            libc::_exit(3);
        }
    }
}

fn host_reads(address: usize) -> u8 {
    // SAFETY: the address is mapped by this test or its fault ends the child; the host handler makes the page readable.
    unsafe { std::ptr::read_volatile(address as *const u8) }
}

fn protected_page() -> usize {
    let border = map_border();
    UNPROTECTED_PAGE.store(border, Ordering::Relaxed);
    border
}

#[test]
fn host_faults_reach_the_host_handler_installed_before_or_after_ours() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        // Installed before ours.
        host_installs(libc::SIGSEGV, host_unprotects_page as *const () as usize, libc::SA_SIGINFO);
        assert!(guarded::install());
        for _ in 0..100 {
            host_reads(protected_page());
            assert_eq!(guarded::read_u64(4096 * 3), None);
        }
        assert_eq!(HOST_FAULTS.load(Ordering::Relaxed), 100);
        // Installed after ours, without chaining: ours is reinstalled and forwards the host's faults.
        host_installs(libc::SIGSEGV, host_unprotects_page as *const () as usize, libc::SA_SIGINFO);
        assert!(!guarded::check_installed());
        host_reads(protected_page());
        assert!(guarded::install());
        host_reads(protected_page());
        assert_eq!(guarded::read_u64(4096 * 3), None);
        assert_eq!(HOST_FAULTS.load(Ordering::Relaxed), 102);
    });
    assert_eq!(status, 0);
}

#[test]
fn a_fault_blocks_the_signals_of_the_host_handler_from_its_delivery_on() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        // SAFETY: an all-zero action is a valid value; the handler has the type of its flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (host_unprotects_page as *const () as usize, libc::SA_SIGINFO);
            libc::sigaddset(&mut action.sa_mask, libc::SIGURG);
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        }
        assert!(guarded::install());
        let ours = current_action(libc::SIGSEGV).unwrap();
        // SAFETY: reads a local.
        assert_eq!([libc::SIGURG, libc::SIGTERM].map(|it| unsafe { libc::sigismember(&ours.sa_mask, it) }), [1, 0]);
        host_reads(protected_page());
        assert_eq!((guarded::read_u64(4096 * 3), HOST_FAULTS.load(Ordering::Relaxed)), (None, 1));
    });
    assert_eq!(status, 0);
}

#[test]
fn errno_survives_a_forwarded_fault() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGSEGV, host_unprotects_page as *const () as usize, libc::SA_SIGINFO);
        assert!(guarded::install());
        let page = protected_page();
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = 5 };
        host_reads(page);
        // SAFETY: errno of this thread.
        assert_eq!(unsafe { *libc::__errno_location() }, 5);
    });
    assert_eq!(status, 0);
}

static CHAIN_BELOW: AtomicUsize = AtomicUsize::new(0);
static CHAINED: AtomicU64 = AtomicU64::new(0);

/// A crash reporter: counts the crash, restores the action it found, and raises the signal again.
unsafe extern "C" fn reporter(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if CHAINED.fetch_add(1, Ordering::Relaxed) > 3 {
        // SAFETY: ends the child, since the handlers call each other endlessly.
        unsafe { libc::_exit(9) };
    }
    host_installs(signal, CHAIN_BELOW.load(Ordering::Relaxed), libc::SA_SIGINFO | libc::SA_NODEFER);
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(signal) };
}

#[test]
fn a_crash_reporter_between_two_installations_of_ours_ends_in_the_default_action() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
        assert!(guarded::install());
        let ours = host_installs(libc::SIGSEGV, reporter as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER);
        CHAIN_BELOW.store(ours.sa_sigaction, Ordering::Relaxed);
        assert!(guarded::install());
        host_reads(8);
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:x}");
}

#[test]
fn a_host_without_handlers_ends_by_its_own_faults() {
    let _turn = one_at_a_time();
    let faults = status_of_child(|| {
        host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
        assert!(guarded::install());
        host_reads(8);
    });
    assert!(libc::WIFSIGNALED(faults) && libc::WTERMSIG(faults) == libc::SIGSEGV, "status {faults:x}");
    let killed = status_of_child(|| {
        host_installs(libc::SIGBUS, libc::SIG_DFL, 0);
        assert!(guarded::install());
        // SAFETY: sends a signal to this process.
        unsafe { libc::raise(libc::SIGBUS) };
    });
    assert!(libc::WIFSIGNALED(killed) && libc::WTERMSIG(killed) == libc::SIGBUS, "status {killed:x}");
    let ignored = status_of_child(|| {
        host_installs(libc::SIGSEGV, libc::SIG_IGN, 0);
        assert!(guarded::install());
        // SAFETY: sends a signal to this process, which ignores it.
        unsafe { libc::raise(libc::SIGSEGV) };
        host_reads(8);
    });
    assert!(libc::WIFSIGNALED(ignored) && libc::WTERMSIG(ignored) == libc::SIGSEGV, "status {ignored:x}");
}

static PLAIN: AtomicU64 = AtomicU64::new(0);

extern "C" fn plain_handler(_: libc::c_int) {
    PLAIN.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_handler_without_siginfo_receives_its_signals() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGBUS, plain_handler as *const () as usize, 0);
        assert!(guarded::install());
        for _ in 0..10 {
            // SAFETY: sends a signal to this thread.
            unsafe { libc::raise(libc::SIGBUS) };
        }
        assert_eq!(PLAIN.load(Ordering::Relaxed), 10);
    });
    assert_eq!(status, 0);
}
