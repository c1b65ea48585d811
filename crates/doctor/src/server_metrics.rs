//! How busy a server says it is.

use std::time::Duration;

use serde::Serialize;

/// Bytes read of /metrics.
const MAX_BYTES: u64 = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(2);

/// Names under which engines tell of requests that run and that wait.
const NAMES: [(&str, &str); 4] = [
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ("tgi_batch_current_size", "tgi_queue_size"),
];

/// Requests in a server, as it says itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requests {
    /// Being computed.
    pub running: f64,
    /// Accepted, not yet begun.
    pub waiting: f64,
    /// Where it says so.
    pub source: String,
}

/// Asks `base`/metrics.
///
/// # Errors
/// In words: no answer, or none of the names that are known.
pub fn ask(base: &str) -> Result<Requests, String> {
    let url = format!("{}/metrics", base.trim_end_matches('/'));
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
    let mut answer = agent.get(&url).call().map_err(|e| format!("{url}: {e}"))?;
    let text = answer
        .body_mut()
        .with_config()
        .limit(MAX_BYTES)
        .lossy_utf8(true)
        .read_to_string()
        .map_err(|e| format!("{url}: {e}"))?;
    parse(&text, &url).ok_or_else(|| format!("{url}: tells nothing of running requests"))
}

fn parse(text: &str, url: &str) -> Option<Requests> {
    NAMES.iter().find_map(|(running, waiting)| {
        let source = format!("{url} ({running})");
        Some(Requests { running: sum(text, running)?, waiting: sum(text, waiting)?, source })
    })
}

/// The sum of a gauge over its labels. `None`: no such gauge.
fn sum(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            // Label values may hold blanks and brackets; after the last bracket they cannot.
            Some(labelled) => labelled.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        let value: f64 = value.split_ascii_whitespace().next()?.parse().ok()?;
        value.is_finite().then_some(value)
    };
    text.lines().filter_map(value).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_summed_over_labels() {
        let text = "# HELP vllm:num_requests_running x\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"a } b\"} 3.0\n\
            vllm:num_requests_running{engine=\"1\"} 2.0\n\
            vllm:num_requests_running_total 99\n\
            vllm:num_requests_waiting 1.0 1700000000\n";
        let read = parse(text, "u").unwrap();
        assert_eq!((read.running, read.waiting), (5.0, 1.0));
        let llama = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n";
        assert_eq!(parse(llama, "u").unwrap().running, 1.0);
        assert_eq!(parse("", "u"), None);
        assert_eq!(parse("vllm:num_requests_running NaN\nvllm:num_requests_waiting 1", "u"), None);
    }
}
