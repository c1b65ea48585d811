//! The first row of `sacct -P`: which column is what.

use anyhow::{Result, bail};

use super::Fields;

/// A column that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    JobId,
    Partition,
    AllocTres,
    ReqTres,
    Cpus,
    ElapsedRaw,
    Elapsed,
}

impl Column {
    pub const COUNT: usize = 7;

    /// By Slurm's field names in any letter case: Slurm prints them as they were asked for.
    fn of(title: &str) -> Option<Column> {
        Some(match title.trim().to_ascii_lowercase().as_str() {
            "jobid" | "jobidraw" => Column::JobId,
            "partition" => Column::Partition,
            "alloctres" => Column::AllocTres,
            "reqtres" => Column::ReqTres,
            "alloccpus" | "ncpus" => Column::Cpus,
            "elapsedraw" => Column::ElapsedRaw,
            "elapsed" => Column::Elapsed,
            _ => return None,
        })
    }
}

const COMMAND: &str =
    "sacct -a -X -P -S 2026-01-01 -o JobID,Partition,AllocTRES,AllocCPUS,ElapsedRaw";

/// What each field of a row is.
pub struct Header {
    columns: Vec<Option<Column>>,
    text: String,
}

impl Header {
    pub fn parse(line: &str) -> Result<Header> {
        let text = line.trim_end().to_owned();
        let columns: Vec<Option<Column>> = text.split('|').map(Column::of).collect();
        let has = |wanted: Column| columns.contains(&Some(wanted));
        if !has(Column::AllocTres) && !has(Column::ReqTres) {
            bail!(
                "no column AllocTRES (or ReqTRES) in the first row; make the file with: {COMMAND}"
            );
        }
        if !has(Column::ElapsedRaw) && !has(Column::Elapsed) {
            bail!(
                "no column ElapsedRaw (or Elapsed) in the first row; make the file with: {COMMAND}"
            );
        }
        if !has(Column::JobId) {
            bail!("no column JobID in the first row, so steps cannot be told from jobs: {COMMAND}");
        }
        Ok(Header { columns, text })
    }

    pub fn is_repeated(&self, line: &str) -> bool {
        line.trim_end() == self.text
    }

    /// None if the number of fields is not the header's.
    pub fn fields<'a>(&self, line: &'a str) -> Option<Fields<'a>> {
        let mut fields = [""; Column::COUNT];
        let mut count = 0;
        for (i, field) in line.split('|').enumerate() {
            if let Some(column) = self.columns.get(i)? {
                // Asked for both JobID and JobIDRaw, either will do.
                fields[*column as usize] = field;
            }
            count += 1;
        }
        (count == self.columns.len()).then_some(fields)
    }
}
