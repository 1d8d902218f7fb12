//! Medians and ratios.

/// The median; of an even number the mean of the two in the middle; 0 of none.
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The geometric mean of `a / b` over the pairs, with a 95 % interval: Student's t on the logarithms. `None` for fewer
/// than two pairs.
pub(crate) fn ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let n = logs.len() as f64;
    if logs.len() < 2 || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = student_t(logs.len() - 1) * (variance / n).sqrt();
    Some(Interval { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
}

/// A 95 % interval of the median of what `values` were drawn from, whatever its distribution: two of them, as far in as that
/// allows (how many lie below the median is binomial). `None` for fewer than six.
pub(crate) fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The logarithm of the chance that so many lie below, and the sum of the chances so far.
    let (mut log, mut sum, mut cut) = (-(n as f64) * std::f64::consts::LN_2, 0.0, 0);
    for below in 0..n / 2 {
        sum += log.exp();
        if sum > 0.025 {
            break;
        }
        cut = below + 1;
        log += ((n - below) as f64 / (below + 1) as f64).ln();
    }
    (cut > 0).then(|| (sorted[cut - 1], sorted[n - cut]))
}

/// The 97.5 % quantile of Student's t distribution.
fn student_t(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    TABLE.get(degrees.wrapping_sub(1)).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (0.0, 2.0, 2.5));
    }

    #[test]
    fn a_median_has_an_interval_of_two_values() {
        // Ranks from tables of the sign test's interval.
        for (n, low, high) in [(6, 1, 6), (10, 2, 9), (20, 6, 15), (21, 6, 16), (4000, 1938, 2063)] {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            assert_eq!(median_interval(&values), Some((f64::from(low), f64::from(high))), "{n}");
        }
        assert_eq!((median_interval(&[]), median_interval(&[1.0; 5])), (None, None));
    }

    #[test]
    fn a_ratio_has_the_interval_of_its_pairs() {
        assert_eq!(ratio(&[2.0], &[1.0]), None);
        let same = ratio(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!((same.value - 2.0).abs() < 1e-12 && same.high - same.low < 1e-12);
        // Logs -1, 0, 1: mean 0, deviation 1, half width 4.303 / sqrt(3).
        let e = std::f64::consts::E;
        let wide = ratio(&[1.0, 1.0, e], &[e, 1.0, 1.0]).unwrap();
        assert!((wide.value - 1.0).abs() < 1e-12);
        assert!((wide.high.ln() - 4.303 / 3_f64.sqrt()).abs() < 1e-9, "{wide:?}");
        assert!((wide.low * wide.high - 1.0).abs() < 1e-9);
    }
}
