//! Prompts of a given number of tokens, cut out of long texts.

use saccade_tokenizer::Tokenizer;

/// Prompts of `tokens` tokens each, from places all over `text`.
pub fn prompts(tokenizer: &Tokenizer, text: &str, tokens: usize, count: usize) -> Vec<String> {
    (0..count)
        .map(|index| {
            let mut start = text.len() / count * index;
            while !text.is_char_boundary(start) {
                start += 1;
            }
            // Enough bytes for any script.
            let mut end = (start + tokens * 16).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let ids = tokenizer.encode(&text[start..end], false);
            tokenizer.decode(&ids[..tokens.min(ids.len())], false)
        })
        .collect()
}

/// One million bytes that are hard for some tokenizers.
pub fn worst_cases() -> Vec<(&'static str, String)> {
    const BYTES: usize = 1_000_000;
    let repeat = |unit: &str| unit.repeat(BYTES / unit.len());
    let mut state = 1u64;
    let mut letter = |range: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % range
    };
    let letters: String = (0..BYTES).map(|_| char::from(b'a' + letter(26) as u8)).collect();
    let chinese: String =
        (0..BYTES / 3).filter_map(|_| char::from_u32(0x4e00 + letter(0x5000) as u32)).collect();
    vec![
        ("one letter", repeat("a")),
        ("random letters", letters),
        ("spaces", repeat(" ")),
        ("line ends", repeat("\n")),
        ("digits", repeat("7")),
        ("nested emoji", repeat("👩\u{200d}👩\u{200d}👧\u{200d}👦\u{200d}")),
        ("punctuation", repeat("=")),
        ("random Chinese", chinese),
        ("joiners", repeat("\u{200d}")),
    ]
}
