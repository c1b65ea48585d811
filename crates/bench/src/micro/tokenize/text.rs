//! Prompts of given lengths in tokens, all different.

use tokenizers::Tokenizer;

/// What prompts are made of unless a file is given: English with punctuation and digits.
const DEFAULT_TEXT: &str = include_str!("../../../../../LICENSE");
/// Sentences beyond this many bytes are split: prompts are cut between parts.
const MAX_PART_BYTES: usize = 200;

/// Parts of a text with the tokens that each takes.
#[derive(Debug)]
pub(super) struct Prompts {
    parts: Vec<(String, usize)>,
    state: u64,
}

impl Prompts {
    /// Splits `text` (or the default) into parts and counts their tokens.
    ///
    /// # Errors
    /// If the tokenizer cannot encode it, or nothing is in it.
    pub(super) fn new(tokenizer: &Tokenizer, text: Option<&str>) -> anyhow::Result<Prompts> {
        let mut parts = Vec::new();
        for part in split(text.unwrap_or(DEFAULT_TEXT)) {
            let tokens = super::count_tokens(tokenizer, &part)?;
            if tokens > 0 {
                parts.push((part, tokens));
            }
        }
        anyhow::ensure!(!parts.is_empty(), "--text: nothing in it is a token");
        Ok(Prompts { parts, state: 1 })
    }

    /// Parts in random order, `tokens` tokens in total to within one part; tokens that merge or
    /// split where parts are joined make a difference of some percent.
    pub(super) fn next(&mut self, tokens: usize) -> String {
        let mut prompt = String::new();
        let mut so_far = 0;
        while so_far < tokens {
            let index = self.random() as usize % self.parts.len();
            let (part, count) = &self.parts[index];
            let wanted = (tokens - so_far).min(*count);
            // The last part is cut at about the right share of it, between words.
            let cut = part.len() * wanted / count;
            let end = part.char_indices().map(|(at, _)| at).find(|&at| at >= cut);
            prompt.push_str(&part[..end.unwrap_or(part.len())]);
            prompt.push(' ');
            so_far += wanted;
        }
        prompt
    }

    /// splitmix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Runs of words: sentences, or pieces of long ones.
fn split(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    for word in text.split_whitespace() {
        if !part.is_empty() {
            part.push(' ');
        }
        part.push_str(word);
        if word.ends_with(['.', '!', '?', ';']) || part.len() >= MAX_PART_BYTES {
            parts.push(std::mem::take(&mut part));
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_have_about_their_length_and_differ() {
        let tokenizer = super::super::bundled().unwrap();
        let mut prompts = Prompts::new(&tokenizer, None).unwrap();
        for tokens in [1, 10, 128, 5000] {
            let (one, two) = (prompts.next(tokens), prompts.next(tokens));
            assert!(tokens < 10 || one != two);
            let count = super::super::count_tokens(&tokenizer, &one).unwrap();
            let slack = 2 + tokens / 5;
            assert!(count.abs_diff(tokens) <= slack, "{count} tokens for {tokens}");
        }
    }

    #[test]
    fn any_text_can_be_cut() {
        let tokenizer = super::super::bundled().unwrap();
        let mut prompts = Prompts::new(&tokenizer, Some("äöü ſtraße 漢字かな 🙂🙂 .")).unwrap();
        for tokens in 1..40 {
            prompts.next(tokens);
        }
        assert!(Prompts::new(&tokenizer, Some(" \n")).is_err());
    }
}
