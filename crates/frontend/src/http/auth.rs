//! API keys.

use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::limits::MAX_API_KEY_BYTES;
use crate::validate::first_word;

/// SHA-256 of a key: comparing digests takes the same time whatever the key, its length included.
#[derive(Debug, Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Of a key as it is.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Of the key that a request carries: as OpenAI's clients send it, or as Anthropic's do.
    pub fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let of = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        match of("authorization") {
            Some(authorization) => Self::of_bearer(authorization),
            None => of("x-api-key").filter(|key| key.len() <= MAX_API_KEY_BYTES).map(Self::of),
        }
    }

    /// Of the key that an `Authorization` header carries, if it carries one.
    pub fn of_bearer(authorization: &[u8]) -> Option<Self> {
        let (scheme, key) = authorization.split_at_checked(7)?;
        let fine = scheme.eq_ignore_ascii_case(b"bearer ") && key.len() <= MAX_API_KEY_BYTES;
        fine.then(|| Self::of(key))
    }

    /// From its 64 hex digits.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 2 * digest.len() {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Some(Self(digest))
    }

    /// The value paired with the equal one of `keys`. All of them are compared, so that the time
    /// does not reveal a near match.
    pub fn find<'a>(&self, keys: impl Iterator<Item = (&'a Self, usize)>) -> Option<usize> {
        keys.fold(
            None,
            |found, (key, beside)| {
                if bool::from(key.0.ct_eq(&self.0)) { Some(beside) } else { found }
            },
        )
    }

    /// The salt of a request with this key that names `salt`. Unequal keys have unequal salts, and
    /// no client can choose a salt that makes its own another key's.
    pub fn salted(&self, salt: u64) -> u64 {
        let mut hash = Sha256::new_with_prefix(self.0);
        hash.update(salt.to_le_bytes());
        first_word(&hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_are_found() {
        let keys = [KeyDigest::of(b"one"), KeyDigest::of(b"two")];
        for (header, found) in [
            (&b"Bearer one"[..], Some(0)),
            (b"bearer two", Some(1)),
            (b"Bearer on", None),
            (b"Bearer onee", None),
            (b"Basic one", None),
            (b"Bearer ", None),
            (b"one", None),
        ] {
            let digest = KeyDigest::of_bearer(header);
            let at = digest.and_then(|d| d.find(keys.iter().zip(0..)));
            assert_eq!(at, found, "{header:?}");
        }
    }

    #[test]
    fn digests_are_read_from_hex() {
        let hex = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        let one = KeyDigest::of(b"one");
        assert_eq!(KeyDigest::from_hex(hex).unwrap().find([(&one, 7)].into_iter()), Some(7));
        assert!(KeyDigest::from_hex(&hex[1..]).is_none());
        assert!(KeyDigest::from_hex(&hex.replace('7', "g")).is_none());
        assert!(KeyDigest::from_hex(&"\u{e9}".repeat(32)).is_none());
    }

    #[test]
    fn salts_differ_by_key_and_by_the_salt_asked_for() {
        let (one, two) = (KeyDigest::of(b"one"), KeyDigest::of(b"two"));
        assert_eq!(one.salted(0), KeyDigest::of(b"one").salted(0));
        let salts = [one.salted(0), one.salted(7), two.salted(0), two.salted(7), 0, 7];
        for (i, salt) in salts.iter().enumerate() {
            assert!(!salts[i + 1..].contains(salt), "{i}");
        }
    }
}
