//! Any file: read, or refused by name; never a panic. What is read encodes and decodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use saccade_tokenizer::Tokenizer;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(tokenizer) = Tokenizer::from_json(text) {
        let ids = tokenizer.encode("Any text, 123  中文\n\u{2581}x <s>", true);
        let _ = tokenizer.decode(&ids, true);
    }
});
