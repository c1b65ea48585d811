//! Runs as a scripted server would give them, for unit tests: no clock, no socket.

use crate::{
    Arrival, ClientHealth, Distribution, LoadSpec, Outcome, RequestRecord, Run, Target,
    TokenSource, Workload,
};

/// An answer whose tokens come evenly after the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub intended_s: f64,
    pub ttft_s: f64,
    pub gap_s: f64,
    pub tokens: u32,
}

impl Stream {
    fn record(&self, index: u64) -> RequestRecord {
        let at_s = |token: u32| self.intended_s + self.ttft_s + f64::from(token) * self.gap_s;
        let token_times_s: Vec<f64> = (0..self.tokens).map(at_s).collect();
        RequestRecord {
            index,
            warmup: false,
            intended_s: self.intended_s,
            sent_s: self.intended_s,
            connect_s: None,
            first_token_s: token_times_s.first().copied(),
            end_s: token_times_s.last().copied().unwrap_or(self.intended_s + self.ttft_s),
            token_times_s,
            prompt_tokens: Some(8),
            requested_tokens: self.tokens,
            output_tokens: self.tokens,
            token_source: TokenSource::Usage,
            outcome: Outcome::Ok,
            reason: None,
        }
    }
}

/// A run of these answers; the window is from the first to the last intended time.
pub(crate) fn run_of(arrival: Arrival, streams: &[Stream]) -> Run {
    let records = streams.iter().enumerate().map(|(i, s)| s.record(i as u64));
    let times = || streams.iter().map(|s| s.intended_s);
    let health = ClientHealth {
        send_lateness_ms: Distribution::EMPTY,
        loop_lag_ms: Distribution::EMPTY,
        cpu_share: 0.0,
        run_queue_share: None,
        bound_hits: 0,
        max_in_flight_seen: 0,
        connections: 0,
        warnings: Vec::new(),
    };
    Run {
        target: Target::new("http://x"),
        model: "m".into(),
        spec: LoadSpec::new(arrival, Workload::fixed(8, 4), streams.len() as u64),
        started_unix_s: 0.0,
        started_monotonic_s: 0.0,
        request_id_prefix: String::new(),
        window_s: (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max)),
        requests: records.collect(),
        client: health,
        notes: Vec::new(),
        stopped: false,
    }
}

/// An open loop; the last request has its interval, too.
pub(crate) fn open_run(rate_rps: f64, streams: Vec<Stream>) -> Run {
    let mut run = run_of(Arrival::Constant { rate_rps }, &streams);
    run.window_s.1 += 1.0 / rate_rps;
    run
}
