//! The flags.

use std::time::Duration;

use crate::http::Endpoint;

/// Watch a running server: planes, requests, KV, latencies, and the cost of the host
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Server to watch: Saccade, or any with vLLM's metrics, of which less is shown
    #[arg(long, default_value = "http://127.0.0.1:8000", env = "SACCADE_TOP_URL")]
    pub url: Endpoint,
    /// Seconds between two readings of the server's metrics
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Seconds over which percentiles, rates and shares are taken
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = window)]
    pub window: f64,
    /// TTFT target to judge by, milliseconds [default: the server's own]
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub slo_ttft_ms: Option<f64>,
    /// Target of the time between tokens to judge by, milliseconds [default: the server's own]
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub slo_tbt_ms: Option<f64>,
    /// API key, sent as a bearer token
    #[arg(long, value_name = "KEY", env = "SACCADE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Print one view as text and exit, after two readings one interval apart
    #[arg(long, conflicts_with = "json")]
    pub once: bool,
    /// Print one view as JSON and exit, after two readings one interval apart
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Time between two looks.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }
}

fn interval(text: &str) -> Result<f64, String> {
    within(text, 0.1, 60.0)
}

fn window(text: &str) -> Result<f64, String> {
    within(text, 1.0, 600.0)
}

fn milliseconds(text: &str) -> Result<f64, String> {
    within(text, 0.001, 3_600_000.0)
}

fn within(text: &str, min: f64, max: f64) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(format!("must be within {min} .. {max}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn numbers_outside_their_bounds_are_refused() {
        for (flag, bad) in [
            ("--interval", "0"),
            ("--interval", "NaN"),
            ("--interval", "61"),
            ("--window", "0.5"),
            ("--slo-ttft-ms", "0"),
            ("--slo-tbt-ms", "x"),
        ] {
            let error = Cli::try_parse_from(["top", flag, bad]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
        assert!(Cli::try_parse_from(["top", "--once", "--json"]).is_err());
        let args = Cli::try_parse_from(["top", "--interval", "0.5"]).unwrap().args;
        assert_eq!(args.interval(), Duration::from_millis(500));
    }
}
