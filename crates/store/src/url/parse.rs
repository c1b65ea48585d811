//! From text to a URL.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::{
    Common, DEFAULT_CONNECTIONS, DEFAULT_FOLDER_BYTES, DEFAULT_MEMORY_BYTES, DEFAULT_NAMESPACE,
    FolderPlace, MAX_CONNECTIONS, MAX_NAMESPACE, MAX_NODES, MAX_TTL_S, MAX_URL, Node, Place,
    REDIS_PORT, RedisPlace, S3Place, Secret, StoreUrl, UrlError,
};

const COMMON: [&str; 3] = ["ttl_s", "namespace", "connections"];
const REDIS: [&str; 1] = ["cluster"];
const REDISS: [&str; 2] = ["cluster", "ca"];
const S3: [&str; 3] = ["endpoint", "region", "ca"];
const SIZED: [&str; 1] = ["max_bytes"];

type Parsed<T> = Result<T, UrlError>;

fn wrong<T>(field: &'static str, allowed: impl Into<String>) -> Parsed<T> {
    Err(UrlError::Wrong { field, allowed: allowed.into() })
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Parsed<Self> {
        if url.len() > MAX_URL || url.chars().any(char::is_control) {
            return wrong("URL", format!("at most {MAX_URL} bytes without control characters"));
        }
        let Some((scheme, rest)) = url.split_once(':') else { return unknown_scheme() };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameters: &[&'static str] = match scheme {
            "redis" | "valkey" => &REDIS,
            "rediss" | "valkeys" => &REDISS,
            "s3" => &S3,
            "file" | "memory" => &SIZED,
            _ => return unknown_scheme(),
        };
        // A password with an unencoded '?' is not to come back as the name of a parameter.
        if parameters.contains(&"cluster") && query.contains('@') {
            return wrong("password", "percent-encoded");
        }
        let mut query = Query::parse(query, parameters)?;
        let place = match scheme {
            "s3" => Place::S3(s3(rest, &mut query)?),
            "file" => Place::Folder(folder(rest, &mut query)?),
            "memory" => memory(rest, &mut query)?,
            name => {
                let tls = matches!(name, "rediss" | "valkeys");
                Place::Redis(redis(rest, &mut query, tls)?)
            }
        };
        Ok(Self { place, common: common(&mut query)? })
    }
}

fn unknown_scheme<T>() -> Parsed<T> {
    wrong("scheme", "one of redis, rediss, valkey, valkeys, s3, file, memory")
}

fn common(query: &mut Query) -> Parsed<Common> {
    let namespace = query.take("namespace").unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    // A path's "." and ".." are no names.
    let named = namespace.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !named || namespace.len() > MAX_NAMESPACE || !namespace.chars().all(plain) {
        let allowed = format!(
            "at most {MAX_NAMESPACE} letters, digits, '_', '.' and '-', a letter or digit first"
        );
        return wrong("namespace", allowed);
    }
    let ttl = query.number("ttl_s", 1..=MAX_TTL_S)?.map(Duration::from_secs);
    let connections = query.number("connections", 1..=MAX_CONNECTIONS as u64)?;
    let connections = connections.map_or(DEFAULT_CONNECTIONS, |n| n as usize);
    Ok(Common { ttl, namespace, connections })
}

fn redis(rest: &str, query: &mut Query, tls: bool) -> Parsed<RedisPlace> {
    let Some(rest) = rest.strip_prefix("//") else { return wrong("host", "after '//'") };
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    let (nodes, db) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, password) = credentials.map(login).transpose()?.unwrap_or_default();
    let cluster = match query.take("cluster").as_deref() {
        Some("true") => true,
        Some("false") | None => false,
        Some(_) => return wrong("cluster", "true or false"),
    };
    let nodes = nodes.split(',').map(node).collect::<Parsed<Vec<_>>>()?;
    let max_nodes = if cluster { MAX_NODES } else { 1 };
    if nodes.len() > max_nodes {
        return wrong("host", format!("at most one, or {MAX_NODES} with cluster=true"));
    }
    let db = if db.is_empty() { Some(0) } else { number(db, 0..=u64::from(u16::MAX)) };
    let max_db = if cluster { 0 } else { u16::MAX };
    let Some(db) = db.map(|db| db as u16).filter(|db| *db <= max_db) else {
        return wrong("db", "a number up to 65535, and 0 in a cluster");
    };
    Ok(RedisPlace { nodes, cluster, tls, ca: query.ca()?, user, password, db })
}

fn login(credentials: &str) -> Parsed<(Option<String>, Option<Secret>)> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let text = |text: &str| match percent_decode_str(text).decode_utf8() {
        _ if text.contains(['/', '@', '#']) => wrong("password", "percent-encoded"),
        Ok(text) => Ok((!text.is_empty()).then(|| text.into_owned())),
        Err(_) => wrong("password", "UTF-8"),
    };
    let (user, password) = (text(user)?, text(password)?.map(Secret));
    if user.is_some() && password.is_none() {
        return wrong("password", "missing where there is a user");
    }
    Ok((user, password))
}

fn node(text: &str) -> Parsed<Node> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => {
            let Some((host, port)) = text.split_once(']') else {
                return wrong("host", "an address that begins with '[' and has no ']'");
            };
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return wrong("host", "an IPv6 address between '[' and ']'");
            }
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let named = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c) || text.starts_with('[');
    if host.is_empty() || host.len() > 253 || !host.chars().all(named) {
        return wrong("host", "a name or an address, of IPv6 between '[' and ']'");
    }
    let port = match port {
        Some("") => Some(u64::from(REDIS_PORT)),
        Some(port) => number(port, 1..=u64::from(u16::MAX)),
        None => None,
    };
    let Some(port) = port else { return wrong("port", "a number from 1 to 65535") };
    Ok(Node { host: host.to_owned(), port: port as u16 })
}

fn s3(rest: &str, query: &mut Query) -> Parsed<S3Place> {
    let Some(rest) = rest.strip_prefix("//") else { return wrong("bucket", "after '//'") };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(plain) {
        return wrong("bucket", "3 to 63 letters, digits, '.', '-' and '_'");
    }
    let prefix = prefix.trim_matches('/');
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let fine = prefix.split('/').all(part) && prefix.chars().all(|c| plain(c) || c == '/');
    if prefix.len() > 512 || !(prefix.is_empty() || fine) {
        return wrong("prefix", "at most 512 letters, digits, '.', '-', '_' between single '/'");
    }
    let endpoint = query.take("endpoint");
    let web = |url: &String| url.starts_with("http://") || url.starts_with("https://");
    if endpoint.as_ref().is_some_and(|url| !web(url) || url.contains(['@', '?', '#', ' '])) {
        return wrong("endpoint", "http://host:port or https://host:port");
    }
    let region = query.take("region");
    if region.as_ref().is_some_and(|region| region.is_empty() || !region.chars().all(plain)) {
        return wrong("region", "letters, digits and '-'");
    }
    let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
    Ok(S3Place { bucket, prefix, endpoint, region, ca: query.ca()? })
}

fn folder(rest: &str, query: &mut Query) -> Parsed<FolderPlace> {
    let path = rest.strip_prefix("//").filter(|path| path.len() > 1 && path.starts_with('/'));
    let folder = path.map(|path| percent_decode_str(path).decode_utf8());
    let Some(Ok(folder)) = folder else { return wrong("folder", "file:///folder, in UTF-8") };
    if folder.contains('\0') {
        return wrong("folder", "without a zero byte");
    }
    let max_bytes = query.number("max_bytes", 1..=u64::MAX / 2)?.unwrap_or(DEFAULT_FOLDER_BYTES);
    Ok(FolderPlace { folder: PathBuf::from(folder.as_ref()), max_bytes })
}

fn memory(rest: &str, query: &mut Query) -> Parsed<Place> {
    if !rest.is_empty() {
        return wrong("memory", "followed by anything but parameters");
    }
    let max_bytes = query.number("max_bytes", 1..=u64::MAX / 2)?.unwrap_or(DEFAULT_MEMORY_BYTES);
    Ok(Place::Memory { max_bytes })
}

/// Decimal, without a sign.
fn number(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && range.contains(number))
}

/// Parameters, each taken at most once.
struct Query(Vec<(&'static str, String)>);

impl Query {
    fn parse(text: &str, own: &[&'static str]) -> Parsed<Self> {
        let known: Vec<&'static str> = COMMON.iter().chain(own).copied().collect();
        let mut pairs: Vec<(&'static str, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(known) = known.iter().find(|known| **known == name) else {
                let name = name.chars().take(32).collect();
                return Err(UrlError::Unknown { name, allowed: known.join(", ") });
            };
            if pairs.iter().any(|(before, _)| before == known) {
                return Err(UrlError::Twice { name: known });
            }
            let Ok(value) = percent_decode_str(value).decode_utf8() else {
                return wrong(known, "UTF-8");
            };
            pairs.push((known, value.into_owned()));
        }
        Ok(Self(pairs))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(given, _)| *given == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Parsed<Option<u64>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        number(&text, range).map_or_else(|| wrong(name, allowed), |number| Ok(Some(number)))
    }

    fn ca(&mut self) -> Parsed<Option<PathBuf>> {
        match self.take("ca") {
            Some(path) if path.is_empty() || path.contains('\0') => {
                wrong("ca", "the path of a file with certificates (PEM)")
            }
            path => Ok(path.map(PathBuf::from)),
        }
    }
}
