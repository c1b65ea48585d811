//! The command as a person runs it.
// Each test crate uses some of it.
#![allow(dead_code)]

use clap::Parser;
use serde_json::Value;

#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    pub args: saccade_plan::Args,
}

pub fn plan(flags: &[&str]) -> anyhow::Result<(Value, String)> {
    let (json, page) = written(flags)?;
    Ok((serde_json::from_str(&json)?, page))
}

/// The JSON and the page that a run writes.
pub fn written(flags: &[&str]) -> anyhow::Result<(String, String)> {
    let folder = tempfile::tempdir()?;
    let (json, html) = (folder.path().join("plan.json"), folder.path().join("plan.html"));
    let has = |flag| flags.contains(&flag);
    let short: &[&str] =
        if has("--duration") || has("--trace") { &[] } else { &["--duration", "20"] };
    let cli = Cli::try_parse_from(
        ["plan"].iter().chain(short).chain(flags).map(std::ffi::OsString::from).chain([
            "--json".into(),
            json.clone().into(),
            "--html".into(),
            html.clone().into(),
        ]),
    )?;
    saccade_plan::run(&cli.args)?;
    Ok((std::fs::read_to_string(json)?, std::fs::read_to_string(html)?))
}

/// Without what depends on this machine.
pub fn without_speed(mut results: Value) -> Value {
    for row in results["rows"].as_array_mut().into_iter().flatten() {
        row["speedup"].take();
    }
    results
}
