//! Small pieces that the readers of /proc share. They take any bytes and never panic.

/// Nanoseconds of a clock tick of /proc (`USER_HZ`).
pub(crate) fn tick_ns() -> u64 {
    // SAFETY: sysconf takes a constant and touches no memory of ours.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(hertz).unwrap_or(100).max(1)
}

/// The value of `key` in lines of `key: value` or `key value`, white space around it removed.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(key)?;
        let value = rest.trim_start_matches([' ', '\t']);
        let value = match value.strip_prefix(':') {
            Some(value) => value,
            // `nr_throttled` must not answer for `nr_throttled_max`.
            None if value.len() < rest.len() => value,
            None => return None,
        };
        Some(value.trim())
    })
}

/// The number that follows `key`; a unit after it is ignored.
pub(crate) fn number<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    field(text, key)?.split_whitespace().next()?.parse().ok()
}

/// Paths of mountinfo and cgroup files: white space is written as `\040` and the like.
pub(crate) fn unescape_octal(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\').and_then(octal);
        match code {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "nr_throttled_max 9\nnr_throttled 3\nVmLck:\t  12 kB\nse.nr_migrations   :  7\n";
        assert_eq!(number::<u64>(text, "nr_throttled"), Some(3));
        assert_eq!(number::<u64>(text, "VmLck"), Some(12));
        assert_eq!(number::<u64>(text, "se.nr_migrations"), Some(7));
        assert_eq!(number::<u64>(text, "nr"), None);
    }

    #[test]
    fn escapes_of_mountinfo() {
        assert_eq!(unescape_octal(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescape_octal(r"/a\04"), r"/a\04");
        assert_eq!(unescape_octal(r"\999"), r"\999");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", key in ".{0,8}") {
            let _ = number::<u64>(&text, &key);
            let _ = unescape_octal(&text);
        }
    }
}
