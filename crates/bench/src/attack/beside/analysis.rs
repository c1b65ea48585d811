//! Results of the pairs: what an attack does to its victims.

use saccade_host::Footprint;
use saccade_load::{Summary, nan_as_null};
use serde::{Deserialize, Serialize};

use super::record::{Pair, Record, Window};
use crate::attackers::Kind;
use crate::interference::median;

/// A figure under attack and its ratio to the same without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Median over the pairs, without attackers.
    #[serde(with = "nan_as_null")]
    pub quiet: f64,
    /// Median over the pairs, under attack.
    #[serde(with = "nan_as_null")]
    pub attacked: f64,
    /// Median over the pairs of attacked ÷ quiet.
    #[serde(with = "nan_as_null")]
    pub ratio: f64,
}

/// Victims of one server under one attack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the server.
    pub server: String,
    /// Which attack.
    pub attack: Kind,
    /// Pairs in which both windows can be trusted.
    pub pairs: usize,
    /// Pairs left out, because the client itself was late in one of their windows.
    pub untrusted_pairs: usize,
    /// Pairs in which a window could not be measured.
    pub failed_pairs: usize,
    /// Median time to the first token, milliseconds. Victims that timed out count as long as they
    /// waited; refused and broken ones do not.
    pub ttft_p50_ms: Figure,
    /// Its 99th percentile.
    pub ttft_p99_ms: Figure,
    /// 99th percentile of the mean time per token of an answer, milliseconds.
    pub tpot_p99_ms: Figure,
    /// 99th percentile of the time between two events of a stream, milliseconds.
    pub gap_p99_ms: Figure,
    /// Answers per second.
    pub answers_per_s: Figure,
    /// Victims without attackers, and how many of them failed, in all pairs that were measured.
    pub quiet_failures: (u64, u64),
    /// Victims under attack, and how many of them failed, in all pairs that were measured.
    pub attacked_failures: (u64, u64),
    /// Most memory and descriptors without attackers.
    pub quiet_footprint: Option<Footprint>,
    /// Most memory and descriptors under attack.
    pub attacked_footprint: Option<Footprint>,
    /// Longest time until the server was quiet after an attack, seconds; none where it never was.
    pub drained_s: Option<f64>,
    /// Attacks after which the server was not quiet within the limit.
    pub undrained: usize,
    /// Windows in which the server ended.
    pub ended: usize,
    /// What became of the attack itself, from the last pair.
    pub attackers: String,
}

/// Writes the results of what has been measured so far.
pub(super) fn analyse(record: &mut Record) {
    let mut cells = Vec::new();
    for server in &record.servers {
        for attack in &record.attacks {
            let of = |pair: &&Pair| pair.server == server.name && pair.attack.kind == attack.kind;
            let pairs: Vec<&Pair> = record.pairs.iter().filter(of).collect();
            if !pairs.is_empty() {
                cells.push(cell(&server.name, attack.kind, &pairs));
            }
        }
    }
    record.cells = cells;
}

fn cell(server: &str, attack: Kind, pairs: &[&Pair]) -> Cell {
    let both =
        |pair: &&Pair| Some((pair.quiet.trusted()?.clone(), pair.attacked.trusted()?.clone()));
    let trusted: Vec<(Summary, Summary)> = pairs.iter().filter_map(both).collect();
    let failed = |pair: &&&Pair| is_failed(&pair.quiet) || is_failed(&pair.attacked);
    let failed_pairs = pairs.iter().filter(failed).count();
    let figure = |of: fn(&Summary) -> f64| figure(&trusted, of);
    let attacked = || pairs.iter().map(|pair| &pair.attacked);
    Cell {
        server: server.to_owned(),
        attack,
        pairs: trusted.len(),
        untrusted_pairs: pairs.len() - trusted.len() - failed_pairs,
        failed_pairs,
        ttft_p50_ms: figure(|s| s.from_intended.ttft_ms.p50),
        ttft_p99_ms: figure(|s| s.from_intended.ttft_ms.p99),
        tpot_p99_ms: figure(|s| s.tpot_ms.p99),
        gap_p99_ms: figure(|s| s.itl_ms.p99),
        answers_per_s: figure(|s| s.achieved_rps),
        quiet_failures: failures(pairs.iter().map(|pair| &pair.quiet)),
        attacked_failures: failures(attacked()),
        quiet_footprint: most(pairs.iter().map(|pair| &pair.quiet)),
        attacked_footprint: most(attacked()),
        drained_s: attacked().filter_map(|window| window.drained_s).reduce(f64::max),
        undrained: attacked().filter(|w| w.victims.is_some() && w.drained_s.is_none()).count(),
        ended: attacked().filter(|window| window.server_ended.is_some()).count(),
        attackers: attacked()
            .filter_map(|window| window.attackers.as_ref())
            .next_back()
            .map_or_else(String::new, |seen| seen.tally.verdict(attack)),
    }
}

fn is_failed(window: &Window) -> bool {
    window.error.is_some() || window.victims.is_none()
}

fn figure(trusted: &[(Summary, Summary)], of: fn(&Summary) -> f64) -> Figure {
    let middle = |values: Vec<f64>| {
        let known: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        median(&known).unwrap_or(f64::NAN)
    };
    Figure {
        quiet: middle(trusted.iter().map(|(quiet, _)| of(quiet)).collect()),
        attacked: middle(trusted.iter().map(|(_, attacked)| of(attacked)).collect()),
        ratio: middle(trusted.iter().map(|(quiet, attacked)| of(attacked) / of(quiet)).collect()),
    }
}

fn failures<'a>(windows: impl Iterator<Item = &'a Window>) -> (u64, u64) {
    let of = |summary: &Summary| (summary.requests, summary.requests - summary.ok);
    let all = windows.filter_map(|window| window.victims.as_ref()).map(of);
    all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn most<'a>(windows: impl Iterator<Item = &'a Window>) -> Option<Footprint> {
    windows.filter_map(|window| window.footprint).reduce(Footprint::most)
}
