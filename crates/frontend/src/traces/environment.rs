//! The variables of OpenTelemetry that the SDK would ignore, or replace, where they are wrong.

use crate::error::FrontendError;

/// Samplers of the SDK, and whether they take a ratio.
const SAMPLERS: [(&str, bool); 6] = [
    ("always_on", false),
    ("always_off", false),
    ("traceidratio", true),
    ("parentbased_always_on", false),
    ("parentbased_always_off", false),
    ("parentbased_traceidratio", true),
];
/// The variable of traces goes before the one of all signals.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const PROTOCOL: &str = "http/protobuf";

/// Refuses what could not be done as the environment says.
///
/// # Errors
/// Names the variable and what it may be.
pub fn check(variable: impl Fn(&str) -> Option<String>) -> Result<(), FrontendError> {
    let protocol = PROTOCOLS.iter().find_map(|&name| Some((name, variable(name)?)));
    if let Some((name, value)) = protocol.filter(|(_, value)| value != PROTOCOL) {
        return Err(wrong(name, format!("`{value}` is not supported, only {PROTOCOL} is")));
    }
    let Some(sampler) = variable("OTEL_TRACES_SAMPLER") else { return Ok(()) };
    let Some(&(_, takes_ratio)) = SAMPLERS.iter().find(|(name, _)| *name == sampler) else {
        let names = SAMPLERS.map(|(name, _)| name).join(", ");
        return Err(wrong(
            "OTEL_TRACES_SAMPLER",
            format!("must be one of {names}, got `{sampler}`"),
        ));
    };
    let ratio = variable("OTEL_TRACES_SAMPLER_ARG").unwrap_or_default();
    let is_ratio = ratio.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio));
    if takes_ratio && !is_ratio {
        let reason = format!("must be a number from 0 to 1 for {sampler}, got `{ratio}`");
        return Err(wrong("OTEL_TRACES_SAMPLER_ARG", reason));
    }
    Ok(())
}

fn wrong(field: &'static str, reason: String) -> FrontendError {
    FrontendError::Config { field, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> Result<(), String> {
        let of = |name: &str| {
            let found = variables.iter().find(|(n, _)| *n == name)?;
            Some(found.1.to_owned())
        };
        check(of).map_err(|e| e.to_string())
    }

    #[test]
    fn what_the_sdk_would_replace_is_refused_by_name() {
        let (sampler, arg) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
        for fine in [
            &[][..],
            &[(sampler, "always_off")],
            &[(sampler, "parentbased_traceidratio"), (arg, "0.25")],
            &[(PROTOCOLS[1], "grpc"), (PROTOCOLS[0], "http/protobuf")],
        ] {
            assert_eq!(checked(fine), Ok(()));
        }
        for (wrong, word) in [
            (&[(PROTOCOLS[1], "grpc")][..], PROTOCOLS[1]),
            (&[(PROTOCOLS[0], "http/json")], PROTOCOLS[0]),
            (&[(sampler, "xray")], "always_on, "),
            (&[(sampler, "traceidratio")], arg),
            (&[(sampler, "traceidratio"), (arg, "2")], "from 0 to 1"),
            (&[(sampler, "traceidratio"), (arg, "NaN")], "NaN"),
        ] {
            let error = checked(wrong).expect_err("taken");
            assert!(error.contains(word), "{error}");
        }
    }
}
