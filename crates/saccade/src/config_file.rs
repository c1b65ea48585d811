//! `--config FILE`: a YAML file of flags. Its values become environment variables unless those are
//! set already, so that one mechanism (clap's) resolves all three sources: flag, variable, file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::CommandFactory;
use serde_json::Value;

use crate::cli::{Cli, of_vllm};

const FLAG: &str = "--config";
const VARIABLE: &str = "SACCADE_CONFIG";

/// Reads the file that the command line or the environment names, if any. Must run before any
/// thread is started.
pub(crate) fn load_into_environment() -> anyhow::Result<()> {
    let Some(path) = named_file(std::env::args()) else { return Ok(()) };
    for (name, value) in read(&path)? {
        if std::env::var_os(&name).is_none() {
            // SAFETY: the process still has one thread (first thing in main).
            unsafe { std::env::set_var(name, value) };
        }
    }
    Ok(())
}

/// The file of `--config FILE`, `--config=FILE`, or the environment.
fn named_file(mut args: impl Iterator<Item = String>) -> Option<PathBuf> {
    while let Some(arg) = args.next() {
        if arg == FLAG {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('=')) {
            return Some(path.into());
        }
    }
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Environment variables that a file asks for.
fn read(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("{FLAG} {}", path.display()))?;
    parse(&text).with_context(|| format!("{FLAG} {}", path.display()))
}

fn parse(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let entries: BTreeMap<String, Value> =
        serde_saphyr::from_str(text).context("not a YAML mapping of flags to values")?;
    let known = variables_by_flag();
    entries
        .into_iter()
        .map(|(key, value)| {
            let flag = key.replace('_', "-");
            let Some(variable) = known.get(&flag) else {
                match of_vllm(&flag) {
                    Some(answer) => bail!("{key}: {answer}"),
                    None => bail!("{key}: there is no flag --{flag}"),
                }
            };
            Ok((variable.clone(), plain(&key, value)?))
        })
        .collect()
}

/// A scalar, or a list joined by commas, of scalars and of objects as JSON.
fn plain(key: &str, value: Value) -> anyhow::Result<String> {
    Ok(match value {
        Value::String(s) => s,
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::Array(items) => items
            .into_iter()
            .map(|item| if item.is_object() { Ok(item.to_string()) } else { plain(key, item) })
            .collect::<anyhow::Result<Vec<_>>>()?
            .join(","),
        Value::Null | Value::Object(_) => bail!("{key}: neither a value nor a list of values"),
    })
}

fn variables_by_flag() -> BTreeMap<String, String> {
    let command = Cli::command();
    let subcommands = command.get_subcommands();
    subcommands
        .flat_map(|sub| sub.get_arguments())
        .chain(command.get_arguments())
        .filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_env()?.to_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_every_shape() {
        let text =
            "port: 9000\nmodel: ./m\nserial: true\nmax_num_seqs: 4\nserved-model-name: [a, b]\n";
        let mut entries = parse(text).unwrap();
        entries.sort();
        let expected = [
            ("SACCADE_MAX_NUM_SEQS", "4"),
            ("SACCADE_MODEL", "./m"),
            ("SACCADE_PORT", "9000"),
            ("SACCADE_SERIAL", "true"),
            ("SACCADE_SERVED_MODEL_NAME", "a,b"),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(entries, expected);
    }

    #[test]
    fn a_list_may_hold_objects() {
        let text = "lora-modules:\n  - a=/x\n  - {name: b, path: /y}\n";
        let [(name, value)] = &parse(text).unwrap()[..] else { panic!("one entry") };
        assert_eq!(name, "SACCADE_LORA_MODULES");
        assert_eq!(value, r#"a=/x,{"name":"b","path":"/y"}"#);
    }

    #[test]
    fn unknown_keys_and_shapes_are_errors() {
        for text in ["no-such-flag: 1", "port: {a: 1}", "- 1", "port:"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = format!("{:#}", parse("tensor_parallel_size: 2").unwrap_err());
        assert!(error.contains("tensor_parallel_size: Saccade runs a model on one"), "{error}");
    }

    #[test]
    fn file_is_found_in_arguments() {
        let args = |list: &[&str]| named_file(list.iter().map(|s| s.to_string()));
        assert_eq!(args(&["saccade", "serve", "--config", "a"]), Some("a".into()));
        assert_eq!(args(&["saccade", "serve", "--config=b"]), Some("b".into()));
    }
}
