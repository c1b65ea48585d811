//! Slurm's way to write how long something took.

/// Seconds in `[days-[hours:]]minutes:seconds[.fraction]`.
pub fn elapsed(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let parts: Vec<u64> = clock.split(':').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes, seconds] => (hours, minutes, seconds),
        [minutes, seconds] => (0, minutes, seconds),
        _ => return None,
    };
    if minutes > 59 || seconds > 60 {
        return None;
    }
    let hours = days.checked_mul(24)?.checked_add(hours)?;
    hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(elapsed("00:00:00"), Some(0));
        assert_eq!(elapsed("01:02"), Some(62));
        assert_eq!(elapsed("2-00:00:01"), Some(172_801));
        assert_eq!(elapsed("100:00:00"), Some(360_000));
        assert_eq!(elapsed("00:01.500"), Some(1));
        for bad in
            ["", "5", "1:2:3:4", "x-00:00:01", "00:61:00", "99999999999999999999-00:00:00", "-1:00"]
        {
            assert_eq!(elapsed(bad), None, "{bad}");
        }
    }
}
