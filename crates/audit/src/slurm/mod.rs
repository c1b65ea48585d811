//! Slurm's accounting: `sacct -a -X -P -o JobID,Partition,AllocTRES,AllocCPUS,ElapsedRaw,...`.

mod header;
mod time;
mod tres;

pub use tres::UNTYPED;

use std::io::BufRead;

use anyhow::{Context, Result, bail};

use crate::job::{Job, MAX_MILLICORES, Reject, Row, Skip, name};
use crate::lines::{Line, Lines};
use header::{Column, Header};

/// Bytes of one row. Comments and job names can be long; a row of resources is not.
const MAX_ROW: usize = 1 << 20;

/// Reads rows until the end of the input, and hands each to `sink`.
///
/// # Errors
/// The input cannot be read, or its first row is not a header with the needed columns.
pub fn read(input: impl BufRead, sink: &mut impl FnMut(Row)) -> Result<()> {
    let mut lines = Lines::new(input, MAX_ROW);
    let header = match lines.next()? {
        Some(Line::Whole(first)) => Header::parse(first)?,
        Some(Line::TooLong) => bail!("the first row is longer than {MAX_ROW} bytes: not a header"),
        // sacct prints its header even where there is no job, but an empty file is no error.
        None => return Ok(()),
    };
    while let Some(line) = lines.next().context("after the header")? {
        match line {
            Line::TooLong => sink(Row::Reject(Reject::TooLong)),
            Line::Whole(line) if line.trim().is_empty() => {}
            Line::Whole(line) => sink(header.row(line)),
        }
    }
    Ok(())
}

impl Header {
    fn row(&self, line: &str) -> Row {
        if self.is_repeated(line) {
            return Row::Skip(Skip::Header);
        }
        match self.fields(line) {
            Some(fields) => parse(&fields).unwrap_or_else(|row| row),
            None => Row::Reject(Reject::FieldCount),
        }
    }
}

/// The needed fields of one row; empty where the header has no such column.
type Fields<'a> = [&'a str; Column::COUNT];

/// The outcome is a row either way: the error is what ends the reading early.
fn parse(fields: &Fields) -> Result<Row, Row> {
    let field = |column: Column| fields[column as usize].trim();
    if field(Column::JobId).contains('.') {
        return Err(Row::Skip(Skip::Step));
    }
    // What was asked for counts only where the accounting does not say what was given.
    let resources = match field(Column::AllocTres) {
        "" => field(Column::ReqTres),
        given => given,
    };
    let seconds = seconds(fields)?;
    if seconds == 0 {
        return Err(Row::Skip(Skip::NeverRan));
    }
    let resources = tres::parse(resources).map_err(Row::Reject)?;
    if resources.devices.is_empty() {
        let skip = if resources.shared { Skip::SharedGpu } else { Skip::NoGpu };
        return Err(Row::Skip(skip));
    }
    let cores = resources.cores.or_else(|| field(Column::Cpus).parse().ok());
    let millicores = cores.and_then(|c: u64| c.checked_mul(1000)).filter(|m| *m > 0);
    let millicores = millicores.filter(|m| *m <= MAX_MILLICORES);
    let millicores = millicores.ok_or(Row::Reject(Reject::Cores))?;
    let place = name(field(Column::Partition));
    Ok(Row::Job(Job { millicores, devices: resources.devices, seconds, place }))
}

fn seconds(fields: &Fields) -> Result<u64, Row> {
    let raw = fields[Column::ElapsedRaw as usize].trim();
    let parsed = if raw.is_empty() {
        time::elapsed(fields[Column::Elapsed as usize].trim())
    } else {
        raw.parse().ok()
    };
    parsed.filter(|s| *s <= crate::job::MAX_SECONDS).ok_or(Row::Reject(Reject::Time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Devices;

    fn rows(text: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        read(text.as_bytes(), &mut |row| rows.push(row)).expect("a readable file");
        rows
    }

    const HEADER: &str = "JobID|User|Partition|AllocTRES|AllocCPUS|ElapsedRaw|State\n";

    #[test]
    fn a_job_with_typed_gpus() {
        let row = "7_12|ann|gpu|billing=16,cpu=16,gres/gpu:h100=2,gres/gpu=2,mem=64G,node=1|16|3600|COMPLETED";
        let expected = Job {
            millicores: 16_000,
            devices: vec![Devices::new("h100", 2)],
            seconds: 3600,
            place: "gpu".to_owned(),
        };
        assert_eq!(rows(&format!("{HEADER}{row}\n")), [Row::Job(expected)]);
    }

    #[test]
    fn rows_that_do_not_count_say_why() {
        let text = format!(
            "{HEADER}\
             7.batch|||cpu=16,gres/gpu=2|16|3600|COMPLETED\n\
             8|ann|cpu|cpu=16,mem=1G|16|3600|COMPLETED\n\
             9|ann|gpu|cpu=16,gres/gpu=2|16|0|CANCELLED by 0\n\
             10|ann|gpu|cpu=16,gres/shard=2|16|60|COMPLETED\n\
             {HEADER}\n\
             11|ann|gpu|cpu=sixteen,gres/gpu=2|16|60|COMPLETED\n\
             12|ann|gpu|cpu=16,gres/gpu=2|16|an hour|COMPLETED\n\
             13|a|b|gpu|cpu=16,gres/gpu=2|16|60|COMPLETED\n\
             14|ann|gpu|gres/gpu=2||60|COMPLETED\n\
             15|ann|gpu|cpu=16,gres/gpu=99999999999|16|60|COMPLETED\n"
        );
        let expected = [
            Row::Skip(Skip::Step),
            Row::Skip(Skip::NoGpu),
            Row::Skip(Skip::NeverRan),
            Row::Skip(Skip::SharedGpu),
            Row::Skip(Skip::Header),
            Row::Reject(Reject::Cores),
            Row::Reject(Reject::Time),
            Row::Reject(Reject::FieldCount),
            Row::Reject(Reject::Cores),
            Row::Reject(Reject::Gpus),
        ];
        assert_eq!(rows(&text), expected);
    }

    #[test]
    fn elapsed_and_trailing_delimiters_are_understood() {
        let text = "JobID|ReqTRES|Elapsed|\n1|cpu=4,gres/gpu:a100=1|1-02:03:04|\n";
        let [Row::Job(job)] = &rows(text)[..] else { panic!("one job") };
        assert_eq!((job.seconds, job.millicores, job.place.as_str()), (93_784, 4_000, ""));
    }

    #[test]
    fn a_file_without_the_needed_columns_says_which() {
        let error = read("JobID|User\n".as_bytes(), &mut |_| {}).expect_err("no resources");
        let text = format!("{error:#}");
        assert!(text.contains("AllocTRES") && text.contains("sacct"), "{text}");
    }
}
