//! Properties of the governor, against a simulated profiler whose cost is linear in its rates.

use super::*;
use spanprof_config::ConfigSource;
use spanprof_signal::Sequence;
use std::time::Duration;

/// A simulated host: the cost of its samples and of the profiler's windows.
#[derive(Clone, Copy, Debug)]
struct SimulatedHost {
    /// CPU time of the program, in cores.
    busy: f64,
    /// Cost of one CPU sample, ns.
    sample_ns: f64,
    /// Cost of one walked thread, ns, and the number of threads.
    walk_ns: f64,
    threads: f64,
    /// Cost of one window, ns.
    window_ns: f64,
    quota: Option<f64>,
    cpu_use: f64,
    memory_use: f64,
}

const HOST: SimulatedHost = SimulatedHost {
    busy: 1.0,
    sample_ns: 10_000.0,
    walk_ns: 5_000.0,
    threads: 10.0,
    window_ns: 3e6,
    quota: None,
    cpu_use: 0.5,
    memory_use: 0.0,
};

impl SimulatedHost {
    /// The cost of an interval with the limits in effect; window `nth` of it, with a longer upload interval not in each.
    fn interval(&self, effective: &Config, nth: u64) -> LoadInterval {
        let seconds = INTERVAL_NS as f64 / 1e9;
        let every = (effective.upload_interval.as_secs_f64() / seconds).max(1.0) as u64;
        let windows =
            if nth.is_multiple_of(every) { (seconds / effective.upload_interval.as_secs_f64()).max(1.0) } else { 0.0 };
        let walked = self.threads.min(crate::wall::MAX_THREADS as f64);
        let walls = if effective.wall { f64::from(pace::rate_hz(effective)) * walked } else { 0.0 };
        let cost = OverheadCost {
            handler_ns: (f64::from(effective.sample_rate) * self.busy * self.sample_ns * seconds) as u64,
            wall_ns: (walls * self.walk_ns * seconds) as u64,
            other_ns: (windows * self.window_ns) as u64,
        };
        let (quota, cpu_use, memory_use) = (self.quota, self.cpu_use, self.memory_use);
        LoadInterval {
            elapsed_ns: INTERVAL_NS,
            cost,
            quota,
            cpu_use,
            memory_use,
            threads: self.threads as u64,
            has_start: false,
        }
    }

    /// Whether the budget can be kept at the lowest rates.
    fn is_feasible(&self, config: &Config) -> bool {
        let mut lowest = config.clone();
        lowest.sample_rate = MIN_RATE_HZ.min(config.sample_rate);
        lowest.wall = false;
        let load = self.interval(&lowest, 0);
        let budget_ns = budget_share(config, self.quota).unwrap() * INTERVAL_NS as f64;
        (load.cost.total_ns() as f64) < TARGET * budget_ns
    }
}

struct Simulation {
    config: Config,
    governor: Governor,
    nth: u64,
}

impl Simulation {
    fn new(config: Config) -> Self {
        Self { config, governor: Governor::default(), nth: 0 }
    }

    /// Runs one interval; true when the budget was exceeded.
    fn run(&mut self, host: &SimulatedHost) -> bool {
        self.nth += 1;
        let effective = self.effective();
        self.governor.step(&self.config, &host.interval(&effective, self.nth))
    }

    fn effective(&self) -> Config {
        self.governor.limited(&self.config)
    }

    /// Runs intervals with a constant load; returns how many exceeded the budget.
    fn run_for(&mut self, intervals: u32, host: &SimulatedHost) -> u32 {
        (0..intervals).map(|_| u32::from(self.run(host))).sum()
    }
}

fn config(sample_rate: u32) -> Config {
    Config { sample_rate, ..Config::default() }
}

fn random_host(random: &mut Sequence) -> SimulatedHost {
    let mut between = |low: f64, high: f64| low * (high / low).powf(random.fraction());
    SimulatedHost {
        busy: between(0.001, 32.0),
        sample_ns: between(1_000.0, 60_000.0),
        walk_ns: between(500.0, 50_000.0),
        threads: between(1.0, 2_000.0),
        window_ns: between(100_000.0, 60e6),
        quota: None,
        cpu_use: 0.5,
        memory_use: 0.0,
    }
}

#[test]
fn a_cost_within_the_budget_changes_nothing() {
    let mut simulation = Simulation::new(config(100));
    assert_eq!(simulation.run_for(100, &HOST), 0);
    assert_eq!(simulation.effective(), config(100));
    assert_eq!(simulation.governor.limit(), None);
}

#[test]
fn after_a_step_of_the_load_the_budget_is_exceeded_for_one_interval() {
    let mut simulation = Simulation::new(config(1000));
    simulation.run_for(5, &SimulatedHost { busy: 0.01, ..HOST });
    assert!(simulation.run(&HOST), "1000 samples of 10 us are the whole budget, with the windows more");
    assert_eq!(simulation.run_for(200, &HOST), 0);
    let effective = simulation.effective();
    assert!((400..1000).contains(&effective.sample_rate), "{}", effective.sample_rate);
    assert_eq!(effective.sources["sample_rate"], ConfigSource::Governor);
    assert_eq!(simulation.governor.limit(), Some(Limit::CpuBudget));
}

#[test]
fn for_any_load_the_limits_hold_the_budget_after_one_interval_and_come_to_rest() {
    let mut random = Sequence::new(18);
    for case in 0..500 {
        let rate = [1, 10, 100, 1000, 10_000][random.below(5)];
        let wall = random.below(2) == 1;
        let mut simulation = Simulation::new(Config { wall, wall_rate: Some(100), ..config(rate) });
        simulation.run_for(random.below(20) as u32, &random_host(&mut random));
        let host = random_host(&mut random);
        if !host.is_feasible(&simulation.config) {
            continue;
        }
        // With the wall sampler, up to two more: one at its lowest rate before it pauses, and one when it returns, since a
        // paused sampler does not measure its cost.
        let exceeded = simulation.run_for(40, &host);
        assert!(exceeded <= 1 + 2 * u32::from(wall), "case {case}: {exceeded} intervals, {host:?}");
        simulation.run_for(300, &host);
        let rest = simulation.effective();
        for _ in 0..100 {
            simulation.run(&host);
            let now = simulation.effective();
            assert!(now.sample_rate <= rate && now.wall_rate <= Some(100), "case {case}");
            assert!(now.sample_rate >= MIN_RATE_HZ.min(rate), "case {case}");
            assert_eq!(now, rest, "case {case}: constant load, {host:?}");
        }
    }
}

#[test]
fn the_rates_return_when_the_load_ends() {
    let mut simulation = Simulation::new(Config { wall: true, ..config(1000) });
    simulation.run_for(20, &SimulatedHost { busy: 16.0, threads: 400.0, window_ns: 30e6, ..HOST });
    assert!(simulation.effective().sample_rate < 200);
    let idle = SimulatedHost { busy: 0.0, threads: 1.0, walk_ns: 100.0, ..HOST };
    assert_eq!(simulation.run_for(120, &idle), 0);
    assert_eq!(simulation.effective(), simulation.config);
    assert_eq!(simulation.governor.limit(), None);
}

#[test]
fn an_idle_process_keeps_its_rate_for_the_next_burst() {
    let mut simulation = Simulation::new(config(100));
    let (idle, burst) = (SimulatedHost { busy: 0.0, ..HOST }, SimulatedHost { busy: 2.0, ..HOST });
    for _ in 0..50 {
        simulation.run_for(5, &idle);
        assert_eq!(simulation.effective().sample_rate, 100);
        simulation.run(&burst);
    }
    assert_eq!(simulation.effective().sample_rate, 100);
}

#[test]
fn a_budget_of_a_tenth_of_a_core_is_one_percent_of_the_quota() {
    assert_eq!(budget_share(&config(100), Some(0.1)), Some(0.001));
    assert_eq!(budget_share(&config(100), Some(4.0)), Some(0.01));
    assert_eq!(budget_share(&Config { cpu_budget: 0.0, ..config(100) }, Some(0.1)), None);
    let mut simulation = Simulation::new(config(100));
    let host = SimulatedHost { busy: 0.1, quota: Some(0.1), window_ns: 12e6, ..HOST };
    assert!(simulation.run(&host));
    let effective = simulation.effective();
    assert!(effective.sample_rate >= 10 && effective.upload_interval > Duration::from_secs(10), "{effective:?}");
    let comment = simulation.governor.comment(&simulation.config);
    assert_eq!(
        comment,
        "spanprof governor: sample_rate=10 (configured 100), upload_interval=40; limited by cpu_budget"
    );
    assert_eq!(simulation.run_for(200, &host), 0);
    assert_eq!(simulation.effective().sample_rate, 100, "longer windows were sufficient");
}

#[test]
fn the_start_does_not_count() {
    let mut governor = Governor::default();
    let host = SimulatedHost { window_ns: 500e6, ..HOST };
    let load = LoadInterval { has_start: true, ..host.interval(&config(100), 0) };
    assert!(!governor.step(&config(100), &load));
    assert_eq!(governor.limit(), None);
}

#[test]
fn the_adaptive_rate_rises_to_its_maximum_and_falls_at_a_threshold() {
    let mut simulation = Simulation::new(Config { sample_rate_max: Some(400), ..config(100) });
    let mut rates = Vec::new();
    for cpu_use in [0.5, 0.5, 0.5, 0.5, 0.69, 0.71, 0.69, 0.5] {
        simulation.run(&SimulatedHost { busy: 0.5, cpu_use, ..HOST });
        rates.push(simulation.effective().sample_rate);
    }
    assert_eq!(rates, [200, 400, 400, 400, 400, 100, 100, 200]);
    assert_eq!(simulation.governor.limit(), Some(Limit::AdaptiveRate));
    simulation.run(&SimulatedHost { memory_use: 0.9, ..HOST });
    assert_eq!(simulation.effective().sample_rate, 100);
    // Within the budget: 8 cores at 100 Hz are 0.8 % of one.
    let busy = SimulatedHost { busy: 8.0, window_ns: 0.0, ..HOST };
    simulation.run_for(50, &busy);
    assert_eq!(simulation.effective().sample_rate, 100);
    simulation.config.sample_rate_max = None;
    assert_eq!(simulation.run_for(10, &HOST), 0);
    assert_eq!(simulation.effective(), simulation.config);
}

#[test]
fn load_shedding_pauses_types_until_the_load_is_below_the_threshold_for_three_intervals() {
    let requested =
        Config { wall: true, lock: true, off_cpu: false, load_shedding_threshold: Some(0.8), ..config(100) };
    let mut simulation = Simulation::new(requested.clone());
    let mut shed = Vec::new();
    for cpu_use in [0.79, 0.81, 0.79, 0.7, 0.7, 0.79, 0.7, 0.7, 0.7] {
        simulation.run(&SimulatedHost { busy: 0.1, cpu_use, ..HOST });
        shed.push(simulation.governor.limit() == Some(Limit::LoadShedding));
        let effective = simulation.effective();
        assert_eq!(effective.wall, !shed[shed.len() - 1]);
    }
    assert_eq!(shed, [false, true, true, true, true, true, true, true, false]);
    simulation.run(&SimulatedHost { memory_use: 0.95, ..HOST });
    let effective = simulation.effective();
    assert!(!effective.wall && !effective.lock && effective.cpu);
    assert_eq!((effective.sample_rate, effective.heap_interval), (10, 16 * requested.heap_interval));
    assert_eq!(simulation.governor.shed_types(&requested), ["wall", "lock", "heap"]);
    let comment = simulation.governor.comment(&requested);
    let expected =
        "spanprof governor: sample_rate=10 (configured 100), shed=wall,lock,heap; limited by load_shedding_threshold";
    assert_eq!(comment, expected);
}

#[test]
fn load_is_shed_only_if_the_switch_and_a_threshold_allow_it() {
    for (load_shedding, load_shedding_threshold, sheds) in [
        (Some(false), Some(0.5), false),
        (Some(true), Some(0.5), true),
        (None, Some(0.5), true),
        (Some(true), None, true),
        (None, None, false),
    ] {
        let requested = Config { load_shedding, load_shedding_threshold, ..config(100) };
        let mut simulation = Simulation::new(requested);
        simulation.run(&SimulatedHost { cpu_use: 0.95, ..HOST });
        assert_eq!(simulation.governor.is_shedding, sheds, "{load_shedding:?} {load_shedding_threshold:?}");
    }
}

#[test]
fn without_a_budget_no_cost_changes_the_rates() {
    let mut simulation = Simulation::new(Config { cpu_budget: 0.0, wall: true, ..config(1000) });
    assert_eq!(simulation.run_for(20, &SimulatedHost { busy: 64.0, window_ns: 1e9, ..HOST }), 0);
    assert_eq!(simulation.effective(), simulation.config);
}

#[test]
fn a_cost_that_occurs_once_limits_the_rate_for_one_period() {
    let mut simulation = Simulation::new(config(100));
    simulation.run_for(5, &HOST);
    assert!(simulation.run(&SimulatedHost { window_ns: 500e6, ..HOST }), "as the symbols of a large program");
    assert_eq!(simulation.effective().sample_rate, 10);
    // A period of 60 s, then the rate, then the window.
    let effective = [6, 6].map(|intervals| {
        simulation.run_for(intervals, &HOST);
        let effective = simulation.effective();
        (effective.sample_rate, effective.upload_interval.as_secs())
    });
    assert_eq!(effective, [(100, 60), (100, 10)]);
}
