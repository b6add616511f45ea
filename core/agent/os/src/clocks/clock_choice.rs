//! Chooses the clock at start: the configured one, or the best that the kernel allows.

use super::clock_types::{ClockChoice, ClockError, ClockInUse};
use super::perf;
use super::registry::TickerKind;
use crate::time;
use crate::timer;

/// The clock for this choice, with the reason; the error names the call that the kernel refuses.
pub(crate) fn choose(
    choice: ClockChoice,
    rate_hz: u32,
    signal: libc::c_int,
) -> Result<(TickerKind, ClockInUse), ClockError> {
    let kernel_tick_hz = time::kernel_tick_hz();
    let in_use = |name, reason| ClockInUse { name, reason, kernel_tick_hz, signal };
    let timer = |reason: String| match timer::probe(signal) {
        Ok(()) => {
            let tick_ms = 1_000.0 / f64::from(kernel_tick_hz);
            let mut reason =
                format!("{reason}; it expires at kernel ticks, so work in step with {tick_ms} ms is biased");
            if rate_hz > kernel_tick_hz {
                reason += &format!(", and there are at most {kernel_tick_hz} stacks per CPU second");
            }
            Ok((TickerKind::Timer, in_use("thread_timer", reason)))
        }
        Err(refusal) => Err(ClockError {
            message: format!("CPU timers are not available: {refusal} ({reason})"),
            hint: "allow timer_create in the container's seccomp profile, or set signals=false and wall=true".into(),
        }),
    };
    let perf_clock = || match perf::probe(signal) {
        Ok(()) => Ok((TickerKind::Perf, in_use("perf", "configured".into()))),
        Err(refusal) => Err(ClockError {
            message: format!("clock=perf is configured and the kernel refuses it: {refusal}"),
            hint: "set clock=auto, or allow CAP_PERFMON or kernel.perf_event_paranoid below 2".into(),
        }),
    };
    match choice {
        ClockChoice::ThreadTimer => timer("configured".into()),
        ClockChoice::Perf => perf_clock(),
        ClockChoice::Auto if !perf::restarts_calls() => {
            timer("perf would interrupt system calls on this platform".into())
        }
        ClockChoice::Auto => match perf::probe(signal) {
            Ok(()) => {
                Ok((TickerKind::Perf, in_use("perf", "allowed by the kernel, and independent of its tick".into())))
            }
            Err(refusal) => timer(refusal),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_prefers_perf_at_every_rate() {
        let _turn = crate::testing::one_at_a_time();
        let name = |choice, rate_hz| choose(choice, rate_hz, libc::SIGURG).expect("timers are allowed").1.name;
        let allowed = perf::restarts_calls() && perf::probe(libc::SIGURG).is_ok();
        for rate_hz in [1, 100, 1_000] {
            assert_eq!(name(ClockChoice::Auto, rate_hz), if allowed { "perf" } else { "thread_timer" });
            assert_eq!(name(ClockChoice::ThreadTimer, rate_hz), "thread_timer", "a configured clock stays");
        }
    }
}
