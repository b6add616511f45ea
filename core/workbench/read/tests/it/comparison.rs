//! The comparison of two profiles: its rows, and which differences are significant.

use crate::draws::Draws;
use crate::stacks::stack_of;
use spanprof_profile::transform::merge;
use spanprof_profile::{Attribute, Profile, ProfilesData, ResourceProfiles, Sample, ValueType};
use spanprof_read::query::{cost, diff, Compared, DiffRow, DiffTable, FunctionLine, Granularity, Weight, WindowSums};

const WINDOW_NS: u64 = 10_000_000_000;
/// 100 Hz.
const INTERVAL_NS: i64 = 10_000_000;

/// A window with a weight per function.
fn window(type_name: &str, unit: &str, interval: i64, weights: &[(&str, i64)]) -> ProfilesData {
    let mut data = ProfilesData::default();
    let dictionary = &mut data.dictionary;
    let of_function = |(name, weight): &(&str, i64)| {
        let stack = stack_of(dictionary, [(*name, "app.py", 0, 1)]);
        Sample { stack, values: vec![*weight], ..Sample::default() }
    };
    let samples = weights.iter().map(of_function).collect();
    let profile = Profile {
        sample_type: ValueType::new(type_name, unit),
        period_type: ValueType::new(type_name, unit),
        period: interval,
        duration_nano: WINDOW_NS,
        samples,
        ..Profile::default()
    };
    data.resources.push(ResourceProfiles { profiles: vec![profile], ..ResourceProfiles::default() });
    data
}

fn heap(weights: &[(&str, i64)]) -> Vec<ProfilesData> {
    vec![window("inuse_space", "bytes", 0, weights)]
}

fn compared(baseline: &[ProfilesData], comparison: &[ProfilesData], normalize: bool) -> DiffTable {
    let type_name = baseline[0].resources[0].profiles[0].type_name().to_owned();
    let sides = [baseline, comparison].map(|windows| {
        let mut sums = WindowSums::new(Granularity::Function, Compared::Flat);
        windows.iter().for_each(|window| sums.add(window));
        sums.add_state(&merge(windows));
        sums
    });
    diff(sides.each_ref(), &type_name, normalize)
}

fn row<'t>(table: &'t DiffTable, function: &str) -> &'t DiffRow {
    table.rows.iter().find(|row| row.location.function == function).expect(function)
}

fn significant(table: &DiffTable) -> Vec<&str> {
    table.rows.iter().filter(|row| row.is_significant).map(|row| row.location.function.as_str()).collect()
}

impl Draws {
    /// CPU windows of `samples` samples each, whose functions have these shares; `load` is how much each share varies from one
    /// window to the next.
    fn windows(&mut self, count: usize, samples: usize, shares: &[f64], load: f64) -> Vec<ProfilesData> {
        (0..count)
            .map(|_| {
                let varied: Vec<f64> = shares.iter().map(|share| share * (1.0 + load * (self.next() - 0.5))).collect();
                let total: f64 = varied.iter().sum();
                let mut counts = vec![0; shares.len()];
                for _ in 0..samples {
                    let mut at = self.next() * total;
                    let function = varied.iter().position(|share| {
                        at -= share;
                        at < 0.0
                    });
                    counts[function.unwrap_or(0)] += 1;
                }
                let names: Vec<String> = (0..shares.len()).map(|number| format!("function_{number}")).collect();
                let weights: Vec<_> =
                    names.iter().map(String::as_str).zip(counts.iter().map(|count| count * INTERVAL_NS)).collect();
                window("cpu", "nanoseconds", INTERVAL_NS, &weights)
            })
            .collect()
    }
}

/// Shares of 30 functions, from 17 % to 0.1 %.
fn shares() -> Vec<f64> {
    (0..30).map(|number| 0.83f64.powi(number)).collect()
}

fn with_regression(at: usize, factor: f64) -> Vec<f64> {
    let mut shares = shares();
    shares[at] *= factor;
    shares
}

/// Runs of one program: windows of one process share a factor per function, as those of equal addresses do.
fn runs(draws: &mut Draws, count: usize) -> Vec<ProfilesData> {
    let of_run = |number: usize| {
        let shares: Vec<f64> = shares().iter().map(|share| share * (1.0 + 0.3 * (draws.next() - 0.5))).collect();
        let mut windows = draws.windows(4, 1_500, &shares, 0.0);
        for window in &mut windows {
            window.resources[0].resource.push(Attribute::int("process.pid", number as i64));
        }
        windows
    };
    (0..count).flat_map(of_run).collect()
}

#[test]
fn processes_that_differ_make_no_significant_row_of_one_program() {
    let mut draws = Draws(5);
    let mut alarms = 0;
    for _ in 0..30 {
        let sides = [runs(&mut draws, 8), runs(&mut draws, 8)];
        let table = compared(&sides[0], &sides[1], true);
        assert_eq!((table.windows, table.processes), ([32, 32], Some([8, 8])));
        alarms += usize::from(!significant(&table).is_empty());
    }
    // With the windows as replicates, more than half of them are alarms.
    assert!(alarms <= 2, "{alarms} of 30");
}

#[test]
fn a_comparison_lists_what_changed_by_its_size() {
    let baseline = heap(&[("same", 10), ("leak", 100), ("gone", 40), ("less", 50)]);
    let comparison = heap(&[("same", 10), ("leak", 320), ("new", 5), ("less", 45)]);
    let table = compared(&baseline, &comparison, false);
    let row = |function: &str, baseline: i64, comparison: i64| DiffRow {
        location: FunctionLine { function: function.into(), file: "app.py".into(), ..FunctionLine::default() },
        baseline: Weight { flat: baseline, cum: baseline },
        comparison: Weight { flat: comparison, cum: comparison },
        growth: None,
        is_significant: false,
        has_grown: false,
    };
    let expected = [row("leak", 100, 320), row("gone", 40, 0), row("less", 50, 45), row("new", 0, 5)];
    assert_eq!((&table.rows[..], table.equal), (&expected[..], 1), "without a sampling interval nothing is concluded");
    assert_eq!((table.baseline_total, table.comparison_total, &table.unit[..]), (200, 380, "bytes"));
}

#[test]
fn a_normalized_comparison_of_equal_shares_has_no_rows() {
    let allocated = |weights: &[(&str, i64)]| vec![window("alloc_space", "bytes", 0, weights)];
    let baseline = allocated(&[("a", 10), ("b", 30)]);
    let normalized = |comparison: &[ProfilesData]| compared(&baseline, comparison, true);
    let table = normalized(&allocated(&[("a", 70), ("b", 210)]));
    assert_eq!((table.rows.len(), table.equal, table.comparison_total), (0, 2, 280));
    let shifted = allocated(&[("a", 20), ("b", 20)]);
    let differences: Vec<i64> = normalized(&shifted).rows.iter().map(|row| row.difference().flat).collect();
    assert_eq!(differences, [10, -10]);
    assert_eq!(normalized(&allocated(&[])).rows.len(), 2, "everything is gone");
}

#[test]
fn generated_names_are_one_row() {
    let cpu = |weights: &[(&str, i64)]| vec![window("cpu", "nanoseconds", INTERVAL_NS, weights)];
    let table = compared(&cpu(&[("A$1.run", 10), ("A$2.run", 20)]), &cpu(&[("A$3.run", 40)]), false);
    assert_eq!((table.rows.len(), row(&table, "A$*.run").difference().flat), (1, 10));
}

#[test]
fn one_window_is_judged_by_its_number_of_samples() {
    let cpu = |hot: i64| {
        vec![window("cpu", "nanoseconds", INTERVAL_NS, &[("hot", hot * INTERVAL_NS), ("other", 9_000 * INTERVAL_NS)])]
    };
    let table = compared(&cpu(1_000), &cpu(1_200), false);
    let growth = row(&table, "hot").growth.unwrap();
    // Poisson: ln 1.2 ± 1.96 √(1/1000 + 1/1200).
    let margin = 1.959_964 * (1.0f64 / 1_000.0 + 1.0 / 1_200.0).sqrt();
    let end = |sign: f64| 1.2 * (sign * margin).exp() - 1.0;
    assert!((growth.estimate - 0.2).abs() < 1e-9, "{growth:?}");
    assert!((growth.low - end(-1.0)).abs() < 1e-6 && (growth.high - end(1.0)).abs() < 1e-6, "{growth:?}");
    assert_eq!(significant(&table), ["hot"]);
    assert!(significant(&compared(&cpu(1_000), &cpu(1_060), false)).is_empty());
    assert_eq!(compared(&cpu(9), &cpu(30), false).tested, 1, "below 1 % nothing is concluded about `hot`");
}

#[test]
fn functions_that_are_new_or_gone_are_significant_with_enough_samples() {
    let cpu = |weights: &[(&str, i64)]| {
        let weights: Vec<_> = weights.iter().map(|(name, samples)| (*name, samples * INTERVAL_NS)).collect();
        vec![window("cpu", "nanoseconds", INTERVAL_NS, &weights)]
    };
    let (baseline, comparison) = (cpu(&[("all", 1_000), ("gone", 200)]), cpu(&[("all", 1_000), ("new", 200)]));
    let table = compared(&baseline, &comparison, false);
    let mut names = significant(&table);
    names.sort_unstable();
    assert_eq!(names, ["gone", "new"]);
    assert_eq!(row(&table, "new").growth.unwrap().estimate, f64::INFINITY);
    assert_eq!(row(&table, "gone").growth.unwrap().estimate, -1.0);
    let few = compared(&cpu(&[("all", 1_000)]), &cpu(&[("all", 1_000), ("new", 21)]), false);
    assert!(significant(&few).is_empty());
}

#[test]
fn windows_that_vary_more_than_their_samples_widen_the_interval() {
    let mut draws = Draws(42);
    let calm = compared(&draws.windows(12, 3_000, &shares(), 0.0), &draws.windows(12, 3_000, &shares(), 0.0), true);
    let varied = compared(&draws.windows(12, 3_000, &shares(), 0.8), &draws.windows(12, 3_000, &shares(), 0.8), true);
    let width = |table: &DiffTable| {
        let growth = row(table, "function_0").growth.unwrap();
        growth.high - growth.low
    };
    assert!(width(&varied) > 2.0 * width(&calm), "{} {}", width(&varied), width(&calm));
    assert_eq!(calm.windows, [12, 12]);
}

#[test]
fn shares_of_profiles_of_unequal_length_are_compared() {
    let mut draws = Draws(3);
    for windows in [1, 6] {
        let (short, long) =
            (draws.windows(windows, 3_000, &shares(), 0.0), draws.windows(2 * windows, 3_000, &shares(), 0.0));
        let table = compared(&short, &long, true);
        let growth = row(&table, "function_0").growth.unwrap();
        assert!(growth.low < growth.estimate && growth.estimate < growth.high, "{growth:?}");
        assert!(growth.estimate.abs() < 0.2 && significant(&table).is_empty(), "{growth:?}");
        let total = compared(&short, &long, false);
        let growth = row(&total, "function_0").growth.unwrap();
        assert!((growth.estimate - 1.0).abs() < 0.3 && growth.low > 0.5, "{growth:?}");
    }
}

/// Number of 100 pairs of equal programs with a significant row.
fn false_alarms(seed: u64, windows: usize, samples: usize, load: f64) -> usize {
    let mut draws = Draws(seed);
    let mut pair = || {
        let mut side = || draws.windows(windows, samples / windows, &shares(), load);
        compared(&side(), &side(), true)
    };
    (0..100).filter(|_| !significant(&pair()).is_empty()).count()
}

#[test]
fn two_profiles_of_one_program_have_no_significant_row() {
    // At most 1 of 100 is expected; 5 or more have a probability of 0.4 %.
    for (windows, load) in [(1, 0.0), (6, 0.0), (6, 0.5), (30, 0.5)] {
        let count = false_alarms(0x9e37_79b9_7f4a_7c15, windows, 3_000, load);
        assert!(count <= 4, "{windows} windows, load {load}: {count} of 100");
    }
}

#[test]
fn a_regression_of_five_percent_is_found_in_thirty_thousand_samples() {
    let mut draws = Draws(2026);
    // `function_0` has 17 % of the samples: 30,000 of some 176,000.
    let found = (0..20).filter(|_| {
        let side = |draws: &mut Draws, shares: &[f64]| draws.windows(1, 176_000, shares, 0.0);
        let (baseline, comparison) = (side(&mut draws, &shares()), side(&mut draws, &with_regression(0, 1.05)));
        significant(&compared(&baseline, &comparison, true)).contains(&"function_0")
    });
    let found = found.count();
    assert!(found >= 18, "{found} of 20");
}

/// Five runs of the same work, 4 s of CPU time each at 1 kHz. One function has 28 % of it, 17 further ones the rest. The CPU
/// time of a run varies by 4 % (its ends), that of each function by another 2 %.
fn runs_of_work(draws: &mut Draws, factor_of_all: f64, factor_of_one: f64) -> WindowSums {
    let mut sums = WindowSums::new(Granularity::Function, Compared::Flat);
    for number in 0..5 {
        let speed = 1.0 + 0.04 * (draws.next() - 0.5);
        let mut costs: Vec<f64> = (0..17).map(|nth| 0.72 * 0.8f64.powi(nth) * 0.2 * speed * factor_of_all).collect();
        costs.insert(0, 0.28 * speed * factor_of_one * factor_of_all);
        for cost in &mut costs {
            *cost *= 1.0 + 0.02 * (draws.next() - 0.5);
        }
        let samples = (4_000.0 * costs.iter().sum::<f64>()) as usize;
        let mut windows = draws.windows(1, samples, &costs, 0.0);
        windows[0].resources[0].resource.push(Attribute::int("process.pid", number));
        sums.add(&windows[0]);
    }
    sums
}

/// Functions whose cost grew, and whether the total did.
fn grown(sides: [&WindowSums; 2]) -> (Vec<String>, bool) {
    let table = cost(sides, "cpu", "nanoseconds", None);
    assert_eq!((table.processes, table.tested > 10), (Some([5, 5]), true));
    let names = table.rows.iter().filter(|row| row.has_grown).map(|row| row.location.function.clone()).collect();
    (names, table.cost.is_some_and(|total| total.has_grown))
}

#[test]
fn a_tenth_more_cost_of_one_function_is_found_in_five_runs_and_no_change_where_there_is_none() {
    let mut draws = Draws(77);
    let (mut found, mut alarms) = (0, 0);
    for _ in 0..20 {
        let [baseline, equal, slower] = [1.0, 1.0, 1.1].map(|factor| runs_of_work(&mut draws, 1.0, factor));
        found += usize::from(grown([&baseline, &slower]).0.contains(&"function_0".to_owned()));
        alarms += usize::from(grown([&baseline, &equal]) != (vec![], false));
    }
    assert!(found >= 18 && alarms == 0, "{found} found, {alarms} false alarms of 20");
}

#[test]
fn growth_of_all_functions_is_growth_of_the_total_cost() {
    let mut draws = Draws(78);
    let [baseline, slower] = [1.0, 1.5].map(|factor| runs_of_work(&mut draws, factor, 1.0));
    let table = cost([&baseline, &slower], "cpu", "nanoseconds", None);
    let total = table.cost.unwrap();
    let growth = total.growth.unwrap();
    assert!(total.has_grown && growth.low > 0.4 && growth.high < 0.6, "{growth:?}");
    assert!(
        (table.baseline_total - 4_000 * INTERVAL_NS).abs() < 200 * INTERVAL_NS,
        "of one run: {}",
        table.baseline_total
    );
    // The work is the same for twice the requests.
    let halved = cost([&baseline, &slower], "cpu", "nanoseconds", Some([1_000.0, 2_000.0]));
    let growth = halved.cost.unwrap().growth.unwrap();
    assert!((growth.estimate + 0.25).abs() < 0.05 && halved.baseline_total < table.baseline_total / 100, "{growth:?}");
}

#[test]
fn costs_are_not_compared_with_fewer_than_five_runs() {
    let mut draws = Draws(79);
    let five = runs_of_work(&mut draws, 1.0, 1.0);
    let mut one = WindowSums::new(Granularity::Function, Compared::Flat);
    draws.windows(8, 1_000, &shares(), 0.0).iter().for_each(|window| one.add(window));
    let table = cost([&five, &one], "cpu", "nanoseconds", None);
    assert_eq!((table.tested, table.processes, table.cost.unwrap().growth), (0, None, None));
}
