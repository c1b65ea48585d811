//! The bytes of the handshake's messages.

use std::io::Read;

use super::proof::{MAC_BYTES, NONCE_BYTES};
use super::{Abi, Access, HandshakeError, MAX_LANES, Visitor};
use crate::layout::RegionHeader;

/// Bump when the bytes of the handshake, or of what follows it over TCP, or their meaning change.
const VERSION: u32 = 3;
pub(super) const HELLO_MAGIC: [u8; 8] = *b"SACUCXH1";
pub(super) const PROOF_MAGIC: [u8; 8] = *b"SACUCXP1";
const CHALLENGE_MAGIC: [u8; 8] = *b"SACUCXC1";
const GRANT_MAGIC: [u8; 8] = *b"SACUCXG1";
const REFUSAL_MAGIC: [u8; 8] = *b"SACUCXR1";

/// Magic, version, and a word: of an answer the length of what follows.
const HEAD_BYTES: usize = 16;
/// Checksum behind every message.
const SUM_BYTES: usize = 8;
/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = HEAD_BYTES + 24 + NONCE_BYTES + SUM_BYTES;
/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = HEAD_BYTES + MAC_BYTES + SUM_BYTES;
/// Fixed part of a grant.
const GRANT_BYTES: usize = 40;
/// Byte limit of a worker's address, and of a key; UCX needs some hundred for each device.
pub const MAX_BLOB_BYTES: usize = 3072;
/// Byte limit of a refusal's sentence.
pub const MAX_REASON_BYTES: usize = 512;
/// Byte limit of what follows an answer's head, but for the checksum. With both it fits the send
/// buffer of a new socket, so a listener never waits.
const MAX_BODY_BYTES: usize = GRANT_BYTES + 2 * MAX_BLOB_BYTES + MAC_BYTES;
/// No region is larger (64 GiB of arena, and the rest).
const MAX_REGION_BYTES: u64 = 128 << 30;

/// Of a hello.
const FLAG_HAS_SECRET: u32 = 1;
const FLAG_STREAM: u32 = 2;
/// Of a grant.
const FLAG_STORES_IN_ORDER: u32 = 1;
const FLAG_UCX: u32 = 2;

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

/// Reads fields off the front of bytes whose length was checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *field
    }
    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
}

/// A message: magic, version, a word, a body, the checksum.
fn message(magic: [u8; 8], word: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + SUM_BYTES);
    bytes.extend(magic);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(word.to_le_bytes());
    bytes.extend(body);
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Like [`message`], of a fixed length.
fn fixed<const N: usize>(magic: [u8; 8], word: u32, body: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&message(magic, word, body));
    bytes
}

fn check_sum(field: &'static str, message: &[u8]) -> Result<(), HandshakeError> {
    let (said, sum) = message.split_at(message.len() - SUM_BYTES);
    exactly(field, Fields(sum).u64(), checksum(said))
}

/// Refuses the beginning of a message that can become none of this magic and version, so that a
/// peer of another protocol or version is told so, however little it says.
pub(super) fn check_beginning(magic: [u8; 8], so_far: &[u8]) -> Result<(), HandshakeError> {
    let (field_of_magic, field_of_version) = match magic {
        HELLO_MAGIC => ("hello magic", "hello version"),
        _ => ("proof magic", "proof version"),
    };
    let mut fields = Fields(so_far);
    if so_far.len() >= 8 {
        exactly(field_of_magic, fields.u64(), u64::from_le_bytes(magic))?;
    }
    if so_far.len() >= 12 {
        exactly(field_of_version, fields.u32().into(), VERSION.into())?;
    }
    Ok(())
}

/// Who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) visitor: Visitor,
    /// It proves itself, and joins only a listener that does.
    pub(super) has_secret: bool,
    pub(super) nonce: [u8; NONCE_BYTES],
}

/// The hello of a process that expects such a region.
pub(super) fn hello(hello: &Hello, abi: &Abi) -> [u8; HELLO_BYTES] {
    let mut body = [0; HELLO_BYTES - HEAD_BYTES - SUM_BYTES];
    body[..8].copy_from_slice(&abi.layout_hash.to_le_bytes());
    body[8..16].copy_from_slice(&hello.visitor.client.to_le_bytes());
    let (mut flags, lane) = match hello.visitor.access {
        Access::Stream { lane } => (FLAG_STREAM, lane),
        Access::Ucx => (0, 0),
    };
    if hello.has_secret {
        flags |= FLAG_HAS_SECRET;
    }
    body[16..20].copy_from_slice(&flags.to_le_bytes());
    body[20..24].copy_from_slice(&lane.to_le_bytes());
    body[24..].copy_from_slice(&hello.nonce);
    fixed(HELLO_MAGIC, abi.version, &body)
}

/// Reads the hello of one that expects the region that is handed out.
pub(super) fn read_hello(bytes: &[u8; HELLO_BYTES], abi: &Abi) -> Result<Hello, HandshakeError> {
    check_beginning(HELLO_MAGIC, bytes)?;
    let mut fields = Fields(&bytes[12..]);
    exactly_of(abi.name, "abi_version", fields.u32().into(), abi.version.into())?;
    exactly_of(abi.name, "layout_hash", fields.u64(), abi.layout_hash)?;
    let client = fields.u64();
    let (flags, lane) = (fields.u32(), fields.u32());
    within("hello flags", flags.into(), 0, (FLAG_HAS_SECRET | FLAG_STREAM).into())?;
    let access = if flags & FLAG_STREAM == 0 {
        within("hello lane", lane.into(), 0, 0)?;
        Access::Ucx
    } else {
        within("hello lane", lane.into(), 0, (MAX_LANES - 1).into())?;
        Access::Stream { lane }
    };
    let nonce = fields.bytes();
    check_sum("hello checksum", bytes)?;
    let visitor = Visitor { client, access };
    Ok(Hello { visitor, has_secret: flags & FLAG_HAS_SECRET != 0, nonce })
}

/// The bytes of a proof.
pub(super) fn proof(mac: &[u8; MAC_BYTES]) -> [u8; PROOF_BYTES] {
    fixed(PROOF_MAGIC, 0, mac)
}

/// The MAC in a proof.
pub(super) fn read_proof(bytes: &[u8; PROOF_BYTES]) -> Result<[u8; MAC_BYTES], HandshakeError> {
    check_beginning(PROOF_MAGIC, bytes)?;
    let mut fields = Fields(&bytes[12..]);
    within("proof padding", fields.u32().into(), 0, 0)?;
    let mac = fields.bytes();
    check_sum("proof checksum", bytes)?;
    Ok(mac)
}

fn answer(magic: [u8; 8], body: &[u8]) -> Vec<u8> {
    message(magic, body.len() as u32, body)
}

/// The bytes of a challenge.
pub(super) fn challenge(nonce: &[u8; NONCE_BYTES]) -> Vec<u8> {
    answer(CHALLENGE_MAGIC, nonce)
}

/// The bytes of a refusal; a long reason is truncated.
#[must_use]
pub fn refusal(reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    answer(REFUSAL_MAGIC, &reason.as_bytes()[..end])
}

/// Which region is lent, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its size.
    pub region_bytes: u64,
    /// Which region it is (`instance_id` of its header).
    pub instance_id: u64,
    /// What UCX needs, if it carries the data.
    pub ucx: Option<UcxGrant>,
}

/// How UCX reaches a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UcxGrant {
    /// Its address in the listener's process.
    pub base: u64,
    /// The listener's CPU makes its stores visible in order.
    pub stores_in_order: bool,
    /// Address of the listener's worker for this connection.
    pub address: Vec<u8>,
    /// Packed key of the region.
    pub key: Vec<u8>,
}

/// The bytes of a grant, and of the MAC that `prove` makes of all that the grant says.
///
/// # Errors
/// An address or key beyond [`MAX_BLOB_BYTES`].
pub(super) fn grant(
    grant: &Grant,
    prove: impl FnOnce(&[u8]) -> [u8; MAC_BYTES],
) -> Result<Vec<u8>, HandshakeError> {
    let (mut base, mut flags, mut address, mut key) = (0, 0, &[][..], &[][..]);
    if let Some(ucx) = &grant.ucx {
        within("address_bytes", ucx.address.len() as u64, 1, MAX_BLOB_BYTES as u64)?;
        within("key_bytes", ucx.key.len() as u64, 1, MAX_BLOB_BYTES as u64)?;
        flags = FLAG_UCX | if ucx.stores_in_order { FLAG_STORES_IN_ORDER } else { 0 };
        (base, address, key) = (ucx.base, &ucx.address, &ucx.key);
    }
    let mut body = Vec::with_capacity(MAX_BODY_BYTES);
    body.extend(grant.region_bytes.to_le_bytes());
    body.extend(base.to_le_bytes());
    body.extend(grant.instance_id.to_le_bytes());
    body.extend(flags.to_le_bytes());
    body.extend((address.len() as u32).to_le_bytes());
    body.extend((key.len() as u32).to_le_bytes());
    body.extend([0; 4]);
    body.extend(address);
    body.extend(key);
    let mac = prove(&body);
    body.extend(mac);
    Ok(answer(GRANT_MAGIC, &body))
}

/// What a listener says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// All bytes of a challenge.
    Challenge(Vec<u8>),
    /// What a grant says, and its MAC.
    Grant { said: Vec<u8>, mac: [u8; MAC_BYTES] },
}

/// Reads a listener's answer; a refusal is an error.
pub(super) fn read_answer(from: &mut impl Read) -> Result<Answer, HandshakeError> {
    let mut bytes = vec![0; HEAD_BYTES];
    from.read_exact(&mut bytes)?;
    let mut head = Fields(&bytes);
    let magic = head.bytes();
    let known = [REFUSAL_MAGIC, CHALLENGE_MAGIC, GRANT_MAGIC].contains(&magic);
    if !known {
        exactly("answer magic", u64::from_le_bytes(magic), u64::from_le_bytes(GRANT_MAGIC))?;
    }
    exactly("answer version", head.u32().into(), VERSION.into())?;
    let body_bytes = head.u32() as usize;
    within("answer bytes", body_bytes as u64, 0, MAX_BODY_BYTES as u64)?;
    bytes.resize(HEAD_BYTES + body_bytes + SUM_BYTES, 0);
    from.read_exact(&mut bytes[HEAD_BYTES..])?;
    check_sum("answer checksum", &bytes)?;
    let body = &bytes[HEAD_BYTES..HEAD_BYTES + body_bytes];
    match magic {
        REFUSAL_MAGIC => Err(HandshakeError::Refused(readable(body))),
        CHALLENGE_MAGIC => {
            exactly("challenge bytes", body_bytes as u64, NONCE_BYTES as u64)?;
            Ok(Answer::Challenge(bytes))
        }
        _ => {
            let least = (GRANT_BYTES + MAC_BYTES) as u64;
            within("grant bytes", body_bytes as u64, least, MAX_BODY_BYTES as u64)?;
            let (said, mac) = body.split_at(body_bytes - MAC_BYTES);
            Ok(Answer::Grant { said: said.to_vec(), mac: Fields(mac).bytes() })
        }
    }
}

/// A stranger's sentence: it may not command a terminal that shows a log.
fn readable(sentence: &[u8]) -> String {
    let harmless = |c: char| if c.is_control() { '?' } else { c };
    let end = sentence.len().min(MAX_REASON_BYTES);
    String::from_utf8_lossy(&sentence[..end]).chars().map(harmless).collect()
}

/// What a grant says.
pub(super) fn read_grant(said: &[u8]) -> Result<Grant, HandshakeError> {
    within("grant bytes", said.len() as u64, GRANT_BYTES as u64, MAX_BODY_BYTES as u64)?;
    let (head, blobs) = said.split_at(GRANT_BYTES);
    let mut fields = Fields(head);
    let (region_bytes, base, instance_id) = (fields.u64(), fields.u64(), fields.u64());
    within("region_bytes", region_bytes, size_of::<RegionHeader>() as u64, MAX_REGION_BYTES)?;
    let flags = fields.u32();
    within("flags", flags.into(), 0, (FLAG_STORES_IN_ORDER | FLAG_UCX).into())?;
    let (address_bytes, key_bytes) = (fields.u32() as usize, fields.u32() as usize);
    if flags & FLAG_UCX == 0 {
        within("base", base, 0, 0)?;
        exactly("grant bytes", blobs.len() as u64, 0)?;
        return Ok(Grant { region_bytes, instance_id, ucx: None });
    }
    within("base", base, 1, u64::MAX - region_bytes)?;
    within("address_bytes", address_bytes as u64, 1, MAX_BLOB_BYTES as u64)?;
    within("key_bytes", key_bytes as u64, 1, MAX_BLOB_BYTES as u64)?;
    exactly("grant bytes", blobs.len() as u64, (address_bytes + key_bytes) as u64)?;
    let (address, key) = blobs.split_at(address_bytes);
    let ucx = Some(UcxGrant {
        base,
        stores_in_order: flags & FLAG_STORES_IN_ORDER != 0,
        address: address.to_vec(),
        key: key.to_vec(),
    });
    Ok(Grant { region_bytes, instance_id, ucx })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        visitor: Visitor { client: 9, access: Access::Stream { lane: MAX_LANES - 1 } },
        has_secret: true,
        nonce: [3; NONCE_BYTES],
    };

    fn sample() -> Grant {
        let ucx =
            UcxGrant { base: 4096, stores_in_order: true, address: vec![1; 300], key: vec![2; 33] };
        Grant { region_bytes: 1 << 20, instance_id: 7, ucx: Some(ucx) }
    }

    fn without_ucx() -> Grant {
        Grant { ucx: None, ..sample() }
    }

    fn read_back(bytes: &[u8]) -> Result<Grant, HandshakeError> {
        match read_answer(&mut &bytes[..])? {
            Answer::Grant { said, .. } => read_grant(&said),
            Answer::Challenge(_) => panic!("a challenge"),
        }
    }

    #[test]
    fn what_is_said_is_understood() {
        let by_ucx = Hello { visitor: Visitor { access: Access::Ucx, ..HELLO.visitor }, ..HELLO };
        for said in [HELLO, by_ucx] {
            assert_eq!(read_hello(&hello(&said, &Abi::RING), &Abi::RING), Ok(said));
        }
        assert_eq!(read_proof(&proof(&[5; MAC_BYTES])), Ok([5; MAC_BYTES]));
        let bytes = challenge(&[6; NONCE_BYTES]);
        assert_eq!(read_answer(&mut &bytes[..]), Ok(Answer::Challenge(bytes.clone())));
        for said in [sample(), without_ucx()] {
            let bytes = grant(&said, |_| [8; MAC_BYTES]).expect("within the bounds");
            assert_eq!(read_back(&bytes), Ok(said));
        }
        let reason = "é".repeat(MAX_REASON_BYTES);
        let refused = read_answer(&mut &refusal(&reason)[..]);
        let cut = "é".repeat(MAX_REASON_BYTES / 2);
        assert_eq!(refused, Err(HandshakeError::Refused(cut)));
        let refused = read_answer(&mut &refusal("no\n\u{1b}[2J")[..]);
        assert_eq!(refused, Err(HandshakeError::Refused("no??[2J".into())));
    }

    /// Any byte changed, any byte missing: an error that names what is wrong, never a grant.
    #[test]
    fn damage_is_refused_wherever_it_is() {
        let grants = [sample(), without_ucx()];
        let good = grants.map(|good| grant(&good, |_| [8; MAC_BYTES]).expect("within the bounds"));
        for good in good.into_iter().chain([challenge(&[6; NONCE_BYTES])]) {
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x55;
                assert!(read_answer(&mut &bad[..]).is_err(), "byte {at}");
                assert!(read_answer(&mut &good[..at]).is_err(), "{at} bytes");
            }
        }
        for at in 0..HELLO_BYTES {
            let mut bad = hello(&HELLO, &Abi::RING);
            bad[at] ^= 0x55;
            assert!(read_hello(&bad, &Abi::RING).is_err(), "byte {at}");
        }
        for at in 0..PROOF_BYTES {
            let mut bad = proof(&[5; MAC_BYTES]);
            bad[at] ^= 0x55;
            assert!(read_proof(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_peer_that_expects_another_region_is_told_what_is_here() {
        let other = Abi { name: "another region", layout_hash: 5, ..Abi::RING };
        let error = read_hello(&hello(&HELLO, &other), &Abi::RING).expect_err("of another region");
        let said = error.to_string();
        assert!(
            said.starts_with("layout_hash is 0x5, ") && said.contains("the ring of this build"),
            "{said}"
        );
    }

    #[test]
    fn fields_out_of_bounds_are_named() {
        type Spoil = fn(&mut Grant);
        fn ucx(grant: &mut Grant) -> &mut UcxGrant {
            grant.ucx.as_mut().expect("a sample has it")
        }
        let cases: [(&str, Spoil); 3] = [
            ("region_bytes is 255", |g| g.region_bytes = 255),
            ("region_bytes is 18446744073709551615", |g| g.region_bytes = u64::MAX),
            ("base is 18446744073709551615", |g| ucx(g).base = u64::MAX),
        ];
        for (expected, damage) in cases {
            let mut bad = sample();
            damage(&mut bad);
            let bytes = grant(&bad, |_| [0; MAC_BYTES]).expect("the lengths are within the bounds");
            let error = read_back(&bytes).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let mut long = sample();
        ucx(&mut long).key = vec![0; MAX_BLOB_BYTES + 1];
        assert!(grant(&long, |_| [0; MAC_BYTES]).is_err());
        let endless = [&GRANT_MAGIC[..], &VERSION.to_le_bytes(), &[0xff; 4]].concat();
        let error = read_answer(&mut &endless[..]).expect_err("4 GiB").to_string();
        assert!(error.starts_with("answer bytes is 4294967295, must be 0 ..= "), "{error}");
    }
}
