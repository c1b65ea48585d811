//! Flags of the form `name=value`.

use std::str::FromStr;

/// A value with the name of the server that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<T> {
    /// The server's name.
    pub name: String,
    /// What is said of it.
    pub value: T,
}

impl<T: FromStr> FromStr for Named<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Named<T>, String> {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| is_name(name))
            .ok_or_else(|| format!("{text:?} is not name=value, with a name of a-z, 0-9, . _ -"))?;
        let value = value.parse().map_err(|e| format!("{name}: {e}"))?;
        Ok(Named { name: name.to_owned(), value })
    }
}

/// Names are used in file names too.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(allowed)
}

/// The value that belongs to a name, if one was given.
pub fn of<'a, T>(all: &'a [Named<T>], name: &str) -> Option<&'a T> {
    all.iter().find(|named| named.name == name).map(|named| &named.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_first_sign() {
        let named: Named<String> = "a.b=vllm serve --x=1".parse().unwrap();
        assert_eq!((named.name.as_str(), named.value.as_str()), ("a.b", "vllm serve --x=1"));
        assert_eq!("a=7".parse::<Named<u32>>().unwrap().value, 7);
        for wrong in ["a", "=b", "../a=b", "a=b"] {
            assert!(wrong.parse::<Named<u32>>().is_err(), "{wrong}");
        }
    }
}
