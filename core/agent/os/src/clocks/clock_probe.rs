//! The clock that a start would take, tried without starting one. For diagnosis; not async-signal-safe.

use super::clock_choice::choose;
use super::clock_types::{ClockChoice, ClockError, ClockInUse};

/// The clock that `Clocks::start` would take in this process, if SIGURG is free; nothing is started.
///
/// # Errors
/// The call that the kernel refuses, with the remedy.
pub fn probe_clock(kind: ClockChoice, rate_hz: u32) -> Result<ClockInUse, ClockError> {
    choose(kind, rate_hz, libc::SIGURG).map(|(_, in_use)| in_use)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::one_at_a_time;

    #[test]
    fn the_probed_clock_is_that_of_a_start() {
        let _turn = one_at_a_time();
        let clocks = crate::clocks::live_tests::start(crate::clocks::live_tests::settings(ClockChoice::Auto, 100));
        let started = clocks.in_use();
        clocks.stop();
        let probed = probe_clock(ClockChoice::Auto, 100).unwrap();
        assert_eq!((probed.name, probed.reason), (started.name, started.reason));
    }
}
