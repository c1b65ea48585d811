//! What an audit finds, as it is written to JSON: schema `saccade.audit/1`.
//!
//! GPU hours are whole-GPU hours: an hour of a partition (MIG) with n compute slices counts n/7.

use std::collections::{BTreeMap, HashMap};

use saccade_doctor::reference::{CorePrice, GpuPrice, Prices};
use serde::Serialize;

use crate::job::SLICES;
use crate::rule::{ABUNDANT, AT_RISK, RULES, Rule};
use crate::tally::{Group, Tally};

/// Written into each result; changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "saccade.audit/1";
/// Hundredths of a percent.
pub const PERCENTILES: [u32; 9] = [100, 500, 1000, 2500, 5000, 7500, 9000, 9500, 9900];
/// Points of a distribution that are written out.
const MAX_POINTS: usize = 1000;

/// The whole finding.
#[derive(Debug, Clone, Serialize)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Files that were read.
    pub inputs: Vec<String>,
    /// What became of each row.
    pub rows: Rows,
    /// All GPUs together.
    pub overall: Finding,
    /// By GPU type, most GPU hours first.
    pub by_model: Vec<Finding>,
    /// By partition or namespace, most GPU hours first.
    pub by_place: Vec<Finding>,
    /// GPU hours by how few cores they had, disjoint, strictest first.
    pub bands: Vec<Band>,
    /// What more cores would cost.
    pub cost: Cost,
    /// By the share of GPU hours at risk.
    pub verdict: Verdict,
    /// What a reader must know to trust the numbers.
    pub notes: Vec<String>,
}

/// Rows read and why some do not count.
#[derive(Debug, Clone, Serialize)]
pub struct Rows {
    /// All of them, without headers.
    pub read: u64,
    /// Jobs in the distributions.
    pub counted: u64,
    /// Left out, as they should be, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Not readable, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
}

/// One distribution of cores per GPU, weighted by GPU hours.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// GPU type, partition or namespace.
    pub name: String,
    /// Jobs.
    pub jobs: u64,
    /// GPU hours.
    pub gpu_hours: f64,
    /// Whether percentiles are exact, or within 0.5 %.
    pub exact: bool,
    /// Cores per GPU, by percentile (`p1` to `p99`): the lowest ratio such that jobs with at most
    /// this ratio hold at least that share of the GPU hours.
    pub percentiles: BTreeMap<Percentile, f64>,
    /// Share of GPU hours below each rule (0 to 1).
    pub below: BTreeMap<String, f64>,
    /// The distribution: cores per GPU and the share of GPU hours with at most that many.
    pub cdf: Vec<(f64, f64)>,
}

/// A percentile's name, in numeric order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile(u32);

impl Percentile {
    /// `p50` and the like.
    pub fn name(self) -> String {
        format!("p{}", self.0 / 100)
    }
}

impl Serialize for Percentile {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// GPU hours whose cores lie between two rules.
#[derive(Debug, Clone, Serialize)]
pub struct Band {
    /// The rule that catches them.
    pub rule: String,
    /// For people.
    pub title: String,
    /// GPU hours that no stricter rule catches.
    pub gpu_hours: f64,
    /// Share of all GPU hours (0 to 1).
    pub share: f64,
    /// Share of all GPU hours that this rule or a stricter one catches.
    pub share_below: f64,
    /// What was measured with so few cores, as a factor of the time to first token.
    pub expected_ttft: &'static str,
    /// The same as a sentence.
    pub expected: &'static str,
    /// Lowest and highest factor of the time to first token, where published.
    pub ttft_factor: Option<(f64, f64)>,
    /// Where it was measured.
    pub source: &'static str,
}

/// What it costs to give every job enough cores.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// Price of a core hour.
    pub core: CorePrice,
    /// By goal.
    pub goals: Vec<Goal>,
    /// Price of the GPU hours of types with a known price, in US dollars.
    pub gpu_usd: f64,
    /// Price of those GPU hours among them that have fewer than [`AT_RISK`] cores per GPU.
    pub gpu_usd_at_risk: f64,
    /// GPU hours without a known price.
    pub unpriced_gpu_hours: f64,
    /// Prices that were used, by GPU type.
    pub gpu_prices: BTreeMap<String, GpuPrice>,
}

/// Cores per GPU to reach.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// Cores per GPU.
    pub cores_per_gpu: u64,
    /// Core hours that are missing.
    pub core_hours: f64,
    /// Lowest and highest price of them, in US dollars.
    pub usd: (f64, f64),
}

/// By the share of GPU hours at risk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No job to judge.
    Nothing,
    /// Hardly any GPU hour is at risk.
    Healthy,
    /// More than the allowed share has fewer than [`AT_RISK`] cores per GPU.
    AtRisk,
    /// More than the allowed share has fewer cores than processes.
    Starved,
}

/// Slice seconds as GPU hours.
pub fn hours(weight: u128) -> f64 {
    weight as f64 / (SLICES * 3600) as f64
}

fn share(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Audit {
    /// Of everything counted; more than `allowed` (0 to 1) of the GPU hours is a finding.
    pub fn new(tally: &Tally, inputs: Vec<String>, prices: &Prices, allowed: f64) -> Audit {
        let overall = Finding::new("all", &tally.overall);
        Audit {
            schema: SCHEMA,
            inputs,
            rows: rows(tally),
            by_model: findings(&tally.models),
            by_place: findings(&tally.places),
            bands: bands(&tally.overall),
            cost: cost(tally, prices),
            verdict: verdict(&overall, allowed),
            notes: notes(tally, &overall),
            overall,
        }
    }
}

fn rows(tally: &Tally) -> Rows {
    Rows {
        read: tally.rows,
        counted: tally.overall.distribution.jobs(),
        skipped: tally.skipped.iter().map(|(k, n)| (k.reason(), *n)).collect(),
        rejected: tally.rejected.iter().map(|(k, n)| (k.reason(), *n)).collect(),
    }
}

impl Finding {
    fn new(name: &str, group: &Group) -> Finding {
        let distribution = &group.distribution;
        let total = distribution.total();
        let values = distribution.percentiles(PERCENTILES);
        let named = values.iter().flat_map(|v| PERCENTILES.map(Percentile).into_iter().zip(*v));
        let below = RULES.iter().zip(group.below).map(|(r, w)| (r.key(), share(w, total)));
        Finding {
            name: name.to_owned(),
            jobs: distribution.jobs(),
            gpu_hours: hours(total),
            exact: distribution.is_exact(),
            percentiles: named.collect(),
            below: below.collect(),
            cdf: cdf(group),
        }
    }

    /// Share of GPU hours below a rule.
    pub fn share_below(&self, rule: Rule) -> f64 {
        self.below.get(&rule.key()).copied().unwrap_or(0.0)
    }
}

fn findings(groups: &HashMap<String, Group>) -> Vec<Finding> {
    let mut all: Vec<Finding> = groups.iter().map(|(n, g)| Finding::new(n, g)).collect();
    all.sort_by(|a, b| b.gpu_hours.total_cmp(&a.gpu_hours).then_with(|| a.name.cmp(&b.name)));
    all
}

/// The distribution's curve; of very many steps, the ones that rise most evenly.
fn cdf(group: &Group) -> Vec<(f64, f64)> {
    let sorted = group.distribution.sorted();
    let total = group.distribution.total();
    let (mut below, mut last_kept) = (0, f64::NEG_INFINITY);
    let count = sorted.len();
    let mut points = Vec::new();
    for (i, (ratio, weight)) in sorted.into_iter().enumerate() {
        below += weight;
        let reached = share(below, total);
        let rises = reached - last_kept >= 1.0 / MAX_POINTS as f64;
        if count <= MAX_POINTS || rises || i + 1 == count {
            points.push((ratio, reached));
            last_kept = reached;
        }
    }
    points
}

fn bands(overall: &Group) -> Vec<Band> {
    let total = overall.distribution.total();
    let mut stricter = 0;
    let mut bands = Vec::new();
    for (rule, below) in RULES.into_iter().zip(overall.below) {
        let expected = rule.expected();
        bands.push(Band {
            rule: rule.key(),
            title: rule.title(),
            gpu_hours: hours(below - stricter),
            share: share(below - stricter, total),
            share_below: share(below, total),
            expected_ttft: expected.short,
            expected: expected.text,
            ttft_factor: expected.ttft,
            source: expected.source,
        });
        stricter = below;
    }
    bands
}

fn cost(tally: &Tally, prices: &Prices) -> Cost {
    let goals =
        [AT_RISK, ABUNDANT].into_iter().zip(tally.missing).map(|(cores_per_gpu, missing)| {
            let core_hours = missing as f64 / 3_600_000.0;
            let usd = (core_hours * prices.core.low, core_hours * prices.core.high);
            Goal { cores_per_gpu, core_hours, usd }
        });
    let goals = goals.collect();
    let (mut gpu_usd, mut gpu_usd_at_risk, mut unpriced_gpu_hours) = (0.0, 0.0, 0.0);
    let at_risk = RULES.iter().position(|rule| *rule == Rule::BelowPerGpu(AT_RISK));
    let mut gpu_prices = BTreeMap::new();
    for (model, group) in &tally.models {
        let total = hours(group.distribution.total());
        match prices.gpu(model) {
            Some(price) => {
                gpu_usd += total * price.price;
                gpu_usd_at_risk += hours(at_risk.map_or(0, |i| group.below[i])) * price.price;
                gpu_prices.insert(model.clone(), price.clone());
            }
            None => unpriced_gpu_hours += total,
        }
    }
    let core = prices.core.clone();
    Cost { core, goals, gpu_usd, gpu_usd_at_risk, unpriced_gpu_hours, gpu_prices }
}

fn verdict(overall: &Finding, allowed: f64) -> Verdict {
    if overall.jobs == 0 {
        Verdict::Nothing
    } else if overall.share_below(Rule::BelowProcesses) > allowed {
        Verdict::Starved
    } else if overall.share_below(Rule::BelowPerGpu(AT_RISK)) > allowed {
        Verdict::AtRisk
    } else {
        Verdict::Healthy
    }
}

fn notes(tally: &Tally, overall: &Finding) -> Vec<String> {
    let mut notes = vec![
        "Accounting does not say which jobs serve language models; the expected slow-downs were \
         measured on such and need not hold for others (training is less sensitive)."
            .to_owned(),
        "They were measured on engines of 4 and 8 GPUs; jobs with fewer are judged by the same \
         bounds."
            .to_owned(),
        "Cores are what the scheduler hands out: physical cores or hardware threads, by its \
         configuration. The slow-downs were measured on physical cores; two threads of one are \
         less."
            .to_owned(),
    ];
    if tally.partitioned > 0 {
        notes.push(format!(
            "Jobs that used partitions of GPUs (MIG): {}. Each counts as one device when cores are \
             divided, and as its share of compute slices when hours are summed.",
            tally.partitioned
        ));
    }
    if tally.coreless > 0 {
        notes.push(format!(
            "Jobs that asked for no core at all: {}. They count as 0 cores per GPU, and run on \
             what others leave.",
            tally.coreless
        ));
    }
    if !overall.exact {
        notes.push(format!(
            "More than {} different ratios: percentiles are within 0.5 %; shares below the \
             bounds are exact.",
            crate::distribution::MAX_EXACT
        ));
    }
    if tally.rejected.values().sum::<u64>() > 0 {
        notes.push("Some rows could not be read: see the table of rows.".to_owned());
    }
    notes
}
