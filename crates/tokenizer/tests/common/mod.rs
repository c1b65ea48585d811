//! Texts and vocabularies of the tests.
#![allow(dead_code, clippy::unwrap_used)] // each test uses a part of it; helpers of tests

use std::io::Write as _;
use std::path::{Path, PathBuf};

use tokenizers::Tokenizer as Reference;

/// The folder that tests/tokenizer/fetch.py fills.
const FOLDER: &str = "SACCADE_TOKENIZER_VOCABULARIES";

/// A vocabulary of [`FOLDER`]. If the variable is not set: in CI a failure, elsewhere None, and a
/// line that says so.
pub fn fetched(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        let what =
            format!("SKIPPED {name}: set {FOLDER} to the folder of tests/tokenizer/fetch.py");
        assert!(std::env::var_os("SACCADE_CI").is_none(), "{what}");
        // Past the harness, which shows no output of tests that pass.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "{what}").unwrap();
        return None;
    };
    let path = Path::new(&folder).join(format!("{name}.json"));
    assert!(path.exists(), "{}: run tests/tokenizer/fetch.py first", path.display());
    Some(path)
}

/// The tokenizer of the bundled model.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/saccade-tiny/tokenizer.json")
}

/// A reference that leaves the text as it is.
pub fn reference(json: &str) -> Reference {
    let mut reference: Reference = json.parse().unwrap();
    reference.with_truncation(None).unwrap();
    reference.with_padding(None);
    reference
}

/// Numbers from a seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) as usize) % bound.max(1)
    }

    pub fn one_of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }
}

/// Parts that meet where the expressions, the merges and the added tokens decide.
const PARTS: &[&str] = &[
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    " \n",
    "\n ",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "\u{b}",
    "\u{200b}",
    "\u{1680}",
    "'",
    "'s",
    "'S",
    "'ll",
    "'LL",
    "'lL",
    "'re",
    "'Ve",
    "'m",
    "'d",
    "'t",
    "'ſ",
    "’s",
    "ſ",
    "\u{212a}",
    "a",
    "A",
    "the",
    " the",
    "The",
    "THE",
    "camelCase",
    "HTTPServer",
    "XMLHttp",
    "iPhone",
    "0",
    "12",
    "123",
    "1234",
    "12345",
    "٣٤",
    "१२",
    "½",
    "Ⅷ",
    "²",
    ".",
    ",",
    "!",
    "?!",
    "...",
    "…",
    "/",
    "//",
    "/\n",
    "-",
    "--",
    "_",
    "__",
    "(",
    ")",
    "{}",
    "[]",
    "<",
    ">",
    "|",
    "<|",
    "|>",
    "#",
    "\"",
    "\\",
    "\\n",
    "@",
    "%",
    "€",
    "°",
    "é",
    "e\u{301}",
    "\u{301}",
    "ñ",
    "ß",
    "ẞ",
    "İ",
    "ı",
    "Å",
    "\u{212b}",
    "ǅ",
    "ʰ",
    "ª",
    "中",
    "中文",
    "日本語",
    "の",
    "カタカナ",
    "ー",
    "한국어",
    "\u{1112}\u{1161}\u{11ab}",
    "ไทย",
    "हिन्दी",
    "क्ष",
    "বাংলা",
    "עברית",
    "العربية",
    "ﷺ",
    "\u{202e}",
    "\u{200f}",
    "🎉",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "👍🏽",
    "🇩🇪",
    "\u{fe0f}",
    "\u{200d}",
    "\u{1f3fb}",
    "𝒳",
    "𠀀",
    "\u{10ffff}",
    "\u{fffd}",
    "\u{feff}",
    "\0",
    "\u{1}",
    "\u{7f}",
    "▁",
    "▁▁",
    "▁the",
    " ▁",
    "Ġ",
    "Ċ",
    "<0x0A>",
    "<0xE4>",
    "<s>",
    "</s>",
    " <s> ",
    "<unk>",
    "[INST]",
    "[/INST]",
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|im_sep|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|endoftext",
    "im_start|>",
    "\u{e000}",
    "ꙮ",
    "ᾀ",
    "ﬁ",
    "Ǳ",
];

/// A text of parts, of letters, of repeated parts, or of any characters.
pub fn random_text(random: &mut Random) -> String {
    let mut text = String::new();
    let parts = 1 + random.below(12);
    for _ in 0..parts {
        match random.below(8) {
            0 => {
                let part = random.one_of(PARTS);
                (0..random.below(20)).for_each(|_| text.push_str(part));
            }
            1 => (0..random.below(12)).for_each(|_| {
                text.push(char::from(b'a' + random.below(26) as u8));
            }),
            2 => text.extend((0..random.below(6)).filter_map(|_| any_char(random))),
            _ => text.push_str(random.one_of(PARTS)),
        }
    }
    text
}

fn any_char(random: &mut Random) -> Option<char> {
    let bound = [0x80, 0x800, 0x3000, 0xa000, 0x1_0000, 0x11_0000][random.below(6)];
    char::from_u32(random.below(bound) as u32)
}

/// Texts with something of everything: all bytes, code in ten languages, scripts, emoji.
pub fn samples() -> Vec<String> {
    let mut texts: Vec<String> =
        include_str!("texts.txt").split("\n====\n").map(str::to_owned).collect();
    texts.push(include_str!("texts.txt").to_owned());
    texts.push(PARTS.concat());
    texts.push(PARTS.join(" "));
    texts.push((0..=0x7fu8).map(char::from).collect());
    texts.push((0..0x1_1000u32).filter_map(char::from_u32).collect());
    texts.push(
        (0..0x3000u32).filter_map(char::from_u32).flat_map(|c| [c, ' ', c, c, '\n']).collect(),
    );
    texts.push(
        (0x1_f000..0x1_fb00u32).filter_map(char::from_u32).flat_map(|c| [c, '\u{200d}']).collect(),
    );
    for unit in ["a", " ", "\n", "1", "ab", "中", "👩‍👩‍👧‍👦", "= ", "é", "aA", ".", "\t"]
    {
        for count in [1, 2, 100, 127, 128, 129, 300, 5000] {
            texts.push(unit.repeat(count));
            texts.push(format!("x{}y", unit.repeat(count)));
        }
    }
    texts
}
