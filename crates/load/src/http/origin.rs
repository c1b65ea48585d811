//! A base URL in its parts.

use hyper::Uri;

use crate::LoadError;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// As given, or the scheme's.
    pub port: u16,
    /// Host and port as in the URL.
    pub authority: String,
    /// Path before that of the API, without a slash at its end.
    prefix: String,
}

impl Origin {
    /// Reads `http://host:port`, `https://host/prefix`, also with the `/v1` that clients of OpenAI
    /// are given.
    ///
    /// # Errors
    /// [`LoadError::Spec`]: not a URL, another scheme, no host, or a user before the host.
    pub fn parse(base_url: &str) -> Result<Origin, LoadError> {
        let wrong = |why: String| LoadError::spec("base url", format!("'{base_url}' {why}"));
        let uri: Uri = base_url.parse().map_err(|e| wrong(format!("is not a URL: {e}")))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("must begin with http:// or https://".into())),
        };
        let authority = uri.authority().ok_or_else(|| wrong("has no host".into()))?;
        if authority.as_str().contains('@') {
            return Err(wrong("must not contain a user; use an API key".into()));
        }
        let path = uri.path().trim_end_matches('/');
        Ok(Origin {
            tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            prefix: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
        })
    }

    /// A path of the API with what comes before it.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_people_give() {
        let path = |url: &str| Origin::parse(url).expect(url).url("/v1/models");
        assert_eq!(path("http://a:8000"), "http://a:8000/v1/models");
        assert_eq!(path("http://a:8000/v1/"), "http://a:8000/v1/models");
        assert_eq!(path("https://a/llm/v1"), "https://a/llm/v1/models");
        let v6 = Origin::parse("http://[::1]:9").expect("IPv6");
        assert_eq!((v6.host.as_str(), v6.port), ("::1", 9));
        assert_eq!(Origin::parse("https://a").expect("https").port, 443);
        for bad in ["a:8000", "ftp://a", "http://user:pw@a", "http://"] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
    }
}
