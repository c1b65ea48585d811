//! What `--kv-events-config` says: the keys of vLLM's flag of that name.

use serde::Deserialize;

use crate::endpoint::{Endpoint, EndpointError};

/// vLLM's default is every interface; tokens of prompts are not published to all by default here.
const DEFAULT_ENDPOINT: &str = "tcp://127.0.0.1:5557";
/// Most batches that can be kept, and that a subscriber may be behind.
const MAX_STEPS: usize = 1 << 20;
/// Largest `max_queue_size`.
const MAX_QUEUE: usize = 1 << 20;
/// The device's ring is at least this long, and at most this large.
const MIN_RING_EVENTS: u32 = 1024;
const MAX_RING_BYTES: u64 = 32 << 20;
/// Bytes of an event in the ring without its tokens.
const EVENT_BYTES: u64 = 64;
/// Longest topic, in bytes: a frame with a length of one byte.
const MAX_TOPIC_BYTES: usize = 255;

/// Who publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublisherKind {
    /// No publisher.
    Null,
    /// A ZeroMQ PUB socket.
    Zmq,
}

/// How KV events are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsConfig {
    /// Whether the device tells what it keeps.
    pub enable_kv_cache_events: bool,
    /// By default `zmq` with `enable_kv_cache_events`, else `null`.
    pub publisher: PublisherKind,
    /// Of the PUB socket.
    pub endpoint: Endpoint,
    /// Of the ROUTER socket that repeats batches; none: nothing is repeated.
    pub replay_endpoint: Option<Endpoint>,
    /// Batches that can be repeated: 1 ..= 2^20.
    pub buffer_steps: usize,
    /// Batches that a subscriber may be behind before it misses some: 1 ..= 2^20.
    pub hwm: usize,
    /// Events that wait to be published, in the device's ring: 1 ..= 2^20.
    pub max_queue_size: usize,
    /// First frame of each message, at most 255 bytes.
    pub topic: String,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not an object, or a key that there is not, or a value of another type.
    #[error("kv-events-config: {0}")]
    Json(String),
    /// A number or a text out of bounds.
    #[error("kv-events-config: `{key}` must be {bound}")]
    OutOfBounds {
        /// As the flag names it.
        key: &'static str,
        /// What it may be.
        bound: &'static str,
    },
    /// An address that is none.
    #[error("kv-events-config: `{key}` {source}")]
    Endpoint {
        /// As the flag names it.
        key: &'static str,
        /// What is wrong with it.
        source: EndpointError,
    },
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    enable_kv_cache_events: bool,
    publisher: Option<PublisherKind>,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    topic: String,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: DEFAULT_ENDPOINT.into(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

impl EventsConfig {
    /// Reads the JSON text of the flag.
    ///
    /// # Errors
    /// Names the first key that cannot be used, and its bound.
    pub fn parse(json: &str) -> Result<EventsConfig, ConfigError> {
        if !json.trim_start().starts_with('{') {
            return Err(ConfigError::Json("must be a JSON object".into()));
        }
        let keys: Keys =
            serde_json::from_str(json).map_err(|error| ConfigError::Json(error.to_string()))?;
        within("buffer_steps", keys.buffer_steps, MAX_STEPS, "1 to 1048576 batches")?;
        within("hwm", keys.hwm, MAX_STEPS, "1 to 1048576 batches")?;
        within("max_queue_size", keys.max_queue_size, MAX_QUEUE, "1 to 1048576 events")?;
        within("topic", keys.topic.len() + 1, MAX_TOPIC_BYTES + 1, "at most 255 bytes")?;
        let replay = keys.replay_endpoint.map(|text| endpoint("replay_endpoint", &text));
        let replay_endpoint = replay.transpose()?;
        if replay_endpoint.as_ref().is_some_and(|replay| !replay.is_listened_at()) {
            let bound = "an address to listen at: `*`, a loopback address or ipc://";
            return Err(ConfigError::OutOfBounds { key: "replay_endpoint", bound });
        }
        let default = match keys.enable_kv_cache_events {
            true => PublisherKind::Zmq,
            false => PublisherKind::Null,
        };
        Ok(EventsConfig {
            enable_kv_cache_events: keys.enable_kv_cache_events,
            publisher: keys.publisher.unwrap_or(default),
            endpoint: endpoint("endpoint", &keys.endpoint)?,
            replay_endpoint,
            buffer_steps: keys.buffer_steps,
            hwm: keys.hwm,
            max_queue_size: keys.max_queue_size,
            topic: keys.topic,
        })
    }

    /// Whether anything is published.
    pub fn is_on(&self) -> bool {
        self.enable_kv_cache_events && self.publisher == PublisherKind::Zmq
    }

    /// Length of the device's ring of events (`num_events`) for blocks of this many tokens; 0 when
    /// nothing is published.
    pub fn ring_events(&self, block_size: u32) -> u32 {
        if !self.is_on() {
            return 0;
        }
        let wanted = u32::try_from(self.max_queue_size).unwrap_or(u32::MAX / 2).next_power_of_two();
        let event_bytes = (EVENT_BYTES + 4 * u64::from(block_size)).next_multiple_of(EVENT_BYTES);
        let most = u32::try_from(MAX_RING_BYTES / event_bytes).unwrap_or(1);
        wanted.min(1 << most.max(1).ilog2()).max(MIN_RING_EVENTS)
    }
}

fn within(
    key: &'static str,
    value: usize,
    most: usize,
    bound: &'static str,
) -> Result<(), ConfigError> {
    if (1..=most).contains(&value) { Ok(()) } else { Err(ConfigError::OutOfBounds { key, bound }) }
}

fn endpoint(key: &'static str, text: &str) -> Result<Endpoint, ConfigError> {
    text.parse().map_err(|source| ConfigError::Endpoint { key, source })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_vllm_but_for_the_address() {
        let off = EventsConfig::parse("{}").unwrap();
        assert!(!off.is_on() && off.publisher == PublisherKind::Null);
        assert_eq!(off.ring_events(16), 0);
        let on = EventsConfig::parse(r#"{"enable_kv_cache_events": true}"#).unwrap();
        assert!(on.is_on() && on.publisher == PublisherKind::Zmq);
        assert_eq!(on.endpoint.to_string(), "tcp://127.0.0.1:5557");
        assert_eq!(on.replay_endpoint, None);
        assert_eq!((on.buffer_steps, on.hwm, on.max_queue_size), (10_000, 100_000, 100_000));
        assert_eq!(on.topic, "");
        assert_eq!(on.ring_events(16), 1 << 17);
        assert_eq!(on.ring_events(256), 1 << 14);
    }

    #[test]
    fn every_key_is_read() {
        let json = r#"{"enable_kv_cache_events": true, "publisher": "zmq",
            "endpoint": "tcp://*:5556", "replay_endpoint": "tcp://*:5557", "buffer_steps": 7,
            "hwm": 8, "max_queue_size": 9, "topic": "kv@10.0.0.1:8000@m"}"#;
        let config = EventsConfig::parse(json).unwrap();
        assert_eq!(config.endpoint.to_string(), "tcp://*:5556");
        assert_eq!(config.replay_endpoint.as_ref().unwrap().to_string(), "tcp://*:5557");
        assert_eq!((config.buffer_steps, config.hwm, config.max_queue_size), (7, 8, 9));
        assert_eq!(config.topic, "kv@10.0.0.1:8000@m");
        assert_eq!(config.ring_events(16), 1024);
        let null = r#"{"enable_kv_cache_events": true, "publisher": "null"}"#;
        assert!(!EventsConfig::parse(null).unwrap().is_on());
        let off = r#"{"enable_kv_cache_events": false, "publisher": "zmq"}"#;
        assert!(!EventsConfig::parse(off).unwrap().is_on());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let long = format!(r#"{{"topic": "{}"}}"#, "x".repeat(256));
        let cases = [
            ("{\"enabled\": true}", "enabled"),
            ("{\"endpont\": \"tcp://*:1\"}", "endpont"),
            ("{\"publisher\": \"nats\"}", "nats"),
            ("{\"endpoint\": \"inproc://x\"}", "`endpoint`"),
            ("{\"replay_endpoint\": \"tcp://x\"}", "`replay_endpoint`"),
            ("{\"replay_endpoint\": \"tcp://10.0.0.1:1\"}", "`replay_endpoint`"),
            ("{\"buffer_steps\": 0}", "`buffer_steps`"),
            ("{\"hwm\": 1048577}", "`hwm`"),
            ("{\"hwm\": -1}", "-1"),
            ("{\"max_queue_size\": 0}", "`max_queue_size`"),
            (long.as_str(), "`topic`"),
            ("[]", "kv-events-config"),
            ("", "kv-events-config"),
        ];
        for (json, name) in cases {
            let error = EventsConfig::parse(json).unwrap_err().to_string();
            assert!(error.contains(name), "{json}: {error}");
        }
    }
}
