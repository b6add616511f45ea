//! Shares: numbers whose text may be in percent.

use super::shape::Shape;
use super::value::{ConfigType, ConfigValue};

/// The spellings of a share that was written as a number of percents: `90` instead of `90%`. Empty for other values.
pub(crate) fn percent_hint(shown: &str, largest: f64) -> String {
    let percents = shown.trim_matches('`').trim().parse::<f64>().ok();
    let is_share = |percents: &f64| *percents > largest && *percents <= 100.0 * largest;
    percents.filter(is_share).map_or(String::new(), |number| format!("; write {number}% or {}", number / 100.0))
}

impl ConfigType for f64 {
    const SHAPE: Shape = Shape::Share;

    fn from_value(value: &ConfigValue) -> Option<Self> {
        let number = match value {
            ConfigValue::Int(number) => *number as f64,
            ConfigValue::Float(number) => *number,
            ConfigValue::Text(text) => match text.trim().strip_suffix('%') {
                Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
                None => text.trim().parse().ok()?,
            },
            _ => return None,
        };
        number.is_finite().then_some(number)
    }

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn magnitude(&self) -> Option<f64> {
        Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number_or_a_percentage() {
        assert_eq!(f64::from_value(&"1%".into()), Some(0.01));
        assert_eq!(f64::from_value(&" 0.5 ".into()), Some(0.5));
        assert_eq!(f64::from_value(&ConfigValue::Int(0)), Some(0.0));
        assert_eq!(f64::from_value(&"NaN".into()), None);
        assert_eq!(f64::from_value(&ConfigValue::Bool(true)), None);
    }

    #[test]
    fn percents_without_their_sign_are_named_with_both_spellings() {
        assert_eq!(percent_hint("90", 1.0), "; write 90% or 0.9");
        assert_eq!(percent_hint("`2.5`", 1.0), "; write 2.5% or 0.025");
        for other in ["0.9", "-1", "101", "`much`"] {
            assert_eq!(percent_hint(other, 1.0), "", "{other}");
        }
    }
}
