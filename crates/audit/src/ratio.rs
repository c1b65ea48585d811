//! Cores per GPU as an exact fraction.

use std::cmp::Ordering;

/// Cores per GPU, in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    /// Thousandths of a core.
    millicores: u64,
    gpus: u64,
}

impl Ratio {
    /// `gpus` must not be zero.
    pub fn new(millicores: u64, gpus: u64) -> Ratio {
        let divisor = gcd(millicores, gpus).max(1);
        Ratio { millicores: millicores / divisor, gpus: gpus / divisor }
    }

    /// Cores per GPU.
    pub fn value(self) -> f64 {
        self.millicores as f64 / 1000.0 / self.gpus as f64
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Ratio) -> Ordering {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        product(self.millicores, other.gpus).cmp(&product(other.millicores, self.gpus))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_fractions_are_equal_and_ordered() {
        assert_eq!(Ratio::new(16_000, 8), Ratio::new(2_000, 1));
        assert_eq!(Ratio::new(1_000, 4).value(), 0.25);
        assert!(Ratio::new(1_000, 3) < Ratio::new(334, 1));
        assert!(Ratio::new(0, 5) == Ratio::new(0, 1));
    }
}
