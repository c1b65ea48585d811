//! The fetch plane and its store.

use std::collections::BTreeMap;

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use super::{pair, pairs};
use crate::format::{UNKNOWN, bytes, count, or_unknown, percent};
use crate::frame::{Breaker, Fetch, Frame};

/// All lines of the panel; nothing without a store.
pub fn lines(frame: &Frame) -> Vec<Line<'_>> {
    let Some(fetch) = &frame.fetch else { return Vec::new() };
    let per_second =
        |value, form: fn(f64) -> String| or_unknown(value, |n| format!("{}/s", form(n)));
    let rounded: fn(f64) -> String = |n| count(n.round());
    vec![
        state(fetch),
        pairs([
            ("tokens from it", per_second(fetch.tokens_per_s, rounded)),
            ("hits", or_unknown(fetch.hit_share, percent)),
            ("loaded", per_second(fetch.loaded_bytes_per_s, bytes)),
            ("stored", per_second(fetch.stored_bytes_per_s, bytes)),
        ]),
        ended(fetch),
    ]
}

fn state(fetch: &Fetch) -> Line<'static> {
    let plane = match fetch.alive {
        Some(true) => Span::from("alive").green(),
        Some(false) => Span::from("DEAD").red().bold(),
        None => Span::from(UNKNOWN),
    };
    let breaker = match fetch.breaker {
        Some(Breaker::Closed) => Span::from("used").green(),
        Some(Breaker::Open) => Span::from("FAILED, rests").red().bold(),
        Some(Breaker::Probing) => Span::from("is tried").yellow(),
        None => Span::from(UNKNOWN),
    };
    let named = |name: &str, value: Span<'static>| {
        [Span::from(format!("{name} ")).dark_gray(), value, Span::from("  ")]
    };
    let frames = format!("{} of {}", or_unknown(fetch.frames_used, count), count(fetch.frames));
    let mut spans = named("plane", plane).to_vec();
    spans.extend(named("store", breaker));
    spans.extend(pair("chunks on their way", frames));
    spans.extend(pair("waiting", or_unknown(fetch.stores_waiting, count)));
    Line::from(spans)
}

/// How loads and stores ended.
fn ended(fetch: &Fetch) -> Line<'static> {
    let words = |results: &BTreeMap<String, f64>| {
        let words: Vec<String> =
            results.iter().map(|(result, n)| format!("{result} {}", count(*n))).collect();
        if words.is_empty() { "none".into() } else { words.join(", ") }
    };
    pairs([("loads", words(&fetch.loads)), ("stores", words(&fetch.stores))])
}
