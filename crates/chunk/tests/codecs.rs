//! What every codec promises: exact ones every bit, the others every element within its bound, and
//! none of them more than an error about bytes that are no code.

mod common;

use common::{Random, fp8_value, kv_like};
use half::bf16;
use proptest::prelude::*;
use saccade_chunk::codec::{self, Malformed, Scratch};
use saccade_chunk::rans::{self, Kernel};
use saccade_chunk::{Codec, Dtype, Geometry};

fn geometry(dtype: Dtype) -> Geometry {
    Geometry { num_layers: 3, kv_heads: 2, head_dim: 20, num_tokens: 37, dtype }
}

fn round_trip(codec: Codec, g: &Geometry, kv: &[u8]) -> (Vec<u8>, usize) {
    let (mut scratch, mut coded, mut back) = (Scratch::default(), Vec::new(), vec![0; kv.len()]);
    codec::encode(codec, g, kv, &mut scratch, &mut coded);
    assert_eq!(codec::decode(codec, g, &coded, &mut scratch, &mut back), Ok(()), "{codec:?}");
    (back, coded.len())
}

fn floats(dtype: Dtype, kv: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::Bf16 => kv.as_chunks().0.iter().map(|w| bf16::from_le_bytes(*w).to_f32()).collect(),
        Dtype::F16 => {
            kv.as_chunks().0.iter().map(|w| half::f16::from_le_bytes(*w).to_f32()).collect()
        }
        Dtype::F32 => kv.as_chunks().0.iter().map(|w| f32::from_le_bytes(*w)).collect(),
        Dtype::Fp8 => kv.iter().map(|code| fp8_value(*code)).collect(),
    }
}

const DTYPES: [Dtype; 4] = [Dtype::Bf16, Dtype::F16, Dtype::F32, Dtype::Fp8];

#[test]
fn exact_codecs_give_every_bit_back_whatever_it_means() {
    for dtype in DTYPES {
        let g = geometry(dtype);
        let mut random = Random::new(7);
        let noise: Vec<u8> = (0..g.bytes()).map(|_| random.next() as u8).collect();
        for kv in [noise, vec![0; g.bytes()], vec![0xff; g.bytes()], kv_like(&g, 1)] {
            for codec in Codec::ALL.into_iter().filter(|codec| codec.is_exact()) {
                let (back, length) = round_trip(codec, &g, &kv);
                assert_eq!(back, kv, "{codec:?} {dtype:?}");
                // The directory, a byte of each channel, and whether it is stored.
                let most = kv.len() + g.num_planes() * (8 + g.channels() + 1);
                assert!(length <= most, "{codec:?} {dtype:?}: {length} of {most}");
            }
        }
    }
}

#[test]
fn the_exact_codec_is_shorter_than_raw_on_what_kv_is_like() {
    let g =
        Geometry { num_layers: 2, kv_heads: 4, head_dim: 64, num_tokens: 256, dtype: Dtype::Bf16 };
    let kv = kv_like(&g, 3);
    let (_, length) = round_trip(Codec::Lossless, &g, &kv);
    assert!(kv.len() * 10 > length * 13, "{length} of {}", kv.len());
}

/// Half a level of the codec's scale, and half a unit in the last place of the result.
fn bound(codec: Codec, dtype: Dtype, largest: f32, result: f32) -> f32 {
    let level = match codec {
        Codec::Cachegen => largest / 7.0,
        _ => largest / 127.0 * (1.0 + 1.0 / 256.0),
    };
    let rounding = match dtype {
        Dtype::Bf16 => 1.0 / 256.0,
        Dtype::F16 => 1.0 / 2048.0,
        Dtype::F32 => 1e-6,
        Dtype::Fp8 => 1.0 / 16.0,
    };
    // Numbers of fp8 are no denser below 2^-6 than there.
    let least = if dtype == Dtype::Fp8 { 2f32.powi(-6) } else { 0.0 };
    let power = result.abs().log2().floor().exp2().max(least);
    0.5 * level + power * rounding + 1e-6 * largest + 1e-7
}

#[test]
fn fp8_stays_as_it_is_where_a_codec_has_8_bits() {
    let g = geometry(Dtype::Fp8);
    let every_code: Vec<u8> = (0..g.bytes()).map(|i| (i * 7) as u8).collect();
    for codec in [Codec::BinsDeflate, Codec::BinsZstd, Codec::BinsRans] {
        assert!(round_trip(codec, &g, &every_code).0 == every_code, "{codec:?}");
    }
    let g = Geometry { kv_heads: 4, head_dim: 64, num_tokens: 256, ..g };
    let kv = kv_like(&g, 3);
    let (_, length) = round_trip(Codec::Lossless, &g, &kv);
    assert!(kv.len() * 10 > length * 11, "{length} of {}", kv.len());
}

#[test]
fn quantised_elements_are_within_half_a_level() {
    for dtype in DTYPES {
        let g = geometry(dtype);
        let kv = kv_like(&g, 5);
        let want = floats(dtype, &kv);
        for codec in Codec::ALL.into_iter().filter(|codec| !codec.is_exact()) {
            let got = floats(dtype, &round_trip(codec, &g, &kv).0);
            let unit = if codec == Codec::Cachegen { g.channels() } else { g.head_dim };
            for (want, got) in want.chunks(unit).zip(got.chunks(unit)) {
                let largest = want.iter().fold(0f32, |m, x| m.max(x.abs()));
                for (x, y) in want.iter().zip(got) {
                    let bound = bound(codec, dtype, largest, *y);
                    assert!((x - y).abs() <= bound, "{codec:?} {dtype:?}: {x} {y} {bound}");
                }
            }
        }
    }
}

#[test]
fn zeros_nan_infinities_and_tiny_numbers_survive_quantising() {
    for dtype in [Dtype::Bf16, Dtype::F32] {
        let g = geometry(dtype);
        let mut kv = kv_like(&g, 9);
        let width = dtype.bytes();
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, f32::MIN_POSITIVE];
        for (i, x) in odd.iter().enumerate() {
            let at = (3 + 5 * i) * g.channels() * width;
            let bits = x.to_bits().to_le_bytes();
            kv[at..at + width].copy_from_slice(&bits[4 - width..]);
        }
        let zeros = 30 * g.channels() * width..31 * g.channels() * width;
        kv[zeros.clone()].fill(0);
        let want = floats(dtype, &kv);
        for codec in Codec::ALL.into_iter().filter(|codec| !codec.is_exact()) {
            let (back, _) = round_trip(codec, &g, &kv);
            assert_eq!(back[zeros.clone()], kv[zeros.clone()], "{codec:?}");
            for (x, y) in want.iter().zip(floats(dtype, &back)) {
                assert_eq!(x.is_nan(), y.is_nan(), "{codec:?}");
                if x.is_infinite() {
                    assert_eq!(*x, y, "{codec:?}");
                }
            }
        }
    }
}

/// Each plane: what is aside, then what is coded.
fn chunk(planes: [(&[u8], &[u8]); 2]) -> Vec<u8> {
    let lengths = planes.iter().flat_map(|(aside, coded)| [aside.len(), coded.len()]);
    let directory = lengths.flat_map(|n| (n as u32).to_le_bytes());
    directory.chain(planes.iter().flat_map(|(a, c)| [*a, *c].concat())).collect()
}

#[test]
fn parts_of_another_length_are_refused() {
    let dtype = Dtype::Bf16;
    let g = Geometry { num_layers: 1, kv_heads: 1, head_dim: 4, num_tokens: 2, dtype };
    let decode = |codec, bytes: &[u8]| {
        codec::decode(codec, &g, bytes, &mut Scratch::default(), &mut vec![0; g.bytes()])
    };
    // Aside: the largest top byte of each channel, then low bytes. Stored: top bytes.
    let (aside, coded) = ([0; 12], [0; 9]);
    let right: (&[u8], &[u8]) = (&aside, &coded);
    let whole = chunk([right, right]);
    assert_eq!(decode(Codec::Lossless, &whole), Ok(()));
    assert_eq!(decode(Codec::Lossless, &[&whole[..], &[0]].concat()), Err(Malformed::Directory));
    for length in [3, 11, 13] {
        let bytes = chunk([right, (&[0; 13][..length], &coded)]);
        assert_eq!(decode(Codec::Lossless, &bytes), Err(Malformed::Aside { plane: 1 }));
    }
    for length in [0, 8, 10] {
        let bytes = chunk([right, (&aside, &[0; 10][..length])]);
        let refused = decode(Codec::Lossless, &bytes);
        assert!(matches!(refused, Err(Malformed::Coded { plane: 1, .. })), "{length}: {refused:?}");
    }
    // Deflate streams of 2, 2, 2 and 1 bytes where there are 8 elements.
    let lengths: &[u8] = &[1, 7, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0];
    let two: &[u8] = &[1, 2, 0, 0xfd, 0xff, 0, 0];
    let short = [lengths, two, two, two, &[1, 1, 0, 0xfe, 0xff, 0]].concat();
    let reason = "fewer bytes than the plane has";
    let refused = decode(Codec::BinsDeflate, &chunk([(&[0; 4], &short), (&[0; 4], &coded)]));
    assert_eq!(refused, Err(Malformed::Coded { plane: 0, reason }));
}

#[test]
fn numbers_at_the_ends_of_a_dtype_survive_quantising() {
    for dtype in DTYPES {
        let g = geometry(dtype);
        let width = dtype.bytes();
        let token = g.channels() * width;
        let mut kv = kv_like(&g, 9);
        let (largest, tiny): (&[u8], &[u8]) = match dtype {
            Dtype::Bf16 => (&[0x7f, 0x7f], &[1, 0]),
            Dtype::F16 => (&[0xff, 0x7b], &[1, 0]),
            Dtype::F32 => (&[0xff, 0xff, 0x7f, 0x7f], &[1, 0, 0, 0]),
            Dtype::Fp8 => (&[0x7e], &[1]),
        };
        kv[3 * token..4 * token].copy_from_slice(&largest.repeat(g.channels()));
        kv[5 * token..6 * token].copy_from_slice(&tiny.repeat(g.channels()));
        for codec in Codec::ALL {
            let (back, _) = round_trip(codec, &g, &kv);
            let want = &floats(dtype, &kv)[3 * g.channels()..4 * g.channels()];
            let got = &floats(dtype, &back)[3 * g.channels()..4 * g.channels()];
            for (x, y) in want.iter().zip(got) {
                assert!((x - y).abs() <= x / 256.0, "{codec:?} {dtype:?}: {x} {y}");
            }
            assert_eq!(back[5 * token..6 * token], kv[5 * token..6 * token], "{codec:?} {dtype:?}");
        }
    }
}

#[test]
fn a_rans_stream_says_what_is_wrong_with_it() {
    // Behind the bitmap two frequencies, of 5 and of 6; behind them the states.
    const STATES: usize = 32 + 2 * 2;
    let mut code = Vec::new();
    rans::encode(&[5; 10], &mut code);
    let reason = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = code.clone();
        change(&mut changed);
        let reasons: Vec<_> = Kernel::available()
            .into_iter()
            .map(|kernel| rans::decode_with(kernel, &changed, &mut [0; 10]))
            .map(|done| done.map_or_else(|malformed| malformed.reason(), |()| "nothing"))
            .collect();
        assert!(reasons.iter().all(|reason| *reason == reasons[0]), "{reasons:?}");
        reasons[0]
    };
    assert_eq!(reason(&|_| ()), "nothing");
    assert_eq!(reason(&|code| code[32] -= 1), "the frequencies do not add up");
    assert_eq!(reason(&|code| code[34] = 0), "a frequency is out of bounds");
    assert_eq!(reason(&|code| code[STATES + 3] = 0x80), "a state is out of bounds");
    assert_eq!(reason(&|code| code[STATES + 4 * 60 + 1] = 0), "a state is out of bounds");
    assert_eq!(reason(&|code| code[STATES + 4 * 60] += 1), "its states do not end as they began");
    assert_eq!(reason(&|code| code.push(0)), "words are left");
    assert_eq!(reason(&|code| code.truncate(STATES + 9)), "it ends within the states");
    assert_eq!(reason(&|code| code.truncate(33)), "it ends within the frequencies");
}

#[test]
fn codecs_have_the_names_that_they_parse() {
    for codec in Codec::ALL {
        assert_eq!(codec.name().parse(), Ok(codec));
    }
    let error = "gzip".parse::<Codec>().unwrap_err();
    assert!(error.contains("gzip") && error.contains("bins-deflate"), "{error}");
}

/// Symbols with few or many values, of any length.
fn symbols() -> impl Strategy<Value = Vec<u8>> {
    (0u8..=255, 0usize..3000, any::<u64>()).prop_map(|(spread, length, seed)| {
        let mut random = Random::new(seed);
        let mut symbol = || {
            let (a, b) = (random.next(), random.next());
            ((a % (u64::from(spread) + 1)) & (b | 1)) as u8
        };
        (0..length).map(|_| symbol()).collect()
    })
}

proptest! {
    #[test]
    fn rans_gives_the_symbols_back_on_every_instruction_set(symbols in symbols()) {
        let mut code = Vec::new();
        rans::encode_with(Kernel::Portable, &symbols, &mut code);
        for kernel in Kernel::available() {
            let mut same = Vec::new();
            rans::encode_with(kernel, &symbols, &mut same);
            prop_assert_eq!(&same, &code);
            let mut back = vec![0; symbols.len()];
            rans::decode_with(kernel, &code, &mut back).unwrap();
            prop_assert_eq!(&back, &symbols);
        }
    }

    /// And all sets say the same of it.
    #[test]
    fn a_damaged_rans_stream_is_an_error_or_other_symbols(
        symbols in symbols(), at in any::<prop::sample::Index>(), flip in 1u8..=255,
        cut in 0usize..9,
    ) {
        let mut code = Vec::new();
        rans::encode(&symbols, &mut code);
        let at = at.index(code.len());
        code[at] ^= flip;
        code.truncate(code.len() - cut);
        let mut outcomes: Vec<(bool, Vec<u8>)> = Vec::new();
        for kernel in Kernel::available() {
            let mut back = vec![0; symbols.len()];
            let done = rans::decode_with(kernel, &code, &mut back);
            outcomes.push((done.is_ok(), if done.is_ok() { back } else { Vec::new() }));
        }
        prop_assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn damaged_code_is_an_error_or_other_numbers(
        codec in prop::sample::select(Codec::ALL.to_vec()), at in any::<prop::sample::Index>(),
        flip in 1u8..=255, cut in 0usize..40,
    ) {
        let dtype = Dtype::Bf16;
        let g = Geometry { num_layers: 1, kv_heads: 1, head_dim: 8, num_tokens: 9, dtype };
        let (mut scratch, mut coded) = (Scratch::default(), Vec::new());
        codec::encode(codec, &g, &kv_like(&g, 2), &mut scratch, &mut coded);
        let at = at.index(coded.len());
        coded[at] ^= flip;
        coded.truncate(coded.len() - cut);
        let mut back = vec![0; g.bytes()];
        let done = codec::decode(codec, &g, &coded, &mut scratch, &mut back);
        prop_assert!(cut == 0 || done.is_err());
    }
}

#[test]
fn a_plane_says_what_is_wrong_with_it() {
    let g = geometry(Dtype::Bf16);
    let (mut scratch, mut coded) = (Scratch::default(), Vec::new());
    codec::encode(Codec::Lossless, &g, &kv_like(&g, 2), &mut scratch, &mut coded);
    let mut back = vec![0; g.bytes()];
    let mut decode =
        |bytes: &[u8]| codec::decode(Codec::Lossless, &g, bytes, &mut scratch, &mut back);
    assert_eq!(decode(&coded[..40]), Err(Malformed::Directory));
    assert_eq!(decode(&coded[..coded.len() - 1]), Err(Malformed::Directory));
    // The first byte of what is coded, of the first plane.
    let aside = u32::from_le_bytes(*coded.first_chunk().unwrap()) as usize;
    coded[8 * g.num_planes() + aside] = 9;
    assert!(matches!(decode(&coded), Err(Malformed::Coded { plane: 0, .. })));
}
