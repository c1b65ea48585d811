//! The machine that a record was made on.

use saccade_host::{Root, machine};
use serde::{Deserialize, Serialize};

use crate::output::counted;

/// What a reader needs to know of the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Of its processors.
    pub cpu_model: Option<String>,
    /// Cores that are switched on.
    pub cores: Option<usize>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// `kernel.sched_autogroup_enabled`; none where the kernel knows no such thing.
    pub autogroup_enabled: Option<bool>,
}

impl Machine {
    /// Reads it.
    #[must_use]
    pub fn read(root: &Root) -> Machine {
        let line_of = |file: &str, key: &str| {
            let text = root.text(file).ok()?;
            let value = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(value.trim_start_matches(['\t', ' ', ':']).trim().to_owned())
        };
        let kib = line_of("proc/meminfo", "MemTotal").and_then(|line| {
            line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok())
        });
        Machine {
            cpu_model: line_of("proc/cpuinfo", "model name"),
            cores: machine::online_cpus(root).ok().map(|cores| cores.len()),
            memory_bytes: kib.map(|kib| kib << 10),
            kernel: root.text("proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            autogroup_enabled: machine::autogroup_enabled(root),
        }
    }

    /// In one line.
    #[must_use]
    pub fn words(&self) -> String {
        let unknown = || "unknown processor".to_owned();
        let cores = self.cores.map_or("? cores".to_owned(), |cores| counted(cores, "core"));
        let kernel = self.kernel.as_deref().unwrap_or("?");
        let model = self.cpu_model.clone().unwrap_or_else(unknown);
        format!("{cores} of {model}, Linux {kernel}")
    }
}

/// The command line, for the record: without the bearer token.
#[must_use]
pub fn command_line() -> Vec<String> {
    without_secrets(std::env::args())
}

/// A command line as it is typed.
#[must_use]
pub fn shell_words(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%[]".contains(c);
    let quoted = words.iter().map(|word| match word.as_str() {
        word if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    // Of servers, of victims, of attackers.
    let is_key = |flag: &str| flag.starts_with("--") && flag.ends_with("api-key");
    let mut hide_next = false;
    let shown = words.map(|word| {
        if std::mem::replace(&mut hide_next, is_key(&word)) {
            return "***".to_owned();
        }
        match word.split_once('=') {
            Some((flag, _)) if is_key(flag) => format!("{flag}=***"),
            _ => word,
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        let words = ["a=b/c:1", "it's two", ""].map(str::to_owned);
        assert_eq!(shell_words(&words), r"a=b/c:1 'it'\''s two' ''");
    }

    #[test]
    fn secrets_are_not_written() {
        let words = ["a", "--api-key", "s3cret", "--victim-api-key=s3cret", "b"].map(str::to_owned);
        let shown = without_secrets(words.into_iter());
        assert_eq!(shown, ["a", "--api-key", "***", "--victim-api-key=***", "b"]);
    }
}
