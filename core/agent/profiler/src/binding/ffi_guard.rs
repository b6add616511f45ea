//! The FFI guard: every function that the language's runtime calls runs in it, since unwinding into foreign code is undefined.
//! A panic is counted, and its text is kept: `start` and `update` log it or return it as an error, the drain thread logs that of
//! any other call within a window, at most one line per wakeup.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::host_log::{log, take_panic, LogLevel};
use arc_swap::ArcSwapOption;
use spanprof_config::{Error, ErrorKind};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Number of calls that panicked at the FFI boundary, or failed there ([`count_failed_call`]), since the library was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Counts a call that failed without a panic, such as by an error of the language's own API.
pub fn count_failed_call() {
    PANICS.fetch_add(1, Ordering::Relaxed);
}

/// The guard of calls that never raise into the host: a panic becomes `fallback`.
#[inline]
pub fn ffi_guard<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            // The payload may panic again when dropped.
            std::mem::forget(payload);
            count_failed_call();
            fallback
        }
    }
}

/// The guard of calls that may raise into the host.
///
/// # Errors
/// The error of `body`; [`ErrorKind::System`] after a panic.
pub fn ffi_guard_result<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    ffi_guard(None, || Some(body())).unwrap_or_else(|| {
        let text = take_panic().unwrap_or_else(|| "failed inside".to_owned());
        let message = format!("the profiler {text}; the program is not affected");
        Err(Error::new(ErrorKind::System, message, "report this message"))
    })
}

/// The guard of `start` and `update`, which raise errors of their arguments only: another error is a line of the log that begins with
/// `outcome`, once for consecutive equal ones, and the call returns `fallback`.
///
/// # Errors
/// Those with [`ErrorKind::is_argument`].
pub fn ffi_guard_argument<T>(outcome: &str, fallback: T, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    static LAST_LINE: ArcSwapOption<String> = ArcSwapOption::const_empty();
    match ffi_guard_result(body) {
        Err(error) if !error.kind.is_argument() => {
            let line = format!("spanprof: {outcome}: {}", error.line());
            if LAST_LINE.swap(Some(Arc::new(line.clone()))).is_none_or(|last| *last != line) {
                log(LogLevel::Warning, &line);
            }
            Ok(fallback)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_log::keep_panics;
    use spanprof_os::testing::in_child;

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("dropped on purpose");
        }
    }

    // In children: the panic hook and the count are global.

    #[test]
    fn a_panic_is_counted_and_becomes_the_fallback() {
        in_child(|| {
            keep_panics();
            assert_eq!((ffi_guard(1, || 2), panics()), (2, 0));
            assert_eq!((ffi_guard(1, || panic!("on purpose")), panics()), (1, 1));
            assert_eq!((ffi_guard(1, || std::panic::panic_any(PanicsWhenDropped)), panics()), (1, 2));
            assert!(take_panic().is_some(), "the drain thread logs it");
        });
    }

    #[test]
    fn a_panic_of_a_call_that_may_raise_is_an_error_and_is_not_logged_too() {
        in_child(|| {
            keep_panics();
            assert_eq!(ffi_guard_result(|| Ok(1)), Ok(1));
            let refused = Error::new(ErrorKind::NoClock, "no clock", "");
            assert_eq!(ffi_guard_result(|| Err::<(), _>(refused.clone())), Err(refused));
            let error = ffi_guard_result(|| -> Result<(), Error> { panic!("on purpose") }).unwrap_err();
            assert_eq!(error.kind, ErrorKind::System);
            assert!(
                error.message.contains("the profiler panicked at") && error.message.contains("on purpose"),
                "{error}"
            );
            assert_eq!((take_panic(), panics()), (None, 1));
        });
    }

    #[test]
    fn only_an_impossible_argument_is_raised_and_any_other_error_is_one_line() {
        in_child(|| {
            static LINES: AtomicU64 = AtomicU64::new(0);
            crate::host_log::set_log_callback(Some(Arc::new(|_, line: &str| {
                assert_eq!(line, "spanprof: not profiled: no answer; look");
                LINES.fetch_add(1, Ordering::Relaxed);
            })));
            for kind in ErrorKind::ALL.iter().filter(|kind| **kind != ErrorKind::InvalidConfig) {
                let failed = || Err(Error::new(*kind, "no answer", "look"));
                assert_eq!(ffi_guard_argument("not profiled", false, failed), Ok(false), "{kind:?}");
            }
            assert_eq!(LINES.load(Ordering::Relaxed), 1);
            let argument = Error::new(ErrorKind::InvalidConfig, "sample_rate is 0", "");
            assert_eq!(ffi_guard_argument("", (), || Err(argument.clone())), Err(argument));
        });
    }
}
