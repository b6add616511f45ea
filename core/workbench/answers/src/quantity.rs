//! Quantities with units: formatted as `1.23 s`, `4.5 MiB`, `12%` in the text output of the verbs; byte counts and percentages
//! of arguments.

use std::str::FromStr;

/// A value with its unit, in three to four digits.
pub fn format_quantity(value: i64, unit: &str) -> String {
    let steps: &[(f64, &str)] = match unit {
        "nanoseconds" => &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")],
        "bytes" => &[
            ((1u64 << 40) as f64, "TiB"),
            ((1u64 << 30) as f64, "GiB"),
            ((1u64 << 20) as f64, "MiB"),
            ((1u64 << 10) as f64, "KiB"),
            (1.0, "B"),
        ],
        _ => return value.to_string(),
    };
    if value == 0 {
        return "0".to_owned();
    }
    let size = (value as f64).abs();
    let (scale, name) =
        steps.iter().find(|(scale, _)| size >= *scale).copied().unwrap_or((1.0, steps[steps.len() - 1].1));
    let scaled = value as f64 / scale;
    let digits = match scaled.abs() {
        _ if scale == 1.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{scaled:.digits$} {name}")
}

/// A part of a whole, in percent.
pub fn format_share(part: i64, whole: i64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

/// Parses `5%` or `5` as 0.05.
pub fn percent(text: &str) -> Result<f64, &'static str> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| "expected a percentage such as 5%")?;
    if number.is_finite() && number >= 0.0 {
        Ok(number / 100.0)
    } else {
        Err("expected a percentage of at least 0")
    }
}

/// A byte count such as `512MiB`, `2G` or `1048576`, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCount(pub u64);

impl FromStr for ByteCount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected a size such as 512MiB";
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| EXPECTED)?;
        let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(EXPECTED),
        };
        number.checked_mul(unit).filter(|bytes| *bytes > 0).map(Self).ok_or(EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_three_digits_and_their_unit() {
        for (value, unit, text) in [
            (0, "nanoseconds", "0"),
            (999, "nanoseconds", "999 ns"),
            (1_234_567_890, "nanoseconds", "1.23 s"),
            (123_400_000_000, "nanoseconds", "123 s"),
            (-20_500_000, "nanoseconds", "-20.5 ms"),
            (1536, "bytes", "1.50 KiB"),
            (17, "count", "17"),
            (i64::MIN, "bytes", "-8388608 TiB"),
        ] {
            assert_eq!(format_quantity(value, unit), text);
        }
        assert_eq!(format_share(1, 3), "33.3%");
        assert_eq!(format_share(1, 0), "-");
    }

    #[test]
    fn byte_counts_have_binary_units() {
        let bytes = |text: &str| text.parse::<ByteCount>().ok().map(|count| count.0);
        assert_eq!(bytes("512MiB"), Some(512 << 20));
        assert_eq!(bytes("2g"), Some(2 << 30));
        assert_eq!(bytes("77"), Some(77));
        for invalid in ["99999999999T", "5 parsecs", "-1", "0"] {
            assert_eq!(bytes(invalid), None, "{invalid}");
        }
    }
}
