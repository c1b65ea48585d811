//! What a span says: the conventions of OpenTelemetry for HTTP servers and for generative AI, and
//! vLLM's names beside them where dashboards are built on these. Never a prompt or an answer.

use std::time::{Duration, UNIX_EPOCH};

use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SdkTracer;

use crate::http::{AskedFor, Ended, Made, Times, Tokens};

/// Choices whose reasons a span carries.
const MAX_REASONS: usize = 128;
/// Tells a client that went away from other errors.
const CLIENT_GONE: &str = "client_gone";

/// Makes the span of a request, if it is sampled.
pub fn make(tracer: &SdkTracer, ended: &Ended) {
    let begun = UNIX_EPOCH + ended.begun_unix;
    let parent = match &ended.parent {
        Some(parent) => Context::new().with_remote_span_context(parent.clone()),
        None => Context::new(),
    };
    let mut span = tracer
        .span_builder(name(ended))
        .with_kind(SpanKind::Server)
        .with_start_time(begun)
        .with_attributes(attributes(ended))
        .start_with_context(tracer, &parent);
    if is_fault(ended) {
        span.set_status(Status::error(""));
    }
    span.end_with_timestamp(begun + ended.duration);
}

/// Few names, whatever clients send.
fn name(ended: &Ended) -> String {
    match &ended.route {
        Some(route) => format!("{} {}", ended.method, route.as_str()),
        None => ended.method.to_string(),
    }
}

/// A fault of this server, as the conventions want it: not a request that was refused, nor one
/// whose client went away.
fn is_fault(ended: &Ended) -> bool {
    let failed = ended.tally.outcome().is_some_and(|made| made.failure.is_some());
    failed || ended.status.is_some_and(|status| status >= 500)
}

/// Why the request has no whole answer: codes as the API has them.
fn error_type(ended: &Ended) -> Option<Value> {
    let failure = ended.tally.outcome().and_then(|made| made.failure);
    if let Some(code) = failure.or(ended.refusal) {
        return Some(code.into());
    }
    match ended.status {
        Some(status) if status >= 400 => Some(status.to_string().into()),
        Some(_) if ended.complete => None,
        _ => Some(CLIENT_GONE.into()),
    }
}

fn attributes(ended: &Ended) -> Vec<KeyValue> {
    let mut all = Attributes(Vec::with_capacity(32));
    all.put("http.request.method", ended.method.to_string());
    all.put("url.path", ended.path.clone());
    all.put_some("http.route", ended.route.as_ref().map(|route| route.as_str().to_owned()));
    all.put_some("http.response.status_code", ended.status.map(i64::from));
    all.put_some("error.type", error_type(ended));
    all.put("gen_ai.request.id", ended.request_id.clone());
    all.put_some("saccade.tenant", ended.tenant.clone());
    if let Some(asked) = ended.tally.asked() {
        all.asked(asked);
    }
    if let Some(made) = ended.tally.outcome() {
        all.made(made, ended.duration);
    }
    all.0
}

struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn put(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(name, value));
    }

    fn put_some(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn asked(&mut self, asked: &AskedFor) {
        self.put("gen_ai.operation.name", asked.operation);
        self.put("gen_ai.provider.name", "saccade");
        self.put("gen_ai.request.model", asked.model.clone());
        self.put("gen_ai.response.model", asked.model.clone());
        self.put("gen_ai.request.n", i64::from(asked.n));
        self.put("gen_ai.request.choice.count", i64::from(asked.n));
        self.put_some("gen_ai.request.max_tokens", asked.max_tokens.map(i64::from));
        self.put_some("gen_ai.request.temperature", asked.temperature.map(f64::from));
        self.put_some("gen_ai.request.top_p", asked.top_p.map(f64::from));
    }

    fn made(&mut self, made: &Made, e2e: Duration) {
        let Tokens { prompt, cached, completion } = made.tokens;
        for (name, count) in [
            ("gen_ai.usage.input_tokens", prompt),
            ("gen_ai.usage.cache_read.input_tokens", cached),
            ("gen_ai.usage.output_tokens", completion),
            ("gen_ai.usage.prompt_tokens", prompt),
            ("gen_ai.usage.completion_tokens", completion),
        ] {
            self.put(name, count as i64);
        }
        let reasons = made.finish_reasons.iter().take(MAX_REASONS);
        let reasons: Vec<StringValue> = reasons.map(|&reason| reason.into()).collect();
        if !reasons.is_empty() {
            self.put("gen_ai.response.finish_reasons", Value::Array(Array::String(reasons)));
        }
        self.times(&made.times, e2e);
    }

    /// In seconds, as vLLM names them.
    fn times(&mut self, times: &Times, e2e: Duration) {
        let Times { admitted, first_token, last_token } = *times;
        let between =
            |from: Option<Duration>, to: Option<Duration>| Some(to?.saturating_sub(from?));
        for (name, time) in [
            ("gen_ai.latency.time_in_queue", admitted),
            ("gen_ai.latency.time_to_first_token", first_token),
            ("gen_ai.latency.time_in_model_prefill", between(admitted, first_token)),
            ("gen_ai.latency.time_in_model_decode", between(first_token, last_token)),
            ("gen_ai.latency.time_in_model_inference", between(admitted, last_token)),
            ("gen_ai.latency.e2e", Some(e2e)),
        ] {
            self.put_some(name, time.map(|time| time.as_secs_f64()));
        }
    }
}
