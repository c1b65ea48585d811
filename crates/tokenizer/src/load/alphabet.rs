//! GPT-2's map between bytes and characters: printable Latin-1 stands for itself, the other bytes
//! follow from U+0100 on, in order.

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

const TABLES: ([u16; 256], [u16; 512]) = {
    let mut chars = [0u16; 256];
    let mut bytes = [u16::MAX; 512];
    let (mut byte, mut next) = (0, 256);
    while byte < 256 {
        let code = if is_printable(byte as u8) { byte as u16 } else { next };
        if code == next {
            next += 1;
        }
        chars[byte] = code;
        bytes[code as usize] = byte as u16;
        byte += 1;
    }
    (chars, bytes)
};

/// The character of a byte.
pub fn byte_to_char(byte: u8) -> char {
    char::from_u32(u32::from(TABLES.0[usize::from(byte)])).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte of a character.
pub fn char_to_byte(c: char) -> Option<u8> {
    u8::try_from(*TABLES.1.get(c as usize)?).ok()
}

/// The bytes of a token if all its characters stand for bytes.
pub fn token_bytes(token: &str) -> Option<Vec<u8>> {
    token.chars().map(char_to_byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for byte in 0..=255 {
            assert_eq!(char_to_byte(byte_to_char(byte)), Some(byte));
        }
        assert_eq!((byte_to_char(b' '), byte_to_char(b'\n')), ('Ġ', 'Ċ'));
        assert_eq!((char_to_byte(' '), char_to_byte('▁')), (None, None));
    }
}
