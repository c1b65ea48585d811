//! Recorded times and lengths.

use std::io::BufRead;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::workload::lengths::MAX_TOKENS;

/// Tokens per `hash_id` of a trace (Mooncake's traces).
pub(crate) const BLOCK_TOKENS: u32 = 512;
/// Longest trace.
const MAX_ENTRIES: usize = 10_000_000;

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Output tokens.
    pub output_tokens: u32,
    /// Names of the blocks of 512 tokens that the prompt begins with: equal names, equal tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<u64>,
}

/// A trace: times, and lengths where it has them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// Seconds since the first request.
    pub timestamps_s: Vec<f64>,
    /// As many as times, or none.
    pub entries: Vec<TraceEntry>,
}

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: Option<u32>,
    output_length: Option<u32>,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

impl Trace {
    /// Reads a trace: either one time in seconds per line, or JSON lines as in Mooncake's traces
    /// (`timestamp` in milliseconds, `input_length`, `output_length`, `hash_ids`).
    ///
    /// # Errors
    /// [`LoadError::File`] with the line that cannot be used.
    pub fn read(path: &Path) -> Result<Trace, LoadError> {
        let file = std::fs::File::open(path).map_err(|e| LoadError::file(path, e))?;
        let mut trace = Trace::default();
        for (number, line) in std::io::BufReader::new(file).lines().enumerate() {
            let line = line.map_err(|e| LoadError::file(path, e))?;
            let at =
                |problem: String| LoadError::file(path, format!("line {}: {problem}", number + 1));
            if number >= MAX_ENTRIES {
                return Err(at(format!("more than {MAX_ENTRIES} requests")));
            }
            if !line.trim().is_empty() {
                trace.push(line.trim()).map_err(at)?;
            }
        }
        trace.finish(path)
    }

    fn push(&mut self, line: &str) -> Result<(), String> {
        if !line.starts_with('{') {
            let seconds: f64 = line.parse().map_err(|_| format!("'{line}' is not a time in s"))?;
            self.timestamps_s.push(seconds);
            return Ok(());
        }
        let line: Line = serde_json::from_str(line).map_err(|e| e.to_string())?;
        self.timestamps_s.push(line.timestamp / 1e3);
        if let (Some(input_tokens), Some(output_tokens)) = (line.input_length, line.output_length) {
            if input_tokens > MAX_TOKENS || output_tokens > MAX_TOKENS {
                return Err(format!("lengths must not exceed {MAX_TOKENS}"));
            }
            let (input_tokens, output_tokens) = (input_tokens.max(1), output_tokens.max(1));
            let blocks = line.hash_ids;
            self.entries.push(TraceEntry { input_tokens, output_tokens, blocks });
        }
        Ok(())
    }

    fn finish(mut self, path: &Path) -> Result<Trace, LoadError> {
        let Some(&first) = self.timestamps_s.first() else {
            return Err(LoadError::file(path, "no requests in it"));
        };
        if !self.entries.is_empty() && self.entries.len() != self.timestamps_s.len() {
            return Err(LoadError::file(path, "some lines have lengths and some have none"));
        }
        for t in &mut self.timestamps_s {
            *t -= first;
        }
        crate::Arrival::Replay { timestamps_s: self.timestamps_s.clone() }
            .validate()
            .map_err(|e| LoadError::file(path, e))?;
        Ok(self)
    }
}
