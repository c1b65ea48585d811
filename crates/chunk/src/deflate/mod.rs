//! Deflate (RFC 1951), cut so that it decodes fast: a Deflate decoder waits for each symbol before
//! it finds the next one, so bytes are cut into [`STREAMS`] pieces, whose streams are decoded in
//! turns. Each stream is a raw Deflate stream of its own, for any decoder.
//!
//! ```text
//! lengths  of all streams but the last     u32 LE each
//! streams  of one piece each: a quarter of the bytes, rounded up; the last has what is left
//! ```
//!
//! Bytes without repetitions become one block of literals per stream, and all streams have the same
//! code. Streams of that shape are decoded here. All others are libdeflate's affair, and it alone
//! says what is malformed.

mod code;
mod decoder;
mod encoder;
mod header;

use encoder::LiteralCode;

/// Into which bytes are cut.
pub const STREAMS: usize = 4;

/// Of the lengths.
const PREFIX_BYTES: usize = 4 * (STREAMS - 1);

/// Bytes of a shorter piece are no more than those of its code's description.
const MIN_PIECE_BYTES: usize = 256;

/// libdeflate's level at which bytes with repetitions are coded fast.
const LEVEL: i32 = 1;

/// What coding needs, made when first needed.
#[derive(Default)]
pub struct Memory {
    compressor: Option<libdeflater::Compressor>,
    decompressor: Option<libdeflater::Decompressor>,
    table: Option<Box<decoder::Table>>,
}

/// Appends the code of `bytes`. None: libdeflate has refused.
pub fn encode(bytes: &[u8], memory: &mut Memory, out: &mut Vec<u8>) -> Option<()> {
    let prefix = out.len();
    out.resize(prefix + PREFIX_BYTES, 0);
    let is_literal = bytes.len() >= STREAMS * MIN_PIECE_BYTES && !encoder::has_repetitions(bytes);
    let code = is_literal.then(|| LiteralCode::of(bytes));
    for (stream, piece) in pieces(bytes).into_iter().enumerate() {
        let from = out.len();
        match &code {
            Some(code) => code.encode(piece, out),
            None => compress(piece, memory, out)?,
        }
        let length = (out.len() - from) as u32;
        if let Some(at) = out[prefix..prefix + PREFIX_BYTES].as_chunks_mut().0.get_mut(stream) {
            *at = length.to_le_bytes();
        }
    }
    Some(())
}

fn compress(piece: &[u8], memory: &mut Memory, out: &mut Vec<u8>) -> Option<()> {
    let level = libdeflater::CompressionLvl::new(LEVEL).ok()?;
    let new = || libdeflater::Compressor::new(level);
    let compressor = memory.compressor.get_or_insert_with(new);
    let from = out.len();
    out.resize(from + compressor.deflate_compress_bound(piece.len()), 0);
    let length = compressor.deflate_compress(piece, &mut out[from..]).ok()?;
    out.truncate(from + length);
    Some(())
}

/// Fills `out` from its code.
///
/// # Errors
/// The bytes are not such a code; `out` then holds anything.
pub fn decode(bytes: &[u8], memory: &mut Memory, out: &mut [u8]) -> Result<(), &'static str> {
    let streams = streams(bytes).ok_or("it ends within its streams")?;
    if decode_in_turns(streams, memory, out) {
        return Ok(());
    }
    decode_one_by_one(streams, memory, out)
}

/// The streams of a code. None: it is shorter than it says.
pub fn streams(bytes: &[u8]) -> Option<[&[u8]; STREAMS]> {
    let (lengths, mut rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let mut streams = [rest; STREAMS];
    for (stream, length) in streams.iter_mut().zip(lengths.as_chunks().0) {
        (*stream, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    }
    streams[STREAMS - 1] = rest;
    Some(streams)
}

/// The first half of [`decode`]. False: the streams are not of the shape that is decoded here, or
/// malformed; `out` then holds anything.
pub fn decode_in_turns(streams: [&[u8]; STREAMS], memory: &mut Memory, out: &mut [u8]) -> bool {
    let table = memory.table.get_or_insert_default();
    decoder::decode(streams, table, pieces_mut(out)).is_some()
}

/// The other half of [`decode`]: any Deflate streams, by libdeflate.
///
/// # Errors
/// As [`decode`].
pub fn decode_one_by_one(
    streams: [&[u8]; STREAMS],
    memory: &mut Memory,
    out: &mut [u8],
) -> Result<(), &'static str> {
    let decompressor = memory.decompressor.get_or_insert_with(libdeflater::Decompressor::new);
    for (stream, piece) in streams.into_iter().zip(pieces_mut(out)) {
        let length = decompressor.deflate_decompress(stream, piece);
        if length.map_err(|_| "not a Deflate stream")? != piece.len() {
            return Err("fewer bytes than the plane has");
        }
    }
    Ok(())
}

/// What each stream is of.
pub fn pieces(bytes: &[u8]) -> [&[u8]; STREAMS] {
    let mut pieces = bytes.chunks(piece_bytes(bytes));
    std::array::from_fn(|_| pieces.next().unwrap_or_default())
}

fn pieces_mut(bytes: &mut [u8]) -> [&mut [u8]; STREAMS] {
    let mut pieces = bytes.chunks_mut(piece_bytes(bytes));
    std::array::from_fn(|_| pieces.next().unwrap_or_default())
}

fn piece_bytes(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(STREAMS).max(1)
}
