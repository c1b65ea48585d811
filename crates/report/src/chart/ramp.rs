//! Colours of a heat map. Lightness alone carries the order on the sequential ramp, so that it
//! survives black-and-white print; the diverging one is blue against orange-red, which
//! red-green colour-blind readers can tell apart.

/// An sRGB colour.
pub(crate) type Rgb = [u8; 3];

const SEQUENTIAL: [Rgb; 5] =
    [[247, 251, 255], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]];
const DIVERGING: [Rgb; 7] = [
    [179, 53, 20],
    [228, 130, 82],
    [250, 208, 180],
    [247, 247, 245],
    [190, 215, 236],
    [92, 157, 205],
    [22, 84, 150],
];

/// The colour at `share` (0 to 1) of the ramp.
pub(crate) fn colour(diverging: bool, share: f64) -> Rgb {
    let stops: &[Rgb] = if diverging { &DIVERGING } else { &SEQUENTIAL };
    let position = share.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
    let i = (position.floor() as usize).min(stops.len() - 2);
    let part = position - i as f64;
    std::array::from_fn(|k| {
        let (a, b) = (f64::from(stops[i][k]), f64::from(stops[i + 1][k]));
        (a + (b - a) * part).round() as u8
    })
}

/// `#rrggbb`.
pub(crate) fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Whether white text reads better than black on `colour` (WCAG relative luminance).
pub(crate) fn is_dark(colour: Rgb) -> bool {
    let [r, g, b] = colour.map(|c| {
        let c = f64::from(c) / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_middle() {
        assert_eq!(hex(colour(false, 0.0)), "#f7fbff");
        assert_eq!(hex(colour(false, 2.0)), "#08306b");
        assert_eq!(hex(colour(true, 0.5)), "#f7f7f5");
        assert!(is_dark(colour(false, 1.0)) && !is_dark(colour(true, 0.5)));
    }
}
