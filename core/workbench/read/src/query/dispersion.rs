//! How much the windows of one side vary, estimated from all of its rows together.
//!
//! Few windows give a poor estimate of the variance of each row. Most rows of a profile vary alike, relative to the variance of a
//! count, so the rows inform each other: their dispersions are taken as draws of a scaled inverse χ² distribution, whose scale and
//! degrees of freedom are fitted to them. The dispersion of a row is then the mean of its own dispersion and the dispersion of
//! all rows, weighted by the degrees of freedom, and at least its own (G. K. Smyth, Linear Models and Empirical Bayes Methods,
//! 2004, sections 3 and 6.2). Rows that vary unlike each other get no weight from it.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};
use statrs::function::gamma::digamma;

/// Fewer rows are judged one by one.
const MIN_ROWS: usize = 3;
/// A dispersion as large as a row's has less than this probability among the others.
const OUTLIER_PROBABILITY: f64 = 0.01;
/// Stands for infinity: all rows vary alike.
const MAX_FREEDOM: f64 = 1e4;

/// The dispersion that rows have in common, with its degrees of freedom.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CommonDispersion {
    dispersion: f64,
    freedom: f64,
}

impl CommonDispersion {
    /// Fits the dispersions of rows, each with `freedom` degrees of freedom.
    pub fn fit(dispersions: &[f64], freedom: f64) -> Self {
        // A row that does not vary has no logarithm.
        let logarithms: Vec<f64> = dispersions.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
        if logarithms.len() < MIN_ROWS {
            return Self::default();
        }
        let expected = |freedom: f64| digamma(freedom / 2.0) - (freedom / 2.0).ln();
        let count = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / count;
        let variance = logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let common = inverse_trigamma(variance - trigamma(freedom / 2.0)) * 2.0;
        Self { dispersion: (mean - expected(freedom) + expected(common)).exp(), freedom: common }
    }

    /// The dispersion of a row with its degrees of freedom, from its own. A row that varies more than the others, by the F test,
    /// is not judged by them.
    pub fn moderate(self, own: f64, freedom: f64) -> (f64, f64) {
        let exceeds = match FisherSnedecor::new(freedom, self.freedom) {
            Ok(ratio) => ratio.sf(own / self.dispersion) < OUTLIER_PROBABILITY,
            // Nothing is known of the others.
            Err(_) => true,
        };
        if exceeds {
            return (own, freedom);
        }
        let together = self.freedom + freedom;
        // Never less than its own: the draws of real programs have a longer tail than the fitted distribution (decision 43).
        (own.max((self.freedom * self.dispersion + freedom * own) / together), together)
    }
}

/// The derivative of digamma, for positive numbers (Abramowitz and Stegun 6.4.6 and 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    sum + 1.0 / x + inverse / 2.0 + inverse / x * (1.0 / 6.0 - inverse * (1.0 / 30.0 - inverse / 42.0))
}

/// The argument with this trigamma, at most half of [`MAX_FREEDOM`]. Trigamma decreases.
fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-3, MAX_FREEDOM / 2.0);
    if value <= trigamma(high) {
        return high;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if trigamma(middle) > value {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigamma_has_its_known_values_and_inverse() {
        let pi = std::f64::consts::PI;
        assert!((trigamma(1.0) - pi * pi / 6.0).abs() < 1e-9);
        assert!((trigamma(0.5) - pi * pi / 2.0).abs() < 1e-9);
        for x in [0.3, 1.0, 7.5, 400.0] {
            assert!((inverse_trigamma(trigamma(x)) / x - 1.0).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn rows_that_vary_alike_share_their_degrees_of_freedom() {
        // χ²(5)/5 at its quantiles of 10, 30, 50, 70 and 90 %.
        let alike = [0.322, 0.600, 0.870, 1.213, 1.847];
        let common = CommonDispersion::fit(&alike, 5.0);
        assert!(common.freedom > 50.0 && (common.dispersion - 1.0).abs() < 0.2, "{common:?}");
        let unlike = CommonDispersion::fit(&[0.001, 0.01, 1.0, 10.0, 100.0], 5.0);
        assert!(unlike.freedom < 1.0, "{unlike:?}");
    }

    #[test]
    fn a_row_that_varies_more_keeps_its_own_dispersion() {
        let common = CommonDispersion { dispersion: 1.0, freedom: 45.0 };
        assert_eq!(common.moderate(0.5, 5.0), (0.95, 50.0));
        assert_eq!(common.moderate(1.2, 5.0), (1.2, 50.0));
        assert_eq!(common.moderate(9.0, 5.0), (9.0, 5.0));
        assert_eq!(CommonDispersion::default().moderate(0.5, 5.0), (0.5, 5.0));
    }
}
