//! What a store keeps: a header that says what the chunk is, the coded chunk, and a checksum over
//! both. Little-endian.
//!
//! ```text
//!   0  magic "SKVC"         4      12  num_layers, kv_heads, head_dim   3 x u32
//!   4  version              u16    24  first_token, num_tokens          2 x u32
//!   6  codec                u8     32  model                            32
//!   7  dtype                u8     64  name                             32
//!   8  payload bytes        u32    96  checksum of all other bytes      16 (XXH3, 128 bits)
//! 112  payload
//! ```

use xxhash_rust::xxh3::Xxh3;

use crate::codec::{self, Codec, Coded, Malformed, Scratch};
use crate::{Dtype, Geometry, ModelId, Name};

const MAGIC: [u8; 4] = *b"SKVC";
/// Bump when the header, or what a codec writes, changes.
const VERSION: u16 = 2;
/// Of a chunk that [`describe`] believes: the header is a stranger's, and says how much memory a
/// reader takes.
const MAX_CHUNK_BYTES: usize = 1 << 30;
const CHECKSUM_AT: usize = 96;
const HEADER_BYTES: usize = 112;

/// What a value is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// That computed it.
    pub model: ModelId,
    /// Of the chunk.
    pub name: Name,
    /// Position of its first token.
    pub first_token: u32,
    /// Its shape, token count included.
    pub geometry: Geometry,
}

/// Why a value was not believed. Each kind is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It is shorter, or longer, than it says.
    #[error("truncated, or followed by other bytes")]
    Length,
    /// It is something else.
    #[error("not a chunk")]
    Magic,
    /// Another program wrote it.
    #[error("of version {0}, not 2")]
    Version(u16),
    /// A bit has changed.
    #[error("the checksum differs")]
    Checksum,
    /// It is under this name, and of another.
    #[error("of another name")]
    Name,
    /// Of other weights or settings.
    #[error("of another model")]
    Model,
    /// Of other tokens' positions, or of another shape.
    #[error("of another place or shape")]
    Span,
    /// This program has no such codec.
    #[error("of a codec with number {0}")]
    Codec(u8),
    /// Its checksum is right, and its code is not.
    #[error(transparent)]
    Payload(#[from] Malformed),
}

impl Rejection {
    /// For a metric's label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Magic => "magic",
            Self::Version(_) => "version",
            Self::Checksum => "checksum",
            Self::Name => "name",
            Self::Model => "model",
            Self::Span => "span",
            Self::Codec(_) => "codec",
            Self::Payload(_) => "payload",
        }
    }
}

/// Bytes of the value of a chunk that is not coded at all.
pub const fn raw_value_bytes(geometry: &Geometry) -> usize {
    HEADER_BYTES + 8 * geometry.num_planes() + geometry.bytes()
}

/// Appends the value of a chunk.
///
/// # Panics
/// `kv` has another length than the geometry says.
pub fn seal(value: &Value, codec: Codec, kv: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + HEADER_BYTES, 0);
    codec::encode(codec, &value.geometry, kv, scratch, out);
    let sealed = &mut out[from..];
    let payload = (sealed.len() - HEADER_BYTES) as u32;
    sealed[..CHECKSUM_AT].copy_from_slice(&header(value, codec, payload));
    let sum = checksum(sealed);
    sealed[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum);
}

/// Checks everything but the code itself, which decoding does.
///
/// # Errors
/// It is not the value of that chunk.
pub fn open<B: AsRef<[u8]>>(expected: &Value, value: B) -> Result<Coded<B>, Rejection> {
    let bytes = value.as_ref();
    let header = whole(bytes)?;
    if header.array(64) != *expected.name.bytes() {
        return Err(Rejection::Name);
    }
    if header.array(32) != *expected.model.bytes() {
        return Err(Rejection::Model);
    }
    let codec = header.codec()?;
    if bytes[..CHECKSUM_AT] != self::header(expected, codec, header.number(8)) {
        return Err(Rejection::Span);
    }
    Ok(Coded::behind(HEADER_BYTES, codec, &expected.geometry, value)?)
}

/// What a value says it is, for a reader that does not know what to expect. All is checked but the
/// code itself, and whether name and model are those of the key that it was under.
///
/// # Errors
/// It is no value, or of a chunk of more than 1 GiB.
pub fn describe<B: AsRef<[u8]>>(value: B) -> Result<(Value, Coded<B>), Rejection> {
    let header = whole(value.as_ref())?;
    let codec = header.codec()?;
    let described = Value {
        model: ModelId::from_bytes(header.array(32)),
        name: Name::from_bytes(header.array(64)),
        first_token: header.number(24),
        geometry: header.geometry().ok_or(Rejection::Span)?,
    };
    let coded = Coded::behind(HEADER_BYTES, codec, &described.geometry, value)?;
    Ok((described, coded))
}

/// The header of a value that is as it was written.
fn whole(bytes: &[u8]) -> Result<Header<'_>, Rejection> {
    if bytes.len() < HEADER_BYTES {
        return Err(Rejection::Length);
    }
    let header = Header(bytes);
    if header.array(0) != MAGIC {
        return Err(Rejection::Magic);
    }
    let version = u16::from_le_bytes(header.array(4));
    if version != VERSION {
        return Err(Rejection::Version(version));
    }
    if bytes.len() - HEADER_BYTES != header.number(8) as usize {
        return Err(Rejection::Length);
    }
    if header.array(CHECKSUM_AT) != checksum(bytes) {
        return Err(Rejection::Checksum);
    }
    Ok(header)
}

/// A slice that is at least as long as the header.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn codec(&self) -> Result<Codec, Rejection> {
        Codec::from_id(self.0[6]).ok_or(Rejection::Codec(self.0[6]))
    }

    /// None: of another dtype, of nothing, or too large.
    fn geometry(&self) -> Option<Geometry> {
        let dtype = match self.0[7] {
            0 => Dtype::Bf16,
            1 => Dtype::F16,
            2 => Dtype::F32,
            3 => Dtype::Fp8,
            _ => return None,
        };
        let [num_layers, kv_heads, head_dim, num_tokens] =
            [12, 16, 20, 28].map(|at| self.number(at) as usize);
        let factors = [2, num_layers, kv_heads, head_dim, num_tokens, dtype.bytes()];
        let bytes = factors.into_iter().try_fold(1_usize, usize::checked_mul)?;
        let is_within = (1..=MAX_CHUNK_BYTES).contains(&bytes);
        is_within.then_some(Geometry { num_layers, kv_heads, head_dim, num_tokens, dtype })
    }
}

fn header(value: &Value, codec: Codec, payload: u32) -> [u8; CHECKSUM_AT] {
    let g = &value.geometry;
    let dtype = match g.dtype {
        Dtype::Bf16 => 0,
        Dtype::F16 => 1,
        Dtype::F32 => 2,
        Dtype::Fp8 => 3,
    };
    let shape = [g.num_layers, g.kv_heads, g.head_dim].map(|n| n as u32);
    let numbers = [payload, shape[0], shape[1], shape[2], value.first_token, g.num_tokens as u32];
    let mut header = [0; CHECKSUM_AT];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&VERSION.to_le_bytes());
    header[6] = codec as u8;
    header[7] = dtype;
    for (at, number) in header[8..32].as_chunks_mut().0.iter_mut().zip(numbers) {
        *at = number.to_le_bytes();
    }
    header[32..64].copy_from_slice(value.model.bytes());
    header[64..].copy_from_slice(value.name.bytes());
    header
}

fn checksum(value: &[u8]) -> [u8; 16] {
    let mut hash = Xxh3::new();
    hash.update(&value[..CHECKSUM_AT]);
    hash.update(&value[HEADER_BYTES..]);
    hash.digest128().to_le_bytes()
}
