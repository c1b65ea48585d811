//! What each token id contributes to the text, taken out of the tokenizer once at start, so that
//! the path of a token is a table look-up and no lock, allocation or regular expression.

use saccade_grammar::Vocabulary;
use saccade_tokenizer::{Pieces, Scheme as OwnScheme};
use serde_json::Value;
use tokenizers::Tokenizer;

/// A decoder of tokenizer.json that is none of the two families below.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("tokenizer.json: decoder {0}: only byte-level and byte-fallback decoders are supported")]
pub struct UnsupportedDecoder(String);

/// How pieces become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// GPT-2 style: pieces are bytes, the text is their lossy UTF-8.
    ByteLevel,
    /// SentencePiece style: pieces are text; a run of single-byte pieces is one UTF-8 text, or one
    /// U+FFFD per byte if it is not valid. `strip_start` spaces are dropped where a text begins.
    ByteFallback { strip_start: usize },
}

const SPECIAL: u8 = 1;
const BYTE: u8 = 2;
const KNOWN: u8 = 4;

/// Pieces of all token ids.
pub struct Vocab {
    pub(super) scheme: Scheme,
    /// `[num_ids + 1]`: piece `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    flags: Vec<u8>,
    longest: usize,
}

impl Vocab {
    /// Reads every piece of `tokenizer`.
    ///
    /// # Errors
    /// If its decoder belongs to neither family.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, UnsupportedDecoder> {
        let (scheme, replace) = scheme_of(tokenizer)?;
        let num_ids = tokenizer.get_vocab(true).into_values().max().map_or(0, |id| id + 1);
        let mut vocab =
            Self { scheme, offsets: vec![0], bytes: Vec::new(), flags: Vec::new(), longest: 0 };
        let unicode_bytes = char_bytes();
        for id in 0..num_ids {
            let token = tokenizer.id_to_token(id);
            let mut flags = 0;
            if let Some(token) = token {
                flags |= KNOWN;
                if tokenizer.get_added_vocabulary().is_special_token(&token) {
                    flags |= SPECIAL;
                }
                match scheme {
                    Scheme::ByteLevel => push_byte_level(&token, &unicode_bytes, &mut vocab.bytes),
                    Scheme::ByteFallback { .. } => match fallback_byte(&token) {
                        Some(byte) => {
                            flags |= BYTE;
                            vocab.bytes.push(byte);
                        }
                        None => {
                            let text = replace.iter().fold(token, |t, (a, b)| t.replace(a, b));
                            vocab.bytes.extend_from_slice(text.as_bytes());
                        }
                    },
                }
            }
            vocab.end_piece(flags);
        }
        Ok(vocab)
    }

    /// Takes the pieces of our own tokenizer.
    pub fn of_pieces(pieces: &Pieces) -> Self {
        let scheme = match pieces.scheme() {
            OwnScheme::Bytes => Scheme::ByteLevel,
            OwnScheme::Fallback { strip } => Scheme::ByteFallback { strip_start: strip },
        };
        let (offsets, bytes) = (vec![0], Vec::new());
        let mut vocab = Self { scheme, offsets, bytes, flags: Vec::new(), longest: 0 };
        for id in (0..pieces.num_ids()).filter_map(|id| u32::try_from(id).ok()) {
            let mut flags = 0;
            for (is_set, flag) in [
                (pieces.is_known(id), KNOWN),
                (pieces.is_special(id), SPECIAL),
                (pieces.is_fallback_byte(id), BYTE),
            ] {
                flags |= if is_set { flag } else { 0 };
            }
            vocab.bytes.extend_from_slice(pieces.bytes(id));
            vocab.end_piece(flags);
        }
        vocab
    }

    fn end_piece(&mut self, flags: u8) {
        let start = self.offsets.last().map_or(0, |&o| o as usize);
        self.longest = self.longest.max(self.bytes.len() - start);
        self.flags.push(flags);
        self.offsets.push(self.bytes.len() as u32);
    }

    /// Bytes that the token adds to a text; empty for ids that the tokenizer does not know.
    pub fn piece(&self, id: u32) -> &[u8] {
        let Some(&start) = self.offsets.get(id as usize) else { return &[] };
        let end = self.offsets.get(id as usize + 1).copied().unwrap_or(start);
        &self.bytes[start as usize..end as usize]
    }

    /// What each id below `vocab_size` adds to an answer under a grammar; special tokens and
    /// unknown ids are never part of one.
    pub fn token_bytes(&self, vocab_size: u32) -> Vocabulary {
        let mut all = Vocabulary::default();
        for id in 0..vocab_size {
            let is_text = self.is_known(id) && !self.is_special(id);
            all.push(if is_text { self.piece(id) } else { &[] });
        }
        all
    }

    /// Most bytes of text that `tokens` tokens can hold: longer text is too long without asking the
    /// tokenizer. Normalizers compose characters (NFC: three to one), hence the slack.
    pub fn max_text_bytes(&self, tokens: u32) -> usize {
        const NORMALIZER_SLACK: usize = 4;
        (tokens as usize).saturating_mul(self.longest.max(1)).saturating_mul(NORMALIZER_SLACK)
    }

    /// The piece on its own as text, for logprobs.
    pub fn piece_text(&self, id: u32) -> String {
        String::from_utf8_lossy(self.piece(id)).into_owned()
    }

    /// Special tokens whose text is one of `texts`.
    pub fn specials_named(&self, texts: &[&str]) -> Vec<u32> {
        let is_one = |id: &u32| {
            self.is_special(*id) && texts.iter().any(|text| text.as_bytes() == self.piece(*id))
        };
        (0..self.flags.len() as u32).filter(is_one).collect()
    }

    /// Whether the token leaves no text under `skip_special_tokens`.
    pub fn is_special(&self, id: u32) -> bool {
        self.flag(id, SPECIAL)
    }

    /// Whether the tokenizer knows the id; embeddings are often padded beyond.
    pub fn is_known(&self, id: u32) -> bool {
        self.flag(id, KNOWN)
    }

    pub(super) fn is_byte(&self, id: u32) -> bool {
        self.flag(id, BYTE)
    }

    fn flag(&self, id: u32, flag: u8) -> bool {
        self.flags.get(id as usize).is_some_and(|f| f & flag != 0)
    }
}

/// `<0xNN>` pieces stand for one byte.
fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// A piece whose characters all stand for bytes is those bytes; any other (an added token with a
/// space, say) is its own UTF-8. The same rule as in the HF decoder.
fn push_byte_level(token: &str, table: &[Option<u8>; 512], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for c in token.chars() {
        match table.get(c as usize).copied().flatten() {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(start);
                bytes.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// GPT-2's map from characters to bytes: printable Latin-1 stands for itself, the other bytes
/// follow from U+0100 on, in order.
fn char_bytes() -> [Option<u8>; 512] {
    let mut table = [None; 512];
    let mut next = 256;
    for byte in 0..=255u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let code = if printable { usize::from(byte) } else { next };
        next += usize::from(!printable);
        table[code] = Some(byte);
    }
    table
}

type Replacements = Vec<(String, String)>;

/// Recognises the decoder by its serialised form: its fields are private.
fn scheme_of(tokenizer: &Tokenizer) -> Result<(Scheme, Replacements), UnsupportedDecoder> {
    let unsupported = |v: &Value| UnsupportedDecoder(v.to_string().chars().take(200).collect());
    let decoder = serde_json::to_value(tokenizer.get_decoder())
        .map_err(|e| UnsupportedDecoder(e.to_string()))?;
    let list = match decoder.get("decoders").and_then(Value::as_array) {
        Some(list) => list.clone(),
        None => vec![decoder.clone()],
    };
    let kind = |v: &Value| v.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kinds: Vec<String> = list.iter().map(kind).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    match kinds.as_slice() {
        ["ByteLevel"] | ["ByteLevel", "Fuse"] => Ok((Scheme::ByteLevel, Vec::new())),
        [.., "ByteFallback", "Fuse"] => {
            Ok((Scheme::ByteFallback { strip_start: 0 }, replacements(&list[..list.len() - 2])?))
        }
        [.., "ByteFallback", "Fuse", "Strip"] => {
            let strip = &list[list.len() - 1];
            let count = |name| strip.get(name).and_then(Value::as_u64).unwrap_or(0);
            let space = strip.get("content").and_then(Value::as_str) == Some(" ");
            if !space || count("stop") != 0 {
                return Err(unsupported(strip));
            }
            let scheme = Scheme::ByteFallback { strip_start: count("start") as usize };
            Ok((scheme, replacements(&list[..list.len() - 3])?))
        }
        _ => Err(unsupported(&decoder)),
    }
}

fn replacements(list: &[Value]) -> Result<Replacements, UnsupportedDecoder> {
    let one = |v: &Value| {
        let pattern = v.pointer("/pattern/String").and_then(Value::as_str);
        let content = v.get("content").and_then(Value::as_str);
        match (v.get("type").and_then(Value::as_str), pattern, content) {
            (Some("Replace"), Some(pattern), Some(content)) => {
                Ok((pattern.to_owned(), content.to_owned()))
            }
            _ => Err(UnsupportedDecoder(v.to_string())),
        }
    };
    list.iter().map(one).collect()
}
