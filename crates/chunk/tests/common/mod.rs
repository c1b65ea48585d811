//! Numbers from a seed.

#![allow(dead_code)]

use half::{bf16, f16};
use saccade_chunk::{Dtype, Geometry};

/// splitmix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
    /// Nearly normal: a sum of uniform numbers.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum::<f32>() - 6.0
    }
}

/// What e4m3 says a code is.
pub fn fp8_value(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * 2f32.powi(-9),
        _ => (8.0 + fraction) * 2f32.powi(exponent - 10),
    };
    if code >= 128 { -magnitude } else { magnitude }
}

/// The nearest code, of two the even one.
pub fn fp8_of(x: f32) -> u8 {
    let distance = |code: &u8| (fp8_value(*code) - x.abs().min(448.0)).abs();
    let by_distance =
        |a: &u8, b: &u8| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)));
    let magnitude = (0..0x7f).min_by(by_distance).expect("there are codes");
    if x.is_sign_negative() { magnitude | 0x80 } else { magnitude }
}

/// Like KV: normal, and each channel of its own scale.
pub fn kv_like(g: &Geometry, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let scales: Vec<f32> = (0..g.channels()).map(|_| (1.5 * random.normal()).exp()).collect();
    let mut kv = Vec::with_capacity(g.bytes());
    for i in 0..g.bytes() / g.dtype.bytes() {
        let x = random.normal() * scales[i % scales.len()];
        match g.dtype {
            Dtype::Bf16 => kv.extend(bf16::from_f32(x).to_le_bytes()),
            Dtype::F16 => kv.extend(f16::from_f32(x).to_le_bytes()),
            Dtype::F32 => kv.extend(x.to_le_bytes()),
            Dtype::Fp8 => kv.push(fp8_of(x)),
        }
    }
    kv
}
