//! The sums of one row or call path of a comparison over the windows of one side.

use super::weights::Weight;

/// Which weight of a row is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compared {
    /// The function itself.
    #[default]
    Flat,
    /// The function with its callees.
    Cum,
}

impl Compared {
    pub(super) fn of(self, weight: Weight) -> i64 {
        match self {
            Compared::Flat => weight.flat,
            Compared::Cum => weight.cum,
        }
    }
}

/// One group of processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupTotals {
    pub total: f64,
    pub duration: f64,
    pub processes: f64,
}

/// A row or call path over all windows, and its weight in each group of processes.
#[derive(Clone, Debug, Default)]
pub(super) struct SummedRow {
    pub weight: i64,
    pub sums: RowSums,
    pub groups: Vec<f64>,
}

/// A window of one side, as the exposure of its rows.
#[derive(Clone, Copy)]
pub(super) struct WindowExposure {
    pub total: f64,
    pub duration: f64,
    pub interval: Option<f64>,
    pub group: Option<usize>,
}

/// Sums of a row with the weight x in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowSums {
    pub weight: f64,
    pub squares: f64,
    pub by_total: f64,
    pub by_duration: f64,
    pub by_processes: f64,
    pub samples: f64,
}

impl SummedRow {
    pub fn add(&mut self, weight: i64, window: WindowExposure) {
        self.weight = self.weight.saturating_add(weight);
        let weight = weight as f64;
        let sums = &mut self.sums;
        sums.weight += weight;
        sums.squares += weight * weight;
        sums.by_total += weight * window.total;
        sums.by_duration += weight * window.duration;
        sums.samples += window.interval.map_or(0.0, |interval| weight / interval);
        if let Some(group) = window.group {
            if group >= self.groups.len() {
                self.groups.resize(group + 1, 0.0);
            }
            self.groups[group] += weight;
        }
    }

    /// The sums with groups of processes in place of windows.
    pub fn by_process(&self, group_totals: &[GroupTotals]) -> RowSums {
        let mut sums = RowSums { squares: 0.0, by_total: 0.0, by_duration: 0.0, ..self.sums };
        for (weight, group) in self.groups.iter().zip(group_totals) {
            sums.squares += weight * weight;
            sums.by_total += weight * group.total;
            sums.by_duration += weight * group.duration;
            sums.by_processes += weight * group.processes;
        }
        sums
    }
}
