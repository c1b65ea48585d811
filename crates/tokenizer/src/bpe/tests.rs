//! Every way to merge gives what merging by the definition gives.

use super::pieces::{Key, hash_long};
use super::*;
use crate::simd::{Level, Scalar};

/// The definition: merge the pair of the lowest rank, the leftmost first.
fn by_definition(bpe: &Bpe, piece: &[u8]) -> Vec<u32> {
    let mut ids: Vec<u32> = match bpe.symbolism {
        Symbolism::Bytes => piece.iter().map(|&b| bpe.byte_ids[b as usize]).collect(),
        Symbolism::Chars => Symbols::new(bpe, piece, 0).map(|(id, _)| id).collect(),
    };
    loop {
        let ranks = ids.windows(2).map(|p| bpe.pairs.rank(p[0], p[1]));
        let best = ranks.enumerate().min_by_key(|&(at, rank)| (rank, at));
        match best.filter(|&(_, rank)| rank != pairs::NO_RANK) {
            Some((at, rank)) => {
                ids[at] = bpe.merged(rank);
                ids.remove(at + 1);
            }
            None => return ids,
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// A vocabulary of random merges over few symbols: nothing about it is as in a trained one.
fn random_vocabulary(random: &mut Random, alphabet: &[u8], merges: usize) -> Vocabulary {
    let mut byte_ids = [0; 256];
    (0..256).for_each(|b| byte_ids[b] = b as u32);
    let mut pieces: Vec<(u32, Vec<u8>)> = (0..=255u8).map(|b| (u32::from(b), vec![b])).collect();
    let mut usable: Vec<usize> = alphabet.iter().map(|&b| usize::from(b)).collect();
    let mut list: Vec<Merge> = Vec::new();
    while list.len() < merges {
        let left = usable[random.below(usable.len() as u64) as usize];
        let right = usable[random.below(usable.len() as u64) as usize];
        let joined = [pieces[left].1.as_slice(), &pieces[right].1].concat();
        if joined.len() > 12 {
            continue;
        }
        let merged = pieces.iter().position(|(_, p)| *p == joined).unwrap_or_else(|| {
            pieces.push((pieces.len() as u32, joined));
            usable.push(pieces.len() - 1);
            pieces.len() - 1
        });
        let [left, right, merged] = [left, right, merged].map(|id| id as u32);
        list.push(Merge { left, right, merged, rank: list.len() as u32 });
    }
    // Ranks in any order: a merge can come before the merges that make its parts.
    for at in (1..list.len()).rev() {
        let other = random.below(at as u64 + 1) as usize;
        let rank = list[at].rank;
        list[at].rank = list[other].rank;
        list[other].rank = rank;
    }
    list.sort_by_key(|m| m.rank);
    Vocabulary { symbolism: Symbolism::Bytes, pieces, byte_ids, merges: list, ignore_merges: false }
}

fn encode(bpe: &Bpe, piece: &[u8]) -> Vec<u32> {
    let mut out = Vec::new();
    let mut room = Room::default();
    let hash = match piece.len() {
        ..=INLINE => Key::load(piece, 0, piece.len()).hash(),
        _ => hash_long(piece),
    };
    let part = Part { text: piece, start: 0, end: piece.len(), hash };
    // SAFETY: portable code, or a level that the machine has.
    unsafe {
        match Level::best() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                bpe.encode_other::<crate::simd::Avx2>(part, &mut room, &mut out);
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                bpe.encode_other::<crate::simd::Avx512>(part, &mut room, &mut out);
            }
            #[cfg(target_arch = "aarch64")]
            Level::Neon => {
                bpe.encode_other::<crate::simd::Neon>(part, &mut room, &mut out);
            }
            Level::Scalar => {
                bpe.encode_other::<Scalar>(part, &mut room, &mut out);
            }
        }
    }
    out
}

fn all_agree(seed: u64, alphabet: &[u8], units: &[&str]) {
    let mut random = Random(seed);
    let rounds = if cfg!(debug_assertions) { 8 } else { 60 };
    for round in 0..rounds {
        let merges = 5 + random.below(80) as usize;
        let vocabulary = random_vocabulary(&mut random, alphabet, merges);
        let bpe = Bpe::new(&vocabulary).unwrap();
        for length in [1, 2, 5, 13, 29, 30, 31, 32, 40, 200, 257, 600, 1500] {
            let text: String =
                (0..length).map(|_| units[random.below(units.len() as u64) as usize]).collect();
            let expected = by_definition(&bpe, text.as_bytes());
            let origin = format!("seed {seed}, round {round}: {text}");
            assert_eq!(encode(&bpe, text.as_bytes()), expected, "{origin}");
            assert_eq!(long::by_heap(&bpe, text.as_bytes()), expected, "heap, {origin}");
        }
    }
}

#[test]
fn windows_and_heap_agree_with_the_definition() {
    all_agree(1, b"ab", &["a", "b"]);
    all_agree(2, b"abc", &["a", "b", "c"]);
    all_agree(3, b"a", &["a"]);
    all_agree(4, b"abcdefgh", &["a", "bb", "cde", "abcdefgh", "h", "g"]);
}

/// Adds the token of `left` and `right`, which are tokens; its merge comes last.
fn join(vocabulary: &mut Vocabulary, left: &[u8], right: &[u8]) {
    let id = |part| vocabulary.pieces.iter().position(|(_, piece)| *piece == part).unwrap() as u32;
    let (left, right, piece) = (id(left.to_vec()), id(right.to_vec()), [left, right].concat());
    let (merged, rank) = (vocabulary.pieces.len() as u32, vocabulary.merges.len() as u32);
    vocabulary.pieces.push((merged, piece));
    vocabulary.merges.push(Merge { left, right, merged, rank });
}

/// Adds runs of `a` as long as 2, 4, 8 and so on.
fn join_runs(vocabulary: &mut Vocabulary, longest: usize) {
    let mut part = vec![b'a'];
    while part.len() < longest {
        join(vocabulary, &part, &part);
        part = part.repeat(2);
    }
}

/// Like a million `=` with GPT-2's vocabulary, where the first ones belong to a space.
#[test]
fn windows_join_in_runs_of_one_character() {
    for longest in [16, 32, 64, 128, 256] {
        let mut vocabulary = random_vocabulary(&mut Random(9), b"xyz", 12);
        join(&mut vocabulary, b"q", b"a");
        join_runs(&mut vocabulary, longest);
        join(&mut vocabulary, b"qa", &b"a".repeat(longest));
        join(&mut vocabulary, &b"a".repeat(longest / 8), &b"a".repeat(longest / 16));
        let bpe = Bpe::new(&vocabulary).unwrap();
        for count in [1000, 20_001, 100_000] {
            for text in ["q", "", "x"].map(|first| format!("{first}{}", "a".repeat(count))) {
                let expected = long::by_heap(&bpe, text.as_bytes());
                assert_eq!(long::by_windows(&bpe, text.as_bytes()), Some(expected), "{longest}");
            }
        }
    }
}

/// Tokens as long as whole windows, as vocabularies have them for spaces.
#[test]
fn tokens_longer_than_a_window_come_to_an_end() {
    let mut random = Random(8);
    for longest in [64, 128, 1024] {
        let mut vocabulary = random_vocabulary(&mut random, b"xyz", 12);
        join_runs(&mut vocabulary, longest);
        let bpe = Bpe::new(&vocabulary).unwrap();
        for count in [100, 300, 5000, 20_000] {
            let run = "a".repeat(count);
            for text in [run.clone(), format!("x{run}y"), format!("{run}xyz{run}zz{run}")] {
                let expected = long::by_heap(&bpe, text.as_bytes());
                assert_eq!(encode(&bpe, text.as_bytes()), expected, "{longest}, {count}");
            }
        }
    }
}

/// The windows of a long piece agree, and are given out, until windows of all sizes do not.
#[test]
fn a_piece_whose_windows_stop_to_join_is_encoded_anew() {
    let mut random = Random(10);
    let mut vocabulary = random_vocabulary(&mut random, b"xyz", 12);
    join_runs(&mut vocabulary, 1 << 14);
    let bpe = Bpe::new(&vocabulary).unwrap();
    let letters = (0..100_000).map(|_| char::from(b'x' + random.below(3) as u8));
    let text = letters.collect::<String>() + &"a".repeat(50_000);
    assert_eq!(long::by_windows(&bpe, text.as_bytes()), None);
    assert_eq!(encode(&bpe, text.as_bytes()), long::by_heap(&bpe, text.as_bytes()));
}

#[test]
fn characters_that_close_first_agree_with_the_definition() {
    let units = ["é", "è", "ê", "à", "a", " ", "中", "丯", "串"];
    let mut alphabet: Vec<u8> = units.concat().into_bytes();
    alphabet.sort_unstable();
    alphabet.dedup();
    all_agree(5, &alphabet, &units);
    all_agree(6, &[0xc3, 0xa9, 0xa8], &["é", "è"]);
}

#[test]
fn bounds_are_checked() {
    let mut random = Random(7);
    let mut vocabulary = random_vocabulary(&mut random, b"ab", 3);
    vocabulary.pieces.push((1 << 20, b"x".to_vec()));
    assert_eq!(Bpe::new(&vocabulary).err(), Some(BuildError::Id(1 << 20)));
    vocabulary.pieces.pop();
    vocabulary.merges[2].rank = 1 << 24;
    assert_eq!(Bpe::new(&vocabulary).err(), Some(BuildError::Rank(1 << 24)));
}
