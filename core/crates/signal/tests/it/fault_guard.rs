//! Guarded reads, and the faults that are not ours.

use crate::{host_installs, one_at_a_time, status_of_child};
use spanprof_signal::guarded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

fn page_bytes() -> usize {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Two pages, the second of which cannot be read. Gives the address of the border.
fn border() -> usize {
    let page = page_bytes();
    // SAFETY: new memory of our own; its second page is then closed.
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
fn what_is_there_is_read_and_what_is_not_is_none() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = border();
    let faults = guarded::faults();
    assert_eq!(guarded::read_u64(border - 8), Some(u64::from_le_bytes([248, 249, 250, 251, 252, 253, 254, 255])));
    assert_eq!(guarded::read_u64(border - 7), None, "the last byte is behind the border");
    assert_eq!(guarded::read_u64(border), None);
    assert_eq!(guarded::read_u64(0), None);
    assert_eq!(guarded::read_u64(0x1234_5678_9abc_def0), None, "no address of this machine");
    assert_eq!(guarded::faults(), faults + 3, "page zero is refused without a fault");
}

#[test]
fn copies_end_at_the_border_and_say_so() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = border();
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
        // SAFETY: as above.
        assert!(!unsafe { guarded::copy(bytes.as_mut_ptr(), border - length + 1, length.max(1)) });
    }
    // SAFETY: nothing is written, since the range wraps around.
    assert!(!unsafe { guarded::copy(bytes.as_mut_ptr(), usize::MAX - 3, 8) });
}

#[test]
fn a_file_that_shrank_under_its_mapping_is_a_failed_read() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    // SAFETY: a file of our own without a name, mapped and cut short.
    let address = unsafe {
        let file = libc::memfd_create(c"shrinks".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(file, page_bytes() as i64), 0);
        let start = libc::mmap(std::ptr::null_mut(), page_bytes(), libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_eq!(libc::ftruncate(file, 0), 0);
        libc::close(file);
        start as usize
    };
    assert_eq!(guarded::read_u64(address), None, "SIGBUS, not SIGSEGV");
}

#[test]
fn without_our_handler_in_place_reads_go_through_the_kernel() {
    let _turn = one_at_a_time();
    assert!(guarded::install());
    let border = border();
    let ours = host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
    assert!(!guarded::check_in_place());
    assert_eq!(guarded::read_u64(border), None, "a real fault would have killed");
    assert_eq!(guarded::read_u64(border - 8).map(|word| word as u8), Some(248));
    let mut frame = [0u8; 80];
    assert!(guarded::copy_80(&mut frame, border - 80) && !guarded::copy_80(&mut frame, border - 79));
    assert!(guarded::install());
    assert!(guarded::check_in_place());
    // Back to one predecessor for the tests that follow.
    host_installs(libc::SIGSEGV, ours.sa_sigaction, ours.sa_flags);
    assert!(guarded::check_in_place());
}

#[test]
fn where_kernel_reads_are_forbidden_reads_without_our_handler_fail() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        assert!(guarded::install());
        let readable = border() - 8;
        guarded::forbid_kernel_reads();
        assert!(guarded::read_u64(readable).is_some());
        host_installs(libc::SIGSEGV, libc::SIG_DFL, 0);
        assert!(!guarded::check_in_place());
        assert_eq!(guarded::read_u64(readable), None);
        assert!(!guarded::copy_80(&mut [0; 80], readable - 80));
        assert!(guarded::install());
        assert!(guarded::read_u64(readable).is_some());
    });
    assert_eq!(status, 0);
}

static OPENED: AtomicUsize = AtomicUsize::new(0);
static HOST_FAULTS: AtomicU64 = AtomicU64::new(0);

/// A host that handles its own faults: opens the page and goes on.
unsafe extern "C" fn host_opens_the_page(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo of a fault; the page belongs to this test.
    unsafe {
        let page = (*info).si_addr() as usize & !(page_bytes() - 1);
        if page == OPENED.load(Ordering::Relaxed) {
            libc::mprotect(page as *mut libc::c_void, page_bytes(), libc::PROT_READ);
            HOST_FAULTS.fetch_add(1, Ordering::Relaxed);
            *libc::__errno_location() = 77;
        } else {
            libc::_exit(3);
        }
    }
}

fn host_reads(address: usize) -> u8 {
    // SAFETY: the host's handler makes the page readable.
    unsafe { std::ptr::read_volatile(address as *const u8) }
}

fn closed_page() -> usize {
    let border = border();
    OPENED.store(border, Ordering::Relaxed);
    border
}

#[test]
fn faults_of_the_host_reach_the_hosts_handler_from_before_and_after_us() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        // Before us.
        host_installs(libc::SIGSEGV, host_opens_the_page as *const () as usize, libc::SA_SIGINFO);
        assert!(guarded::install());
        for _ in 0..100 {
            host_reads(closed_page());
            assert_eq!(guarded::read_u64(4096 * 3), None);
        }
        assert_eq!(HOST_FAULTS.load(Ordering::Relaxed), 100);
        // After us, without chaining: ours goes on top again, the host's keeps its faults.
        host_installs(libc::SIGSEGV, host_opens_the_page as *const () as usize, libc::SA_SIGINFO);
        assert!(!guarded::check_in_place());
        host_reads(closed_page());
        assert!(guarded::install());
        host_reads(closed_page());
        assert_eq!(guarded::read_u64(4096 * 3), None);
        assert_eq!(HOST_FAULTS.load(Ordering::Relaxed), 102);
    });
    assert_eq!(status, 0);
}

#[test]
fn errno_survives_a_forwarded_fault() {
    let _turn = one_at_a_time();
    let status = status_of_child(|| {
        host_installs(libc::SIGSEGV, host_opens_the_page as *const () as usize, libc::SA_SIGINFO);
        assert!(guarded::install());
        let page = closed_page();
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = 5 };
        host_reads(page);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 5);
    });
    assert_eq!(status, 0);
}

static CHAIN_BELOW: AtomicUsize = AtomicUsize::new(0);
static CHAINED: AtomicU64 = AtomicU64::new(0);

/// A crash reporter: notes the crash, puts back what it found, and raises the signal again.
unsafe extern "C" fn reporter(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if CHAINED.fetch_add(1, Ordering::Relaxed) > 3 {
        // SAFETY: ends the child; we are going round in circles.
        unsafe { libc::_exit(9) };
    }
    host_installs(signal, CHAIN_BELOW.load(Ordering::Relaxed), libc::SA_SIGINFO | libc::SA_NODEFER);
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(signal) };
}

#[test]
fn a_crash_reporter_that_chains_to_us_and_is_below_us_ends_in_the_default_action() {
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
fn a_host_without_handlers_dies_of_its_own_faults_as_before() {
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
fn a_plain_handler_gets_the_signal_it_was_sent() {
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
