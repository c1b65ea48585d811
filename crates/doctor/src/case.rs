//! Facts, with the questions that the rules ask of them most.

use crate::facts::Facts;
use crate::finding::Cost;
use crate::reference::Prices;
use crate::thresholds::{CORES_PER_GPU_WARN, PROCESSES_BESIDES_GPUS};

/// One server to be judged.
pub struct Case<'a> {
    /// What was read and observed.
    pub facts: &'a Facts,
    /// What cores and GPUs cost.
    pub prices: &'a Prices,
}

/// How many cores a server needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// Fewer, and some process of a step always waits for another.
    pub minimum: f64,
    /// Fewer, and slow-downs were measured.
    pub comfortable: f64,
    /// How the minimum comes about.
    pub why: String,
}

impl Case<'_> {
    /// How many cores the server needs.
    pub fn need(&self) -> Need {
        let gpus = self.facts.gpu_count.count;
        let processes = self.facts.path_processes();
        // One GPU needs no worker of its own: vLLM's engine core launches its kernels itself.
        let rule = if gpus >= 2 { gpus + PROCESSES_BESIDES_GPUS } else { 0 };
        let minimum = processes.max(rule).max(1);
        let why = if processes >= rule {
            self.processes_in_words()
        } else {
            format!("{gpus} GPUs and {PROCESSES_BESIDES_GPUS} more processes share each step")
        };
        let minimum = minimum as f64;
        let comfortable = minimum.max(CORES_PER_GPU_WARN * gpus as f64);
        Need { minimum, comfortable, why }
    }

    /// `1 API server + 1 engine core + 4 workers`
    pub fn processes_in_words(&self) -> String {
        use crate::engine::Role::{Core, Detokenizer, Server, Worker};
        let parts = [Server, Core, Worker, Detokenizer].into_iter().filter_map(|role| {
            let count = self.facts.with_role(role);
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {}{plural}", role.name()))
        });
        parts.collect::<Vec<_>>().join(" + ")
    }

    /// What more cores cost.
    pub fn cost(&self, cores: f64) -> Option<Cost> {
        if cores <= 0.0 {
            return None;
        }
        let price = &self.prices.core;
        let (low, high) = (cores * price.low, cores * price.high);
        let gpus = self.gpu_price();
        let share_of_gpus = gpus.as_ref().map(|(usd, _)| high / usd);
        let range =
            if low == high { format!("{low:.2}") } else { format!("{low:.2} to {high:.2}") };
        let more = if cores == 1.0 { "core" } else { "cores" };
        let mut text = format!("{cores} more {more}: {range} USD per hour");
        if let (Some(share), Some((usd, _))) = (share_of_gpus, &gpus) {
            text += &format!(", at most {:.1} % of the {usd:.2} USD of its GPUs", share * 100.0);
        }
        let dated = |source: &str, date: &Option<String>| match date {
            Some(date) => format!("{source} ({date})"),
            None => source.to_owned(),
        };
        let mut source = dated(&price.source, &price.date);
        if let Some((_, from)) = gpus {
            source = format!("{source}; {from}");
        }
        Some(Cost {
            text,
            cores,
            usd_per_hour_low: low,
            usd_per_hour_high: high,
            share_of_gpus,
            source,
        })
    }

    /// US dollars per hour of the GPUs that the server drives, and the source.
    fn gpu_price(&self) -> Option<(f64, String)> {
        let count = self.facts.gpu_count.count;
        let model = self.facts.gpus.iter().find_map(|gpu| gpu.model.as_deref()).unwrap_or("");
        let price = self.prices.gpu(model).filter(|_| count > 0)?;
        Some((price.price * count as f64, price.source.clone()))
    }

    /// Cores that the server's threads wanted, on average: running and waiting.
    pub fn wanted_cores(&self) -> f64 {
        let facts = self.facts;
        facts.delta.tasks.iter().map(|task| facts.wanted(&task.used)).sum::<f64>().max(1.0)
    }

    /// Share of the time in which the server wanted a core and had none, where it wanted one for
    /// long enough to count.
    pub fn wait_share(&self) -> Option<f64> {
        let delta = &self.facts.delta;
        let waited = delta.total.wait_s? / delta.seconds;
        let share = delta.total.wait_share()?;
        (waited >= crate::thresholds::WAIT_MIN).then_some(share)
    }
}
