//! One line of a chart: its points, their spread, and the values that never came.

/// How the points of a series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    Lines,
    Steps,
    None,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub x: f64,
    pub y: f64,
    /// Lower and upper end of the spread; not-a-number where there is none.
    pub lo: f64,
    pub hi: f64,
}

/// Points of one name.
#[derive(Debug, Clone)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    pub(crate) timeouts: Vec<f64>,
    pub(crate) join: Join,
    pub(crate) whiskers: bool,
    pub(crate) slot: Option<usize>,
}

impl Series {
    /// A series without points, drawn as a line. Points are drawn in the order given; one that is
    /// not finite breaks the line.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Series {
        Series {
            name: name.into(),
            points: Vec::new(),
            timeouts: Vec::new(),
            join: Join::Lines,
            whiskers: false,
            slot: None,
        }
    }

    /// Adds points `(x, y)`.
    #[must_use]
    pub fn points(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let spread = (f64::NAN, f64::NAN);
        let all = points.into_iter().map(|(x, y)| Point { x, y, lo: spread.0, hi: spread.1 });
        self.points.extend(all);
        self
    }

    /// Adds points `(x, y, low, high)`, drawn with a band from low to high.
    #[must_use]
    pub fn band(mut self, points: impl IntoIterator<Item = (f64, f64, f64, f64)>) -> Series {
        self.points.extend(points.into_iter().map(|(x, y, lo, hi)| Point { x, y, lo, hi }));
        self
    }

    /// Draws the spread as a bar at each point instead of a band.
    #[must_use]
    pub fn whiskers(mut self) -> Series {
        self.whiskers = true;
        self
    }

    /// Marks `x` with a cross at the top of the plot: what was measured there timed out.
    #[must_use]
    pub fn timed_out(mut self, x: f64) -> Series {
        self.timeouts.push(x);
        self
    }

    /// Draws steps instead of slopes.
    #[must_use]
    pub fn steps(mut self) -> Series {
        self.join = Join::Steps;
        self
    }

    /// Draws points without a line.
    #[must_use]
    pub fn scattered(mut self) -> Series {
        self.join = Join::None;
        self
    }

    /// Takes the colour, dash and marker number `slot` instead of the series' place in the chart,
    /// so that a server looks alike in all charts of a report.
    #[must_use]
    pub fn slot(mut self, slot: usize) -> Series {
        self.slot = Some(slot);
        self
    }

    /// The cumulative distribution of `samples`: the share (0 to 1) that is at most x. Samples
    /// that are infinite (time-outs) count but never arrive, so the curve ends below 1;
    /// not-a-number is left out.
    #[must_use]
    pub fn cdf(name: impl Into<String>, samples: impl IntoIterator<Item = f64>) -> Series {
        Series::weighted_cdf(name, samples.into_iter().map(|v| (v, 1.0)))
    }

    /// As [`Series::cdf`], of `(value, weight)`; weights that are not positive are left out.
    #[must_use]
    pub fn weighted_cdf(
        name: impl Into<String>,
        samples: impl IntoIterator<Item = (f64, f64)>,
    ) -> Series {
        let mut samples: Vec<(f64, f64)> =
            samples.into_iter().filter(|(v, w)| !v.is_nan() && *w > 0.0).collect();
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = samples.iter().map(|s| s.1).sum();
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut below = 0.0;
        for (value, weight) in samples.into_iter().filter(|s| s.0.is_finite()) {
            if points.is_empty() {
                points.push((value, 0.0));
            }
            below += weight;
            match points.last_mut() {
                // The first point stays at zero: the curve rises from there.
                Some(last) if last.0 == value && last.1 > 0.0 => last.1 = below / total,
                _ => points.push((value, below / total)),
            }
        }
        Series::new(name).points(points).steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdf_rises_from_zero_to_the_share_that_arrived() {
        let series = Series::cdf("a", [3.0, 1.0, 1.0, f64::INFINITY, f64::NAN]);
        let points: Vec<(f64, f64)> = series.points.iter().map(|p| (p.x, p.y)).collect();
        assert_eq!(points, [(1.0, 0.0), (1.0, 0.5), (3.0, 0.75)]);
    }
}
