//! API keys.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::limits::MAX_API_KEY_BYTES;
use crate::validate::first_word;

/// Digests of the accepted keys: comparing them takes the same time whatever the key, its length
/// included.
pub struct ApiKeys(Vec<KeyDigest>);

/// SHA-256 of the key of a request, in its extensions.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The salt of a request with this key that names `salt`. Unequal keys have unequal salts, and
    /// no client can choose a salt that makes its own another key's.
    pub fn salted(&self, salt: u64) -> u64 {
        let mut hash = Sha256::new_with_prefix(self.0);
        hash.update(salt.to_le_bytes());
        first_word(&hash.finalize())
    }
}

impl ApiKeys {
    /// Accepts `keys`; if there are none, no key is required.
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| KeyDigest::of(key.as_bytes())).collect())
    }

    /// Whether a key is required.
    pub fn required(&self) -> bool {
        !self.0.is_empty()
    }

    /// The accepted key that an `Authorization` header carries.
    pub fn accepted(&self, authorization: Option<&[u8]>) -> Option<KeyDigest> {
        let (scheme, key) = authorization?.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || key.len() > MAX_API_KEY_BYTES {
            return None;
        }
        let digest = KeyDigest::of(key);
        // Every key is compared, so that the time does not reveal a near match.
        let equal = |key: &KeyDigest| key.0.ct_eq(&digest.0);
        let found = self.0.iter().fold(subtle::Choice::from(0), |found, key| found | equal(key));
        bool::from(found).then_some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_are_accepted() {
        let keys = ApiKeys::new(&["one".into(), "two".into()]);
        for (header, accepted) in [
            (Some(&b"Bearer one"[..]), true),
            (Some(b"bearer two"), true),
            (Some(b"Bearer on"), false),
            (Some(b"Bearer onee"), false),
            (Some(b"Basic one"), false),
            (Some(b"Bearer "), false),
            (Some(b"one"), false),
            (None, false),
        ] {
            assert_eq!(keys.accepted(header).is_some(), accepted, "{header:?}");
        }
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
