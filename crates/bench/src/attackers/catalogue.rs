//! The attacks by name: what each one does, and its settings with their bounds.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

/// What attackers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Ordinary requests: what as many cost without any trick.
    Crowd,
    /// Streams that are opened and not read.
    Stalled,
    /// Streams that are read slowly.
    Trickle,
    /// Ordinary requests that claim the highest priority.
    Priority,
    /// Ordinary requests that claim a tight target for their first token.
    Slo,
    /// Bodies in chunks of one byte, never ended.
    OneByteChunks,
    /// Large bodies to `/tokenize`.
    LargeBodies,
    /// Many answers to one prompt, with many log-probabilities.
    Wide,
    /// Prompts near the model's limit, one after the other.
    LongPrompts,
    /// Connections that say nothing.
    IdleConnections,
    /// Connections that say half a head, slowly.
    HalfHeads,
    /// Streams that are closed after their first token.
    Aborts,
    /// More answers to one long prompt than the memory for KV holds.
    BeyondKv,
    /// Schemas that are long to compile, as `response_format`.
    SchemaBombs,
    /// Requests that HTTP or JSON does not allow.
    Malformed,
}

/// A number of an attack that a flag may change.
#[derive(Debug)]
pub struct Setting {
    /// Name after the attack's and a dot.
    pub name: &'static str,
    /// What it means, with its unit.
    pub meaning: &'static str,
    /// Where nothing is given.
    pub default: i64,
    /// Least and greatest value.
    pub bounds: (i64, i64),
}

/// An attack as the catalogue has it.
#[derive(Debug)]
pub struct Entry {
    /// Which one.
    pub kind: Kind,
    /// Its name in flags and results.
    pub name: &'static str,
    /// What it does, in words.
    pub does: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
}

/// Most connections of one attack: the client's own descriptors are bounded.
const MAX_CLIENTS: i64 = 16_384;
/// Most tokens of a prompt or an answer.
const MAX_TOKENS: i64 = 2_000_000;

const fn of(
    name: &'static str,
    meaning: &'static str,
    default: i64,
    bounds: (i64, i64),
) -> Setting {
    Setting { name, meaning, default, bounds }
}

const fn clients(default: i64) -> Setting {
    of("clients", "at once", default, (1, MAX_CLIENTS))
}

const fn prompt(default: i64) -> Setting {
    of("prompt", "tokens of a prompt", default, (1, MAX_TOKENS))
}

const fn output(default: i64) -> Setting {
    of("output", "tokens of an answer", default, (1, MAX_TOKENS))
}

const fn logprobs(default: i64) -> Setting {
    of("logprobs", "log-probabilities of each token", default, (0, 1000))
}

const fn long_prompt() -> Setting {
    of("prompt", "tokens of a prompt; 0: near the model's limit", 0, (0, MAX_TOKENS))
}

const fn pause(default: i64) -> Setting {
    of("pause", "milliseconds between two requests of a client", default, (0, 60_000))
}

/// All of them, in the order of tables.
pub const CATALOGUE: [Entry; 15] = [
    Entry {
        kind: Kind::Crowd,
        name: "crowd",
        does: "ordinary streams, read in full: what as many cost without a trick",
        settings: &[clients(8), prompt(256), output(128)],
    },
    Entry {
        kind: Kind::Stalled,
        name: "stalled",
        does: "streams that are opened and never read",
        settings: &[clients(64), prompt(1200), output(840), logprobs(20)],
    },
    Entry {
        kind: Kind::Trickle,
        name: "trickle",
        does: "streams that are read slowly",
        settings: &[
            clients(32),
            prompt(256),
            output(512),
            logprobs(20),
            of("rate", "bytes per second that each client reads", 512, (1, 1 << 30)),
        ],
    },
    Entry {
        kind: Kind::Priority,
        name: "priority",
        does: "the crowd with the field `priority`",
        settings: &[
            clients(8),
            prompt(256),
            output(128),
            of("value", "the field's value; lower goes first", -100, (-1_000_000, 1_000_000)),
        ],
    },
    Entry {
        kind: Kind::Slo,
        name: "slo",
        does: "the crowd with the field `slo_ttft_ms`",
        settings: &[
            clients(8),
            prompt(256),
            output(128),
            of("value", "the field's value, milliseconds", 1, (1, 1_000_000)),
        ],
    },
    Entry {
        kind: Kind::OneByteChunks,
        name: "one-byte-chunks",
        does: "bodies of completions in HTTP chunks of one byte, held open after the last",
        settings: &[clients(4), of("chunks", "chunks of each body", 524_288, (1, 1 << 26))],
    },
    Entry {
        kind: Kind::LargeBodies,
        name: "large-bodies",
        does: "large texts to /tokenize with `return_token_strs`",
        settings: &[clients(2), of("bytes", "of each body", 29_000_000, (1, 1 << 28))],
    },
    Entry {
        kind: Kind::Wide,
        name: "wide",
        does: "many answers to each prompt, with many log-probabilities",
        settings: &[
            clients(2),
            prompt(64),
            output(64),
            logprobs(20),
            of("n", "answers to each prompt", 60, (1, 10_000)),
        ],
    },
    Entry {
        kind: Kind::LongPrompts,
        name: "long-prompts",
        does: "prompts near the model's limit, one after the other",
        settings: &[clients(2), long_prompt(), output(1)],
    },
    Entry {
        kind: Kind::IdleConnections,
        name: "idle-connections",
        does: "connections on which nothing is said",
        settings: &[clients(1000)],
    },
    Entry {
        kind: Kind::HalfHeads,
        name: "half-heads",
        does: "heads of requests that are sent a byte at a time, and not ended",
        settings: &[clients(500), of("pause", "milliseconds between two bytes", 1000, (1, 60_000))],
    },
    Entry {
        kind: Kind::Aborts,
        name: "aborts",
        does: "streams that are closed after their first token, again and again",
        settings: &[clients(16), prompt(64), output(512), pause(10)],
    },
    Entry {
        kind: Kind::BeyondKv,
        name: "beyond-kv",
        does: "n answers to a long prompt, more than the KV memory holds: 4xx but 429 is right",
        settings: &[
            clients(1),
            long_prompt(),
            output(64),
            of("n", "answers to each prompt", 128, (1, 10_000)),
            pause(100),
        ],
    },
    Entry {
        kind: Kind::SchemaBombs,
        name: "schema-bombs",
        does: "schemas that are long to compile, in turn; what is accepted is counted",
        settings: &[clients(2), prompt(16), output(16), pause(10)],
    },
    Entry {
        kind: Kind::Malformed,
        name: "malformed",
        does: "requests that HTTP or JSON does not allow, in turn; what is accepted is counted",
        settings: &[clients(4), pause(10)],
    },
];

/// An attack that was chosen, with its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Which one.
    pub kind: Kind,
    /// All its settings by name.
    pub settings: BTreeMap<String, i64>,
}

impl Kind {
    /// Its entry.
    pub fn entry(self) -> &'static Entry {
        // Every kind has an entry: a test goes through them.
        CATALOGUE.iter().find(|entry| entry.kind == self).unwrap_or(&CATALOGUE[0])
    }

    /// Its name in flags and results.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

impl Chosen {
    fn by_default(entry: &Entry) -> Chosen {
        let settings = entry.settings.iter().map(|s| (s.name.to_owned(), s.default)).collect();
        Chosen { kind: entry.kind, settings }
    }

    /// A setting's value.
    pub fn get(&self, name: &str) -> i64 {
        self.settings.get(name).copied().unwrap_or_default()
    }

    /// A setting that is a number of things.
    pub fn count(&self, name: &str) -> usize {
        usize::try_from(self.get(name)).unwrap_or_default()
    }

    /// Name and settings in one line.
    pub fn words(&self) -> String {
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} ({})", self.kind.name(), settings.join(" "))
    }
}

/// Reads `--attacks`: names, or `all`.
///
/// # Errors
/// An unknown name (the known ones are listed), or one given twice.
pub fn choose(names: &[String], changes: &[String]) -> anyhow::Result<Vec<Chosen>> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for name in names {
        if name == "all" {
            chosen.extend(CATALOGUE.iter().map(Chosen::by_default));
            continue;
        }
        let Some(entry) = CATALOGUE.iter().find(|entry| entry.name == name) else {
            let known: Vec<&str> = CATALOGUE.iter().map(|entry| entry.name).collect();
            bail!("--attacks: {name:?} is none of all, {}", known.join(", "));
        };
        chosen.push(Chosen::by_default(entry));
    }
    for (i, one) in chosen.iter().enumerate() {
        let twice = chosen[..i].iter().any(|other| other.kind == one.kind);
        ensure!(!twice, "--attacks: {} is given twice", one.kind.name());
    }
    changes.iter().try_for_each(|change| apply(change, &mut chosen))?;
    Ok(chosen)
}

/// One of `--attack-set`: `name.setting=value`.
fn apply(change: &str, chosen: &mut [Chosen]) -> anyhow::Result<()> {
    let parts = change.split_once('=').and_then(|(path, value)| {
        let (attack, setting) = path.split_once('.')?;
        Some((attack, setting, value.trim().parse::<i64>().ok()?))
    });
    let Some((attack, name, value)) = parts else {
        bail!("--attack-set: {change:?} is not ATTACK.SETTING=NUMBER");
    };
    let Some(one) = chosen.iter_mut().find(|one| one.kind.name() == attack) else {
        bail!("--attack-set {change}: --attacks does not name {attack}");
    };
    let settings = one.kind.entry().settings;
    let Some(setting) = settings.iter().find(|setting| setting.name == name) else {
        let known: Vec<&str> = settings.iter().map(|setting| setting.name).collect();
        bail!("--attack-set {change}: the settings of {attack} are {}", known.join(", "));
    };
    let (least, most) = setting.bounds;
    ensure!(
        (least..=most).contains(&value),
        "--attack-set {attack}.{name} ({}): {value} is outside {least} .. {most}",
        setting.meaning
    );
    one.settings.insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn all_attacks_have_names_of_their_own_and_defaults_within_bounds() {
        let all = choose(&owned(&["all"]), &[]).unwrap();
        assert_eq!(all.len(), CATALOGUE.len());
        for (one, entry) in all.iter().zip(&CATALOGUE) {
            assert_eq!((one.kind, one.kind.name()), (entry.kind, entry.name));
            let json = serde_json::to_value(one.kind).unwrap();
            assert_eq!(json, entry.name, "its name in results is its name in flags");
            assert!(one.count("clients") >= 1, "{}", entry.name);
            for setting in entry.settings {
                let (least, most) = setting.bounds;
                assert!((least..=most).contains(&setting.default), "{}", setting.name);
            }
        }
    }

    #[test]
    fn settings_are_changed_within_their_bounds() {
        let names = owned(&["stalled", "priority"]);
        let changes = owned(&["stalled.clients=3", "priority.value=-7"]);
        let chosen = choose(&names, &changes).unwrap();
        assert_eq!((chosen[0].count("clients"), chosen[1].get("value")), (3, -7));
        for (change, named) in [
            ("stalled.clients", "ATTACK.SETTING=NUMBER"),
            ("stalled.clients=many", "ATTACK.SETTING=NUMBER"),
            ("wide.n=2", "does not name wide"),
            ("stalled.rate=2", "the settings of stalled are clients"),
            ("stalled.clients=0", "outside 1 .. 16384"),
        ] {
            let error = choose(&names, &owned(&[change])).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        for (names, named) in [(&["x"][..], "beyond-kv"), (&["wide", "wide"], "given twice")] {
            let error = choose(&owned(names), &[]).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    /// What the document says of the attacks is what the catalogue has.
    #[test]
    fn the_document_has_every_attack_and_setting() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measure.md");
        let text = std::fs::read_to_string(path).unwrap();
        let missing: Vec<String> =
            CATALOGUE.iter().map(row).filter(|row| !text.contains(row.as_str())).collect();
        assert!(missing.is_empty(), "docs/measure.md lacks:\n{}", missing.join("\n"));
    }

    fn row(entry: &Entry) -> String {
        let settings: Vec<String> =
            entry.settings.iter().map(|s| format!("`{}` {}", s.name, s.default)).collect();
        format!("| `{}` | {} | {} |", entry.name, entry.does, settings.join(", "))
    }
}
