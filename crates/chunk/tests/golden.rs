//! Stored values stay readable, and equal chunks stay equal values: what codecs write is what it
//! was when the version of the value was fixed. Deflate of repetitions, and zstd, are their
//! libraries' affair.

mod common;

use common::Random;
use half::{bf16, f16};
use saccade_chunk::codec::{self, Scratch};
use saccade_chunk::{Codec, Dtype, Geometry, deflate, rans};
use xxhash_rust::xxh3::xxh3_64;

/// Normal numbers, each channel of its own power of two (no library's function decides a bit), and
/// among them tokens that quantising keeps or that are zeros.
fn odd_kv(g: &Geometry, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let powers: Vec<f32> = (0..g.channels()).map(|_| exp2(random.next() as i32 % 6)).collect();
    let odd = [f32::NAN, f32::INFINITY, 1e-40, 65504.0, 3.3e38, 6e-8, 1e-5, -1e-37];
    let elements = g.bytes() / g.dtype.bytes();
    let mut kv = Vec::with_capacity(g.bytes());
    for i in 0..elements {
        let token = i / g.channels();
        let x = match token % 16 {
            3 => 0.0,
            7 if i % 11 == 0 => odd[token / 16 % odd.len()],
            9 => random.normal() * odd[3 + token / 16 % (odd.len() - 3)],
            _ => random.normal() * powers[i % powers.len()],
        };
        match g.dtype {
            Dtype::Bf16 => kv.extend(bf16::from_f32(x).to_le_bytes()),
            Dtype::F16 => kv.extend(f16::from_f32(x).to_le_bytes()),
            Dtype::F32 => kv.extend(x.to_le_bytes()),
            Dtype::Fp8 => kv.push(if x.is_nan() { 0x7f } else { common::fp8_of(x) }),
        }
    }
    kv
}

fn exp2(power: i32) -> f32 {
    f32::from_bits(((127 + power) as u32) << 23)
}

const CODECS: [Codec; 4] = [Codec::Raw, Codec::Lossless, Codec::BinsRans, Codec::Cachegen];

#[test]
fn codecs_write_what_they_wrote() {
    let mut got = Vec::new();
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::Fp8] {
        for (heads, head_dim, num_tokens) in [(3, 64, 256), (2, 20, 137), (1, 128, 130)] {
            let g = Geometry { num_layers: 3, kv_heads: heads, head_dim, num_tokens, dtype };
            let kv = odd_kv(&g, 11);
            got.extend(CODECS.map(|codec| {
                let mut coded = Vec::new();
                codec::encode(codec, &g, &kv, &mut Scratch::default(), &mut coded);
                xxh3_64(&coded)
            }));
        }
    }
    assert_eq!(got, WRITTEN, "\n{got:#018x?}");
}

#[test]
fn rans_writes_what_it_wrote() {
    let mut random = Random::new(13);
    let mut got = Vec::new();
    for length in [0, 1, 2, 63, 64, 65, 127, 128, 1000, 70_000] {
        for mask in [0, 1, 0x88, 0xff] {
            let bytes = (0..length).map(|_| (random.next() & random.next()) as u8 & mask);
            let symbols: Vec<u8> = bytes.collect();
            let mut coded = Vec::new();
            rans::encode(&symbols, &mut coded);
            got.push(xxh3_64(&coded));
            for kernel in rans::Kernel::available() {
                let mut same = Vec::new();
                rans::encode_with(kernel, &symbols, &mut same);
                assert_eq!(same, coded, "{kernel:?}");
            }
        }
    }
    assert_eq!(xxh3_64(&got.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()), RANS);
}

#[test]
fn deflate_of_literals_writes_what_it_wrote() {
    let mut random = Random::new(17);
    let mut got = Vec::new();
    // The more numbers a byte is the least of, the more its frequency depends on it.
    for (length, least_of) in [(1024, 1), (1025, 2), (4099, 5), (49_152, 3), (70_001, 30)] {
        let mut byte = || (0..least_of).fold(255, |least, _| least.min(random.next() as u8));
        let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        let (mut memory, mut coded) = (deflate::Memory::default(), Vec::new());
        deflate::encode(&bytes, &mut memory, &mut coded).unwrap();
        let mut back = vec![0; length];
        let streams = deflate::streams(&coded).unwrap();
        assert!(deflate::decode_in_turns(streams, &mut memory, &mut back), "{length}");
        got.push(xxh3_64(&coded));
    }
    assert_eq!(got, DEFLATE, "\n{got:#018x?}");
}

const DEFLATE: [u64; 5] = [
    0x4bc9_77eb_042d_3d8d,
    0x0a48_9fc9_0270_ef54,
    0xa15f_85e4_85e8_e69f,
    0x8d25_8cdf_0973_124c,
    0x9d53_281b_564d_fa51,
];
const RANS: u64 = 0xeaa9_ec68_8da7_6150;
/// By dtype, shape and codec.
const WRITTEN: [u64; 48] = [
    0x6b31_c195_44ac_8ebc,
    0x5d3d_8aa1_0dcb_0262,
    0xf5cd_4e0c_c19d_1fb7,
    0x9f50_e362_2823_ceb4,
    0x5764_2d99_164d_0599,
    0x1081_daf6_02f5_b280,
    0x8d8c_0f66_65ca_f12d,
    0x837d_e60c_4928_d0eb,
    0x84e5_8bbe_bfa0_4dab,
    0x8da9_3ccc_501a_88de,
    0xe51e_9a41_0a05_1c86,
    0x01c2_59cf_31c8_e868,
    0x8a36_4daf_656c_fb2e,
    0x46fa_54e9_f88e_a9bc,
    0xecba_ac68_f4d3_eac3,
    0x2be2_0c0c_a2bb_afaf,
    0xfb2e_9a1f_672a_1238,
    0xdc6b_b07f_bc92_6d78,
    0xb998_40ba_e178_a33c,
    0x2a3b_ee19_500c_f4e4,
    0x724b_b957_ddec_ec78,
    0x8ab7_0419_e895_c7c8,
    0x3f03_7e1e_ab64_cc63,
    0x2f63_e608_1b33_f1cc,
    0x93f9_62bf_5243_abe0,
    0x858b_2066_3acc_1859,
    0x60a3_4736_9322_a698,
    0x0a0b_5ef3_942c_bb96,
    0x9188_9d0c_34d4_93b1,
    0x8025_78c4_156e_8002,
    0xdb4d_257b_6cd1_8362,
    0x103a_d78c_19ee_2ef8,
    0x4624_653a_4270_d071,
    0x1abf_dd0f_d420_7416,
    0x4a90_3cf1_42d0_c752,
    0x3a17_ee48_8bf6_a5f6,
    0x362d_01e7_243e_05f8,
    0x1808_bf5d_ad16_d6f8,
    0x1808_bf5d_ad16_d6f8,
    0xa2ba_56d1_fcb2_3cf7,
    0xa1c5_be17_cce8_c111,
    0xa233_9936_2b12_ab9f,
    0xa233_9936_2b12_ab9f,
    0x1974_1f03_0a08_bf52,
    0x9ddf_2f04_b529_202c,
    0x8b5e_3e37_c0e1_e055,
    0x8b5e_3e37_c0e1_e055,
    0xd48b_e20b_1adf_a723,
];
