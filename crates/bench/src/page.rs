//! `saccade bench page`: draws the page of a result again, from its JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use saccade_report::Report;
use serde::Deserialize;

use crate::{attack, interference, micro, output, serve, soak};

/// Flags of `saccade bench page`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Result that a command of bench wrote with --json
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Where the page goes [default: beside the result, with .html]
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
}

/// What is read of a result before its form is known.
#[derive(Deserialize)]
struct Labelled {
    schema: Option<String>,
}

/// Draws a result whose form is known by its schema.
type Draw = fn(&str) -> anyhow::Result<Report>;

/// The forms of all results, and what draws them.
const FORMS: [(&[&str], Draw); 6] = [
    (&serve::SCHEMAS, serve::page_of),
    (&interference::SCHEMAS, interference::page_of),
    (&attack::SCHEMAS, attack::page_of),
    (&attack::beside::SCHEMAS, attack::beside::page_of),
    (&soak::SCHEMAS, soak::page_of),
    (&micro::SCHEMAS, micro::page_of),
];

/// Runs it.
///
/// # Errors
/// The result cannot be read, is no JSON, or has a schema that this version does not draw; the
/// page cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.result.display();
    let text = std::fs::read_to_string(&args.result).with_context(|| format!("read {path}"))?;
    let page = draw(&text).with_context(|| path.to_string())?;
    let out = args.out.clone().unwrap_or_else(|| args.result.with_extension("html"));
    output::write_page(&out, &page)?;
    Ok(ExitCode::SUCCESS)
}

fn draw(text: &str) -> anyhow::Result<Report> {
    let labelled: Labelled = serde_json::from_str(text).context("not a JSON object")?;
    let known = || FORMS.iter().flat_map(|(schemas, _)| schemas.iter()).copied();
    let Some(schema) = labelled.schema else {
        bail!(
            "it has no field `schema`: not a result of bench serve, interference, attack, soak, micro"
        );
    };
    match FORMS.iter().find(|(schemas, _)| schemas.contains(&schema.as_str())) {
        Some((_, draw)) => draw(text).with_context(|| format!("not of its schema, {schema}")),
        None => {
            let known = known().collect::<Vec<_>>().join(", ");
            bail!("schema {schema:?} is none of those that are drawn here: {known}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_result_is_refused_in_words() {
        for (text, words) in [
            ("[", "not a JSON object"),
            (r#"{"a": 1}"#, "no field `schema`"),
            (r#"{"schema": "saccade-plan/2"}"#, "saccade.bench-serve.v2"),
            (r#"{"schema": "saccade.bench-attack.v1"}"#, "not of its schema"),
        ] {
            let error = format!("{:#}", draw(text).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
