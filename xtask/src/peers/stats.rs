//! Medians, and intervals of ratios.

/// The middle value (the mean of the two in the middle); 0 of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) pairs: usize,
}

/// The geometric mean of paired ratios, and Student's interval on their logarithms. At least two pairs.
pub(crate) fn ratio(pairs: &[(f64, f64)]) -> Option<Ratio> {
    let logs: Vec<f64> = pairs.iter().map(|(ours, theirs)| (ours / theirs).ln()).collect();
    let n = logs.len();
    if n < 2 || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / n as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let half = student_975(n - 1) * (variance / n as f64).sqrt();
    Some(Ratio { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp(), pairs: n })
}

/// The 0.975 quantile of Student's t with `freedom` degrees (1 and up): tabled where the expansion is poor.
fn student_975(freedom: usize) -> f64 {
    const FEW: [f64; 8] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306];
    if let Some(value) = freedom.checked_sub(1).and_then(|at| FEW.get(at)) {
        return *value;
    }
    // Abramowitz and Stegun, 26.7.5.
    let (z, v) = (1.959_964_f64, freedom as f64);
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / v + g2 / v.powi(2) + g3 / v.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_tabled_ones() {
        for (freedom, value) in [(1, 12.706), (4, 2.776), (5, 2.571), (10, 2.228), (30, 2.042), (1000, 1.962)]
        {
            assert!((student_975(freedom) - value).abs() < 0.002, "{freedom}: {}", student_975(freedom));
        }
    }

    #[test]
    fn ratios_are_geometric() {
        let same = ratio(&[(2.0, 1.0), (2.0, 1.0), (4.0, 2.0)]).unwrap();
        assert!((same.value - 2.0).abs() < 1e-9 && (same.high - same.low).abs() < 1e-9);
        let even = ratio(&[(2.0, 1.0), (1.0, 2.0)]).unwrap();
        assert!((even.value - 1.0).abs() < 1e-9 && even.low < 1.0 && even.high > 1.0);
        assert!(ratio(&[(1.0, 1.0)]).is_none());
    }

    #[test]
    fn medians() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]), median(&[])), (2.0, 2.5, 0.0));
    }
}
