//! A recorded trace: when requests arrived, how long they were, and what their prompts share.
//!
//! Two formats are read. Mooncake's has a JSON object a line: `timestamp` (milliseconds),
//! `input_length`, `output_length`, and `hash_ids`, an id for each 512 tokens of the prompt; equal
//! ids mean equal prefixes. Azure's CSV has the columns TIMESTAMP, ContextTokens and
//! GeneratedTokens, and does not tell what prompts share.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use saccade_device::sim::SimLoad;
use serde_json::{Map, Value};

/// Tokens of a block of Mooncake's traces.
pub(crate) const BLOCK_TOKENS: u32 = 512;
/// Most tokens of a request, and most requests of a trace.
const MAX_TOKENS: u64 = 1 << 24;
const MAX_REQUESTS: usize = 1_000_000;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// One request of a trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recorded {
    /// Of the file, from 1.
    pub line: usize,
    /// Seconds since the first request.
    pub at_s: f64,
    pub input: u32,
    pub output: u32,
    /// Of [`Trace::block_ids`].
    pub first_block_id: u64,
    /// 0: its prompt shares nothing.
    pub num_block_ids: u32,
}

/// A trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trace {
    pub file: String,
    /// By arrival; at least two, not all at one time.
    pub requests: Vec<Recorded>,
    /// Of all prompts, numbered in order of appearance.
    pub block_ids: Vec<u32>,
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is of neither format; a field is missing or out of its bounds.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Trace> {
        let file = path.display().to_string();
        let name = || format!("--trace {file}");
        let text = text_of(path).with_context(name)?;
        let mut reader = Reader::default();
        let mut requests = reader.requests(&text).with_context(name)?;
        // Writers with several threads do not keep the order.
        requests.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let span = |r: &[Recorded]| Some((r.first()?.at_s, r.last()?.at_s));
        let (first, last) = span(&requests).with_context(name).context("it has no requests")?;
        anyhow::ensure!(
            last > first,
            "--trace {file}: all of its {} requests arrive at one time, at no rate",
            requests.len()
        );
        requests.iter_mut().for_each(|r| r.at_s -= first);
        Ok(Trace { file, requests, block_ids: reader.block_ids })
    }

    /// Requests per second, as recorded.
    pub(crate) fn rate_rps(&self) -> f64 {
        let last = self.requests.last().map_or(0.0, |r| r.at_s);
        (self.requests.len() - 1) as f64 / last
    }

    /// Mean tokens of a prompt and of an answer.
    pub(crate) fn mean_lengths(&self) -> (f64, f64) {
        let mean = |of: fn(&Recorded) -> u32| {
            let sum: f64 = self.requests.iter().map(|r| f64::from(of(r))).sum();
            sum / self.requests.len() as f64
        };
        (mean(|r| r.input), mean(|r| r.output))
    }

    /// # Errors
    /// A request alone needs more than `kv_tokens`.
    pub(crate) fn check_fits(&self, kv_tokens: u64) -> anyhow::Result<()> {
        let tokens = |r: &Recorded| u64::from(r.input) + u64::from(r.output);
        let Some(r) = self.requests.iter().find(|r| tokens(r) > kv_tokens) else { return Ok(()) };
        anyhow::bail!(
            "--trace {} line {}: {} tokens in and {} out do not fit the device's KV memory of \
             {kv_tokens} tokens",
            self.file,
            r.line,
            r.input,
            r.output
        )
    }
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path)?;
    let mut text = String::new();
    if bytes.starts_with(&GZIP) {
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    } else {
        text = String::from_utf8(bytes)?;
    }
    Ok(text)
}

#[derive(Debug, Default)]
struct Reader {
    block_ids: Vec<u32>,
    /// Numbers of the ids that were seen: the file may have any.
    numbers: HashMap<u64, u32>,
}

impl Reader {
    fn requests(&mut self, text: &str) -> anyhow::Result<Vec<Recorded>> {
        let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())).peekable();
        let is_json = text.trim_start().starts_with('{');
        let columns = if is_json {
            None
        } else {
            Some(Columns::of(lines.next().map_or("", |(_, line)| line))?)
        };
        let mut requests = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let read = match &columns {
                None => self.mooncake(line),
                Some(columns) => columns.azure(line),
            };
            let request = read.with_context(|| format!("line {number}"))?;
            requests.push(Recorded { line: number, ..request });
            anyhow::ensure!(requests.len() <= MAX_REQUESTS, "more than {MAX_REQUESTS} requests");
        }
        Ok(requests)
    }

    fn mooncake(&mut self, line: &str) -> anyhow::Result<Recorded> {
        let fields: Map<String, Value> =
            serde_json::from_str(line).map_err(|e| anyhow::anyhow!("not a JSON object: {e}"))?;
        let field = |name: &str| fields.get(name).with_context(|| format!("{name} is missing"));
        let ms = field("timestamp")?;
        let ms = ms
            .as_f64()
            .filter(|ms| (0.0..1e15).contains(ms))
            .with_context(|| format!("timestamp is {ms}, not milliseconds from 0 on"))?;
        let length = |name: &str| {
            let value = field(name)?;
            tokens(name, value.as_u64(), value)
        };
        let (input, output) = (length("input_length")?, length("output_length")?);
        let ids = field("hash_ids")?;
        let listed = ids.as_array().with_context(|| format!("hash_ids is {ids}, not a list"))?;
        let first_block_id = self.block_ids.len() as u64;
        for id in listed {
            let number = id.as_u64().with_context(|| format!("hash_ids has {id}, not an id"))?;
            self.note_id(number)?;
        }
        let blocks = input.div_ceil(BLOCK_TOKENS);
        anyhow::ensure!(
            listed.len() == blocks as usize,
            "hash_ids has {} ids, and input_length {input} is {blocks} blocks of {BLOCK_TOKENS}",
            listed.len()
        );
        let at_s = ms / 1e3;
        Ok(Recorded { line: 0, at_s, input, output, first_block_id, num_block_ids: blocks })
    }

    fn note_id(&mut self, id: u64) -> anyhow::Result<()> {
        let next = self.numbers.len() as u32;
        anyhow::ensure!(next < SimLoad::MAX_BLOCK_IDS, "hash_ids: too many different ids");
        self.block_ids.push(*self.numbers.entry(id).or_insert(next));
        Ok(())
    }
}

/// A length within its bounds; `written` is what the file has.
fn tokens(field: &str, value: Option<u64>, written: impl std::fmt::Display) -> anyhow::Result<u32> {
    let value = value.filter(|v| (1..=MAX_TOKENS).contains(v));
    let value = value.with_context(|| format!("{field} is {written}, not in 1 .. {MAX_TOKENS}"))?;
    Ok(value as u32)
}

/// Where Azure's CSV has what.
#[derive(Debug)]
struct Columns {
    time: usize,
    input: usize,
    output: usize,
}

impl Columns {
    const NAMES: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

    fn of(head: &str) -> anyhow::Result<Columns> {
        let names: Vec<&str> = head.trim_start_matches('\u{feff}').split(',').collect();
        let find = |name: &str| {
            names.iter().position(|n| n.trim() == name).with_context(|| {
                format!(
                    "line 1: no column {name}; it is neither Mooncake's JSON lines nor Azure's \
                     CSV ({})",
                    Columns::NAMES.join(", ")
                )
            })
        };
        let [time, input, output] = Columns::NAMES;
        Ok(Columns { time: find(time)?, input: find(input)?, output: find(output)? })
    }

    fn azure(&self, line: &str) -> anyhow::Result<Recorded> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |at: usize, name: &str| {
            cells.get(at).copied().with_context(|| format!("{name} is missing"))
        };
        let length = |at: usize, name: &str| {
            let written = cell(at, name)?;
            tokens(name, written.parse().ok(), written)
        };
        let [time, input, output] = Columns::NAMES;
        Ok(Recorded {
            line: 0,
            at_s: seconds(cell(self.time, time)?)?,
            input: length(self.input, input)?,
            output: length(self.output, output)?,
            first_block_id: 0,
            num_block_ids: 0,
        })
    }
}

/// Of a time like 2023-11-16 18:15:46.6805900, or with +00:00 behind it.
fn seconds(time: &str) -> anyhow::Result<f64> {
    let parsed = humantime::parse_rfc3339_weak(time.trim_end_matches("+00:00"))
        .map_err(|e| anyhow::anyhow!("TIMESTAMP is {time:?}: {e}"))?;
    Ok(parsed.duration_since(std::time::UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<(Vec<Recorded>, Vec<u32>)> {
        let mut reader = Reader::default();
        Ok((reader.requests(text)?, reader.block_ids))
    }

    #[test]
    fn equal_ids_get_equal_numbers_whatever_they_are() {
        let text = r#"{"timestamp": 0, "input_length": 513, "output_length": 2, "hash_ids": [7, 18446744073709551615]}

            {"timestamp": 1500, "input_length": 512, "output_length": 3, "hash_ids": [7]}"#;
        let (requests, ids) = read(text).expect("a trace");
        assert_eq!(ids, [0, 1, 0]);
        let second = &requests[1];
        assert_eq!((second.line, second.at_s, second.input, second.output), (3, 1.5, 512, 3));
        assert_eq!((second.first_block_id, second.num_block_ids), (2, 1));
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "GeneratedTokens,TIMESTAMP,ContextTokens\n44,2023-11-16 18:15:46.6805900,374\n\
                    5,2024-05-10 00:00:00.009930+00:00,6\n";
        let (requests, _) = read(text).expect("a trace");
        let lengths: Vec<_> = requests.iter().map(|r| (r.input, r.output)).collect();
        assert_eq!(lengths, [(374, 44), (6, 5)]);
        assert!((requests[0].at_s.fract() - 0.68059).abs() < 1e-6);
        assert!(requests.iter().all(|r| r.num_block_ids == 0));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = r#"{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}"#;
        let second = |from: &str, to: &str| format!("{good}\n{}\n", good.replace(from, to));
        let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
        for (text, named) in [
            (second("\"timestamp\": 0, ", ""), "line 2: timestamp is missing"),
            (second(": 0", ": -1"), "line 2: timestamp is -1"),
            (second(": 9", ": 0"), "line 2: input_length is 0"),
            (second(": 9", ": \"9\""), "line 2: input_length is \"9\""),
            (second(": 2", ": 16777217"), "line 2: output_length is 16777217"),
            (second(": 2", ": 1.5"), "line 2: output_length is 1.5"),
            (second("[1]", "[]"), "line 2: hash_ids has 0 ids"),
            (second("[1]", "[1, 2]"), "line 2: hash_ids has 2 ids"),
            (second("[1]", "[-1]"), "line 2: hash_ids has -1"),
            (second("[1]", "1"), "line 2: hash_ids is 1"),
            (second("}", ""), "line 2: not a JSON object"),
            (format!("{head}yesterday,1,1"), "line 2: TIMESTAMP is \"yesterday\""),
            (format!("{head}2023-11-16 18:15:46.68,374"), "line 2: GeneratedTokens is missing"),
            (format!("{head}2023-11-16 18:15:46.68,-1,1"), "line 2: ContextTokens is -1"),
            ("a,b,c\n1,2,3\n".into(), "line 1: no column TIMESTAMP"),
            (String::new(), "line 1: no column TIMESTAMP"),
        ] {
            let error = format!("{:#}", read(&text).expect_err(named));
            assert!(error.starts_with(named), "{error}");
        }
    }
}
