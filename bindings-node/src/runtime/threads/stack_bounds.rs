//! The bounds of the calling thread's stack.

/// The high end of the calling thread's stack.
pub fn stack_high() -> usize {
    main_stack_high().unwrap_or_else(stack_high_by_library)
}

/// The high end of the main thread's stack, from the kernel: the C library would parse the list of all mappings.
fn main_stack_high() -> Option<usize> {
    /// `startstack` of proc_pid_stat(5), counted from the first field after the name, which may contain blanks.
    const FIELD_AFTER_NAME: usize = 28 - 3;
    if spanprof_os::thread_id() != std::process::id() {
        return None;
    }
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let start: usize = fields.split_ascii_whitespace().nth(FIELD_AFTER_NAME)?.parse().ok()?;
    let here = std::ptr::from_ref(&start) as usize;
    // Without the permission of ptrace(2) the kernel reports 0 or 1.
    (start > here).then_some(start)
}

fn stack_high_by_library() -> usize {
    // SAFETY: queries about the calling thread into zeroed structures of our own.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        let is_found = libc::pthread_attr_getstack(&attributes, &mut low, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if is_found {
            low as usize + size
        } else {
            0
        }
    }
}
