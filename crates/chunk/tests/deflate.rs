//! Deflate: what is written here, libdeflate reads; what libdeflate writes, in any way that it can,
//! is read here; and of damaged streams both say the same.

mod common;

use common::Random;
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use proptest::prelude::*;
use saccade_chunk::deflate::{self, Memory, STREAMS};

/// What a plane may be like.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Quantised KV: normal, around zero.
    Bins,
    /// Every byte is as frequent as the others.
    Noise,
    /// Each value is half as frequent as the one before it: the longest codes there are.
    Halves,
    Zeros,
    /// Every fourth vector of 64 is zeros.
    ZeroVectors,
    /// The same 100 bytes again and again.
    Periodic,
    /// Ascending words, as a text's.
    Words,
}

const KINDS: [Kind; 7] = [
    Kind::Bins,
    Kind::Noise,
    Kind::Halves,
    Kind::Zeros,
    Kind::ZeroVectors,
    Kind::Periodic,
    Kind::Words,
];

fn make(kind: Kind, length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bin = |_| (20.0 * random.normal()).round().clamp(-127.0, 127.0) as i8 as u8;
    let period: Vec<u8> = (0..100).map(&mut bin).collect();
    let mut random = Random::new(!seed);
    let at = |i: usize| match kind {
        Kind::Bins => bin(i),
        Kind::Zeros => 0,
        Kind::ZeroVectors if (i / 64).is_multiple_of(4) => 0,
        Kind::ZeroVectors => bin(i),
        Kind::Periodic => period[i % period.len()],
        Kind::Words => ((i / 7) >> (i % 7)) as u8,
        Kind::Noise => random.next() as u8,
        Kind::Halves => random.next().leading_zeros() as u8,
    };
    (0..length).map(at).collect()
}

const LENGTHS: [usize; 16] =
    [0, 1, 2, 3, 4, 5, 7, 63, 1023, 1024, 1025, 1026, 1027, 4099, 49_152, 70_001];

fn coded(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![9];
    deflate::encode(bytes, &mut Memory::default(), &mut out).expect("libdeflate codes anything");
    assert_eq!(out.remove(0), 9, "it appends");
    out
}

/// As a code has them.
fn framed(streams: &[Vec<u8>]) -> Vec<u8> {
    let lengths = streams[..STREAMS - 1].iter().flat_map(|s| (s.len() as u32).to_le_bytes());
    lengths.chain(streams.concat()).collect()
}

fn by_libdeflate(piece: &[u8], level: i32) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(level).expect("a level"));
    let mut out = vec![0; compressor.deflate_compress_bound(piece.len())];
    let length = compressor.deflate_compress(piece, &mut out).expect("there is room");
    out.truncate(length);
    out
}

fn decoded(code: &[u8], length: usize) -> Result<Vec<u8>, &'static str> {
    let mut out = vec![0xa5; length];
    deflate::decode(code, &mut Memory::default(), &mut out).map(|()| out)
}

fn in_turns(code: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = vec![0xa5; length];
    let streams = deflate::streams(code)?;
    deflate::decode_in_turns(streams, &mut Memory::default(), &mut out).then_some(out)
}

fn one_by_one(code: &[u8], length: usize) -> Result<Vec<u8>, &'static str> {
    let mut out = vec![0xa5; length];
    let streams = deflate::streams(code).ok_or("it ends within its streams")?;
    deflate::decode_one_by_one(streams, &mut Memory::default(), &mut out).map(|()| out)
}

#[test]
fn every_stream_is_deflate_of_its_piece() {
    for (kind, length) in KINDS.into_iter().flat_map(|kind| LENGTHS.map(|length| (kind, length))) {
        let bytes = make(kind, length, 1);
        let code = coded(&bytes);
        let pieces = deflate::pieces(&bytes);
        assert_eq!(pieces.concat(), bytes);
        for (stream, piece) in deflate::streams(&code).unwrap().into_iter().zip(pieces) {
            let mut back = vec![0; piece.len()];
            let read = Decompressor::new().deflate_decompress(stream, &mut back);
            assert_eq!(read, Ok(piece.len()), "{kind:?}, {length}");
            assert!(back == piece, "{kind:?}, {length}");
        }
        assert!(decoded(&code, length).as_ref() == Ok(&bytes), "{kind:?}, {length}");
    }
}

#[test]
fn what_has_no_repetitions_is_decoded_in_turns() {
    for kind in [Kind::Bins, Kind::Noise] {
        for length in LENGTHS.into_iter().filter(|length| *length >= 1024) {
            let bytes = make(kind, length, 2);
            assert!(in_turns(&coded(&bytes), length) == Some(bytes), "{kind:?}, {length}");
        }
    }
}

#[test]
fn codes_are_as_short_as_libdeflates() {
    // In hundredths of the bytes: four headers, and a code that is 11 bits long at most.
    for (kind, more) in [
        (Kind::Bins, 1),
        (Kind::Noise, 1),
        (Kind::Halves, 1),
        (Kind::Zeros, 1),
        (Kind::ZeroVectors, 1),
        (Kind::Periodic, 2),
    ] {
        let bytes = make(kind, 49_152, 3);
        let (ours, whole) = (coded(&bytes).len(), by_libdeflate(&bytes, 1).len());
        assert!(100 * ours <= 100 * whole + more * bytes.len(), "{kind:?}: {ours} and {whole}");
    }
}

#[test]
fn streams_of_libdeflate_are_read_whatever_their_blocks_are() {
    let mut num_in_turns = 0;
    for (kind, length) in KINDS.into_iter().flat_map(|kind| LENGTHS.map(|length| (kind, length))) {
        for level in 0..=12 {
            let bytes = make(kind, length, 4);
            let streams = deflate::pieces(&bytes).map(|piece| by_libdeflate(piece, level));
            let code = framed(&streams);
            assert!(decoded(&code, length).as_ref() == Ok(&bytes), "{kind:?} {length} {level}");
            // The same piece in all streams: they have the same code.
            let same = framed(&[
                streams[0].clone(),
                streams[0].clone(),
                streams[0].clone(),
                streams[0].clone(),
            ]);
            let piece = deflate::pieces(&bytes)[0];
            let bytes = piece.repeat(STREAMS);
            assert!(
                decoded(&same, bytes.len()).as_ref() == Ok(&bytes),
                "{kind:?} {length} {level}"
            );
            num_in_turns += usize::from(in_turns(&same, bytes.len()).is_some());
        }
    }
    assert!(num_in_turns > 0, "libdeflate writes blocks of literals too");
}

#[test]
fn memory_is_used_again() {
    let mut memory = Memory::default();
    for seed in 0..3 {
        for kind in KINDS {
            let bytes = make(kind, 3000 + seed as usize, seed);
            let (mut code, mut back) = (Vec::new(), vec![0; bytes.len()]);
            deflate::encode(&bytes, &mut memory, &mut code).unwrap();
            assert_eq!(code, coded(&bytes), "{kind:?}");
            deflate::decode(&code, &mut memory, &mut back).unwrap();
            assert!(back == bytes, "{kind:?}");
        }
    }
}

#[test]
fn a_code_of_another_length_is_refused() {
    let bytes = make(Kind::Bins, 4096, 5);
    let code = coded(&bytes);
    for length in [0, 1, 4000, 4092, 4095, 4097, 4100, 8192] {
        let refused = decoded(&code, length);
        assert!(refused.is_err(), "{length}");
        assert_eq!(refused, one_by_one(&code, length), "{length}");
    }
    for length in 0..code.len() {
        assert!(decoded(&code[..length], bytes.len()).is_err(), "{length}");
    }
    assert_eq!(decoded(&code[..11], 4096), Err("it ends within its streams"));
    assert_eq!(decoded(&code, 8192), Err("fewer bytes than the plane has"));
}

/// Of one stream the last bytes are cut off, or of all of them all but the first.
#[test]
fn a_stream_that_ends_early_is_what_libdeflate_says() {
    let bytes = make(Kind::Bins, 4096, 6);
    let code = coded(&bytes);
    let whole = deflate::streams(&code).unwrap();
    let ends_early = |streams: [&[u8]; STREAMS]| {
        let cut = framed(&streams.map(<[u8]>::to_vec));
        assert!(in_turns(&cut, bytes.len()).is_none());
        assert!(decoded(&cut, bytes.len()).is_err());
        assert_eq!(decoded(&cut, bytes.len()), one_by_one(&cut, bytes.len()));
    };
    for (stream, cut) in (0..STREAMS).flat_map(|stream| (1..12).map(move |cut| (stream, cut))) {
        let mut streams = whole;
        streams[stream] = &whole[stream][..whole[stream].len() - cut];
        ends_early(streams);
    }
    for left in 0..200 {
        ends_early(whole.map(|stream| &stream[..left]));
        ends_early([whole[0], whole[1], whole[2], &whole[3][..left]]);
    }
}

/// A change of one bit of each header, and of what is behind them all.
#[test]
fn a_header_with_another_bit_is_what_libdeflate_says() {
    let bytes = make(Kind::Bins, 1200, 7);
    let code = coded(&bytes);
    let mut num_in_turns = 0;
    for bit in 0..8 * code.len() {
        let mut other = code.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        num_in_turns += usize::from(same_by_both(&other, bytes.len()));
    }
    // The same bit of all four headers: they still begin alike.
    let streams = deflate::streams(&code).unwrap();
    for bit in 0..8 * 120 {
        let flip = |stream: &[u8]| {
            let mut stream = stream.to_vec();
            stream[bit / 8] ^= 1 << (bit % 8);
            stream
        };
        num_in_turns += usize::from(same_by_both(&framed(&streams.map(flip)), bytes.len()));
    }
    assert!(num_in_turns > 0, "other literals of the same length are no damage to a decoder");
}

/// Bytes of a header whose last bit is in the last one.
const HEADER_BYTES: usize = 14;

/// A block of `a`, which is `10`, whose end is `0`: zeros behind the last byte would be one. The
/// last bits of its header are zeros too. `more` bytes follow.
fn by_hand(num_literals: usize, more: usize) -> Vec<u8> {
    let mut bits = Vec::new();
    let mut put = |number: usize, count: usize| bits.extend((0..count).map(|i| number >> i & 1));
    put(0b101, 3);
    put(0, 5);
    put(1, 5);
    put(18 - 4, 4);
    // Of the lengths: many zeros are `11`, 2 is `10`, and 1 is `0`.
    for length in [0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1] {
        put(length, 3);
    }
    let zeros = |count: usize| 0b11 | (count - 11) << 2;
    put(zeros(97), 9);
    put(0b01 | 0b01 << 2, 4); // a, b
    put(zeros(138), 9);
    put(zeros(19), 9);
    put(0, 3); // the end, two distances
    (0..num_literals).for_each(|_| put(0b01, 2));
    put(0, 1);
    let byte = |bits: &[usize]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit) as u8;
    let mut stream: Vec<u8> = bits.chunks(8).map(byte).collect();
    stream.resize(stream.len() + more, 0);
    stream
}

#[test]
fn the_end_of_a_block_is_where_it_is_and_within_the_stream() {
    for literals in 0..70 {
        let stream = by_hand(literals, 0);
        let length = STREAMS * literals;
        let same = |stream: &[u8]| framed(&[(); STREAMS].map(|()| stream.to_vec()));
        assert_eq!(in_turns(&same(&stream), length), Some(vec![b'a'; length]), "{literals}");
        assert!(same_by_both(&same(&stream), length));
        assert!(!same_by_both(&same(&stream[..stream.len() - 1]), length), "{literals}");
        // The end comes before the pieces are full, and whole words follow.
        let more = by_hand(literals, 100);
        assert!(same_by_both(&same(&more), length));
        for further in 1..20 {
            assert!(!same_by_both(&same(&more), length + STREAMS * further), "{literals}");
        }
    }
}

#[test]
fn a_header_is_within_its_stream() {
    let stream = by_hand(20, 0);
    assert_eq!(stream[HEADER_BYTES - 1] & 1, 0);
    let cut = stream[..HEADER_BYTES - 1].to_vec();
    for at in 0..STREAMS {
        let mut streams = [(); STREAMS].map(|()| stream.clone());
        streams[at] = cut.clone();
        assert!(!same_by_both(&framed(&streams), STREAMS * 20), "{at}");
    }
}

/// Whether it was decoded in turns; then libdeflate gives the same. Else it alone decides.
fn same_by_both(code: &[u8], length: usize) -> bool {
    let (turns, one) = (in_turns(code, length), one_by_one(code, length));
    assert!(decoded(code, length) == one);
    assert!(turns.is_none() || turns.as_ref() == one.as_ref().ok());
    turns.is_some()
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (prop::sample::select(KINDS.to_vec()), 0usize..6000, any::<u64>())
        .prop_map(|(kind, length, seed)| make(kind, length, seed))
}

/// Literals with any frequencies.
fn literals() -> impl Strategy<Value = Vec<u8>> {
    (2u64..=256, 0u32..6, 1100usize..5000, any::<u64>()).prop_map(|(values, skew, length, seed)| {
        let mut random = Random::new(seed);
        let mut value = || (0..=skew).fold(u64::MAX, |m, _| m.min(random.next() % values)) as u8;
        (0..length).map(|_| value()).collect()
    })
}

proptest! {
    #[test]
    fn bytes_come_back(bytes in prop_oneof![bytes(), literals()]) {
        let code = coded(&bytes);
        prop_assert_eq!(decoded(&code, bytes.len()), Ok(bytes.clone()));
        prop_assert_eq!(one_by_one(&code, bytes.len()), Ok(bytes));
    }

    #[test]
    fn damage_is_what_libdeflate_says(
        bytes in prop_oneof![bytes(), literals()],
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        near in prop::bool::ANY, cut in 0usize..20,
    ) {
        let mut code = coded(&bytes);
        let within = if near { code.len().min(100) } else { code.len() };
        for (at, change) in changes {
            code[at.index(within)] ^= change;
        }
        code.truncate(code.len() - cut.min(code.len()));
        same_by_both(&code, bytes.len());
    }

    /// Streams are as long as they like; the bytes of none are another's.
    #[test]
    fn any_bytes_are_no_more_than_an_error(
        code in prop::collection::vec(any::<u8>(), 0..400), length in 0usize..3000,
    ) {
        same_by_both(&code, length);
        let quarters = framed(&deflate::pieces(&code).map(<[u8]>::to_vec));
        same_by_both(&quarters, length);
        same_by_both(&framed(&vec![code; STREAMS]), length);
    }
}
