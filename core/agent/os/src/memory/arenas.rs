//! The arenas of glibc's allocator.

/// Makes all threads allocate from one arena. glibc gives threads arenas of their own, 8 for each processor (`malloc/arena.c`), and
/// keeps what each has freed: memory that a task frees on one thread does not serve the next task on another. Has an effect on
/// threads that have not allocated yet. Other C libraries ignore it.
pub fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) takes the allocator's lock; a value that it does not accept changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
