//! A report with every kind of block, for looking at and for the browser's test.
//!
//! `cargo run -p saccade-report --example gallery -- gallery.html`

use saccade_report::{
    Axis, BarChart, Best, Cell, Chart, Heatmap, Histogram, Level, LineChart, Ramp, Report, Section,
    Series, Table,
};

const RATES: [f64; 13] = [1., 1.5, 2., 3., 4., 6., 8., 10., 12., 16., 20., 26., 32.];

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "gallery.html".to_owned());
    let numbers = serde_json::json!({"rates": RATES, "hostile": "</script><!--", "none": null});
    Report::new("Gallery of plots")
        .subtitle("Made-up numbers in every kind of chart")
        .fact("machine", "2 × Example CPU @ 2.0 GHz, 8 GiB, Linux 6.1")
        .fact("commit", "0000000")
        .fact("command", "saccade bench serve --url http://127.0.0.1:8000 --rates 1..32")
        .section(verdicts())
        .section(tables())
        .section(lines())
        .section(distributions())
        .section(bars())
        .section(heatmaps())
        .section(edges())
        .data("numbers", &numbers)?
        .write(path.as_ref())
}

/// Numbers between 0 and 1 that are the same in each run (a Weyl sequence).
fn noise(i: usize) -> f64 {
    (i as f64 * 0.754_877_666 + 0.31).fract()
}

/// Latency that climbs towards the rate a server cannot keep up with.
fn latency(base: f64, limit: f64, rate: f64) -> f64 {
    base / (1.0 - (rate / limit).min(0.985))
}

fn verdicts() -> Section {
    Section::new("Verdicts")
        .paragraph(
            "A paragraph of plain text. It may be long, and wraps at a width that is still \
                    comfortable to read, however wide the window is.",
        )
        .callout(Level::Good, "Healthy", "16 cores for 2 GPUs, no throttling in 60 s.")
        .callout(Level::Warning, "Close to the limit", "4 cores per GPU; run-queue wait 3.1 %.")
        .callout(Level::Bad, "Too few cores", "5 cores for 4 GPUs: one process too many.")
        .callout(Level::Info, "Not measured", "perf counters are not permitted here.")
}

fn tables() -> Section {
    let mut table = Table::new("Latency at 8 requests/s")
        .column("Server")
        .column("Requests")
        .column_with_best("TTFT P50 (ms)", Best::Lowest)
        .column_with_best("TTFT P99 (ms)", Best::Lowest)
        .column_with_best("Throughput (tokens/s)", Best::Highest)
        .column("TTFT over time");
    for (i, name) in ["saccade", "llama.cpp", "vllm"].into_iter().enumerate() {
        let scale = 1.0 + i as f64 * 0.8;
        table.push([
            name.into(),
            Cell::from(1200 * (i + 1)),
            Cell::Number(21.3 * scale, 1),
            Cell::Number(1057.25 * scale, 1),
            Cell::Number(1_234_567.0 / scale, 0),
            Cell::Spark((0..40).map(|k| noise(k + i * 100) + scale).collect()),
        ]);
    }
    table.push(["stalled".into(), 31usize.into(), Cell::Missing, Cell::Number(f64::INFINITY, 1)]);
    Section::new("Tables").table(table.note("P99 from intended send times."))
}

fn lines() -> Section {
    let rate = || Axis::log2("Request rate", "requests/s");
    let curve = |base: f64, limit: f64| {
        RATES.into_iter().filter(move |r| *r < limit).map(move |r| (r, latency(base, limit, r)))
    };
    let p99 = LineChart::new("TTFT P99 by rate", rate(), Axis::log("TTFT P99", "ms"))
        .series(Series::new("saccade").points(curve(21.0, 33.0)))
        .series(Series::new("llama.cpp").points(curve(60.0, 20.5)).timed_out(26.0).timed_out(32.0))
        .series(Series::new("vllm").points(curve(45.0, 27.0)).timed_out(32.0))
        .horizontal(500.0, "SLO 500 ms")
        .vertical(19.2, "serviceable 19.2/s")
        .vertical(21.0, "saturated 21/s");
    let victims = |slope: f64| {
        (1..=5).map(move |v| {
            let (v, y) = (f64::from(v), slope * f64::from(v * v) + 0.4);
            (v, y, y * 0.82, y * 1.2)
        })
    };
    let attack = LineChart::new(
        "Victims under attack",
        Axis::whole("Victim", ""),
        Axis::linear("TTFT", "s"),
    )
    .series(Series::new("5 cores").band(victims(1.9)))
    .series(Series::new("8 cores").band(victims(0.8)))
    .series(Series::new("32 cores").band(victims(0.2)))
    .note("Mean and standard deviation of ten runs.");
    let many = (0..7).fold(
        LineChart::new("Seven series", Axis::linear("x", ""), Axis::linear("y", "")),
        |chart, k| {
            let points = (0..9).map(|x| (f64::from(x), f64::from(x) * 0.4 + f64::from(k)));
            chart.series(Series::new(format!("series {k}")).points(points))
        },
    );
    Section::new("Lines").chart(p99).side_by_side([Chart::from(attack), Chart::from(many)])
}

fn distributions() -> Section {
    let samples = |scale: f64| (0..20_000).map(move |i| scale * (-noise(i).ln()).powf(1.6) + 4.0);
    let cdf = LineChart::new(
        "TTFT",
        Axis::log("TTFT", "ms"),
        Axis::linear("Share of requests", "").from(0.0).to(1.0),
    )
    .series(Series::cdf("isolated", samples(10.0)))
    .series(Series::cdf("beside a compiler", samples(60.0)))
    .vertical(8.0, "P50 8.0")
    .vertical(9.2, "P75 9.2")
    .vertical(60.0, "P99 60");
    let values: Vec<f64> = samples(30.0).collect();
    let histogram = Histogram::of("Inter-token latency", Axis::log("ITL", "ms"), &values, 40)
        .vertical(20.0, "median");
    let scatter =
        LineChart::new("Each request", Axis::linear("Time", "s"), Axis::linear("TTFT", "ms"))
            .series(
                Series::new("first tokens")
                    .points(
                        (0..6000)
                            .map(|i| (f64::from(i) / 10.0, 20.0 + 80.0 * noise(i as usize * 7))),
                    )
                    .scattered(),
            );
    Section::new("Distributions")
        .chart(cdf)
        .side_by_side([Chart::from(histogram), Chart::from(scatter)])
}

fn bars() -> Section {
    let neighbours = ["none", "cpu", "memory", "cache", "tlb", "fork", "compiler"];
    let values = |k: f64| (0..7).map(move |i| 1.0 + k * f64::from(i) * 0.35);
    let grouped = BarChart::new(
        "Inflation of TTFT P99 beside neighbours",
        "Neighbour",
        neighbours,
        Axis::linear("Inflation", "×"),
    )
    .series_with_spread("saccade", values(0.1).map(|v| (v, v * 0.95, v * 1.05)))
    .series_with_spread("llama.cpp", values(1.0).map(|v| (v, v * 0.9, v * 1.15)))
    .series("vllm", values(1.7))
    .horizontal(1.0, "isolated");
    let long = BarChart::new(
        "Long names",
        "Model",
        ["meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-14B-Instruct", "a <b> & \"c\""],
        Axis::log("Tokens", "tokens/s"),
    )
    .series("", [120_000.0, 2_400.0, f64::INFINITY]);
    let signed = BarChart::new("Signed", "Change", ["a", "b", "c"], Axis::linear("Change", "%"))
        .series("before", [-12.0, 3.0, 8.0])
        .series("after", [4.0, -2.5, f64::NAN]);
    Section::new("Bars").chart(grouped).side_by_side([Chart::from(long), Chart::from(signed)])
}

fn heatmaps() -> Section {
    let cores = || ("Cores", ["5", "8", "16", "32"].map(String::from).to_vec());
    let lengths = || {
        (
            "Attacker prompt (tokens)",
            ["1,800", "14,000", "57,000", "114,000"].map(String::from).to_vec(),
        )
    };
    let speed = (0..4)
        .map(|r| {
            (0..4)
                .map(|c| match (r, c) {
                    (3, 3) => f64::INFINITY,
                    (0, 3) => f64::NAN,
                    _ => 0.8 + f64::from(r * c) * 0.55,
                })
                .collect()
        })
        .collect();
    let speedup = Heatmap::new("Speed-up over the fewest cores", lengths(), cores(), speed)
        .ramp(Ramp::DivergingLog { centre: 1.0 })
        .values_are("Speed-up", "×", 2);
    let share =
        (0..4).map(|r| (0..4).map(|c| 4.0 + f64::from(r * r + c * c) * 2.5).collect()).collect();
    let tokenization = Heatmap::new(
        "Tokenization's share of TTFT",
        ("Prompt (tokens)", ["1k", "4k", "16k", "64k"].map(String::from).to_vec()),
        ("Batch", ["1", "4", "16", "64"].map(String::from).to_vec()),
        share,
    )
    .values_are("Share", "%", 1);
    Section::new("Heat maps").side_by_side([Chart::from(speedup), Chart::from(tokenization)])
}

/// What must not break a page.
fn edges() -> Section {
    let hostile = "</text></svg><script>document.title='owned'</script>\" onload=\"x";
    let one = LineChart::new(hostile, Axis::linear(hostile, hostile), Axis::log("y", "B"))
        .series(Series::new(hostile).points([(3.0, 1.5e9)]))
        .vertical(3.0, hostile);
    let gaps = LineChart::new(
        "Gaps, zeros on a logarithmic axis, and a million",
        Axis::linear("x", ""),
        Axis::log("y", "bytes"),
    )
    .series(Series::new("with gaps").points([
        (0.0, 1e3),
        (1.0, 5e4),
        (2.0, f64::NAN),
        (3.0, 1e6),
        (4.0, 0.0),
        (5.0, 2.5e9),
        (6.0, 7e8),
    ]));
    Section::new("Edges").side_by_side([Chart::from(one), Chart::from(gaps)])
}
