//! Formats as fragments of the answer's rule.

use super::format::{Format, Free, Separated, Tag, Triggered};
use super::free::{self, Marker};
use super::members::shown;
use crate::cfg::Rules;
use crate::json::Common;
use crate::nfa::State;
use crate::regex::{self, Extent};
use crate::{GrammarError, json};

/// Adds the texts of a format.
pub(super) fn add<'a>(
    rules: &mut Rules<'a, '_>,
    format: &'a Format<'_>,
    from: State,
    to: State,
) -> Result<(), GrammarError> {
    Builder { rules, common: Common::default() }.add(format, from, to, &[])
}

struct Builder<'r, 'a, 'n> {
    rules: &'r mut Rules<'a, 'n>,
    /// What all schemas have in common.
    common: Common,
}

impl<'a> Builder<'_, 'a, '_> {
    /// Adds the texts of a format, with one of `ends` behind each; with nothing if there are none.
    fn add(
        &mut self,
        format: &'a Format<'_>,
        from: State,
        to: State,
        ends: &[&str],
    ) -> Result<(), GrammarError> {
        match format {
            Format::Free(free) => {
                let begin = self.rules.nfa.state()?;
                self.rules.nfa.skip(from, begin)?;
                self.free(free, &[], begin, to, ends)
            }
            Format::Triggered(tags) => self.triggered(tags, from, to, ends),
            Format::Or(parts) => parts.iter().try_for_each(|part| self.add(part, from, to, ends)),
            Format::Sequence(parts) => self.sequence(parts, from, to, ends),
            closed => {
                let behind = self.rules.nfa.state()?;
                self.closed(closed, from, behind)?;
                self.close(behind, to, ends)
            }
        }
    }

    /// One of `ends`, or nothing if there are none.
    fn close(&mut self, from: State, to: State, ends: &[&str]) -> Result<(), GrammarError> {
        let nfa = &mut *self.rules.nfa;
        match ends {
            [] => nfa.skip(from, to),
            ends => ends.iter().try_for_each(|end| nfa.literal(end.as_bytes(), from, to)),
        }
    }

    /// Adds the texts of a format that does not depend on what ends it.
    fn closed(
        &mut self,
        format: &'a Format<'_>,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let nfa = &mut *self.rules.nfa;
        match format {
            Format::Text(text) => nfa.literal(text.as_bytes(), from, to),
            Format::Schema { schema, at } => {
                json::add_value(nfa, &mut self.common, schema, from, to)
                    .map_err(|error| error.within(at))
            }
            Format::Regex { pattern, at } => {
                regex::add(nfa, pattern, Extent::Whole, from, to).map_err(|error| error.within(at))
            }
            Format::Grammar { grammar, at } => {
                self.rules.add(grammar, from, to).map_err(|error| error.within(at))
            }
            Format::Repeat { part, min, max } => self.repeat(part, (*min, *max), from, to),
            Format::Tag(tag) => {
                let inside = nfa.state()?;
                nfa.literal(tag.begin.as_bytes(), from, inside)?;
                self.add(&tag.content, inside, to, &tag.ends)
            }
            Format::Separated(tags) => self.separated(tags, from, to),
            Format::Free(_) | Format::Triggered(_) | Format::Or(_) | Format::Sequence(_) => {
                self.add(format, from, to, &[])
            }
        }
    }

    fn sequence(
        &mut self,
        parts: &'a [Format<'_>],
        from: State,
        to: State,
        ends: &[&str],
    ) -> Result<(), GrammarError> {
        let Some((last, first)) = parts.split_last() else { return self.close(from, to, ends) };
        let mut at = from;
        for part in first {
            let next = self.rules.nfa.state()?;
            self.closed(part, at, next)?;
            at = next;
        }
        self.add(last, at, to, ends)
    }

    fn repeat(
        &mut self,
        part: &'a Format<'_>,
        (min, max): (u32, Option<u32>),
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let mut at = from;
        for count in 0..max.unwrap_or(min) {
            if count >= min {
                self.rules.nfa.skip(at, to)?;
            }
            let next = self.rules.nfa.state()?;
            self.closed(part, at, next)?;
            at = next;
        }
        if max.is_none() {
            let again = self.rules.nfa.state()?;
            self.rules.nfa.skip(at, again)?;
            self.closed(part, again, again)?;
            at = again;
        }
        self.rules.nfa.skip(at, to)
    }

    /// The contents of tags, each from a state on that is returned.
    fn contents(&mut self, tags: &'a [Tag<'_>], to: State) -> Result<Vec<State>, GrammarError> {
        let mut inside = Vec::with_capacity(tags.len());
        for tag in tags {
            let begin = self.rules.nfa.state()?;
            self.add(&tag.content, begin, to, &tag.ends)?;
            inside.push(begin);
        }
        Ok(inside)
    }

    /// What is left of the tags' beginnings behind a text that is theirs.
    fn begins(
        &mut self,
        tags: &[Tag<'_>],
        inside: &[State],
        come: &str,
        from: State,
    ) -> Result<(), GrammarError> {
        for (tag, &inside) in tags.iter().zip(inside) {
            if let Some(left) = tag.begin.strip_prefix(come) {
                self.rules.nfa.literal(left.as_bytes(), from, inside)?;
            }
        }
        Ok(())
    }

    fn separated(
        &mut self,
        separated: &'a Separated<'_>,
        from: State,
        to: State,
    ) -> Result<(), GrammarError> {
        let tags = &separated.tags;
        let behind = self.rules.nfa.state()?;
        let inside = self.contents(tags, behind)?;
        self.begins(tags, &inside, "", from)?;
        self.rules.nfa.skip(behind, to)?;
        if !separated.stop_after_first {
            let next = self.rules.nfa.state()?;
            self.rules.nfa.literal(separated.separator.as_bytes(), behind, next)?;
            self.begins(tags, &inside, "", next)?;
        }
        if separated.at_least_one { Ok(()) } else { self.rules.nfa.skip(from, to) }
    }

    fn triggered(
        &mut self,
        triggered: &'a Triggered<'_>,
        from: State,
        to: State,
        ends: &[&str],
    ) -> Result<(), GrammarError> {
        let Triggered { triggers, tags, at_least_one, stop_after_first, free } = triggered;
        let (begin, behind) = (self.rules.nfa.state()?, self.rules.nfa.state()?);
        let inside = self.contents(tags, behind)?;
        if *stop_after_first {
            self.close(behind, to, ends)?;
        } else {
            self.rules.nfa.skip(behind, begin)?;
        }
        if *at_least_one {
            self.begins(tags, &inside, "", from)?;
        } else {
            self.rules.nfa.skip(from, begin)?;
        }
        if *at_least_one && *stop_after_first {
            return Ok(());
        }
        let mut starts = Vec::with_capacity(triggers.len());
        for &text in triggers {
            let come = self.rules.nfa.state()?;
            self.begins(tags, &inside, text, come)?;
            starts.push(Marker { text, to: Some(come) });
        }
        self.free(free, &starts, begin, to, ends)
    }

    /// Free text from `begin` on, up to one of `starts` or of `ends`.
    fn free(
        &mut self,
        free: &Free<'_>,
        starts: &[Marker<'_>],
        begin: State,
        to: State,
        ends: &[&str],
    ) -> Result<(), GrammarError> {
        let ends_there = ends.iter().map(|&text| Marker { text, to: Some(to) });
        let mut markers: Vec<Marker<'_>> = starts.iter().copied().chain(ends_there).collect();
        for &text in &free.excludes {
            // What has another marker in it comes nowhere before that.
            self.rules.nfa.fuel.burn(text.len() * (1 + markers.len()) / 16)?;
            let mut others = free.excludes.iter().filter(|&&other| other != text);
            let is_said = markers.iter().any(|marker| text.contains(marker.text))
                || others.any(|other| text.contains(other));
            if !is_said {
                markers.push(Marker { text, to: None });
            }
        }
        self.check_apart(&markers, &free.at)?;
        free::add(self.rules.nfa, begin, &markers, ends.is_empty().then_some(to))
    }

    /// Refuses markers that are parts of others: behind the shorter one the longer one would never
    /// be complete.
    fn check_apart(&mut self, markers: &[Marker<'_>], at: &str) -> Result<(), GrammarError> {
        for (i, marker) in markers.iter().enumerate() {
            self.rules.nfa.fuel.burn(markers.len() + marker.text.len() * markers.len() / 16)?;
            let mut others = markers.iter().enumerate().filter(|other| other.0 != i);
            if let Some((_, part)) = others.find(|other| marker.text.contains(other.1.text)) {
                let (whole, part) = (shown(marker.text), shown(part.text));
                let message = format!(
                    "triggers, ends and excluded texts must not be parts of each other: `{part}` \
                     is in `{whole}`"
                );
                return Err(GrammarError::invalid(message, at));
            }
        }
        Ok(())
    }
}
