//! Proofs that a side knows the secret, about the very words of this handshake.

use std::fmt;

use aws_lc_rs::hmac;

use super::HandshakeError;

/// Bytes of a nonce.
pub(super) const NONCE_BYTES: usize = 32;
/// Bytes of a proof: HMAC-SHA256.
pub(super) const MAC_BYTES: usize = 32;

/// In front of what the joining side proves, and of nothing else.
const JOINER: &[u8] = b"saccade region handshake 2, joining side\0";
/// In front of what the listener proves, and of nothing else.
const LISTENER: &[u8] = b"saccade region handshake 2, listener\0";

/// What both sides know and no other.
pub struct Secret(hmac::Key);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// Of these bytes, all of which count.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    fn mac(&self, parts: [&[u8]; 4]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }

    /// Proves that the joining side knows the secret. Hello and challenge have fixed lengths, so
    /// that no two different handshakes give the same bytes.
    pub(super) fn joiner_proof(&self, hello: &[u8], challenge: &[u8]) -> [u8; MAC_BYTES] {
        bytes(&self.mac([JOINER, hello, challenge, &[]]))
    }

    /// Proves that the listener knows the secret, and means this grant.
    pub(super) fn listener_proof(
        &self,
        hello: &[u8],
        challenge: &[u8],
        grant: &[u8],
    ) -> [u8; MAC_BYTES] {
        bytes(&self.mac([LISTENER, hello, challenge, grant]))
    }
}

fn bytes(tag: &hmac::Tag) -> [u8; MAC_BYTES] {
    let mut bytes = [0; MAC_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

/// Compares in a time that does not depend on the bytes.
pub(super) fn same(one: &[u8; MAC_BYTES], other: &[u8; MAC_BYTES]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// Bytes that were never drawn before.
pub(super) fn nonce() -> Result<[u8; NONCE_BYTES], HandshakeError> {
    let mut bytes = [0; NONCE_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| HandshakeError::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2: the MAC is HMAC-SHA256, over the parts in their order.
    #[test]
    fn macs_are_those_of_the_standard() {
        let secret = Secret::new(b"Jefe");
        let tag = secret.mac([b"what do ", b"ya want ", b"for ", b"nothing?"]);
        let expected = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95,
            0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9,
            0x64, 0xec, 0x38, 0x43,
        ];
        assert_eq!(bytes(&tag), expected);
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new(b"hush")), "Secret(..)");
    }
}
