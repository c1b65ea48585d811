//! Numbers that a seed gives again.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of this run: `SACCADE_SEED`, or another one each time. It is printed.
    pub fn of_this_run() -> Self {
        let given = std::env::var("SACCADE_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = || std::time::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos() as u64);
        let seed = given.unwrap_or_else(now);
        eprintln!("SACCADE_SEED={seed}");
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// This many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
