//! Numbers such as shares: text may be in percent.

use super::value::{ConfigType, ConfigValue};

impl ConfigType for f64 {
    const TYPE: &'static str = "number";

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
}
