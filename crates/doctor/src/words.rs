//! Numbers and nouns in sentences.

/// `2`, or `2.50` where it is not whole.
pub fn count(number: f64) -> String {
    if number.fract().abs() < 0.005 { format!("{number:.0}") } else { format!("{number:.2}") }
}

/// `1 core`, `2 cores`, `2.50 cores`, `3 processes`.
pub fn plural(number: f64, noun: &str) -> String {
    let count = count(number);
    match (count.as_str(), noun.ends_with('s')) {
        ("1", _) => format!("1 {noun}"),
        (_, true) => format!("{count} {noun}es"),
        (_, false) => format!("{count} {noun}s"),
    }
}

/// `12.3 %`
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        for (number, noun, text) in [
            (0.0, "core", "0 cores"),
            (1.0, "core", "1 core"),
            (1.5, "core", "1.50 cores"),
            (1.0, "process", "1 process"),
            (3.0, "process", "3 processes"),
        ] {
            assert_eq!(plural(number, noun), text);
        }
    }
}
