//! Parses and formats points in time: RFC 3339, unix seconds, milliseconds or nanoseconds, or relative to now.
//! In what it parses, the current time is an argument. Called by the selection flags and the query parameters of `serve`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::{Date, Month, OffsetDateTime};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Accepted forms, for messages.
pub const FORMS: &str =
    "RFC 3339 (2026-01-31T12:00:00Z), unix seconds or milliseconds, `now`, or relative such as `-5m` or `-1h30m`";

/// Unix time, nanoseconds.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Unix nanoseconds of `text`, or `None` when it has none of the accepted forms.
pub fn parse(text: &str, now_unix_ns: u64) -> Option<u64> {
    let text = text.trim();
    if text == "now" {
        return Some(now_unix_ns);
    }
    if let Some(back) = text.strip_prefix('-') {
        return Some(now_unix_ns.saturating_sub(parse_duration_ns(back)?));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return unix_number(text);
    }
    rfc3339(text)
}

/// Nanoseconds of `90s`, `5m`, `1h30m`, `250ms`, `2d`; a unit is required.
pub fn parse_duration_ns(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ns: u64 = match &rest[..letters] {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "w" => 604_800_000_000_000,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(unit_ns)?)?;
    }
    Some(total)
}

/// `2026-01-31T12:00:00.250Z` of unix nanoseconds, to the millisecond.
pub fn format_rfc3339(unix_ns: u64) -> String {
    let time = OffsetDateTime::UNIX_EPOCH + Duration::from_nanos(unix_ns);
    let (hour, minute, second, millis) = time.to_hms_milli();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", time.date())
}

/// The magnitude of a number determines its unit: 100,000,000,000 is the year 5138 in seconds and 1973 in milliseconds.
fn unix_number(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let number: i128 = whole.parse().ok()?;
    let scale: i128 = match number {
        0..100_000_000_000 => NANOS_PER_SECOND,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    let mut nanos = number.checked_mul(scale)?;
    if !fraction.is_empty() {
        let digits: String = fraction.chars().take(9).collect();
        let value: i128 = digits.parse().ok()?;
        nanos += value * scale / 10i128.pow(digits.len() as u32);
    }
    u64::try_from(nanos).ok()
}

fn rfc3339(text: &str) -> Option<u64> {
    if !text.is_ascii() {
        return None;
    }
    let (date, clock) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, "00:00:00Z"),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (fixed(parts.next()?, 4)?, fixed(parts.next()?, 2)?, fixed(parts.next()?, 2)?);
    if parts.next().is_some() {
        return None;
    }
    let date = Date::from_calendar_date(year as i32, Month::try_from(month as u8).ok()?, day as u8).ok()?;
    let zone_at = clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len());
    let offset_seconds = zone(&clock[zone_at..])?;
    let (time, fraction) = clock[..zone_at].split_once('.').unwrap_or((&clock[..zone_at], ""));
    let mut parts = time.split(':');
    let (hour, minute) = (fixed(parts.next()?, 2)?, fixed(parts.next()?, 2)?);
    let second = match parts.next() {
        Some(text) => fixed(text, 2)?,
        None => 0,
    };
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut nanos: i128 = 0;
    if !fraction.is_empty() {
        let digits: String = fraction.chars().take(9).collect();
        nanos = i128::from(digits.parse::<u64>().ok()?) * 10i128.pow(9 - digits.len() as u32);
    }
    let midnight = date.midnight().assume_utc().unix_timestamp();
    let seconds = midnight + hour * 3600 + minute * 60 + second - offset_seconds;
    u64::try_from(i128::from(seconds) * NANOS_PER_SECOND + nanos).ok()
}

/// Seconds east of UTC; a time without a zone is UTC.
fn zone(text: &str) -> Option<i64> {
    match text.as_bytes() {
        [] | b"Z" | b"z" => Some(0),
        [sign, ..] => {
            let (hours, minutes) = text[1..].split_once(':')?;
            let seconds = fixed(hours, 2)? * 3600 + fixed(minutes, 2)? * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
    }
}

fn fixed(text: &str, length: usize) -> Option<i64> {
    (text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_769_860_800_000_000_000; // 2026-01-31T12:00:00Z

    #[test]
    fn every_documented_form_denotes_the_same_time() {
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31 12:00:00.000",
            "2026-01-31T14:30:00+02:30",
            "2026-01-31T12:00Z",
            "1769860800",
            "1769860800.0",
            "1769860800000",
            "1769860800000000000",
            "now",
            "-0s",
        ] {
            assert_eq!(parse(text, NOW), Some(NOW), "{text}");
        }
        assert_eq!(parse("-1h30m", NOW), Some(NOW - 5_400_000_000_000));
        assert_eq!(parse("2026-01-31", NOW), Some(NOW - 43_200_000_000_000));
        assert_eq!(parse("1769860800.25", NOW), Some(NOW + 250_000_000));
    }

    #[test]
    fn text_that_is_no_time_is_refused_without_panic() {
        for text in [
            "",
            "-",
            "-5",
            "yesterday",
            "2026-02-30",
            "2026-13-01",
            "25:00",
            "2026-01-31T24:00:00Z",
            "1.2.3",
            "-5x",
            "٣",
            "2026-01-31T12:00:00+2",
            "99999999999999999999999999999999999999999",
            "-99999999999999999999w",
            "1969-01-01",
        ] {
            assert_eq!(parse(text, NOW), None, "{text}");
        }
    }

    #[test]
    fn a_formatted_time_parses_back() {
        for unix_ns in [0, NOW, NOW + 123_000_000, 951_782_400_000_000_000, 4_102_444_799_999_000_000] {
            assert_eq!(parse(&format_rfc3339(unix_ns), 0), Some(unix_ns));
        }
        assert_eq!(format_rfc3339(NOW), "2026-01-31T12:00:00.000Z");
        assert_eq!(format_rfc3339(951_782_400_000_000_000), "2000-02-29T00:00:00.000Z");
    }
}
