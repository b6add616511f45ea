//! Walks in this process: against the unwinder of the standard library, from handlers, and while libraries come and go.

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spanprof_signal::ProcessMemory;

use crate::end::WalkEnd;
use crate::registers::Registers;
use crate::walk::Walk;
use crate::UnwindTables;

/// One test at a time: tables of all objects are built, and the handler has one state.
pub(super) fn tables_of_all_objects() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    spanprof_os::install_fault_guard();
    crate::refresh(&[], &|| false);
    let first_code: Vec<u64> =
        crate::SNAPSHOT.borrow().unwrap().get().objects().iter().map(|object| object.image.code.start).collect();
    crate::refresh(&first_code, &|| false);
    turn
}

/// The addresses of a walk, leaf first, and its end.
fn addresses(walk: &mut Walk<'_, ProcessMemory>) -> (Vec<u64>, WalkEnd) {
    let mut addresses = Vec::new();
    loop {
        addresses.push(walk.pc());
        if let Err(end) = walk.step() {
            return (addresses, end);
        }
    }
}

#[inline(never)]
fn compares_with_the_standard_unwinder() {
    let mut reference = Vec::new();
    backtrace::trace(|frame| {
        // Behind the root.
        reference.extend((frame.ip() as u64).checked_sub(1));
        true
    });
    let tables = UnwindTables::borrow().unwrap();
    let (walked, end) = addresses(&mut tables.walk(ProcessMemory, Registers::here()));
    assert_eq!(end, WalkEnd::Root);
    // The calls in this function differ.
    let own = compares_with_the_standard_unwinder as *const () as u64;
    let is_own = |address: &u64| tables.walk(ProcessMemory, at(*address)).function_start() == Some(own);
    let callers = |mut list: Vec<u64>| {
        let first = list.iter().position(is_own).expect("this function") + 1;
        list.split_off(first)
    };
    assert_eq!(callers(walked), callers(reference));
}

fn at(pc: u64) -> Registers {
    Registers { pc, stack_pointer: 0, frame_pointer: None, link: None }
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn a_walk_has_the_callers_that_the_standard_unwinder_finds() {
    let _turn = tables_of_all_objects();
    compares_with_the_standard_unwinder();
    // Through a function of the C library.
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> libc::c_int {
        compares_with_the_standard_unwinder();
        0
    }
    let mut numbers = [2, 1];
    // SAFETY: two elements of this size, and a function that compares them.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 4, Some(compare)) };
}

/// Walks in handlers, and how many of them were wrong.
pub(super) struct CheckedWalks {
    count: AtomicU64,
    failed: AtomicU64,
    /// The address and the end of the first wrong one.
    first_failed: [AtomicU64; 2],
}

impl CheckedWalks {
    pub const fn new() -> Self {
        Self { count: AtomicU64::new(0), failed: AtomicU64::new(0), first_failed: [const { AtomicU64::new(0) }; 2] }
    }

    /// Checks that the stack passes through a function and ends at the root of the thread.
    pub fn check(&self, mut walk: Walk<'_, ProcessMemory>, function: *const (), may_guess: bool) {
        let pc = walk.pc();
        let mut is_through_function = false;
        let end = loop {
            is_through_function |= walk.function_start() == Some(function as u64);
            if let Err(end) = walk.step() {
                break end;
            }
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        let is_right = is_through_function && end == WalkEnd::Root && (may_guess || !walk.is_guessed());
        if !is_right && self.failed.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_failed[0].store(pc, Ordering::Relaxed);
            self.first_failed[1].store(end as u64, Ordering::Relaxed);
        }
    }

    /// Fails if one of the walks since the last call was wrong, or if there were not more than `count`.
    pub fn assert_right(&self, name: &str, count: u64) {
        let [checked, failed] = [&self.count, &self.failed].map(|counter| counter.swap(0, Ordering::Relaxed));
        let [pc, end] = self.first_failed.each_ref().map(|word| word.load(Ordering::Relaxed));
        let function = spanprof_os::native_object(pc, 0).map(|object| (object.exported_symbol(pc), object.file));
        let end = WalkEnd::ALL[end as usize];
        assert_eq!(failed, 0, "{name}: {failed} of {checked}; the first at {pc:#x} ({function:?}) ended with {end:?}");
        assert!(checked > count, "{name}: {checked} walks");
    }
}

/// At signals that interrupted the program in its work.
static INTERRUPTIONS: CheckedWalks = CheckedWalks::new();
static IS_WORKING: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interruption(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(tables) = UnwindTables::borrow().filter(|_| IS_WORKING.load(Ordering::Relaxed)) else { return };
    // SAFETY: the kernel's context on this thread's stack.
    let walk = tables.walk_interrupted(ProcessMemory, unsafe { &*context.cast::<libc::ucontext_t>() });
    INTERRUPTIONS.check(walk, work as *const (), true);
}

/// Calls functions with and without a frame, of the program and of the C library, until enough signals came.
#[inline(never)]
fn work(until: Instant) -> usize {
    extern "C" fn compare(one: *const c_void, other: *const c_void) -> libc::c_int {
        // SAFETY: `qsort` passes elements of the array below.
        unsafe { *one.cast::<i32>() - *other.cast::<i32>() }
    }
    let (mut length, mut turn) = (0, 0);
    IS_WORKING.store(true, Ordering::Relaxed);
    while INTERRUPTIONS.count.load(Ordering::Relaxed) < 500 && Instant::now() < until {
        turn += 1;
        let mut numbers: [i32; 40] = std::array::from_fn(|index| (index as i32 * 7919 + turn) % 41);
        let text = black_box(vec![b'a'; 1 + turn as usize % 900]);
        let mut copy = vec![0u8; text.len() + 1];
        // SAFETY: locals of the sizes that are passed; the copy ends with zero.
        length += unsafe {
            libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare));
            libc::memcpy(copy.as_mut_ptr().cast(), text.as_ptr().cast(), text.len());
            libc::strlen(copy.as_ptr().cast())
        };
    }
    IS_WORKING.store(false, Ordering::Relaxed);
    length
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn wherever_a_signal_comes_the_walk_passes_through_the_caller_to_the_root() {
    let _turn = tables_of_all_objects();
    // SAFETY: an all-zero action is a valid value.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_interruption as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGWINCH, &action, std::ptr::null_mut()), 0);
    }
    let is_over = AtomicBool::new(false);
    let thread_id = spanprof_os::thread_id();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: a signal to a thread of this process, with a handler.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id, libc::SIGWINCH) };
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        assert!(black_box(work(Instant::now() + Duration::from_secs(20))) > 0);
        is_over.store(true, Ordering::Relaxed);
    });
    INTERRUPTIONS.assert_right("interruptions", 20);
}

/// The program counters of a walk in a handler, across the frame of the signal.
static ACROSS_SIGNAL: Mutex<Vec<u64>> = Mutex::new(Vec::new());

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn a_walk_from_a_handler_continues_in_the_interrupted_function() {
    let _turn = tables_of_all_objects();
    #[inline(never)]
    extern "C" fn handler(_: libc::c_int) {
        let tables = UnwindTables::borrow().unwrap();
        let (walked, end) = addresses(&mut tables.walk(ProcessMemory, Registers::here()));
        assert_eq!(end, WalkEnd::Root);
        *ACROSS_SIGNAL.lock().unwrap() = walked;
    }
    #[inline(never)]
    fn interrupted() {
        // SAFETY: the handler of this signal is the one below.
        black_box(unsafe { libc::raise(libc::SIGUSR2) });
    }
    // SAFETY: the signal is used by this test alone.
    unsafe { libc::signal(libc::SIGUSR2, handler as *const () as usize) };
    interrupted();
    let tables = UnwindTables::borrow().unwrap();
    let functions = [handler as *const () as u64, interrupted as *const () as u64];
    let walked = ACROSS_SIGNAL.lock().unwrap().clone();
    let starts = walked.iter().filter_map(|pc| tables.walk(ProcessMemory, at(*pc)).function_start());
    let order: Vec<u64> = starts.filter(|start| functions.contains(start)).collect();
    assert_eq!(order, functions);
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn libraries_come_and_go_while_other_threads_walk() {
    let _turn = tables_of_all_objects();
    let stop = AtomicBool::new(false);
    let walks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for library in [c"libresolv.so.2", c"libutil.so.1", c"libanl.so.1", c"libBrokenLocale.so.1"] {
                    // SAFETY: libraries of the C library, without constructors that do anything.
                    unsafe {
                        let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
                        if !handle.is_null() {
                            libc::dlclose(handle);
                        }
                    }
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let tables = UnwindTables::borrow().unwrap();
                    let (walked, end) = addresses(&mut tables.walk(ProcessMemory, Registers::here()));
                    assert!(end == WalkEnd::Root && walked.len() > 4, "{end:?} {walked:x?}");
                    walks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            let all: Vec<u64> = crate::SNAPSHOT
                .borrow()
                .unwrap()
                .get()
                .objects()
                .iter()
                .map(|object| object.image.code.start)
                .collect();
            crate::refresh(&all, &|| false);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(walks.load(Ordering::Relaxed) > 100);
    assert!(crate::stats().bytes < 16 << 20);
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn a_forked_child_walks_by_the_tables_of_its_parent_and_builds_none_again() {
    let _turn = tables_of_all_objects();
    spanprof_signal::count_forks();
    crate::install_fork_reset();
    let before = crate::stats();
    spanprof_os::testing::in_child(|| {
        compares_with_the_standard_unwinder();
        // What is wanted is built already.
        crate::refresh(&[], &|| false);
        assert_eq!(crate::stats(), before);
    });
}

/// Bytes of a signal stack that a handler uses, the kernel's frame included.
fn stack_of_handler(handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void)) -> usize {
    const PAINT: u8 = 0x5e;
    std::thread::spawn(move || {
        let mut area = vec![PAINT; 64 << 10];
        let stack = libc::stack_t { ss_sp: area.as_mut_ptr().cast(), ss_flags: 0, ss_size: area.len() };
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: an all-zero action is a valid value; the stack outlives its use.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaltstack(&stack, std::ptr::null_mut());
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
            libc::raise(libc::SIGUSR1);
            libc::sigaltstack(&none, std::ptr::null_mut());
        }
        area.len() - area.iter().take_while(|byte| **byte == PAINT).count()
    })
    .join()
    .unwrap()
}

#[test]
fn a_walk_uses_little_stack() {
    extern "C" fn does_nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}
    extern "C" fn walks(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        let tables = UnwindTables::borrow().unwrap();
        // SAFETY: the kernel's context on this thread's stack.
        let mut walk = tables.walk_interrupted(ProcessMemory, unsafe { &*context.cast() });
        while walk.step().is_ok() {}
    }
    let _turn = tables_of_all_objects();
    let [kernel, with_walk] = [does_nothing, walks].map(stack_of_handler);
    let used = with_walk - kernel;
    // Unoptimized; optimized under 0.5 KB.
    assert!((256..4096).contains(&used), "{used} bytes");
    println!("{used} bytes");
}
