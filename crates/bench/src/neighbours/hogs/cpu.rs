//! Integer work that lives in registers.

use std::hint::black_box;

use super::Slice;

const ROUNDS_PER_SLICE: u64 = 1 << 16;

/// Rounds of a mixing function (splitmix64's finaliser), about 0.1 ms a slice.
pub(super) fn slice(seed: u64) -> Slice {
    let mut state = seed;
    Box::new(move || {
        for _ in 0..ROUNDS_PER_SLICE {
            state = mixed(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        }
        black_box(state);
        Ok(ROUNDS_PER_SLICE)
    })
}

/// splitmix64's finaliser.
pub(in super::super) fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
