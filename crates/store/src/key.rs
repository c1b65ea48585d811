//! Keys: where a chunk is in a store.

use saccade_chunk::{ModelId, Name};

/// A chunk in a store. Keys of different models or salts are different, whatever the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// That computed the chunk.
    pub model: ModelId,
    /// Who may share it.
    pub salt: u64,
    /// Of the chunk.
    pub name: Name,
}

impl Key {
    /// As it is written in a store: namespace, model (64 hexadecimal digits), salt (16) and name
    /// (64), joined by `separator`.
    pub fn text(&self, namespace: &str, separator: char) -> String {
        let Self { model, salt, name } = self;
        format!("{namespace}{separator}{model}{separator}{salt:016x}{separator}{name}")
    }

    /// The key that `text` writes; none where the text is anything else.
    pub fn from_text(text: &str, namespace: &str, separator: char) -> Option<Self> {
        let mut parts = text.strip_prefix(namespace)?.strip_prefix(separator)?.split(separator);
        let model = ModelId::from_bytes(hex(parts.next()?)?);
        let salt = u64::from_be_bytes(hex(parts.next()?)?);
        let name = Name::from_bytes(hex(parts.next()?)?);
        parts.next().is_none().then_some(Self { model, salt, name })
    }
}

/// Lower case only: one key has one text.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

const fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Key> {
        (any::<[u8; 32]>(), any::<u64>(), any::<[u8; 32]>()).prop_map(|(model, salt, name)| Key {
            model: ModelId::from_bytes(model),
            salt,
            name: Name::from_bytes(name),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(key in keys(), slash in any::<bool>()) {
            let separator = if slash { '/' } else { ':' };
            let text = key.text("saccade", separator);
            prop_assert_eq!(Key::from_text(&text, "saccade", separator), Some(key));
        }

        #[test]
        fn another_text_is_another_key_or_none(
            key in keys(),
            at in 0..154_usize,
            with in any::<char>(),
        ) {
            let mut text: Vec<char> = key.text("saccade", ':').chars().collect();
            let same = text[at] == with;
            text[at] = with;
            let text: String = text.into_iter().collect();
            let read = Key::from_text(&text, "saccade", ':');
            prop_assert_eq!(read == Some(key), same);
            prop_assert!(read.is_none_or(|read| read.text("saccade", ':') == text));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in any::<String>()) {
            Key::from_text(&text, "saccade", ':');
            Key::from_text(&format!("saccade:{text}"), "saccade", ':');
        }
    }
}
