//! What `tokenize` found, as data and as tables.

use saccade_report::{Cell, Table};
use serde::{Deserialize, Serialize};

use super::Setup;
use super::server::ServerRow;
use crate::micro::stats::{Spread, number};

pub(crate) const NOTES: [&str; 3] = [
    "Here: one Hugging Face tokenizer shared by all threads, one prompt at a time on each, as the \
     frontend's pool does; the time ends with the last prompt of the batch.",
    "With a given prefill rate, TTFT is tokenization plus tokens over rate: computed, not \
     measured.",
    "On a server: the same batches as text and as token ids, one token each; TTFT of a batch is \
     until the last of its first tokens. The difference, taken within each repeat, is all that \
     text costs the server, mostly tokenization; a negative one is noise, or ids cost it more.",
];

/// One batch size, length and number of threads on this host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub batch: usize,
    pub length: usize,
    pub threads: usize,
    /// Tokens of the whole batch, as encoded.
    pub batch_tokens: f64,
    /// Over the repeats.
    pub tokenize_ms: Spread,
    pub tokens_per_s: f64,
    /// Tokenization and prefill at the given rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computed_ttft_ms: Option<f64>,
    /// Of tokenization in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Spread>,
}

impl Row {
    pub(super) fn of(
        setup: &Setup,
        batch: usize,
        length: usize,
        threads: usize,
        batch_tokens: f64,
        tokenize_ms: Spread,
    ) -> Row {
        let prefill_ms = setup.prefill_tokens_per_s.map(|rate| batch_tokens / rate * 1e3);
        Row {
            batch,
            length,
            threads,
            batch_tokens,
            tokenize_ms,
            tokens_per_s: batch_tokens / tokenize_ms.p50 * 1e3,
            computed_ttft_ms: prefill_ms.map(|prefill_ms| tokenize_ms.p50 + prefill_ms),
            share: prefill_ms.map(|prefill_ms| tokenize_ms.map(|ms| ms / (ms + prefill_ms))),
        }
    }
}

/// All that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub setup: Setup,
    pub rows: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<ServerRow>,
    /// What a reader must know.
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
}

impl Report {
    pub(super) fn new(setup: Setup, rows: Vec<Row>, server: Vec<ServerRow>) -> Report {
        let warnings = server.iter().filter_map(other_tokenizer).collect();
        Report { setup, rows, server, warnings, notes: NOTES.map(str::to_owned).to_vec() }
    }

    /// What was measured here.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new(format!("Tokenization here, {}", self.setup.tokenizer))
            .column("tokens")
            .column("batch")
            .column("threads")
            .column("tokenize ms")
            .column("min–max")
            .column("tokens/s");
        if self.setup.prefill_tokens_per_s.is_some() {
            table = table.column("computed TTFT ms").column("share %").column("min–max");
        }
        for row in &self.rows {
            table.push([
                row.length.into(),
                row.batch.into(),
                row.threads.into(),
                row.tokenize_ms.cell(2),
                row.tokenize_ms.range(2),
                Cell::Number(row.tokens_per_s, 0),
                number(row.computed_ttft_ms, 2),
                row.share.map_or(Cell::Missing, |share| percent(share).cell(1)),
                row.share.map_or(Cell::Missing, |share| percent(share).range(1)),
            ]);
        }
        table
    }

    /// What was measured on the server, if there is one.
    pub(crate) fn server_table(&self) -> Option<Table> {
        let url = self.setup.base_url.as_ref()?;
        let mut table = Table::new(format!("TTFT of {url}"))
            .column("tokens")
            .column("batch")
            .column("text ms")
            .column("ids ms")
            .column("difference ms")
            .column("share %")
            .column("min–max")
            .column("1 thread here ms");
        for row in &self.server {
            let here = self
                .rows
                .iter()
                .find(|here| (here.length, here.batch, here.threads) == (row.length, row.batch, 1));
            table.push([
                row.length.into(),
                row.batch.into(),
                Cell::Number(row.ttft_text_ms, 2),
                Cell::Number(row.ttft_ids_ms, 2),
                row.difference_ms.cell(2),
                percent(row.share).cell(1),
                percent(row.share).range(1),
                here.map_or(Cell::Missing, |here| here.tokenize_ms.cell(2)),
            ]);
        }
        let failed = |row: &ServerRow| {
            let why = row.failed.as_ref()?;
            Some(format!("{} x {} tokens failed: {why}", row.batch, row.length))
        };
        let failed: Vec<String> = self.server.iter().filter_map(failed).collect();
        Some(table.note(failed.join("; ")))
    }
}

fn percent(share: Spread) -> Spread {
    share.map(|share| 100.0 * share)
}

/// The server counts ids unlike its own tokens of such texts: the forms are not the same
/// work.
fn other_tokenizer(row: &ServerRow) -> Option<String> {
    let (text, ids) = row.server_tokens?;
    let differs = (text - ids).abs() > 0.1 * text.max(ids) + 4.0;
    differs.then(|| {
        format!(
            "{} x {} tokens: the server counts {text} tokens a prompt as text and {ids} as ids; \
             is --tokenizer that of its model?",
            row.batch, row.length
        )
    })
}
