//! API keys.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::limits::MAX_API_KEY_BYTES;

/// Digests of the accepted keys: comparing them takes the same time whatever the key, its length
/// included.
pub struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    /// Accepts `keys`; if there are none, no key is required.
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| Sha256::digest(key.as_bytes()).into()).collect())
    }

    /// Whether a key is required.
    pub fn required(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether an `Authorization` header carries an accepted key.
    pub fn accepts(&self, authorization: Option<&[u8]>) -> bool {
        let Some((scheme, key)) = authorization.and_then(|value| value.split_at_checked(7)) else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case(b"bearer ") || key.len() > MAX_API_KEY_BYTES {
            return false;
        }
        let digest: [u8; 32] = Sha256::digest(key).into();
        // Every key is compared, so that the time does not reveal a near match.
        self.0.iter().fold(subtle::Choice::from(0), |found, key| found | key.ct_eq(&digest)).into()
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
            assert_eq!(keys.accepts(header), accepted, "{header:?}");
        }
    }
}
