//! What bench/figures.md says of who wins and where it bends, on the points of a figure.

use serde_json::Value;

/// A claim, and whether it holds of the figure's points.
type Claim = (&'static str, fn(&Points<'_>) -> bool);

/// A figure's points.
struct Points<'a>(Vec<&'a Value>);

impl Points<'_> {
    /// The y of a series at a named or numbered place; NaN, with which no claim holds, if there is none.
    fn at(&self, unit: &str, series: &str, x: impl Into<Value>) -> f64 {
        let x: Value = x.into();
        let same = |found: &Value| match (found.as_f64(), x.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            _ => *found == x,
        };
        self.of(unit, series)
            .find(|point| same(&point["x"]))
            .and_then(|point| point["y"].as_f64())
            .unwrap_or(f64::NAN)
    }

    fn of(&self, unit: &str, series: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().copied().filter(move |point| point["unit"] == unit && point["series"] == series)
    }

    /// The y's of a series in their order.
    fn ys(&self, unit: &str, series: &str) -> Vec<f64> {
        self.of(unit, series).map(|point| point["y"].as_f64().unwrap_or(f64::NAN)).collect()
    }

    /// Every point beside which the paper has a number is within so much of it, as a part.
    fn near_paper(&self, unit: &str, series: &str, part: f64) -> bool {
        let beside =
            self.of(unit, series).filter_map(|point| Some((point["y"].as_f64()?, point["paper"].as_f64()?)));
        let beside: Vec<(f64, f64)> = beside.collect();
        !beside.is_empty() && beside.iter().all(|(y, paper)| (y - paper).abs() <= part * paper.abs())
    }
}

fn rising(ys: &[f64]) -> bool {
    ys.len() > 1 && ys.windows(2).all(|pair| pair[0] <= pair[1])
}

const CLAIMS: &[(&str, &[Claim])] = &[];

/// The claims on a figure that its points do not bear out.
pub(crate) fn broken(figure: &str, objects: &[Value]) -> Vec<&'static str> {
    let points = Points(objects.iter().filter(|object| object["figure"] == figure).collect());
    let claims = CLAIMS.iter().filter(|(name, _)| *name == figure).flat_map(|(_, claims)| *claims);
    claims.filter(|(_, holds)| !holds(&points)).map(|(claim, _)| *claim).collect()
}
