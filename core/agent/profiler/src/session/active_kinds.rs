//! The kinds of samples that a session takes now, out of the configured ones.

use spanprof_config::Config;

/// The configuration without the kinds of samples that are off, and the time of the next change by a duty cycle. All kinds are off
/// in safe mode and while disabled. `phase` is that of the duty cycles, from 0 to 1.
pub(crate) fn sampling_config(config: &Config, safe_mode: bool, now_ns: u64, phase: f64) -> (Config, Option<u64>) {
    let mut active = config.clone();
    if safe_mode || !active.enabled {
        (active.cpu, active.wall, active.heap) = (false, false, false);
        (active.off_cpu, active.threads) = (false, false);
        return (active, None);
    }
    let next_ns = active.pause_by_duty_cycle(now_ns, phase);
    (active, next_ns)
}

/// Whether kinds begin or end by a duty cycle: the window ends then, so that its duration is that of its samples.
pub(crate) fn is_end_of_duty(effective: &Config, before: &Config, active: &Config) -> bool {
    let kinds = |config: &Config| [config.cpu, config.wall, config.off_cpu, config.heap, config.lock];
    !effective.duty_cycles().is_empty() && kinds(before) != kinds(active)
}

/// Whether the wall sampler is needed.
pub(crate) fn walks_threads(config: &Config) -> bool {
    config.wall || config.off_cpu || config.threads
}
