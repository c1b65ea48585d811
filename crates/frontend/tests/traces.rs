//! Traces: what spans say, whose children they are, and what a collector that is dead, slow or
//! absent changes: nothing but a counter.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Harness;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use saccade_frontend::{Adapter, FrontendConfig, TracesConfig};
use saccade_ring::testing::FakeConfig;
use serde_json::{Value, json};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A collector that takes OTLP by HTTP.
struct Collector {
    addr: SocketAddr,
    got: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
    connections: Arc<Mutex<usize>>,
    stop: Arc<AtomicBool>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Self {
            addr: listener.local_addr().unwrap(),
            got: Arc::default(),
            connections: Arc::default(),
            stop: Arc::default(),
        };
        let (got, connections) = (collector.got.clone(), collector.connections.clone());
        let stop = collector.stop.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                *connections.lock().unwrap() += 1;
                let got = got.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &got));
            }
        });
        collector
    }

    fn config(&self) -> TracesConfig {
        TracesConfig::to(format!("http://{}", self.addr))
    }

    fn spans(&self) -> Vec<Span> {
        let got = self.got.lock().unwrap();
        let scopes = got.iter().flat_map(|r| &r.resource_spans).flat_map(|r| &r.scope_spans);
        scopes.flat_map(|s| s.spans.clone()).collect()
    }

    fn resource(&self) -> HashMap<String, Value> {
        let got = self.got.lock().unwrap();
        attributes(&got[0].resource_spans[0].resource.as_ref().unwrap().attributes)
    }

    /// The span of the request with this id, which may be on its way.
    fn span(&self, request_id: &str) -> Span {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            let of = |span: &Span| attributes(&span.attributes)["gen_ai.request.id"] == request_id;
            if let Some(span) = self.spans().into_iter().find(of) {
                return span;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no span of {request_id}");
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.addr);
    }
}

fn serve(stream: TcpStream, got: &Mutex<Vec<ExportTraceServiceRequest>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&lower);
        }
        assert!(head.starts_with("post /v1/traces "), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        got.lock().unwrap().push(ExportTraceServiceRequest::decode(&*body).unwrap());
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
    }
}

fn attributes(all: &[KeyValue]) -> HashMap<String, Value> {
    all.iter().map(|a| (a.key.clone(), json_of(a.value.as_ref().unwrap()))).collect()
}

fn json_of(value: &AnyValue) -> Value {
    match value.value.as_ref().unwrap() {
        any_value::Value::StringValue(text) => json!(text),
        any_value::Value::IntValue(number) => json!(number),
        any_value::Value::DoubleValue(number) => json!(number),
        any_value::Value::BoolValue(is) => json!(is),
        any_value::Value::ArrayValue(array) => array.values.iter().map(json_of).collect(),
        other => panic!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

fn traced(traces: TracesConfig) -> impl FnOnce(&mut FrontendConfig) {
    |config| {
        config.traces = Some(traces);
        config.device_lost_after = Duration::from_secs(60);
    }
}

fn send(
    h: &Harness,
    path: &str,
    id: &str,
    more: &[(&str, &str)],
    body: &Value,
) -> common::client::Exchange {
    let mut headers = vec![("content-type", "application/json"), ("x-request-id", id)];
    headers.extend(more);
    h.open("POST", path, &headers, &body.to_string())
}

#[test]
fn a_span_names_the_adapter_that_was_asked_for() {
    let collector = Collector::start();
    let traced = traced(collector.config());
    let with_adapter = |config: &mut FrontendConfig| {
        let (name, path) = ("sql".to_owned(), "/sql".to_owned());
        config.adapters = vec![Adapter { name, path, base_model: None }];
        traced(config);
    };
    let h = Harness::with(with_adapter, FakeConfig { num_adapters: 1, ..FakeConfig::default() });
    let body = json!({"model": "sql", "prompt": "x", "max_tokens": 2});
    assert_eq!(send(&h, "/v1/completions", "adapted", &[], &body).answer().status, 200);
    let said = attributes(&collector.span("adapted").attributes);
    assert_eq!(said["gen_ai.request.model"], "sql");
    assert_eq!(said["gen_ai.response.model"], "sql");
}

#[test]
fn a_span_says_what_was_asked_and_what_came_of_it() {
    let collector = Collector::start();
    let h = Harness::with(traced(collector.config()), Default::default());
    h.device.say("Hello there.");
    let body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "A secret question"}],
        "max_completion_tokens": 40, "temperature": 0.25, "top_p": 0.5, "n": 2,
    });
    let parent = [("traceparent", PARENT), ("tracestate", "vendor=x")];
    assert_eq!(send(&h, "/v1/chat/completions", "whole", &parent, &body).answer().status, 200);
    let span = collector.span("whole");
    assert_eq!(span.name, "POST /v1/chat/completions");
    assert_eq!(span.kind, 2, "server");
    assert_eq!(hex(&span.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    assert_eq!(span.trace_state, "vendor=x");
    assert!(span.start_time_unix_nano < span.end_time_unix_nano);
    assert!(!is_error(&span));
    let said = attributes(&span.attributes);
    for (name, value) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!("/v1/chat/completions")),
        ("url.path", json!("/v1/chat/completions")),
        ("http.response.status_code", json!(200)),
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.request.model", json!("tiny")),
        ("gen_ai.request.max_tokens", json!(40)),
        ("gen_ai.request.temperature", json!(0.25)),
        ("gen_ai.request.top_p", json!(0.5)),
        ("gen_ai.request.n", json!(2)),
        ("gen_ai.usage.output_tokens", json!(80)),
        ("gen_ai.usage.completion_tokens", json!(80)),
        ("gen_ai.response.finish_reasons", json!(["length", "length"])),
    ] {
        assert_eq!(said.get(name), Some(&value), "{name}: {said:?}");
    }
    assert!(said["gen_ai.usage.input_tokens"].as_i64().unwrap() > 10, "{said:?}");
    assert_eq!(said["gen_ai.usage.input_tokens"], said["gen_ai.usage.prompt_tokens"]);
    let seconds = |name: &str| said[&format!("gen_ai.latency.{name}")].as_f64().unwrap();
    assert!(seconds("time_in_queue") <= seconds("time_to_first_token"), "{said:?}");
    assert!(seconds("time_to_first_token") <= seconds("e2e"), "{said:?}");
    for part in ["time_in_model_prefill", "time_in_model_decode", "time_in_model_inference"] {
        assert!((0.0..=seconds("e2e")).contains(&seconds(part)), "{part}: {said:?}");
    }
    assert!(!said.contains_key("error.type"), "{said:?}");
    let shown = format!("{span:?}");
    assert!(!shown.contains("secret") && !shown.contains("Hello"), "neither prompt nor answer");
    assert_eq!(collector.resource()["service.name"], "saccade");

    // A stream, of a client that names no span: the root of a trace.
    let body = json!({"prompt": "abc", "max_tokens": 7, "stream": true});
    let streamed = send(&h, "/v1/completions", "streamed", &[], &body);
    assert!(streamed.answer().chunks().1);
    let span = collector.span("streamed");
    assert!(span.parent_span_id.is_empty());
    let said = attributes(&span.attributes);
    assert_eq!(said["gen_ai.operation.name"], "text_completion");
    assert_eq!(said["gen_ai.usage.input_tokens"], 3);
    assert_eq!(said["gen_ai.usage.output_tokens"], 7);
    assert_eq!(said["gen_ai.response.finish_reasons"], json!(["length"]));
    assert!(!said.contains_key("gen_ai.request.temperature"), "the client named none");

    // The parent decides; probes have no spans at all.
    let body = json!({"prompt": "abc", "max_tokens": 1});
    let unsampled = [("traceparent", UNSAMPLED)];
    assert_eq!(send(&h, "/v1/completions", "unsampled", &unsampled, &body).answer().status, 200);
    assert_eq!(send(&h, "/v1/completions", "last", &[], &body).answer().status, 200);
    collector.span("last");
    assert_eq!(collector.spans().len(), 3, "{:?}", collector.spans());
    h.wait_until("they are counted", |h| exported(h) == 3.0);
    assert_eq!((lost(&h, "queue_full"), lost(&h, "failed")), (0.0, 0.0));
}

fn exported(h: &Harness) -> f64 {
    lost(h, "exported")
}

fn lost(h: &Harness, how: &str) -> f64 {
    let series = format!("saccade:trace_spans_total{{model_name=\"tiny\",result=\"{how}\"}}");
    h.metric(&series)
}

#[test]
fn errors_have_a_type_and_faults_of_the_server_a_status() {
    let collector = Collector::start();
    let traces = collector.config();
    let mut h = Harness::with(
        |config| {
            traced(traces)(config);
            config.max_num_queued_reqs = Some(0);
            config.api_keys = vec!["s3cret".into()];
        },
        Default::default(),
    );
    h.device.babble();
    let key = [("authorization", "Bearer s3cret")];
    let path = "/v1/completions";
    let invalid = json!({"prompt": "abc", "temperature": -1});
    assert_eq!(send(&h, path, "invalid", &key, &invalid).answer().status, 400);
    let body = json!({"prompt": "abc", "max_tokens": 5});
    assert_eq!(send(&h, path, "stranger", &[], &body).answer().status, 401);
    let unknown = json!({"prompt": "abc", "model": "other"});
    assert_eq!(send(&h, path, "unknown", &key, &unknown).answer().status, 404);
    let wide = json!({"prompt": "abc", "max_tokens": 4000, "n": common::NUM_SLOTS, "stream": true});
    let mut aborted = send(&h, path, "aborted", &key, &wide);
    aborted.head();
    assert!(aborted.chunk().is_some());
    assert_eq!(send(&h, path, "full", &key, &body).answer().status, 429);
    drop(aborted);
    h.wait_until("room", |h| h.device.in_flight() == 0);
    // One that goes away before its answer has begun.
    h.device.pause();
    let early = send(&h, path, "early", &key, &json!({"prompt": "abc", "max_tokens": 4000}));
    h.wait_until("it has come", |h| {
        h.metric("saccade:tenant_requests{model_name=\"tiny\",tenant=\"default\"}") >= 1.0
    });
    drop(early);
    collector.span("early");
    h.device.go_on();
    // The device dies under a stream.
    let long = json!({"prompt": "abc", "max_tokens": 4000, "stream": true});
    let mut failed = send(&h, path, "failed", &key, &long);
    failed.head();
    assert!(failed.chunk().is_some());
    h.device.restart(Default::default());
    while failed.chunk().is_some() {}

    // It dies under a request that has no answer yet.
    let whole = send(&h, path, "lost", &key, &json!({"prompt": "abc", "max_tokens": 4000}));
    h.wait_until("it is on the device", |h| h.device.in_flight() == 1);
    h.device.restart(Default::default());
    assert_eq!(whole.answer().status, 503);

    let none = Value::Null;
    for (id, status, error, fault) in [
        ("invalid", json!(400), "invalid_value", false),
        ("stranger", json!(401), "invalid_api_key", false),
        ("unknown", json!(404), "model_not_found", false),
        ("full", json!(429), "server_overloaded", false),
        ("aborted", json!(200), "client_gone", false),
        ("early", none.clone(), "client_gone", false),
        ("failed", json!(200), "device_lost", true),
        ("lost", json!(503), "device_lost", true),
    ] {
        let span = collector.span(id);
        let said = attributes(&span.attributes);
        assert_eq!(said.get("http.response.status_code").unwrap_or(&none), &status, "{id}");
        assert_eq!(said.get("error.type"), Some(&json!(error)), "{id}: {said:?}");
        assert_eq!(is_error(&span), fault, "{id}: {:?}", span.status);
        assert!(!format!("{span:?}").contains("s3cret"), "{id}");
    }
}

#[test]
fn nothing_is_sent_without_the_flag() {
    let collector = Collector::start();
    let h = Harness::start();
    let body = json!({"prompt": "abc", "max_tokens": 1});
    let parent = [("traceparent", PARENT)];
    assert_eq!(send(&h, "/v1/completions", "one", &parent, &body).answer().status, 200);
    assert!(h.find_metric("saccade:trace_spans_total").is_none(), "no tracing, no series");
    drop(h);
    assert_eq!(*collector.connections.lock().unwrap(), 0);
}

#[test]
fn the_end_of_the_frontend_sends_what_waits() {
    let collector = Collector::start();
    let h = Harness::with(traced(collector.config()), Default::default());
    let body = json!({"prompt": "abc", "max_tokens": 1});
    for _ in 0..5 {
        assert_eq!(h.post("/v1/completions", &body).status, 200);
    }
    drop(h);
    assert_eq!(collector.spans().len(), 5);
}

#[test]
fn a_dead_collector_costs_spans_and_nothing_else() {
    // Bound, and closed again: nothing answers there.
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = traced(TracesConfig::to(format!("http://{addr}/v1/traces")));
    let h = Harness::with(config, Default::default());
    let body = json!({"prompt": "abc", "max_tokens": 3});
    for _ in 0..10 {
        assert_eq!(h.post("/v1/completions", &body).status, 200);
    }
    h.wait_until("they are counted as lost", |h| lost(h, "failed") == 10.0);
    assert_eq!((exported(&h), lost(&h, "queue_full")), (0.0, 0.0));
}

#[test]
fn a_collector_that_hangs_fills_the_queue_and_holds_up_nobody() {
    // Connections are made by the kernel and never answered.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let traces = TracesConfig { endpoint, queue_spans: NonZeroUsize::new(8).unwrap() };
    let h = Harness::with(traced(traces), Default::default());
    let body = json!({"prompt": "abc", "max_tokens": 1});
    h.wait_until("the queue is full", |h| {
        let answer = h.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        lost(h, "queue_full") >= 3.0
    });
    // Its end gives the collector up.
    drop(h);
}

#[test]
fn what_cannot_be_an_endpoint_is_refused_at_the_start() {
    let model = tempfile::tempdir().unwrap();
    common::write_model(model.path());
    for endpoint in ["localhost:4318", "grpc://localhost:4317", "http://"] {
        let limits = saccade_ring::RegionLimits { num_slots: 32, ..Default::default() };
        let transport = saccade_ring::InProcTransport::create(&limits).unwrap();
        let config = FrontendConfig {
            model: model.path().display().to_string(),
            traces: Some(TracesConfig::to(endpoint.into())),
            ..Default::default()
        };
        let Err(error) = saccade_frontend::Frontend::start_on(config, transport) else {
            panic!("taken: {endpoint}");
        };
        assert!(error.to_string().starts_with("otlp_traces_endpoint: "), "{error}");
    }
}
