//! Walks at each instruction of functions with every kind of rule, of x86-64.

use std::arch::global_asm;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use spanprof_signal::ProcessMemory;

use crate::walk_tests::{tables_of_all_objects, CheckedWalks};
use crate::UnwindTables;

// Functions with the rules that compilers and assembly write rarely; each calls its argument.
global_asm!(
    // GCC realigns the stack for vectors.
    ".globl unwind_test_realigned",
    ".type unwind_test_realigned, @function",
    "unwind_test_realigned:",
    ".cfi_startproc",
    "lea r10, [rsp + 8]",
    ".cfi_def_cfa r10, 0",
    "and rsp, -32",
    "push qword ptr [r10 - 8]",
    "push rbp",
    "mov rbp, rsp",
    ".cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00",
    "push r10",
    ".cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06",
    "sub rsp, 40",
    "call rdi",
    "mov r10, [rbp - 8]",
    ".cfi_def_cfa r10, 0",
    "leave",
    // GCC leaves this out: at two instructions the frame pointer of the caller is wrong.
    ".cfi_restore rbp",
    "lea rsp, [r10 - 8]",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size unwind_test_realigned, . - unwind_test_realigned",
    // perlasm: the stack pointer of the caller is saved in the aligned frame.
    ".globl unwind_test_perlasm",
    ".type unwind_test_perlasm, @function",
    "unwind_test_perlasm:",
    ".cfi_startproc",
    "mov rax, rsp",
    ".cfi_def_cfa_register rax",
    "push rbp",
    ".cfi_offset rbp, -16",
    "mov rbp, 12345",
    "sub rsp, 128",
    "and rsp, -64",
    "mov [rsp + 64], rax",
    ".cfi_escape 0x0f, 0x06, 0x77, 0xc0, 0x00, 0x06, 0x23, 0x08",
    "call rdi",
    "mov rsi, [rsp + 64]",
    ".cfi_def_cfa rsi, 8",
    "mov rbp, [rsi - 8]",
    ".cfi_restore rbp",
    "mov rsp, rsi",
    ".cfi_def_cfa_register rsp",
    "ret",
    ".cfi_endproc",
    ".size unwind_test_perlasm, . - unwind_test_perlasm",
    // Calls its argument with a trap after each instruction.
    ".globl unwind_test_single_steps",
    ".type unwind_test_single_steps, @function",
    "unwind_test_single_steps:",
    ".cfi_startproc",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "or qword ptr [rsp], 0x100",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call rdi",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "and qword ptr [rsp], -257",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size unwind_test_single_steps, . - unwind_test_single_steps",
    // Hand-written code without unwind information: a short one.
    ".balign 256",
    ".globl unwind_test_no_rule",
    ".type unwind_test_no_rule, @function",
    "unwind_test_no_rule:",
    "mov eax, 1",
    "add eax, 2",
    "ret",
    ".size unwind_test_no_rule, . - unwind_test_no_rule",
    ".balign 256",
);

unsafe extern "C" {
    fn unwind_test_realigned(callee: extern "C" fn());
    fn unwind_test_perlasm(callee: extern "C" fn());
    fn unwind_test_single_steps(body: extern "C" fn());
    fn unwind_test_no_rule();
}

/// At each instruction.
static STEPS: CheckedWalks = CheckedWalks::new();
static MAY_GUESS: AtomicBool = AtomicBool::new(false);

extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(tables) = UnwindTables::borrow() else { return };
    // SAFETY: the kernel's context on this thread's stack.
    let walk = tables.walk_interrupted(ProcessMemory, unsafe { &*context.cast::<libc::ucontext_t>() });
    STEPS.check(walk, unwind_test_single_steps as *const (), MAY_GUESS.load(Ordering::Relaxed));
}

/// Calls `body` with a trap after each instruction, at which the walk must be right.
fn assert_steps(name: &str, body: extern "C" fn()) {
    // SAFETY: an all-zero action is a valid value; the function sets and clears the flag of single steps.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()), 0);
        unwind_test_single_steps(body);
    }
    STEPS.assert_right(name, 10);
}

extern "C" fn callee() {
    black_box(std::env::var_os("PATH"));
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn at_each_instruction_the_walk_passes_through_the_caller_to_the_root() {
    let _turn = tables_of_all_objects();
    MAY_GUESS.store(false, Ordering::Relaxed);
    extern "C" fn realigned() {
        // SAFETY: it calls its argument.
        unsafe { unwind_test_realigned(callee) }
    }
    extern "C" fn perlasm() {
        // SAFETY: it calls its argument.
        unsafe { unwind_test_perlasm(callee) }
    }
    extern "C" fn allocates_and_formats() {
        let mut list: Vec<String> = (0..6).map(|number| format!("{number:>5} {}", f64::from(number) / 3.0)).collect();
        list.sort_by_key(|text| std::cmp::Reverse(text.len()));
        black_box(list.concat().repeat(100));
    }
    extern "C" fn of_the_c_library() {
        extern "C" fn compare(one: *const c_void, other: *const c_void) -> libc::c_int {
            // SAFETY: `qsort` passes elements of the array below.
            unsafe { *one.cast::<i32>() - *other.cast::<i32>() }
        }
        let mut numbers: [i32; 40] = std::array::from_fn(|index| (index as i32 * 7919) % 41);
        let mut text = [0u8; 64];
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: locals of the sizes that are passed; a format with its two arguments.
        unsafe {
            libc::qsort(numbers.as_mut_ptr().cast(), numbers.len(), 4, Some(compare));
            libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%d %.3f".as_ptr(), numbers[3], 2.5);
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
            libc::usleep(1);
        }
        black_box((numbers, text, time));
    }
    assert_steps("realigned", realigned);
    assert_steps("perlasm", perlasm);
    // Linkage tables of lld have no unwind information.
    MAY_GUESS.store(true, Ordering::Relaxed);
    assert_steps("allocations and formats", allocates_and_formats);
    assert_steps("functions of the C library", of_the_c_library);
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "the C library has no unwind information")]
fn a_leaf_without_a_rule_is_guessed_by_its_return_address() {
    let _turn = tables_of_all_objects();
    extern "C" fn no_rule() {
        for _ in 0..10 {
            // SAFETY: it changes a register that callers do not expect to be kept.
            unsafe { unwind_test_no_rule() }
        }
    }
    MAY_GUESS.store(true, Ordering::Relaxed);
    assert_steps("no rule", no_rule);
}
