//! The system calls of a profiler, with the errors that it must survive.

use nix::libc::{self, c_long};

/// The calls that a profiler makes with the errors that it must survive. Left out: errors of arguments that are never valid (EBADF,
/// EFAULT), and calls without errors.
macro_rules! calls {
    ($($number:ident: $($error:ident)+;)+) => {
        pub const CALLS: &[(c_long, &str, &[(i32, &str)])] =
            &[$((libc::$number, stringify!($number), &[$((libc::$error, stringify!($error))),+])),+];
    };
}
calls! {
    SYS_mmap: ENOMEM EAGAIN EPERM ENFILE ENODEV;
    SYS_mprotect: ENOMEM EACCES;
    SYS_munmap: ENOMEM;
    SYS_mremap: ENOMEM EAGAIN;
    SYS_madvise: EINVAL EAGAIN ENOMEM EPERM;
    SYS_mincore: ENOMEM EAGAIN;
    SYS_membarrier: ENOSYS EINVAL EPERM;
    SYS_openat: EMFILE ENFILE EACCES ENOENT ENOMEM EINTR ENOSPC EROFS EPERM EDQUOT ELOOP;
    SYS_read: EIO EINTR EAGAIN EISDIR;
    SYS_pread64: EIO EINTR;
    SYS_write: ENOSPC EIO EINTR EDQUOT EFBIG EPIPE EPERM;
    SYS_writev: ENOSPC EIO EINTR;
    SYS_pwrite64: ENOSPC EIO EINTR EDQUOT EFBIG;
    SYS_close: EIO EINTR ENOSPC EDQUOT;
    SYS_fstat: ENOMEM EOVERFLOW;
    SYS_stat: ENOMEM EACCES ENOENT ELOOP EOVERFLOW;
    SYS_lstat: ENOMEM EACCES ENOENT ELOOP EOVERFLOW;
    SYS_newfstatat: ENOMEM EACCES ENOENT ELOOP EOVERFLOW;
    SYS_statx: ENOMEM EACCES ENOENT ELOOP ENOSYS;
    SYS_statfs: ENOMEM EACCES EIO ENOSYS;
    SYS_access: ENOMEM EACCES ENOENT EIO;
    SYS_faccessat: ENOMEM EACCES ENOENT EIO;
    SYS_faccessat2: ENOMEM EACCES ENOENT EIO ENOSYS;
    SYS_lseek: EOVERFLOW ESPIPE;
    SYS_getdents64: ENOENT;
    SYS_readlink: ENOMEM EACCES ENOENT EIO EINVAL;
    SYS_readlinkat: ENOMEM EACCES ENOENT EIO EINVAL;
    SYS_getcwd: ENOMEM EACCES ENOENT;
    SYS_mkdir: ENOSPC EACCES EROFS EDQUOT EMLINK ENOENT;
    SYS_mkdirat: ENOSPC EACCES EROFS EDQUOT EMLINK ENOENT;
    SYS_rmdir: EACCES EBUSY;
    SYS_rename: ENOSPC EIO EXDEV EACCES EROFS EDQUOT;
    SYS_renameat: ENOSPC EIO EXDEV EACCES EROFS EDQUOT;
    SYS_linkat: ENOSPC EIO EXDEV EPERM EMLINK EROFS EEXIST;
    SYS_link: ENOSPC EIO EXDEV EPERM EMLINK EROFS EEXIST;
    SYS_symlink: ENOSPC EACCES EROFS;
    SYS_unlink: EACCES EIO EBUSY EROFS ENOENT;
    SYS_unlinkat: EACCES EIO EBUSY EROFS ENOENT;
    SYS_ftruncate: EFBIG EIO EINTR EPERM;
    SYS_fallocate: ENOSPC EINTR EOPNOTSUPP EIO;
    SYS_fsync: EIO ENOSPC EDQUOT;
    SYS_fdatasync: EIO ENOSPC EDQUOT;
    SYS_flock: EINTR ENOLCK EWOULDBLOCK;
    SYS_fcntl: EAGAIN EACCES EINTR ENOLCK EINVAL EMFILE EPERM;
    SYS_ioctl: EINVAL ENOTTY;
    SYS_dup: EMFILE;
    SYS_pipe2: EMFILE ENFILE;
    SYS_memfd_create: EMFILE ENFILE ENOMEM EINVAL ENOSYS;
    SYS_eventfd2: EMFILE ENFILE ENOMEM ENODEV;
    SYS_epoll_create1: EMFILE ENFILE ENOMEM;
    SYS_epoll_ctl: ENOMEM ENOSPC EPERM;
    SYS_epoll_wait: EINTR;
    SYS_epoll_pwait: EINTR;
    SYS_poll: EINTR ENOMEM EINVAL;
    SYS_ppoll: EINTR ENOMEM EINVAL;
    SYS_socket: EMFILE ENFILE ENOBUFS ENOMEM EACCES EAFNOSUPPORT;
    SYS_socketpair: EMFILE ENFILE;
    SYS_connect: ECONNREFUSED ETIMEDOUT ENETUNREACH EINTR EADDRNOTAVAIL EACCES EAGAIN;
    SYS_getsockopt: ENOPROTOOPT EINVAL;
    SYS_setsockopt: ENOPROTOOPT EINVAL;
    SYS_getsockname: ENOBUFS;
    SYS_sendto: ECONNRESET EPIPE ENOBUFS ENOMEM EINTR EAGAIN;
    SYS_recvfrom: ECONNRESET ECONNREFUSED EINTR EAGAIN ENOMEM;
    SYS_sendmsg: ECONNRESET EPIPE ENOBUFS EINTR EAGAIN;
    SYS_recvmsg: ECONNRESET EINTR EAGAIN ENOMEM;
    SYS_shutdown: ENOTCONN;
    SYS_clone: EAGAIN ENOMEM EPERM;
    SYS_clone3: EAGAIN ENOMEM ENOSYS EPERM;
    SYS_futex: EINTR EAGAIN;
    SYS_set_robust_list: EINVAL;
    SYS_wait4: EINTR ECHILD;
    SYS_prctl: EINVAL EPERM EACCES;
    SYS_prlimit64: EPERM;
    SYS_getrlimit: EINVAL;
    SYS_sched_getaffinity: EINVAL;
    SYS_sched_setaffinity: EPERM;
    SYS_setpriority: EACCES EPERM;
    SYS_perf_event_open: EMFILE EACCES EPERM ENOSYS ENOSPC EBUSY EINTR EINVAL ENODEV ENOENT EOPNOTSUPP ESRCH E2BIG;
    SYS_timer_create: EAGAIN ENOMEM EINVAL EPERM;
    SYS_timer_settime: EINVAL;
    SYS_timer_delete: EINVAL;
    SYS_rt_sigaction: EINVAL;
    SYS_rt_sigprocmask: EINVAL;
    SYS_rt_sigtimedwait: EAGAIN EINTR;
    SYS_rt_tgsigqueueinfo: EAGAIN EPERM ESRCH;
    SYS_tgkill: EAGAIN EPERM ESRCH;
    SYS_sigaltstack: ENOMEM EPERM;
    SYS_process_vm_readv: ENOMEM EPERM ESRCH ENOSYS;
    SYS_getrandom: ENOSYS EINTR EINVAL;
    SYS_clock_nanosleep: EINTR;
    SYS_clock_gettime: EINVAL;
    SYS_clock_getres: EINVAL;
}

/// Calls without an error; `brk`, which returns no error number; `rseq`, without which the C library ends the process at any new thread.
pub const INFALLIBLE: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_rseq,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getppid,
    libc::SYS_sched_yield,
    libc::SYS_set_tid_address,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_arch_prctl,
];

/// Calls that runtimes also make for memory, threads and classes of their own.
pub const OF_RUNTIMES: &[c_long] =
    &[libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_clone, libc::SYS_clone3, libc::SYS_pread64];
