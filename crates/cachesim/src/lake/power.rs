//! Watts of a server with memcached, and of the same with LaKe in the place of its NIC (4.3.3, 4.5.1).
//!
//! Taken from the paper: idle 39 and 59 W, at most 58.2 and 3.4 W more under load. LaKe's part grows with the rate. memcached's does not: in a straight line it would
//! reach LaKe's 59 W at 332 kqps, and the paper has it there at 80. So a power of the rate is **assumed**, and its exponent fitted to the 80.

use super::Variant;

/// A power model. Rates in million queries per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// The server with a NIC, idle.
    pub host_idle_w: f64,
    /// More at `host_peak_mqps`.
    pub host_dynamic_w: f64,
    /// memcached's best.
    pub host_peak_mqps: f64,
    /// Of the part of the peak, for the part of the watts; 1 is a straight line.
    pub host_exponent: f64,
    /// The server with LaKe, idle.
    pub lake_idle_w: f64,
    /// More at `lake_peak_mqps`.
    pub lake_dynamic_w: f64,
    /// LaKe's best.
    pub lake_peak_mqps: f64,
}

/// Where the paper has both draw the same (4.5.1).
pub const CROSSING_MQPS: f64 = 0.080;

impl Default for Power {
    fn default() -> Self {
        let straight = Power {
            host_idle_w: 39.0,
            host_dynamic_w: 58.2,
            host_peak_mqps: 0.962,
            host_exponent: 1.0,
            lake_idle_w: 59.0,
            lake_dynamic_w: 3.4,
            lake_peak_mqps: 13.12,
        };
        let more = straight.lake_w(CROSSING_MQPS, 0.0) - straight.host_idle_w;
        let exponent = (more / straight.host_dynamic_w).ln() / (CROSSING_MQPS / straight.host_peak_mqps).ln();
        Power { host_exponent: exponent, ..straight }
    }
}

impl Power {
    /// With a card that has other memories: what they draw less is not drawn (4.4).
    pub fn with(variant: &Variant) -> Self {
        let power = Power::default();
        let less = Variant::ALL[0].card_w() - variant.card_w();
        Power { lake_idle_w: power.lake_idle_w - less, ..power }
    }

    fn host_more_w(&self, mqps: f64) -> f64 {
        let part = (mqps / self.host_peak_mqps).clamp(0.0, 1.0);
        // 0 to the power 0 would be 1.
        if part == 0.0 { 0.0 } else { self.host_dynamic_w * part.powf(self.host_exponent) }
    }

    /// The server with memcached alone; beyond its best it draws no more, and answers no more.
    pub fn software_w(&self, mqps: f64) -> f64 {
        self.host_idle_w + self.host_more_w(mqps)
    }

    /// The server with LaKe, which answers `mqps` in all, `host_mqps` of them by memcached.
    pub fn lake_w(&self, mqps: f64, host_mqps: f64) -> f64 {
        let part = (mqps / self.lake_peak_mqps).clamp(0.0, 1.0);
        self.lake_idle_w + self.lake_dynamic_w * part + self.host_more_w(host_mqps)
    }

    /// The rate from which on LaKe draws less, all queries being hits; none if it never does.
    pub fn crossing_mqps(&self) -> Option<f64> {
        let less = |mqps: f64| self.lake_w(mqps, 0.0) <= self.software_w(mqps);
        let (mut low, mut high) = (0.0, self.host_peak_mqps);
        if !less(high) {
            return None;
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if less(middle) { high = middle } else { low = middle }
        }
        Some(high)
    }
}
