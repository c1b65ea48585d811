//! Prometheus' text format, as servers write it: a malformed line is skipped and counted, and
//! nothing that a server sends can make this panic.

use std::collections::BTreeMap;

/// Labels of one series, sorted by name.
pub type Labels = BTreeMap<String, String>;

/// One answer of `/metrics`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape {
    /// Series by name. Parts of a histogram are under their own names (`_bucket`, `_sum`,
    /// `_count`).
    series: BTreeMap<String, Vec<Series>>,
    /// `gauge`, `counter`, `histogram`, … as declared, by name.
    kinds: BTreeMap<String, String>,
    /// Lines that could not be read.
    pub skipped: usize,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What tells it apart from the others of its name.
    pub labels: Labels,
    /// Its value now; may be infinite, or not a number.
    pub value: f64,
}

impl Scrape {
    /// Reads a whole answer.
    pub fn parse(text: &str) -> Scrape {
        let mut scrape = Scrape::default();
        for line in text.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix('#') {
                scrape.note_kind(comment);
            } else if !line.is_empty() {
                match sample(line) {
                    Some((name, series)) => scrape.series.entry(name).or_default().push(series),
                    None => scrape.skipped += 1,
                }
            }
        }
        scrape
    }

    fn note_kind(&mut self, comment: &str) {
        let mut words = comment.split_ascii_whitespace();
        if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) {
            self.kinds.insert(name.to_owned(), kind.to_owned());
        }
    }

    /// All series of a name.
    pub fn series(&self, name: &str) -> &[Series] {
        self.series.get(name).map_or(&[], Vec::as_slice)
    }

    /// Names of all series, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }

    /// The declared kind of a name.
    pub fn kind(&self, name: &str) -> Option<&str> {
        self.kinds.get(name).map(String::as_str)
    }

    /// Sum over the series of a name: over models and engines. `None` if there are none.
    pub fn sum(&self, name: &str) -> Option<f64> {
        let series = self.series(name);
        (!series.is_empty()).then(|| series.iter().map(|s| s.value).sum())
    }

    /// Mean over the series of a name, for shares.
    pub fn mean(&self, name: &str) -> Option<f64> {
        Some(self.sum(name)? / self.series(name).len() as f64)
    }

    /// Sums over the series of a name, by the value of a label.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for series in self.series(name) {
            if let Some(value) = series.labels.get(label) {
                *sums.entry(value.clone()).or_insert(0.0) += series.value;
            }
        }
        sums
    }

    /// The first value of a label among the series of a name.
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.series(name).iter().find_map(|s| s.labels.get(label)).map(String::as_str)
    }
}

/// `name{label="value",…} value [timestamp]`
fn sample(line: &str) -> Option<(String, Series)> {
    let name_end = line.find(|c: char| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Labels::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name.to_owned(), Series { labels, value }))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// Labels from behind the opening brace, and what follows the closing one.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start().trim_start_matches(',').trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, value) = rest.split_once('=')?;
        let name = name.trim();
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let (value, behind) = quoted(value.trim_start().strip_prefix('"')?)?;
        labels.insert(name.to_owned(), value);
        rest = behind;
    }
}

/// A label's value from behind its opening quote, and what follows the closing one.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_of_a_line_is_read() {
        let scrape = Scrape::parse(
            "# HELP a Some text with { and \".\n# TYPE a gauge\na 1\n\n a{} 2 1700000000\n\
             b_bucket{le=\"+Inf\",model=\"x\\\"y\\\\z\\n,}\",} 3e2\nc NaN\nd +Inf\ne -Inf\n\
             f{ x = \"1\" , y=\"2\" } 4 # {trace=\"1\"} 0.5\n",
        );
        assert_eq!(scrape.skipped, 0);
        assert_eq!(scrape.sum("a"), Some(3.0));
        assert_eq!(scrape.kind("a"), Some("gauge"));
        assert_eq!(scrape.label("b_bucket", "model"), Some("x\"y\\z\n,}"));
        assert_eq!(scrape.by_label("b_bucket", "le")["+Inf"], 300.0);
        assert!(scrape.sum("c").unwrap().is_nan());
        assert_eq!(scrape.sum("d"), Some(f64::INFINITY));
        assert_eq!(scrape.sum("e"), Some(f64::NEG_INFINITY));
        assert_eq!(scrape.label("f", "y"), Some("2"));
        assert_eq!(scrape.sum("f"), Some(4.0));
        assert_eq!(scrape.sum("g"), None);
    }

    #[test]
    fn what_is_no_line_is_counted() {
        for bad in ["a", "a{", "a{x}", "a{x=1} 2", "a{x=\"1} 2", "1a 2", "{} 1", "a x", "<html>"] {
            let scrape = Scrape::parse(bad);
            assert_eq!(scrape.skipped, 1, "{bad:?}");
            assert_eq!(scrape.names().count(), 0, "{bad:?}");
        }
    }

    fn label_value() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop::sample::select(vec!['a', '"', '\\', '\n', '}', '{', ',', 'é']),
            0..8,
        )
        .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            Scrape::parse(&text);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            Scrape::parse(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn pieces_of_the_format_do_not_panic(
            pieces in prop::collection::vec(
                prop::sample::select(
                    vec!["a", "{", "}", "=", "\"", "\\", ",", " ", "\n", "1", "#", "TYPE", "NaN"]
                ),
                0..40,
            )
        ) {
            Scrape::parse(&pieces.concat());
        }

        #[test]
        fn what_is_written_is_read(
            name in "[a-z_:][a-z0-9_:]{0,10}",
            labels in prop::collection::btree_map("[a-z_]{1,6}", label_value(), 0..4),
            value in any::<f64>(),
        ) {
            let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let inside: Vec<String> =
                labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
            let scrape = Scrape::parse(&format!("{name}{{{}}} {value}", inside.join(",")));
            prop_assert_eq!(scrape.skipped, 0);
            let series = &scrape.series(&name)[0];
            prop_assert_eq!(&series.labels, &labels);
            prop_assert_eq!(series.value.to_bits(), value.to_bits());
        }
    }
}
