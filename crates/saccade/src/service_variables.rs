//! Variables that Kubernetes sets in each pod for a service whose name begins with `saccade`
//! (`SACCADE_PORT=tcp://10.0.0.1:8000` and its kin), which look like flags and are none.

use std::ffi::OsString;

const OURS: &str = "SACCADE_";
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Removes them, so that neither this process nor its planes take them for flags; returns their
/// names. Must run before any thread is started.
pub(crate) fn remove() -> Vec<String> {
    let mut names: Vec<String> = std::env::vars_os().filter_map(of_service).collect();
    names.sort_unstable();
    for name in &names {
        // SAFETY: the process still has one thread (first thing in main).
        unsafe { std::env::remove_var(name) };
    }
    names
}

fn of_service((name, value): (OsString, OsString)) -> Option<String> {
    let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
    is_of_service(&name, &value).then_some(name)
}

/// Whether Kubernetes has set this. The value decides where the name could be a flag's.
fn is_of_service(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix(OURS) else { return false };
    // Before a service of a longer name: SACCADE_CANARY_PORT.
    let ends = |what: &str| rest == what || rest.ends_with(&format!("_{what}"));
    let of_port = rest.split("PORT_").last().filter(|port| port.len() < rest.len());
    ends("SERVICE_HOST")
        || ends("SERVICE_PORT")
        || rest.starts_with("SERVICE_PORT_")
        || rest.contains("_SERVICE_PORT_")
        || (ends("PORT") && is_endpoint(value))
        || of_port.is_some_and(is_port_and_protocol)
}

/// `tcp://10.0.0.1:8000`
fn is_endpoint(value: &str) -> bool {
    let Some((protocol, address)) = value.split_once("://") else { return false };
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    PROTOCOLS.contains(&protocol) && !host.is_empty() && port.parse::<u16>().is_ok()
}

/// `8000_TCP`, `8000_TCP_PROTO`, `8000_TCP_PORT`, `8000_TCP_ADDR`
fn is_port_and_protocol(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let [port, protocol, what @ ..] = &words[..] else { return false };
    port.parse::<u16>().is_ok()
        && PROTOCOLS.contains(&protocol.to_lowercase().as_str())
        && matches!(what, [] | ["PROTO" | "PORT" | "ADDR"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_is_known_by_its_shape() {
        for (name, value) in [
            ("SACCADE_PORT", "tcp://10.0.0.1:8000"),
            ("SACCADE_PORT", "udp://[fd00::1]:53"),
            ("SACCADE_SERVICE_HOST", "10.0.0.1"),
            ("SACCADE_SERVICE_PORT", "8000"),
            ("SACCADE_SERVICE_PORT_HTTP", "8000"),
            ("SACCADE_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
            ("SACCADE_PORT_8000_TCP_PROTO", "tcp"),
            ("SACCADE_PORT_8000_TCP_PORT", "8000"),
            ("SACCADE_PORT_8000_TCP_ADDR", "10.0.0.1"),
            ("SACCADE_CANARY_PORT", "tcp://10.0.0.2:8000"),
            ("SACCADE_CANARY_SERVICE_HOST", "10.0.0.2"),
            ("SACCADE_CANARY_SERVICE_PORT_HTTP", "8000"),
            ("SACCADE_CANARY_PORT_8000_TCP_ADDR", "10.0.0.2"),
        ] {
            assert!(is_of_service(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("SACCADE_PORT", "8000"),
            ("SACCADE_PORT", "tcp://10.0.0.1"),
            ("SACCADE_PORT", "tcp://:8000"),
            ("SACCADE_PORT", "http://10.0.0.1:8000"),
            ("SACCADE_HOST", "tcp://10.0.0.1:8000"),
            ("SACCADE_RING_LISTEN", "10.0.0.1:8000"),
            ("SACCADE_PORT_8000_HTTP", "x"),
            ("MY_SACCADE_PORT", "tcp://10.0.0.1:8000"),
        ] {
            assert!(!is_of_service(name, value), "{name}={value}");
        }
    }
}
