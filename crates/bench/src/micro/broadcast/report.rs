//! What `broadcast` found, as data and as a table.

use saccade_load::Distribution;
use saccade_report::{Cell, Table};
use serde::{Deserialize, Serialize};

use super::{Design, Setup};
use crate::micro::stats::number;
#[cfg(feature = "device")]
use crate::micro::stats::of_ns_in_us;

/// What each side's time includes; printed with every table.
pub(crate) const NOTES: [&str; 5] = [
    "Both start when a step may be decided: its requests are visible in shared memory and the step \
     before has ended. Both end when the last of N rank processes has the step's batch.",
    "broadcast: the scheduler sees that, runs one tick of the device plane, encodes the batch, \
     waits for a free chunk, copies it in; each reader sees it, decodes it and frees the chunk. \
     Messages are encoded in compiled code, not pickled.",
    "replicated (Saccade): each rank sees that and runs the same tick on its own copy of the ring; \
     the whole tick counts (publishing included), and nothing is sent. That all ranks decided the \
     same was checked after each run.",
    "Not included: putting requests into one ring or into N (put), and the step itself. No model \
     runs. Ranks are CPU processes here; a rank on a GPU does not compete for the host's cores.",
    "polling: looks and yields, as engines do; sleeping: looks for 20 us, then sleeps in the \
     kernel until woken, as the device plane on CPU does. As deployed: broadcast, polling over \
     replicated, sleeping; the other two pairs say how much of that is the way to wait.",
];

/// One design at one number of ranks and hogs; times in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub ranks: usize,
    pub hogs: usize,
    pub design: Design,
    /// Until the last rank had its batch.
    pub decision_us: Distribution,
    /// Broadcast: until the scheduler had ticked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_us: Option<Distribution>,
    /// Broadcast: from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast_us: Option<Distribution>,
    /// Putting the step's requests.
    pub put_us: Distribution,
    /// Every decision, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_samples_us: Option<Vec<f64>>,
}

impl Row {
    /// `None` if nothing was measured.
    #[cfg(feature = "device")]
    pub(crate) fn of(
        setup: &Setup,
        ranks: usize,
        hogs: usize,
        design: Design,
        times: &super::drive::Times,
    ) -> Option<Row> {
        let samples = || times.decision.iter().map(|&ns| ns as f64 / 1e3).collect();
        Some(Row {
            ranks,
            hogs,
            design,
            decision_us: of_ns_in_us(&times.decision)?,
            tick_us: of_ns_in_us(&times.tick),
            broadcast_us: of_ns_in_us(&times.broadcast),
            put_us: of_ns_in_us(&times.put)?,
            decision_samples_us: setup.samples.then(samples),
        })
    }
}

/// Which decision latencies are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pair {
    /// Broadcast, polling, as engines do, over replicated, sleeping, as the device plane does.
    AsDeployed,
    /// Both sleeping: what is left when the way to wait is the same.
    BothSleeping,
    /// Both polling.
    BothPolling,
}

impl Pair {
    pub(crate) const ALL: [Pair; 3] = [Pair::AsDeployed, Pair::BothSleeping, Pair::BothPolling];

    /// Numerator and denominator.
    #[cfg(any(feature = "device", test))]
    fn designs(self) -> (Design, Design) {
        match self {
            Pair::AsDeployed => (Design::BroadcastPolling, Design::ReplicatedSleeping),
            Pair::BothSleeping => (Design::BroadcastSleeping, Design::ReplicatedSleeping),
            Pair::BothPolling => (Design::BroadcastPolling, Design::ReplicatedPolling),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Pair::AsDeployed => "as deployed",
            Pair::BothSleeping => "both sleeping",
            Pair::BothPolling => "both polling",
        }
    }
}

/// Decision latency of a broadcast over that of replicas.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub ranks: usize,
    pub hogs: usize,
    pub pair: Pair,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// All that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub setup: Setup,
    pub rows: Vec<Row>,
    pub ratios: Vec<Ratio>,
    /// Every run ended with the same decisions on all of its ranks; a run where they differ fails.
    pub decisions_identical: bool,
    pub notes: Vec<String>,
}

impl Report {
    #[cfg(feature = "device")]
    pub(crate) fn new(setup: Setup, rows: Vec<Row>) -> Report {
        let ratios = ratios(&rows);
        let notes = || NOTES.map(str::to_owned).to_vec();
        Report { setup, rows, ratios, decisions_identical: true, notes: notes() }
    }

    /// A row for each measurement.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new("Decision latency: until the last rank has its batch")
            .column("ranks")
            .column("hogs")
            .column("design")
            .column("P50 us")
            .column("P99 us")
            .column("max us")
            .column("tick P50")
            .column("sent P50")
            .column("put P50");
        for row in &self.rows {
            let part = |d: Option<&Distribution>| number(d.map(|d| d.p50), 1);
            table.push([
                row.ranks.into(),
                row.hogs.into(),
                row.design.name().into(),
                Cell::Number(row.decision_us.p50, 1),
                Cell::Number(row.decision_us.p99, 1),
                Cell::Number(row.decision_us.max, 1),
                part(row.tick_us.as_ref()),
                part(row.broadcast_us.as_ref()),
                part(Some(&row.put_us)),
            ]);
        }
        table
    }

    /// How many times longer a broadcast takes.
    pub(crate) fn ratio_table(&self) -> Table {
        let mut table = Table::new("Broadcast over replicated").column("ranks").column("hogs");
        for pair in Pair::ALL {
            table =
                table.column(format!("{} P50", pair.name())).column(format!("{} P99", pair.name()));
        }
        for &ranks in &self.setup.ranks {
            for &hogs in &self.setup.hogs {
                let of = |pair| {
                    let same = |r: &&Ratio| (r.ranks, r.hogs, r.pair) == (ranks, hogs, pair);
                    self.ratios.iter().find(same)
                };
                let ratios = Pair::ALL.into_iter().flat_map(|pair| {
                    let ratio = of(pair);
                    [number(ratio.map(|r| r.p50), 2), number(ratio.map(|r| r.p99), 2)]
                });
                table.push([ranks.into(), hogs.into()].into_iter().chain(ratios));
            }
        }
        table
    }
}

/// All pairs that were measured at the same number of ranks and hogs.
#[cfg(any(feature = "device", test))]
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let of_pair = |pair: Pair| {
        let (told, decided) = pair.designs();
        let told = rows.iter().filter(move |row| row.design == told);
        told.filter_map(move |told| {
            let place = (decided, told.ranks, told.hogs);
            let decided = rows.iter().find(|row| (row.design, row.ranks, row.hogs) == place)?;
            let over = |value: fn(&Distribution) -> f64| {
                value(&told.decision_us) / value(&decided.decision_us)
            };
            Some(Ratio {
                ranks: told.ranks,
                hogs: told.hogs,
                pair,
                p50: over(|d| d.p50),
                p99: over(|d| d.p99),
                max: over(|d| d.max),
            })
        })
    };
    Pair::ALL.into_iter().flat_map(of_pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ranks: usize, design: Design, us: f64) -> Row {
        let times = Distribution::of([us, us, 2.0 * us]);
        Row {
            ranks,
            hogs: 0,
            design,
            decision_us: times,
            tick_us: None,
            broadcast_us: None,
            put_us: times,
            decision_samples_us: None,
        }
    }

    #[test]
    fn ratios_are_of_the_same_place() {
        let mut rows = vec![row(7, Design::ReplicatedSleeping, 1.0)];
        let times = [60.0, 2.0, 10.0, 30.0];
        rows.extend(Design::ALL.into_iter().zip(times).map(|(design, us)| row(3, design, us)));
        let found: Vec<_> = ratios(&rows).iter().map(|r| (r.ranks, r.pair, r.p50, r.max)).collect();
        let expected = [
            (3, Pair::AsDeployed, 30.0, 30.0),
            (3, Pair::BothSleeping, 5.0, 5.0),
            (3, Pair::BothPolling, 2.0, 2.0),
        ];
        assert_eq!(found, expected);
    }
}
