//! Tiny tokenizers of both families, as tokenizer.json: for unit and integration tests.

use serde_json::{Value, json};

fn special(id: u32, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false,
           "rstrip": false, "normalized": false, "special": true})
}

fn added(id: u32, content: &str) -> Value {
    let mut token = special(id, content);
    token["special"] = json!(false);
    token
}

/// Bytes as ids 0..256, a few merges, `<|end|>` = 266, `<|im_start|>` = 267, `<|im_end|>` =
/// 268, and the plain added token `a b` = 269.
pub fn byte_level_json() -> Value {
    let mut vocab = serde_json::Map::new();
    let mut next = 256u32;
    for byte in 0..=255u32 {
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if printable { byte } else { next };
        next += u32::from(!printable);
        let c = char::from_u32(code).unwrap_or('?');
        vocab.insert(c.to_string(), json!(byte));
    }
    let merges = ["t h", "th e", "Ġ the", "i n", "a n", "an d", "e r", "Ġ a", "o r", "l l"];
    for (i, merge) in merges.iter().enumerate() {
        vocab.insert(merge.replace(' ', ""), json!(256 + i));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [special(266, "<|end|>"), special(267, "<|im_start|>"),
                         special(268, "<|im_end|>"), added(269, "a b")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                          "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                    "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                  "vocab": vocab, "merges": merges}
    })
}

/// SentencePiece style: `<unk> <s> </s>`, then the bytes, then a few pieces.
pub fn byte_fallback_json() -> Value {
    let mut vocab = serde_json::Map::new();
    for (id, token) in ["<unk>", "<s>", "</s>"].iter().enumerate() {
        vocab.insert((*token).into(), json!(id));
    }
    for byte in 0..256 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(3 + byte));
    }
    let pieces = ["▁", "t", "h", "e", "a", "▁t", "he", "▁the", "é", "▁▁", " x"];
    for (i, piece) in pieces.iter().enumerate() {
        vocab.insert((*piece).into(), json!(259 + i));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                  "vocab": vocab, "merges": ["▁ t", "h e", "▁t he"]}
    })
}
