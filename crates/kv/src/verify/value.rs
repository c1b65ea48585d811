//! Whether one value is the chunk that its key names.

use bytes::Bytes;
use saccade_chunk::codec::Scratch;
use saccade_chunk::{CHUNK_TOKENS, Rejection, Value, describe};
use saccade_store::{Entry, Guarded, Key, Trouble};

/// Longest value that is read: that of a chunk of 128 layers with 16 heads of 256 in f32.
const MAX_VALUE_BYTES: u64 = 1 << 30;

/// What came under a key.
#[derive(Debug, Clone)]
pub(crate) enum Read {
    Value(Bytes),
    /// It has gone since it was listed.
    Gone,
    /// Longer than a value may be, or than it was when it was listed.
    TooLong,
}

/// Kind of what is wrong with a value that is longer than it was, or than it may be.
pub(crate) const TOO_LONG: &str = "length";

/// Reads a value that was listed.
pub(crate) async fn read(store: &Guarded, entry: Entry) -> Result<Read, Trouble> {
    if entry.bytes > MAX_VALUE_BYTES {
        return Ok(Read::TooLong);
    }
    match store.get(&entry.key, entry.bytes as usize).await {
        Ok(Some(value)) => Ok(Read::Value(value)),
        Ok(None) => Ok(Read::Gone),
        Err(Trouble::TooLarge { .. }) => Ok(Read::TooLong),
        Err(trouble) => Err(trouble),
    }
}

impl Read {
    /// Name of the codec, or what is wrong.
    pub(crate) fn codec(&self) -> Result<&'static str, &'static str> {
        match self {
            Self::Value(value) => {
                describe(value).map(|(_, coded)| coded.codec().name()).map_err(|wrong| wrong.kind())
            }
            Self::Gone => Err("gone"),
            Self::TooLong => Err(TOO_LONG),
        }
    }
}

/// Reads all of a value: header, checksum, key, and code, plane by plane.
pub(crate) fn judge(key: &Key, value: &[u8]) -> Result<(), Rejection> {
    let (described, coded) = describe(value)?;
    let Value { model, name, first_token, geometry } = described;
    if name != key.name {
        return Err(Rejection::Name);
    }
    if model != key.model {
        return Err(Rejection::Model);
    }
    // Others are never asked for.
    if geometry.num_tokens != CHUNK_TOKENS || !first_token.is_multiple_of(CHUNK_TOKENS as u32) {
        return Err(Rejection::Span);
    }
    let (mut scratch, mut kv) = (Scratch::default(), vec![0; geometry.plane_bytes()]);
    for plane in 0..geometry.num_planes() {
        coded.decode_plane(plane, &mut kv, &mut scratch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use saccade_chunk::{Codec, Dtype, Geometry, ModelId, Name, seal};

    use super::*;

    fn sealed(change: fn(&mut Value)) -> (Key, Vec<u8>) {
        let geometry = Geometry {
            num_layers: 1,
            kv_heads: 1,
            head_dim: 4,
            num_tokens: 256,
            dtype: Dtype::F32,
        };
        let model = ModelId::from_bytes([1; 32]);
        let name = Name::from_bytes([2; 32]);
        let mut value = Value { model, name, first_token: 512, geometry };
        change(&mut value);
        let mut bytes = Vec::new();
        let kv = vec![0; value.geometry.bytes()];
        seal(&value, Codec::Lossless, &kv, &mut Scratch::default(), &mut bytes);
        (Key { model, salt: 3, name }, bytes)
    }

    #[test]
    fn a_value_under_another_key_is_wrong() {
        let kind = |change| {
            let (key, bytes) = sealed(change);
            judge(&key, &bytes).map_err(|wrong| wrong.kind())
        };
        assert_eq!(kind(|_| {}), Ok(()));
        assert_eq!(kind(|value| value.name = Name::from_bytes([3; 32])), Err("name"));
        assert_eq!(kind(|value| value.model = ModelId::from_bytes([3; 32])), Err("model"));
        assert_eq!(kind(|value| value.first_token = 1), Err("span"));
        assert_eq!(kind(|value| value.geometry.num_tokens = 255), Err("span"));
    }

    #[test]
    fn a_right_checksum_over_a_wrong_code_is_found() {
        let (key, mut bytes) = sealed(|_| {});
        // A byte of the first coded plane, and the checksum that belongs to it.
        let aside = u32::from_le_bytes(*bytes[112..].first_chunk().unwrap()) as usize;
        bytes[112 + 16 + aside] = 9;
        let wrong = judge(&key, &bytes).map_err(|wrong| wrong.kind());
        assert_eq!(wrong, Err("checksum"));
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        hash.update(&bytes[..96]);
        hash.update(&bytes[112..]);
        bytes[96..112].copy_from_slice(&hash.digest128().to_le_bytes());
        let wrong = judge(&key, &bytes).map_err(|wrong| wrong.kind());
        assert_eq!(wrong, Err("payload"));
    }
}
