//! Token ids to text, whole or one at a time.

use std::collections::HashMap;

use crate::bpe::TokenBytes;
use crate::load::{Scheme, Spec, byte_to_char, char_to_byte};

const SPECIAL: u8 = 1;
const BYTE: u8 = 2;
const KNOWN: u8 = 4;

/// Most bytes of a run of fallback bytes that are held back until the run ends.
const MAX_RUN: usize = 1 << 16;

/// What each token adds to a text.
pub struct Pieces {
    scheme: Scheme,
    bytes: TokenBytes,
    flags: Vec<u8>,
    longest: usize,
    /// Strings that do not follow from the bytes.
    strings: HashMap<u32, Box<str>>,
}

impl Pieces {
    /// Of all tokens of a model file.
    pub fn new(spec: &Spec) -> Self {
        let of_model = spec.strings.iter().map(|(id, string)| (*id, string.as_str(), false));
        let added = spec.added.iter().map(|t| (t.id, t.content.as_str(), t.special));
        let ids = of_model.clone().chain(added.clone()).map(|(id, ..)| id as usize + 1).max();
        let mut texts: Vec<Vec<u8>> = vec![Vec::new(); ids.unwrap_or(0)];
        let mut flags = vec![0; texts.len()];
        let mut strings = HashMap::new();
        for (id, string, special) in of_model.chain(added) {
            let (bytes, flag) = piece(spec.scheme, string);
            if usual_string(spec.scheme, &bytes) != string {
                strings.insert(id, string.into());
            }
            texts[id as usize] = bytes;
            flags[id as usize] = KNOWN | flag | if special { SPECIAL } else { 0 };
        }
        let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
        let bytes = TokenBytes::new(texts.iter().map(Vec::as_slice));
        Self { scheme: spec.scheme, bytes, flags, longest, strings }
    }

    /// Bytes that the token adds; empty for ids that are no token.
    #[inline]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id)
    }

    /// The string of the token as the model file writes it; None for ids that are no token.
    pub fn string(&self, id: u32) -> Option<String> {
        let usual = || usual_string(self.scheme, self.bytes(id));
        let known = self.is_known(id).then(|| self.strings.get(&id));
        known.map(|string| string.map_or_else(usual, |s| s.to_string()))
    }

    /// Longest token, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Number of ids: one more than the largest.
    pub fn num_ids(&self) -> usize {
        self.flags.len()
    }

    /// Number of tokens: ids that are used.
    pub fn num_tokens(&self) -> usize {
        self.flags.iter().filter(|flags| **flags & KNOWN != 0).count()
    }

    /// Whether the id is a token.
    pub fn is_known(&self, id: u32) -> bool {
        self.flag(id, KNOWN)
    }

    /// Whether the token is one byte of a character that has no token of its own, like `<0xE4>`.
    pub fn is_fallback_byte(&self, id: u32) -> bool {
        self.flag(id, BYTE)
    }

    /// How tokens become text.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Whether the token is special.
    pub fn is_special(&self, id: u32) -> bool {
        self.flag(id, SPECIAL)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes.memory() + self.flags.len()
    }

    #[inline]
    fn flag(&self, id: u32, flag: u8) -> bool {
        self.flags.get(id as usize).is_some_and(|f| f & flag != 0)
    }
}

/// Bytes and flags of a token's string.
fn piece(scheme: Scheme, string: &str) -> (Vec<u8>, u8) {
    match scheme {
        // As in HF: a token with a character that stands for no byte is its own text.
        Scheme::Bytes => {
            let bytes = string.chars().map(char_to_byte).collect::<Option<Vec<u8>>>();
            (bytes.unwrap_or_else(|| string.as_bytes().to_vec()), 0)
        }
        Scheme::Fallback { .. } => match fallback_byte(string) {
            Some(byte) => (vec![byte], BYTE),
            None => (string.replace('\u{2581}', " ").into_bytes(), 0),
        },
    }
}

/// `<0xNN>` stands for one byte.
fn fallback_byte(string: &str) -> Option<u8> {
    let hex = string.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// The string that model files usually have for a token of these bytes.
fn usual_string(scheme: Scheme, bytes: &[u8]) -> String {
    match scheme {
        Scheme::Bytes => bytes.iter().map(|&b| byte_to_char(b)).collect(),
        Scheme::Fallback { .. } => String::from_utf8_lossy(bytes).replace(' ', "\u{2581}"),
    }
}

/// Bytes that may still become a character: at most 3.
#[derive(Debug, Clone, Default)]
struct Pending {
    bytes: [u8; 4],
    len: usize,
}

/// What the bytes of a run of fallback tokens are so far.
#[derive(Debug, Clone)]
enum Run {
    /// UTF-8, its last character perhaps incomplete.
    Sound(Vec<u8>),
    /// Not UTF-8, whatever comes.
    Broken,
}

/// The text of one sequence of tokens as it grows: byte for byte what decoding the whole gives.
/// What was handed out is never taken back and never ends within a character.
///
/// State is bounded: 3 bytes, or for vocabularies with byte fallback, where a later byte decides
/// about a whole run, that run up to 64 KiB.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    skip_special: bool,
    strip: usize,
    pending: Pending,
    run: Run,
}

impl Detokenizer {
    /// For tokens that begin a text.
    pub fn at_start(pieces: &Pieces, skip_special: bool) -> Self {
        let strip = match pieces.scheme {
            Scheme::Bytes => 0,
            Scheme::Fallback { strip } => strip,
        };
        Self { strip, ..Self::after_prompt(skip_special) }
    }

    /// For tokens that follow others: spaces at their start are part of the text.
    pub fn after_prompt(skip_special: bool) -> Self {
        let run = Run::Sound(Vec::new());
        Self { skip_special, strip: 0, pending: Pending::default(), run }
    }

    /// Appends to `out` the text that `id` completes.
    pub fn push(&mut self, pieces: &Pieces, id: u32, out: &mut String) {
        if !pieces.is_known(id) || (self.skip_special && pieces.is_special(id)) {
            return;
        }
        let bytes = pieces.bytes(id);
        match pieces.scheme {
            Scheme::Bytes => self.pending.push(bytes, out),
            Scheme::Fallback { .. } if pieces.is_fallback_byte(id) => {
                bytes.iter().for_each(|&b| self.push_run(b, out));
            }
            Scheme::Fallback { .. } => {
                self.end_run(out);
                self.push_text(&String::from_utf8_lossy(bytes), out);
            }
        }
    }

    /// The end: what is held back, as U+FFFD where it is no text.
    pub fn finish(&mut self, out: &mut String) {
        self.end_run(out);
        self.pending.finish(out);
    }

    fn push_run(&mut self, byte: u8, out: &mut String) {
        let Run::Sound(run) = &mut self.run else {
            self.push_text("\u{fffd}", out);
            return;
        };
        run.push(byte);
        let (valid, is_broken) = match std::str::from_utf8(tail(run)) {
            Ok(_) => (run.len(), false),
            Err(e) => (0, e.error_len().is_some()),
        };
        if is_broken {
            let count = run.len();
            self.run = Run::Broken;
            (0..count).for_each(|_| self.push_text("\u{fffd}", out));
        } else if valid >= MAX_RUN {
            self.end_run(out);
        }
    }

    fn end_run(&mut self, out: &mut String) {
        match std::mem::replace(&mut self.run, Run::Sound(Vec::new())) {
            Run::Broken => {}
            Run::Sound(run) => match std::str::from_utf8(&run) {
                Ok(text) => self.push_text(text, out),
                Err(_) => run.iter().for_each(|_| self.push_text("\u{fffd}", out)),
            },
        }
    }

    fn push_text(&mut self, mut text: &str, out: &mut String) {
        while self.strip > 0 && !text.is_empty() {
            self.strip -= 1;
            match text.strip_prefix(' ') {
                Some(rest) => text = rest,
                None => self.strip = 0,
            }
        }
        out.push_str(text);
    }
}

/// The last character of bytes that were UTF-8 before the last one came.
fn tail(run: &[u8]) -> &[u8] {
    let start = run.iter().rev().take(4).position(|b| b & 0xc0 != 0x80);
    &run[start.map_or(run.len().saturating_sub(4), |back| run.len() - 1 - back)..]
}

impl Pending {
    fn push(&mut self, bytes: &[u8], out: &mut String) {
        let mut bytes = bytes;
        // Complete the character that is waiting, byte by byte.
        while self.len > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return };
            self.bytes[self.len] = byte;
            match std::str::from_utf8(&self.bytes[..=self.len]) {
                Ok(text) => {
                    out.push_str(text);
                    self.len = 0;
                }
                Err(e) if e.error_len().is_none() => self.len += 1,
                Err(_) => {
                    // The new byte does not belong to it, and starts over.
                    out.push(char::REPLACEMENT_CHARACTER);
                    self.len = 0;
                    continue;
                }
            }
            bytes = rest;
        }
        for chunk in bytes.utf8_chunks() {
            out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            // Only the last chunk can be a character that has begun.
            let ends_here = invalid.as_ptr_range().end == bytes.as_ptr_range().end;
            let has_begun =
                ends_here && std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if has_begun {
                self.bytes[..invalid.len()].copy_from_slice(invalid);
                self.len = invalid.len();
            } else if !invalid.is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    fn finish(&mut self, out: &mut String) {
        if self.len > 0 {
            self.len = 0;
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}
