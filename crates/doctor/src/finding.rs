//! What is wrong, how we know, what it costs, and what to do.

use serde::Serialize;

use crate::reference::Curve;

/// How bad. The order is that of badness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; no alarm.
    Note,
    /// Will cost latency under load.
    Warning,
    /// Costs latency, or requests, now or as soon as there is load.
    Trouble,
}

impl Severity {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Trouble => "TROUBLE",
        }
    }
}

/// A number that was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// What it is.
    pub what: String,
    /// As read.
    pub value: String,
    /// The file it comes from, or the call.
    pub from: String,
}

/// Something to type or to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Why this one.
    pub what: String,
    /// Command, flag or lines of YAML.
    pub how: String,
}

/// What a change costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// In words.
    pub text: String,
    /// Cores to add.
    pub cores: f64,
    /// US dollars per hour, lowest.
    pub usd_per_hour_low: f64,
    /// US dollars per hour, highest.
    pub usd_per_hour_high: f64,
    /// Of the price of the GPUs that are driven; `None`: their price is not known.
    pub share_of_gpus: Option<f64>,
    /// Source of the prices.
    pub source: String,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name.
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// In one sentence.
    pub title: String,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// What others measured where the same was wrong. Expected here, not measured here.
    pub expected_losses: Vec<Curve>,
    /// What to change.
    pub change: Vec<Change>,
    /// What that costs.
    pub cost: Option<Cost>,
}

impl Finding {
    /// A finding without its loss and cost, which depend on `id` and on prices.
    pub fn new(id: &'static str, severity: Severity, title: impl Into<String>) -> Finding {
        Finding {
            id,
            severity,
            title: title.into(),
            evidence: Vec::new(),
            expected_losses: Vec::new(),
            change: Vec::new(),
            cost: None,
        }
    }

    /// Adds a number that was read.
    #[must_use]
    pub fn with(
        mut self,
        what: impl Into<String>,
        value: impl Into<String>,
        from: impl Into<String>,
    ) -> Finding {
        self.evidence.push(Evidence { what: what.into(), value: value.into(), from: from.into() });
        self
    }

    /// Adds something to do.
    #[must_use]
    pub fn change(mut self, what: impl Into<String>, how: impl Into<String>) -> Finding {
        self.change.push(Change { what: what.into(), how: how.into() });
        self
    }

    /// Adds several things to do.
    #[must_use]
    pub fn changes(mut self, changes: impl IntoIterator<Item = Change>) -> Finding {
        self.change.extend(changes);
        self
    }
}
