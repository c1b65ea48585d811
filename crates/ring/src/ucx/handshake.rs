//! What the two sides say to each other over a plain socket before UCX connects them.
//!
//! The frontend sends one fixed hello; the listener answers with a grant (how to reach the region)
//! or a refusal (a sentence). After that neither side sends anything: the socket stays open so
//! that each side learns at once when the other's process ends. Everything is little-endian, has a
//! magic, a version, bounds, and a checksum, because UCX parses addresses and keys without a bound.

use std::io::{self, Read};

use crate::layout::{RegionHeader, SAC_ABI_VERSION, SAC_LAYOUT_HASH};

/// Which header describes the region that is handed out: what both sides must have been built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// For people.
    pub name: &'static str,
    /// Version of the header.
    pub version: u32,
    /// Hash of its layout.
    pub layout_hash: u64,
}

impl Abi {
    /// `abi/wire.h`.
    pub const RING: Abi = Abi {
        name: "the ring of this build",
        version: SAC_ABI_VERSION,
        layout_hash: SAC_LAYOUT_HASH,
    };
}

/// Bump when the bytes of the handshake or their meaning change.
pub(super) const VERSION: u32 = 1;
const HELLO_MAGIC: [u8; 8] = *b"SACUCXH1";
const GRANT_MAGIC: [u8; 8] = *b"SACUCXG1";
const REFUSAL_MAGIC: [u8; 8] = *b"SACUCXR1";

/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = 40;
/// Magic, version, length of what follows.
const HEAD_BYTES: usize = 16;
/// Fixed part of a grant.
const GRANT_BYTES: usize = 40;
/// Checksum after an answer.
const SUM_BYTES: usize = 8;
/// Byte limit of a worker's address, and of a key; UCX needs some hundred for each device.
pub(super) const MAX_BLOB_BYTES: usize = 3072;
/// Byte limit of a refusal's sentence.
pub(super) const MAX_REASON_BYTES: usize = 512;
/// Byte limit of an answer; it fits the send buffer of a new socket, so a listener never waits.
const MAX_ANSWER_BYTES: usize = HEAD_BYTES + GRANT_BYTES + 2 * MAX_BLOB_BYTES + SUM_BYTES;
/// No region is larger (64 GiB of arena, and the rest).
const MAX_REGION_BYTES: u64 = 128 << 30;

const FLAG_STORES_IN_ORDER: u32 = 1;

/// Why a peer's bytes are not what they should be.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum HandshakeError {
    /// A field breaks its bound.
    #[error("{field} is {value}, must be {bound}")]
    Field {
        /// Of the hello, the grant or the refusal.
        field: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        bound: String,
    },
    /// The other side said no.
    #[error("refused: {0}")]
    Refused(String),
    /// The other side ended, or said too little in time.
    #[error("no answer: {0}")]
    Io(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Io(error.to_string())
    }
}

fn exactly(field: &'static str, value: u64, expected: u64) -> Result<(), HandshakeError> {
    exactly_of("this build", field, value, expected)
}

/// `of`: whose value is expected, as a peer is told that is at the port of another region.
fn exactly_of(
    of: &str,
    field: &'static str,
    value: u64,
    expected: u64,
) -> Result<(), HandshakeError> {
    if value == expected {
        return Ok(());
    }
    let (value, bound) = (format!("{value:#x}"), format!("{expected:#x} ({of})"));
    Err(HandshakeError::Field { field, value, bound })
}

fn within(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), HandshakeError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let bound = format!("{least} ..= {most}");
    Err(HandshakeError::Field { field, value: value.to_string(), bound })
}

/// FNV-1a, 64 bits: against damage, not against malice.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Reads numbers off the front of bytes whose length was checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> u64 {
        let (word, rest) = self.0.split_first_chunk().unwrap_or((&[0; 8], &[]));
        self.0 = rest;
        u64::from_le_bytes(*word)
    }
    fn u32(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk().unwrap_or((&[0; 4], &[]));
        self.0 = rest;
        u32::from_le_bytes(*word)
    }
}

/// The hello of a process whose transport has this id, and which expects such a region.
pub(super) fn hello(client: u64, abi: &Abi) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(&HELLO_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&abi.version.to_le_bytes());
    bytes[16..24].copy_from_slice(&abi.layout_hash.to_le_bytes());
    bytes[24..32].copy_from_slice(&client.to_le_bytes());
    let sum = checksum(&bytes[..32]);
    bytes[32..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The id in a hello of one that expects the region that is handed out.
pub(super) fn read_hello(bytes: &[u8; HELLO_BYTES], abi: &Abi) -> Result<u64, HandshakeError> {
    let mut fields = Fields(bytes);
    exactly("hello magic", fields.u64(), u64::from_le_bytes(HELLO_MAGIC))?;
    exactly("hello version", fields.u32().into(), VERSION.into())?;
    exactly_of(abi.name, "abi_version", fields.u32().into(), abi.version.into())?;
    exactly_of(abi.name, "layout_hash", fields.u64(), abi.layout_hash)?;
    let client = fields.u64();
    exactly("hello checksum", fields.u64(), checksum(&bytes[..32]))?;
    Ok(client)
}

/// How to reach a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// Its size.
    pub(super) region_bytes: u64,
    /// Its address in the listener's process.
    pub(super) base: u64,
    /// Which region it is (`instance_id` of its header).
    pub(super) instance_id: u64,
    /// The listener's CPU makes its stores visible in order.
    pub(super) stores_in_order: bool,
    /// Address of the listener's worker for this connection.
    pub(super) address: Vec<u8>,
    /// Packed key of the region.
    pub(super) key: Vec<u8>,
}

fn answer(magic: [u8; 8], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + SUM_BYTES);
    bytes.extend(magic);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The bytes of a grant.
///
/// # Errors
/// An address or key beyond [`MAX_BLOB_BYTES`].
pub(super) fn grant(grant: &Grant) -> Result<Vec<u8>, HandshakeError> {
    within("address_bytes", grant.address.len() as u64, 1, MAX_BLOB_BYTES as u64)?;
    within("key_bytes", grant.key.len() as u64, 1, MAX_BLOB_BYTES as u64)?;
    let mut body = Vec::with_capacity(GRANT_BYTES + grant.address.len() + grant.key.len());
    body.extend(grant.region_bytes.to_le_bytes());
    body.extend(grant.base.to_le_bytes());
    body.extend(grant.instance_id.to_le_bytes());
    let flags = if grant.stores_in_order { FLAG_STORES_IN_ORDER } else { 0 };
    body.extend(flags.to_le_bytes());
    body.extend((grant.address.len() as u32).to_le_bytes());
    body.extend((grant.key.len() as u32).to_le_bytes());
    body.extend([0; 4]);
    body.extend(&grant.address);
    body.extend(&grant.key);
    Ok(answer(GRANT_MAGIC, &body))
}

/// The bytes of a refusal; a long reason is truncated.
pub(super) fn refusal(reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    answer(REFUSAL_MAGIC, &reason.as_bytes()[..end])
}

/// Reads a listener's answer.
pub(super) fn read_answer(from: &mut impl Read) -> Result<Grant, HandshakeError> {
    let mut bytes = vec![0; HEAD_BYTES];
    from.read_exact(&mut bytes)?;
    let mut head = Fields(&bytes);
    let magic = head.u64();
    let refused = magic == u64::from_le_bytes(REFUSAL_MAGIC);
    if !refused {
        exactly("grant magic", magic, u64::from_le_bytes(GRANT_MAGIC))?;
    }
    exactly("answer version", head.u32().into(), VERSION.into())?;
    let body_bytes = head.u32() as usize;
    let most = MAX_ANSWER_BYTES - HEAD_BYTES - SUM_BYTES;
    within("answer bytes", body_bytes as u64, 0, most as u64)?;
    bytes.resize(HEAD_BYTES + body_bytes + SUM_BYTES, 0);
    from.read_exact(&mut bytes[HEAD_BYTES..])?;
    let (said, sum) = bytes.split_at(HEAD_BYTES + body_bytes);
    exactly("answer checksum", Fields(sum).u64(), checksum(said))?;
    let body = &said[HEAD_BYTES..];
    if refused {
        return Err(HandshakeError::Refused(String::from_utf8_lossy(body).into_owned()));
    }
    read_grant(body)
}

fn read_grant(body: &[u8]) -> Result<Grant, HandshakeError> {
    within("grant bytes", body.len() as u64, GRANT_BYTES as u64, MAX_ANSWER_BYTES as u64)?;
    let (fixed, blobs) = body.split_at(GRANT_BYTES);
    let mut fields = Fields(fixed);
    let (region_bytes, base, instance_id) = (fields.u64(), fields.u64(), fields.u64());
    within("region_bytes", region_bytes, size_of::<RegionHeader>() as u64, MAX_REGION_BYTES)?;
    within("base", base, 1, u64::MAX - region_bytes)?;
    let flags = fields.u32();
    within("flags", flags.into(), 0, FLAG_STORES_IN_ORDER.into())?;
    let (address_bytes, key_bytes) = (fields.u32() as usize, fields.u32() as usize);
    within("address_bytes", address_bytes as u64, 1, MAX_BLOB_BYTES as u64)?;
    within("key_bytes", key_bytes as u64, 1, MAX_BLOB_BYTES as u64)?;
    exactly("grant bytes", blobs.len() as u64, (address_bytes + key_bytes) as u64)?;
    let (address, key) = blobs.split_at(address_bytes);
    Ok(Grant {
        region_bytes,
        base,
        instance_id,
        stores_in_order: flags & FLAG_STORES_IN_ORDER != 0,
        address: address.to_vec(),
        key: key.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Grant {
        Grant {
            region_bytes: 1 << 20,
            base: 4096,
            instance_id: 7,
            stores_in_order: true,
            address: vec![1; 300],
            key: vec![2; 33],
        }
    }

    #[test]
    fn what_is_said_is_understood() {
        assert_eq!(read_hello(&hello(9, &Abi::RING), &Abi::RING), Ok(9));
        let bytes = grant(&sample()).expect("within the bounds");
        assert_eq!(read_answer(&mut &bytes[..]), Ok(sample()));
        let reason = "é".repeat(MAX_REASON_BYTES);
        let refused = read_answer(&mut &refusal(&reason)[..]);
        let cut = "é".repeat(MAX_REASON_BYTES / 2);
        assert_eq!(refused, Err(HandshakeError::Refused(cut)));
    }

    /// Any byte changed, any byte missing: an error that names what is wrong, never a grant.
    #[test]
    fn damage_is_refused_wherever_it_is() {
        let good = grant(&sample()).expect("within the bounds");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            assert!(read_answer(&mut &bad[..]).is_err(), "byte {at}");
            assert!(read_answer(&mut &good[..at]).is_err(), "{at} bytes");
        }
        for at in 0..HELLO_BYTES {
            let mut bad = hello(9, &Abi::RING);
            bad[at] ^= 0x55;
            assert!(read_hello(&bad, &Abi::RING).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_peer_that_expects_another_region_is_told_what_is_here() {
        let other = Abi { name: "another region", layout_hash: 5, ..Abi::RING };
        let error = read_hello(&hello(9, &other), &Abi::RING).expect_err("of another region");
        let said = error.to_string();
        assert!(
            said.starts_with("layout_hash is 0x5, ") && said.contains("the ring of this build"),
            "{said}"
        );
    }

    #[test]
    fn fields_out_of_bounds_are_named() {
        type Spoil = fn(&mut Grant);
        let cases: [(&str, Spoil); 3] = [
            ("region_bytes is 255", |g| g.region_bytes = 255),
            ("region_bytes is 18446744073709551615", |g| g.region_bytes = u64::MAX),
            ("base is 18446744073709551615", |g| g.base = u64::MAX),
        ];
        for (expected, damage) in cases {
            let mut bad = sample();
            damage(&mut bad);
            let bytes = grant(&bad).expect("the lengths are within the bounds");
            let error = read_answer(&mut &bytes[..]).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let long = Grant { key: vec![0; MAX_BLOB_BYTES + 1], ..sample() };
        assert!(grant(&long).is_err());
    }
}
