//! Requests, slots, KV and tokens.

use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::pairs;
use crate::format::{bytes, count, or_unknown, percent};
use crate::frame::{Frame, Kv};

/// Cells of the bar of KV in use.
const BAR_CELLS: usize = 10;
/// Share of the KV in use from which on preemptions are near.
const KV_WARNING: f64 = 0.9;
/// States of slots and what they are called here; unlisted states are not shown.
const STATES: [(&str, &str); 7] = [
    ("prefill_pending", "pending"),
    ("prefill_processing", "prefill"),
    ("decode_processing", "decode"),
    ("decode_paused", "paused"),
    ("fetch_pending", "to fetch"),
    ("fetch_processing", "fetching"),
    ("empty", "never used"),
];

/// All lines of the panel.
pub fn lines(frame: &Frame) -> Vec<Line<'_>> {
    let r = &frame.requests;
    let number = |value| or_unknown(value, count);
    let mut lines = vec![pairs([
        ("running", number(r.running)),
        ("waiting", number(r.waiting)),
        ("ended", or_unknown(r.finished_per_s, |n| format!("{}/s", count(n)))),
    ])];
    if r.paused.is_some() {
        lines.push(pairs([
            ("held", number(r.paused)),
            ("slow readers", number(r.stalled)),
            ("to tokenize", number(r.tokenizer_queue)),
        ]));
    }
    if !frame.slots.is_empty() {
        lines.push(slots(frame));
    }
    lines.push(kv_bar(&frame.kv));
    if !frame.kv.bytes_per_s.is_empty() {
        let rates = frame.kv.bytes_per_s.iter();
        lines.push(pairs(rates.map(|(k, v)| (k.as_str(), format!("{}/s", bytes(*v))))));
    }
    let rate = |value| or_unknown(value, |n: f64| format!("{}/s", count(n.round())));
    lines.push(pairs([
        ("tokens out", rate(frame.tokens.generated_per_s)),
        ("prompt", rate(frame.tokens.prompt_per_s)),
    ]));
    lines.push(steps(frame));
    lines
}

fn steps(frame: &Frame) -> Line<'_> {
    let optional = [
        ("steps", frame.host.steps_per_s.map(|n| format!("{}/s", count(n.round())))),
        ("prefix hits", frame.kv.prefix_hit_share.map(percent)),
    ];
    let told = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    pairs(std::iter::once(("preempted", preempted(frame))).chain(told))
}

fn preempted(frame: &Frame) -> String {
    let r = &frame.requests;
    let total = or_unknown(r.preemptions_total, count);
    match r.preemptions {
        Some(new) if new > 0.0 => format!("{total} (+{})", count(new)),
        _ => total,
    }
}

fn slots(frame: &Frame) -> Line<'_> {
    let shown = STATES.iter().filter_map(|(state, name)| {
        let slots = *frame.slots.get(*state)?;
        (slots > 0.0).then(|| (*name, count(slots)))
    });
    let mut line = Line::from("slots: ");
    line.extend(pairs(shown).spans);
    line
}

fn kv_bar(kv: &Kv) -> Line<'_> {
    let Some(share) = kv.used_share else {
        return pairs([("KV in use", or_unknown(None, percent))]);
    };
    let full = ((share * BAR_CELLS as f64).round() as usize).min(BAR_CELLS);
    let color = if share >= KV_WARNING { Color::Yellow } else { Color::Green };
    let size = match (kv.blocks, kv.block_size) {
        (Some(blocks), Some(tokens)) => format!(" of {blocks} x {tokens} tokens"),
        _ => String::new(),
    };
    Line::from(vec![
        Span::from("KV ").dark_gray(),
        Span::from("█".repeat(full)).fg(color),
        Span::from("░".repeat(BAR_CELLS - full)).dark_gray(),
        Span::from(format!(" {}{size}", percent(share))),
    ])
}
