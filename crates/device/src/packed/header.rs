//! The header of a packed-weights file. It tells the reader nothing new: it is compared with what
//! the device and the model need, and any difference rejects the file.

use std::ops::Range;

use twox_hash::XxHash3_64;

/// Bump when this file format changes. What the weight bytes mean is the device's `layout`, which
/// is part of the key.
pub(super) const FORMAT_VERSION: u64 = 1;
/// Payload bytes per checksum.
pub(super) const CHUNK_BYTES: u64 = 8 << 20;
/// The payload begins and the file ends at a multiple of this, so that pages can be mapped.
pub(super) const PAGE_BYTES: u64 = 4096;

const MAGIC: [u8; 8] = *b"SACPACKW";
/// In native byte order: a machine of the other order reads it backwards.
const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
/// Before the checksums of the chunks: magic, then eight numbers of 8 bytes.
const FIXED_BYTES: usize = 72;
/// Where the header's own checksum is; it covers everything before and after it.
const CHECKSUM: Range<usize> = 64..72;

/// Which packed weights: a 128-bit hash of everything that their bytes depend on.
pub(super) type Key = u128;

/// What a file must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub key: Key,
    /// Bytes of the device's packed weights.
    pub payload_bytes: u64,
}

impl Wanted {
    pub fn num_chunks(&self) -> usize {
        self.payload_bytes.div_ceil(CHUNK_BYTES) as usize
    }

    pub fn header_bytes(&self) -> u64 {
        (FIXED_BYTES as u64 + 8 * self.num_chunks() as u64).next_multiple_of(PAGE_BYTES)
    }

    pub fn file_bytes(&self) -> u64 {
        self.header_bytes() + self.payload_bytes
    }

    /// Where a chunk is in the file.
    pub fn chunk(&self, index: usize) -> Range<usize> {
        let start = index as u64 * CHUNK_BYTES;
        let end = self.payload_bytes.min(start + CHUNK_BYTES);
        (self.header_bytes() + start) as usize..(self.header_bytes() + end) as usize
    }
}

/// A header with the checksums of all chunks.
pub(super) fn encode(wanted: &Wanted, checksums: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(wanted.header_bytes() as usize);
    bytes.extend(MAGIC);
    bytes.extend(BYTE_ORDER.to_ne_bytes());
    bytes.extend(FORMAT_VERSION.to_ne_bytes());
    bytes.extend(wanted.key.to_ne_bytes());
    for number in [wanted.payload_bytes, CHUNK_BYTES, checksums.len() as u64, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(checksums.iter().flat_map(|sum| sum.to_ne_bytes()));
    bytes.resize(wanted.header_bytes() as usize, 0);
    let sum = own_checksum(&bytes);
    bytes[CHECKSUM].copy_from_slice(&sum.to_ne_bytes());
    bytes
}

/// Checks the header of a file of `file_bytes`, which starts with `bytes`, against what is wanted;
/// returns the checksums of the chunks, or why the file cannot be used.
pub(super) fn parse(bytes: &[u8], file_bytes: u64, wanted: &Wanted) -> Result<Vec<u64>, String> {
    if file_bytes != wanted.file_bytes() {
        return Err(format!("has {file_bytes} bytes, expected {}", wanted.file_bytes()));
    }
    let header = bytes.get(..wanted.header_bytes() as usize).ok_or("is shorter than its header")?;
    if header[..8] != MAGIC {
        return Err("does not begin as a file of packed weights does".into());
    }
    if number(header, 8) == BYTE_ORDER.swap_bytes() {
        return Err("was written on a machine of the other byte order".into());
    }
    expect("format version", number(header, 16), FORMAT_VERSION)?;
    if number(header, CHECKSUM.start) != own_checksum(header) {
        return Err("has a header with a wrong checksum".into());
    }
    expect("byte order", number(header, 8), BYTE_ORDER)?;
    if header[24..40] != wanted.key.to_ne_bytes() {
        return Err("is of another model or another layout (its key differs)".into());
    }
    expect("payload bytes", number(header, 40), wanted.payload_bytes)?;
    expect("chunk bytes", number(header, 48), CHUNK_BYTES)?;
    expect("number of chunks", number(header, 56), wanted.num_chunks() as u64)?;
    // The table lies within the header: header_bytes() counts it.
    Ok((0..wanted.num_chunks()).map(|i| number(header, FIXED_BYTES + 8 * i)).collect())
}

fn expect(field: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("has {field} {found}, expected {expected}"))
}

/// `at` is within the fixed part or the table.
fn number(header: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

fn own_checksum(header: &[u8]) -> u64 {
    let before = XxHash3_64::oneshot(&header[..CHECKSUM.start]);
    XxHash3_64::oneshot_with_seed(before, &header[CHECKSUM.end..])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WANTED: Wanted =
        Wanted { key: 0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00, payload_bytes: 5 * CHUNK_BYTES };

    fn good() -> Vec<u8> {
        encode(&WANTED, &[1, 2, 3, 4, 5])
    }

    fn with_checksum(mut header: Vec<u8>) -> Vec<u8> {
        let sum = own_checksum(&header);
        header[CHECKSUM].copy_from_slice(&sum.to_ne_bytes());
        header
    }

    fn refused(header: &[u8]) -> String {
        parse(header, WANTED.file_bytes(), &WANTED).unwrap_err()
    }

    /// splitmix64.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    #[test]
    fn what_was_written_is_read() {
        let header = good();
        assert_eq!(header.len() as u64 % PAGE_BYTES, 0);
        assert_eq!(parse(&header, WANTED.file_bytes(), &WANTED), Ok(vec![1, 2, 3, 4, 5]));
        // A table that needs more than one page, and a last chunk that is short.
        let long = Wanted { payload_bytes: 1000 * CHUNK_BYTES - PAGE_BYTES, ..WANTED };
        let sums: Vec<u64> = (0..1000).collect();
        assert_eq!(parse(&encode(&long, &sums), long.file_bytes(), &long), Ok(sums));
        assert_eq!(long.chunk(0).start as u64, long.header_bytes());
        assert_eq!(long.chunk(999).len() as u64, CHUNK_BYTES - PAGE_BYTES);
        assert_eq!(long.chunk(999).end as u64, long.file_bytes());
    }

    #[test]
    fn each_field_that_differs_is_named() {
        let cases: [(usize, &str); 6] = [
            (0, "does not begin"),
            (16, "format version"),
            (24, "another model"),
            (40, "payload bytes"),
            (48, "chunk bytes"),
            (56, "number of chunks"),
        ];
        for (at, words) in cases {
            let mut header = good();
            header[at] ^= 1;
            let sentence = refused(&with_checksum(header));
            assert!(sentence.contains(words), "{at}: {sentence}");
        }
        let mut other_order = good();
        other_order[8..16].reverse();
        assert!(refused(&other_order).contains("other byte order"));
        let short = parse(&good(), WANTED.file_bytes() - 1, &WANTED).unwrap_err();
        assert!(short.contains("bytes, expected"), "{short}");
        assert!(refused(&good()[..100]).contains("shorter than its header"));
    }

    #[test]
    fn a_changed_header_is_never_believed() {
        for seed in 0..20_000_u64 {
            let mut state = seed;
            let mut header = good();
            for _ in 0..=random(&mut state) % 4 {
                let at = random(&mut state) as usize % header.len();
                header[at] ^= (random(&mut state) % 255 + 1) as u8;
            }
            if header != good() {
                assert!(parse(&header, WANTED.file_bytes(), &WANTED).is_err(), "seed {seed}");
            }
            // A crafted header with a valid checksum: within bounds all the same.
            let honest = with_checksum(header);
            if let Ok(sums) = parse(&honest, WANTED.file_bytes(), &WANTED) {
                assert_eq!(sums.len(), 5, "seed {seed}");
                assert_eq!(honest[..CHECKSUM.start], good()[..CHECKSUM.start], "seed {seed}");
            }
            // Cut anywhere, and of any length that the system reports.
            let len = random(&mut state) as usize % (honest.len() + 1);
            let file_bytes = random(&mut state) >> (random(&mut state) % 64);
            let cut = parse(&honest[..len], file_bytes, &WANTED);
            assert!(cut.is_err() || file_bytes == WANTED.file_bytes(), "seed {seed}");
        }
    }
}
