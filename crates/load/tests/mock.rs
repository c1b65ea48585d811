//! The client against an independently written scripted server: what it records is what was done,
//! and nothing that went wrong is lost. Times are checked against the script's lower bounds, never
//! against upper ones: test machines are busy. `bench/validate_load.py` holds them
//! to within 1 ms or 1 %, on a machine of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use saccade_load::{
    Api, Arrival, Lengths, LoadError, LoadSpec, Observer, Outcome, Priority, RequestRecord, Run,
    Slo, Summary, Target, TokenSource, Warmup, Workload, run_on_own_thread,
};
use saccade_mock::{Script, Server};

fn server(script: &str) -> Server {
    let script = Script::from_json(script).expect("a script");
    Server::start(script, "127.0.0.1:0".parse().expect("an address")).expect("a server")
}

fn target(server: &Server) -> Target {
    Target::new(format!("http://{}", server.address()))
}

fn load(server: &Server, spec: &LoadSpec) -> Run {
    run_on_own_thread(&target(server), spec, &(), Priority::Normal).expect("a run")
}

fn evenly(rate_rps: f64, requests: u64) -> LoadSpec {
    LoadSpec::new(Arrival::Constant { rate_rps }, Workload::fixed(8, 4), requests)
}

fn all_ok(run: &Run) -> bool {
    run.requests.iter().all(|r| r.outcome == Outcome::Ok)
}

#[test]
fn times_and_counts_are_those_of_the_script() {
    let server = server(r#"{"ttft": "constant:50ms", "itl": "constant:20ms"}"#);
    let run = load(&server, &evenly(50.0, 25));
    assert!(all_ok(&run));
    for (i, r) in run.requests.iter().enumerate() {
        assert!((r.intended_s - i as f64 / 50.0).abs() < 1e-9);
        assert!(r.sent_s >= r.intended_s, "{r:?}");
        assert_eq!((r.output_tokens, r.token_times_s.len()), (4, 4));
        assert_eq!(r.token_source, TokenSource::Usage);
        assert!(r.prompt_tokens.is_some_and(|n| n > 0));
        assert!(r.gaps_s().sum::<f64>() > 0.04, "{r:?}");
        let times = [&[r.sent_s], r.token_times_s.as_slice(), &[r.end_s]].concat();
        assert!(times.is_sorted(), "{r:?}");
    }
    let s = Summary::of(&run, &Slo { ttft_ms: Some(1e4), ..Slo::default() });
    assert!(s.from_sent.ttft_ms.min >= 49.9, "{:?}", s.from_sent);
    assert!(s.from_intended.ttft_ms.p50 >= s.from_sent.ttft_ms.p50, "{s:?}");
    assert!(s.tpot_ms.count == 25 && s.tpot_ms.p50 >= 19.0, "{:?}", s.tpot_ms);
    assert_eq!(s.attainment.iter().map(|a| a.met).collect::<Vec<_>>(), [25, 25]);
    assert!((s.offered_rps - 50.0).abs() < 1e-6, "{}", s.offered_rps);
}

#[test]
fn a_stalled_server_is_not_flattered() {
    // Nothing for a second in the middle of a run of two: an arrival during it waits for its end.
    let script = r#"{"ttft": "constant:2ms", "itl": "constant:1ms",
        "stalls": [{"at_request": 40, "for_s": 1.0}]}"#;
    let server = server(script);
    let run = load(&server, &evenly(100.0, 200));
    assert!(all_ok(&run));
    let s = Summary::of(&run, &Slo::default());
    // Half of the arrivals fall into the stall, evenly: a tenth of all waits 0.8 s or more.
    let ttft = s.from_intended.ttft_ms;
    assert!(ttft.p90 > 700.0 && ttft.max > 900.0, "{ttft:?}");
    // The client did not wait for the server: most requests that came during the stall were sent
    // before its end.
    let end_s = run.requests[40].first_token_s.expect("answered");
    let sent = run.requests[41..].iter().filter(|r| r.sent_s < end_s).count();
    assert!(sent > 10, "{sent} sent before {end_s} s");
}

#[test]
fn an_arrival_that_the_bound_holds_back_is_late_and_counted() {
    let server = server(r#"{"ttft": "constant:100ms", "itl": "constant:1ms"}"#);
    let mut spec = evenly(100.0, 20);
    spec.max_in_flight = 2;
    let run = load(&server, &spec);
    assert_eq!((run.requests.len(), all_ok(&run)), (20, true), "none is dropped");
    assert_eq!(run.client.max_in_flight_seen, 2);
    assert!(run.client.bound_hits >= 15, "{:?}", run.client);
    assert!(run.client.warnings.iter().any(|w| w.contains("bound")), "{:?}", run.client.warnings);
    // The last came at 0.19 s and was sent after nine pairs of 0.1 s.
    let s = Summary::of(&run, &Slo::default());
    assert!(s.from_intended.ttft_ms.max > 700.0, "{:?}", s.from_intended.ttft_ms);
    assert!(s.from_intended.ttft_ms.max > s.from_sent.ttft_ms.p50, "{s:?}");
}

#[test]
fn a_closed_loop_keeps_its_number_and_its_connections() {
    let server = server(r#"{"ttft": "constant:5ms", "itl": "constant:1ms"}"#);
    let arrival = Arrival::Closed { concurrency: 3 };
    let mut spec = LoadSpec::new(arrival, Workload::fixed(8, 4), 30);
    spec.warmup = Warmup { requests: 6, seconds: 0.0 };
    let run = load(&server, &spec);
    assert_eq!((run.requests.len(), run.measured().count()), (36, 30));
    assert_eq!(run.client.max_in_flight_seen, 3);
    assert!(run.client.connections <= 4, "{:?}", run.client);
    assert_eq!(run.client.bound_hits, 0);
    let s = Summary::of(&run, &Slo::default());
    assert_eq!((s.requests, s.ok), (30, 30));
    assert!(run.window_s.0 > 0.0 && s.achieved_rps > 0.0);
}

#[test]
fn what_goes_wrong_is_a_result_of_its_kind() {
    let script = r#"{"ttft": "constant:2ms", "itl": "constant:2ms",
        "failures": {"http_500": 0.2, "cut": 0.2, "error_event": 0.2, "hang": 0.2}}"#;
    let server = server(script);
    let mut spec = evenly(400.0, 200);
    spec.request_timeout_s = 0.8;
    let target = resolved(&server);
    let run = run_on_own_thread(&target, &spec, &(), Priority::Normal).expect("a run");
    let s = Summary::of(&run, &Slo { ttft_ms: Some(1e5), ..Slo::default() });
    assert_eq!(run.requests.len(), 200);
    for kind in ["http_500", "broken", "error_event", "timeout"] {
        assert!(s.failures.get(kind).is_some_and(|n| *n >= 10), "{kind}: {:?}", s.failures);
    }
    assert_eq!(s.ok + s.failures.values().sum::<u64>(), 200);
    // Requests that never got an answer are in the sample, with their wait.
    assert_eq!(s.from_intended.ttft_ms.censored, s.failures["timeout"]);
    assert!(s.from_intended.ttft_ms.max >= 800.0, "{:?}", s.from_intended.ttft_ms);
    let first = run.requests.iter().filter(|r| r.first_token_s.is_some()).count() as u64;
    assert!(first > s.ok, "some failed in the middle");
    let met: Vec<u64> = s.attainment.iter().map(|a| a.met).collect();
    assert_eq!(met, [first, s.ok], "a token that came counts, a failed request is not good");
    for kind in ["http_500", "broken", "error_event"] {
        let message = s.failure_messages.get(kind);
        assert!(message.is_some_and(|m| !m.is_empty()), "{kind}: {:?}", s.failure_messages);
    }
}

/// A target that needs no request to begin with, which might be one that fails.
fn resolved(server: &Server) -> Target {
    let mut target = target(server);
    target.model = Some("mock".into());
    target.dialect =
        Some(saccade_load::Dialect { usage: true, continuous_usage: true, exact: true });
    target
}

#[test]
fn what_is_left_at_the_end_of_the_drain_is_cut() {
    let server = server(r#"{"ttft": "constant:60s"}"#);
    let mut spec = evenly(100.0, 5);
    spec.drain_timeout_s = 0.3;
    let run = run_on_own_thread(&resolved(&server), &spec, &(), Priority::Normal).expect("a run");
    assert!(run.requests.iter().all(|r| r.outcome == Outcome::Cut), "{:?}", run.requests);
    let s = Summary::of(&run, &Slo::default());
    assert_eq!((s.ok, s.from_intended.e2e_ms.censored), (0, 5));
    assert!(s.tpot_ms.p50.is_nan() && s.input_tokens_per_s.is_none(), "{s:?}");
}

#[test]
fn streams_in_all_their_shapes() {
    let wires = [
        r#"{"line_end": "crlf", "comment_every": 1, "cuts": 7}"#,
        r#"{"done": false, "role": "at_once"}"#,
        r#"{"cuts": 3, "cut_gap_us": 300, "role": "at_once"}"#,
    ];
    for wire in wires {
        for api in [Api::Completions, Api::Chat] {
            let script =
                format!(r#"{{"ttft": "constant:30ms", "itl": "constant:4ms", "wire": {wire}}}"#);
            let server = server(&script);
            let mut target = target(&server);
            target.api = api;
            let run = run_on_own_thread(&target, &evenly(100.0, 10), &(), Priority::Normal);
            let run = run.expect("a run");
            for r in &run.requests {
                let seen = (&r.outcome, r.output_tokens, r.token_times_s.len());
                assert_eq!(seen, (&Outcome::Ok, 4, 4), "{wire} {api:?}: {r:?}");
                // The role event that comes at once is no token.
                assert!(r.first_token_s.is_some_and(|t| t - r.sent_s > 0.029), "{wire}: {r:?}");
            }
        }
    }
}

#[test]
fn tokens_are_counted_by_usage_when_events_carry_several() {
    let server = server(
        r#"{"ttft": "constant:2ms", "itl": "constant:5ms",
        "tokens_per_event": "constant:4"}"#,
    );
    let spec = LoadSpec::new(
        Arrival::Closed { concurrency: 1 },
        Workload::generated(Lengths::Fixed { tokens: 4 }, Lengths::Fixed { tokens: 16 }),
        3,
    );
    let run = load(&server, &spec);
    for r in &run.requests {
        assert_eq!((r.output_tokens, r.token_times_s.len()), (16, 4), "{r:?}");
        let (first, last) = (r.token_times_s[0], r.token_times_s[3]);
        assert_eq!(r.tpot_s(), Some((last - first) / 15.0));
    }
    assert_eq!(Summary::of(&run, &Slo::default()).wrong_lengths, 0);
}

#[test]
fn lengths_that_are_not_exact_are_told() {
    let server = server(
        r#"{"ttft": "constant:2ms", "itl": "constant:1ms",
        "natural_tokens": "constant:2"}"#,
    );
    let mut target = resolved(&server);
    let mut run = |exact| {
        target.dialect = target.dialect.map(|d| saccade_load::Dialect { exact, ..d });
        run_on_own_thread(&target, &evenly(100.0, 4), &(), Priority::Normal).expect("a run")
    };
    assert_eq!(Summary::of(&run(true), &Slo::default()).wrong_lengths, 0);
    let short = run(false);
    assert_eq!(Summary::of(&short, &Slo::default()).wrong_lengths, 4);
    assert!(short.notes.iter().any(|n| n.contains("ignore_eos")), "{:?}", short.notes);
}

struct StopAfter {
    seen: AtomicBool,
}

impl Observer for StopAfter {
    fn finished(&self, _: &RequestRecord) {
        self.seen.store(true, Ordering::Relaxed);
    }

    fn should_stop(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }
}

#[test]
fn an_observer_ends_the_arrivals_and_keeps_what_was_seen() {
    let server = server(r#"{"ttft": "constant:5ms", "itl": "constant:1ms"}"#);
    let mut spec = evenly(50.0, 1);
    (spec.requests, spec.duration_s) = (None, Some(600.0));
    let observer = StopAfter { seen: AtomicBool::new(false) };
    let run = run_on_own_thread(&target(&server), &spec, &observer, Priority::Normal);
    let run = run.expect("a run");
    assert!(!run.requests.is_empty() && all_ok(&run) && run.stopped);
    assert!(run.window_s.1 < 600.0, "{:?}", run.window_s);
}

#[test]
fn a_server_that_is_not_there_is_an_error_and_names_itself() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    drop(listener);
    let target = Target::new(format!("http://{address}"));
    let error = run_on_own_thread(&target, &evenly(1.0, 1), &(), Priority::Normal);
    let error = error.expect_err("nothing listens");
    assert!(matches!(error, LoadError::Server { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_wrong_key_is_refused_before_the_run() {
    let server = server(r#"{"api_key": "right"}"#);
    let mut target = target(&server);
    target.model = Some("mock".into());
    target.api_key = Some("wrong".into());
    let error = run_on_own_thread(&target, &evenly(1.0, 1), &(), Priority::Normal);
    assert!(error.expect_err("refused").to_string().contains("401"));
    target.api_key = Some("right".into());
    let run = run_on_own_thread(&target, &evenly(100.0, 2), &(), Priority::Normal);
    assert!(all_ok(&run.expect("a run")));
}
