//! Stop strings in a stream of text, whatever the borders of its pieces.

/// Finds the stop string that completes first (of several, the one that began first), and holds
/// back only text that may still become part of one.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    include_in_output: bool,
    held: String,
}

/// What became of pushed text.
#[derive(Debug, PartialEq, Eq)]
pub enum Scan {
    /// Nothing found yet; all text that is certain was handed out.
    Going,
    /// The stop string with this index was found; the text ends there.
    Stopped(usize),
}

impl StopMatcher {
    /// A matcher for `stops`, none of which is empty.
    pub fn new(stops: Vec<String>, include_in_output: bool) -> Self {
        Self { stops, include_in_output, held: String::new() }
    }

    /// Appends to `out` the part of the held text and of `text` that is certain to be output.
    pub fn push(&mut self, text: &str, out: &mut String) -> Scan {
        if self.stops.is_empty() {
            out.push_str(text);
            return Scan::Going;
        }
        self.held.push_str(text);
        if let Some((index, start, end)) = self.first_match() {
            let keep = if self.include_in_output { end } else { start };
            out.push_str(&self.held[..keep]);
            self.held.clear();
            return Scan::Stopped(index);
        }
        let certain = self.held.len() - self.longest_open_suffix();
        out.push_str(&self.held[..certain]);
        self.held.drain(..certain);
        Scan::Going
    }

    /// Appends text that must not stop (before `min_tokens`); it is not searched later.
    pub fn pass(&mut self, text: &str, out: &mut String) {
        self.finish(out);
        out.push_str(text);
    }

    /// The end of the stream: what was held back is output after all.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
    }

    /// (index, start, end) of the match that ends first; of those, the one that starts first.
    fn first_match(&self) -> Option<(usize, usize, usize)> {
        let matches = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            self.held.find(stop.as_str()).map(|start| (index, start, start + stop.len()))
        });
        matches.min_by_key(|&(_, start, end)| (end, start))
    }

    /// Bytes at the end of `held` that begin some stop string.
    fn longest_open_suffix(&self) -> usize {
        let open = |stop: &String| {
            let longest = self.held.len().min(stop.len() - 1);
            (1..=longest).rev().find(|&n| {
                stop.is_char_boundary(n)
                    && self.held.as_bytes()[self.held.len() - n..] == stop.as_bytes()[..n]
            })
        };
        self.stops.iter().filter_map(open).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, character by character.
    fn naive(stops: &[String], include: bool, text: &str) -> (String, Option<usize>) {
        let ends = text.char_indices().map(|(i, c)| i + c.len_utf8());
        for end in ends {
            let found = stops
                .iter()
                .enumerate()
                .filter(|(_, s)| text[..end].ends_with(s.as_str()))
                .max_by_key(|(i, s)| (s.len(), usize::MAX - i));
            if let Some((index, stop)) = found {
                let keep = if include { end } else { end - stop.len() };
                return (text[..keep].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #[test]
        fn any_split_finds_what_the_definition_finds(
            pieces in prop::collection::vec("[abé]{0,4}", 0..12),
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            include: bool,
        ) {
            let mut matcher = StopMatcher::new(stops.clone(), include);
            let (mut out, mut stopped) = (String::new(), None);
            for piece in &pieces {
                if let Scan::Stopped(index) = matcher.push(piece, &mut out) {
                    stopped = Some(index);
                    break;
                }
            }
            if stopped.is_none() {
                matcher.finish(&mut out);
            }
            prop_assert_eq!((out, stopped), naive(&stops, include, &pieces.concat()));
        }
    }

    #[test]
    fn only_what_may_become_a_stop_is_held() {
        let mut matcher = StopMatcher::new(vec!["END".into()], false);
        let mut out = String::new();
        matcher.push("the E", &mut out);
        assert_eq!(out, "the ");
        matcher.push("x", &mut out);
        assert_eq!(out, "the Ex");
        matcher.push("EN", &mut out);
        assert_eq!(matcher.push("D of it", &mut out), Scan::Stopped(0));
        assert_eq!(out, "the Ex");
    }
}
