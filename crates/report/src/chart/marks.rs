//! What is drawn for a value: marker shapes, crosses, bars with their hatching.

use crate::svg::{Px, Svg};

/// Colours, dashes and hatchings repeat after this many series; markers after one more, so that no
/// two series among the first 56 look alike.
pub(crate) const SLOTS: usize = 7;
const MARKERS: usize = 8;

/// The style class of a series.
pub(crate) fn slot_class(slot: usize) -> String {
    format!("c{}", slot % SLOTS)
}

/// The marker of a series about `(x, y)`, `r` pixels from centre to edge.
pub(crate) fn marker(svg: &mut Svg, slot: usize, (x, y): (f64, f64), r: f64) {
    let (l, t, b, rt) = (Px(x - r), Px(y - r), Px(y + r), Px(x + r));
    let (cx, cy) = (Px(x), Px(y));
    let d = match slot % MARKERS {
        0 => {
            let d = Px(2.0 * r);
            format!("M{l} {cy}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z")
        }
        1 => format!("M{l} {t}H{rt}V{b}H{l}z"),
        2 => format!("M{cx} {}L{} {b}H{}z", Px(y - 1.2 * r), Px(x + 1.1 * r), Px(x - 1.1 * r)),
        3 => format!(
            "M{cx} {}L{} {cy}L{cx} {}L{} {cy}z",
            Px(y - 1.3 * r),
            Px(x + 1.3 * r),
            Px(y + 1.3 * r),
            Px(x - 1.3 * r)
        ),
        4 => format!("M{cx} {}L{} {t}H{}z", Px(y + 1.2 * r), Px(x + 1.1 * r), Px(x - 1.1 * r)),
        5 => plus(x, y, r),
        6 => format!("M{l} {b}L{cx} {t}L{rt} {b}L{cx} {}z", Px(y + 0.3 * r)),
        _ => format!("M{l} {t}L{rt} {b}H{l}L{rt} {t}z"),
    };
    svg.path("mr", &d, "");
}

fn plus(x: f64, y: f64, r: f64) -> String {
    let thin = 0.4 * r;
    let r = 1.2 * r;
    format!(
        "M{a} {t}H{b}V{c}H{rt}V{d}H{b}V{bt}H{a}V{d}H{l}V{c}H{a}z",
        a = Px(x - thin),
        b = Px(x + thin),
        c = Px(y - thin),
        d = Px(y + thin),
        t = Px(y - r),
        bt = Px(y + r),
        l = Px(x - r),
        rt = Px(x + r)
    )
}

/// The cross of a value that never came: a time-out.
pub(crate) fn cross(svg: &mut Svg, (x, y): (f64, f64), r: f64) {
    let (l, t, rt, b) = (Px(x - r), Px(y - r), Px(x + r), Px(y + r));
    svg.path("to", &format!("M{l} {t}L{rt} {b}M{l} {b}L{rt} {t}"), "");
}

/// A filled area with the hatching of its series, which tells series apart without colour.
pub(crate) fn bar(svg: &mut Svg, slot: usize, at: (f64, f64), size: (f64, f64), extra: &str) {
    svg.rect("br", at, size, extra);
    if !slot.is_multiple_of(SLOTS) {
        svg.rect("hh", at, size, &format!(r##"fill="url(#hatch{})""##, slot % SLOTS));
    }
}

/// The hatchings, drawn once per page; the first series has none.
pub(crate) const HATCHES: &str = concat!(
    r#"<svg class="defs" width="0" height="0" aria-hidden="true"><defs>"#,
    r#"<pattern id="hatch1" width="6" height="6" patternUnits="userSpaceOnUse">"#,
    r#"<path class="hp" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern>"#,
    r#"<pattern id="hatch2" width="6" height="6" patternUnits="userSpaceOnUse">"#,
    r#"<circle class="hd" cx="3" cy="3" r="1.3"/></pattern>"#,
    r#"<pattern id="hatch3" width="6" height="6" patternUnits="userSpaceOnUse">"#,
    r#"<path class="hp" d="M-1 5l2 2M0 0l6 6M5-1l2 2"/></pattern>"#,
    r#"<pattern id="hatch4" width="5" height="5" patternUnits="userSpaceOnUse">"#,
    r#"<path class="hp" d="M0 2.5h5"/></pattern>"#,
    r#"<pattern id="hatch5" width="7" height="7" patternUnits="userSpaceOnUse">"#,
    r#"<path class="hp" d="M0 0l7 7M7 0l-7 7"/></pattern>"#,
    r#"<pattern id="hatch6" width="5" height="5" patternUnits="userSpaceOnUse">"#,
    r#"<path class="hp" d="M2.5 0v5"/></pattern>"#,
    r#"<pattern id="hatch-out" width="8" height="8" patternUnits="userSpaceOnUse">"#,
    r#"<path class="ho" d="M-2 2l4-4M0 8l8-8M6 10l4-4"/></pattern>"#,
    "</defs></svg>"
);

/// A value under the pointer: where it is and what the box says.
pub(crate) struct Hover {
    pub at: (f64, f64),
    pub text: String,
}

/// The attribute that carries the hover values of one series, for the page's script.
pub(crate) fn hover_attribute(values: &[Hover]) -> String {
    let rows: Vec<(f64, f64, &str)> =
        values.iter().map(|h| (tenth(h.at.0), tenth(h.at.1), h.text.as_str())).collect();
    // Numbers and strings always serialize.
    let json = serde_json::to_string(&rows).unwrap_or_default();
    format!(r#"data-h="{}""#, crate::svg::Esc(&json))
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
