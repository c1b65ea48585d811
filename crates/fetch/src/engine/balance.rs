//! How the cores are divided: by how long each stage takes for one plane, measured at the start.

use std::time::{Duration, Instant};

use saccade_chunk::codec::{Coded, Scratch, encode};
use saccade_chunk::{Codec, Geometry};

use crate::config::Threads;
use crate::frame::write_out;

/// One core is for the network where there are at least this many.
const CORES_FOR_OWN_NETWORK: usize = 3;
/// A core for the network serves this many others.
const CORES_PER_NETWORK: usize = 8;
/// One encoder for this many cores.
const CORES_PER_ENCODER: usize = 4;
/// Passes over the synthetic planes; the fastest counts.
const PASSES: usize = 3;

/// What one core does with a plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    pub coder: Duration,
    pub place: Duration,
    plane_bytes: usize,
}

impl Rates {
    /// Times both stages on planes of one layer with made-up KV, and leaves the scratches with
    /// memory of the size that they will need.
    pub fn measure(codec: Codec, geometry: &Geometry, scratches: &mut [Scratch]) -> Rates {
        let layer = Geometry { num_layers: 1, ..*geometry };
        let mut own = Scratch::default();
        let mut bytes = Vec::new();
        encode(codec, &layer, &made_up(&layer), &mut own, &mut bytes);
        let mut rates = Rates {
            coder: Duration::MAX,
            place: Duration::MAX,
            plane_bytes: geometry.plane_bytes(),
        };
        let mut kv = vec![1; layer.plane_bytes()];
        // What was just encoded can be decoded; if not, there are no rates to go by.
        let Ok(coded) = Coded::new(codec, &layer, &bytes) else { return rates };
        let mut blocks = vec![1; PASSES * kv.len()];
        for blocks in blocks.chunks_exact_mut(kv.len()) {
            let began = Instant::now();
            let decoded = coded.decode_symbols(1, &mut own);
            let between = Instant::now();
            if decoded.and_then(|()| coded.place(1, &mut kv, &own)).is_ok() {
                write_out(&kv, blocks);
                rates.coder = rates.coder.min(between - began);
                rates.place = rates.place.min(between.elapsed());
            }
        }
        for scratch in scratches {
            coded.decode_symbols(1, scratch).ok();
        }
        rates
    }

    /// Gbit/s of KV of one core in either stage.
    pub fn gbps(&self) -> (f64, f64) {
        let rate = |time: Duration| 8e-9 * self.plane_bytes as f64 / time.as_secs_f64().max(1e-9);
        (rate(self.coder), rate(self.place))
    }
}

/// Normal-like numbers near 1, whose exponents differ as those of KV do.
fn made_up(geometry: &Geometry) -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut kv = Vec::with_capacity(geometry.bytes());
    while kv.len() < geometry.bytes() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let sum: u64 = (0..4).map(|i| seed >> (16 * i) & 0xffff).sum();
        let x = (sum as f32 - 131_070.0) / 32_768.0;
        match geometry.dtype {
            saccade_chunk::Dtype::F32 => kv.extend(x.to_le_bytes()),
            saccade_chunk::Dtype::Bf16 => kv.extend(&x.to_le_bytes()[2..]),
            // The same bits are smaller numbers with the exponent of half precision.
            // Truncated to the exponents that fp8 has.
            saccade_chunk::Dtype::Fp8 => {
                let magnitude = (x.abs().to_bits() >> 20).saturating_sub((127 - 7) << 3).min(0x7e);
                kv.push((x.to_bits() >> 24 & 0x80 | magnitude) as u8);
            }
            saccade_chunk::Dtype::F16 => kv.extend(&(x / 8.0).to_le_bytes()[2..]),
        }
    }
    kv
}

/// Of `cores`, those that only the network has.
pub(crate) fn network_cores(cores: usize) -> usize {
    if cores < CORES_FOR_OWN_NETWORK { 0 } else { cores.div_ceil(CORES_PER_NETWORK) }
}

/// Divides `cores`, of which there is at least one.
pub(crate) fn divide(cores: usize, rates: &Rates) -> Threads {
    let own_network = network_cores(cores);
    let workers = (cores - own_network).max(1);
    let (coder, place) = (rates.coder.as_secs_f64(), rates.place.as_secs_f64());
    let share = workers as f64 * coder / (coder + place).max(f64::MIN_POSITIVE);
    let coders = (share.round() as usize).clamp(1, workers.max(2) - 1);
    Threads {
        network: own_network.max(1),
        coders,
        placers: workers - coders,
        encoders: cores.div_ceil(CORES_PER_ENCODER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cores: usize, coder_us: u64, place_us: u64) -> Threads {
        let [coder, place] = [coder_us, place_us].map(Duration::from_micros);
        divide(cores, &Rates { coder, place, plane_bytes: 1 })
    }

    #[test]
    fn cores_are_divided_by_need() {
        let threads =
            |network, coders, placers, encoders| Threads { network, coders, placers, encoders };
        assert_eq!(of(1, 100, 100), threads(1, 1, 0, 1));
        assert_eq!(of(2, 900, 100), threads(1, 1, 1, 1));
        assert_eq!(of(3, 100, 100), threads(1, 1, 1, 1));
        assert_eq!(of(5, 300, 100), threads(1, 3, 1, 2));
        assert_eq!(of(16, 100, 600), threads(2, 2, 12, 4));
        assert_eq!(of(16, 0, 0), threads(2, 1, 13, 4));
    }
}
