//! From a URL to text: what is not said is left out, and a password is `***`.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::{
    DEFAULT_CONNECTIONS, DEFAULT_FOLDER_BYTES, DEFAULT_MEMORY_BYTES, DEFAULT_NAMESPACE, Place,
    RedisPlace, StoreUrl,
};

const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b':');
const ENCODED_LOGIN: &AsciiSet = &ENCODED.add(b'/').add(b':');

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false))
    }
}

impl StoreUrl {
    /// What parses to this URL again, if `password` is to be in it.
    pub(super) fn text(&self, password: bool) -> String {
        let mut parameters = Parameters(Vec::new());
        let place = match &self.place {
            Place::Redis(place) => {
                if place.cluster {
                    parameters.add("cluster", "true");
                }
                parameters.path("ca", place.ca.as_deref());
                redis(place, password)
            }
            Place::S3(place) => {
                for (name, value) in [("endpoint", &place.endpoint), ("region", &place.region)] {
                    value.iter().for_each(|value| parameters.add(name, value));
                }
                parameters.path("ca", place.ca.as_deref());
                let slash = if place.prefix.is_empty() { "" } else { "/" };
                format!("s3://{}{slash}{}", place.bucket, place.prefix)
            }
            Place::Folder(place) => {
                parameters.unless(DEFAULT_FOLDER_BYTES, "max_bytes", place.max_bytes);
                format!("file://{}", path(&place.folder))
            }
            Place::Memory { max_bytes } => {
                parameters.unless(DEFAULT_MEMORY_BYTES, "max_bytes", *max_bytes);
                "memory:".to_owned()
            }
        };
        let common = &self.common;
        common.ttl.iter().for_each(|ttl| parameters.add("ttl_s", ttl.as_secs()));
        parameters.unless(DEFAULT_NAMESPACE, "namespace", common.namespace.as_str());
        parameters.unless(DEFAULT_CONNECTIONS, "connections", common.connections);
        let question = if parameters.0.is_empty() { "" } else { "?" };
        format!("{place}{question}{}", parameters.0.join("&"))
    }
}

fn redis(place: &RedisPlace, show: bool) -> String {
    let login = |text: &str| percent_encode(text.as_bytes(), ENCODED_LOGIN).to_string();
    let mut text = if place.tls { "rediss://" } else { "redis://" }.to_owned();
    if let Some(password) = &place.password {
        let user = place.user.as_deref().map(login).unwrap_or_default();
        let password = if show { login(&password.0) } else { "***".to_owned() };
        text += &format!("{user}:{password}@");
    }
    let node = |node: &super::Node| match node.host.contains(':') {
        true => format!("[{}]:{}", node.host, node.port),
        false => format!("{}:{}", node.host, node.port),
    };
    text += &place.nodes.iter().map(node).collect::<Vec<_>>().join(",");
    text + &format!("/{}", place.db)
}

fn path(path: &Path) -> String {
    percent_encode(path.as_os_str().as_bytes(), ENCODED).to_string()
}

struct Parameters(Vec<String>);

impl Parameters {
    fn add(&mut self, name: &str, value: impl ToString) {
        let value = value.to_string();
        self.0.push(format!("{name}={}", percent_encode(value.as_bytes(), ENCODED)));
    }

    fn path(&mut self, name: &str, value: Option<&Path>) {
        value.iter().for_each(|value| self.0.push(format!("{name}={}", path(value))));
    }

    fn unless<T: PartialEq + ToString>(&mut self, default: T, name: &str, value: T) {
        if value != default {
            self.add(name, value);
        }
    }
}
