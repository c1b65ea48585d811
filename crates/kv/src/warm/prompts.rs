//! Prompts of a file, one a line.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// Of a file of prompts.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// What a line may not choose: one token is generated, and its prompt's KV is what is wanted.
const OURS: [&str; 13] = [
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "stream",
    "stream_options",
    "n",
    "best_of",
    "echo",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "stop",
    "output_tokens",
];

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub path: &'static str,
    pub body: Map<String, Value>,
}

/// Reads a file; `-` is the standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Request>> {
    let name = format!("--prompts {}", path.display());
    let mut text = String::new();
    let bytes = match path.to_str() {
        Some("-") => std::io::stdin().take(MAX_FILE_BYTES + 1).read_to_string(&mut text),
        _ => std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)),
    };
    if bytes.with_context(|| name.clone())? as u64 > MAX_FILE_BYTES {
        bail!("{name}: more than {MAX_FILE_BYTES} bytes");
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let requests: anyhow::Result<Vec<Request>> = lines
        .map(|(i, line)| parse(line).with_context(|| format!("{name}: line {}", i + 1)))
        .collect();
    let requests = requests?;
    if requests.is_empty() {
        bail!("{name}: no prompt");
    }
    Ok(requests)
}

/// An object with a prompt, a JSON string, or the line as it is.
fn parse(line: &str) -> anyhow::Result<Request> {
    let mut body = match line.trim_start().starts_with('{') {
        true => serde_json::from_str::<Map<_, _>>(line).context("begins as JSON and is none")?,
        false => {
            let text = serde_json::from_str(line).unwrap_or_else(|_| line.to_owned());
            [("prompt".to_owned(), Value::String(text))].into_iter().collect()
        }
    };
    let path = match (body.contains_key("prompt"), body.contains_key("messages")) {
        (true, false) => "/v1/completions",
        (false, true) => "/v1/chat/completions",
        _ => bail!("an object must have either prompt or messages"),
    };
    OURS.iter().for_each(|field| drop(body.shift_remove(*field)));
    body.insert("max_tokens".to_owned(), 1.into());
    Ok(Request { path, body })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_text_a_string_or_an_object() {
        for (line, path, body) in [
            ("Hello, \\n", "/v1/completions", json!({"prompt": "Hello, \\n"})),
            (r#""two\nlines""#, "/v1/completions", json!({"prompt": "two\nlines"})),
            (r#""Hello," she said"#, "/v1/completions", json!({"prompt": "\"Hello,\" she said"})),
            ("[1]", "/v1/completions", json!({"prompt": "[1]"})),
            (
                r#"{"prompt": [1, 2], "max_tokens": 9, "cache_salt": "a", "stream": true}"#,
                "/v1/completions",
                json!({"prompt": [1, 2], "cache_salt": "a"}),
            ),
            (
                r#"{"messages": [{"role": "user", "content": "x"}], "logprobs": true}"#,
                "/v1/chat/completions",
                json!({"messages": [{"role": "user", "content": "x"}]}),
            ),
        ] {
            let mut expected = body;
            expected["max_tokens"] = json!(1);
            let request = parse(line).unwrap();
            assert_eq!((request.path, Value::Object(request.body)), (path, expected), "{line}");
        }
        for line in ["{", "{}", r#"{"prompt": "a", "messages": []}"#, r#"{"prompt": "a"} x"#] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prompts");
        std::fs::write(&path, "one\n\n{\"x\": 1}\n").unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("prompts: line 3: an object must have"), "{error}");
        std::fs::write(&path, "\n \n").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("no prompt"));
        std::fs::write(&path, "one\n\ntwo\n").unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        let error = format!("{:#}", read(&folder.path().join("none")).unwrap_err());
        assert!(error.contains("--prompts"), "{error}");
    }
}
