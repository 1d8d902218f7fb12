//! Metrics, in the text that Prometheus reads (OpenMetrics 1.0): `GET /metrics`.

use crate::registry::{ApiError, Collector as Part, Registry};
use crate::schema::{Panel, PanelFamily, Panels, Sample};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Where they are.
pub const METRICS: &str = "/metrics";

/// What a reader of the text should take it for.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a value only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// A metric: its samples differ by their labels.
///
/// ```
/// use tidemill_control::Family;
///
/// let mut packets = Family::counter("packets", "Packets by port and direction");
/// packets.add(&[("port", "lan"), ("direction", "rx")], 12);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    name: String,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

impl Family {
    /// What is counted since the start: `tidemill_NAME_total`.
    pub fn counter(name: impl Into<String>, help: &'static str) -> Family {
        Family { name: name.into(), help, kind: Kind::Counter, samples: Vec::new() }
    }

    /// What is so now: `tidemill_NAME`.
    pub fn gauge(name: impl Into<String>, help: &'static str) -> Family {
        Family { name: name.into(), help, kind: Kind::Gauge, samples: Vec::new() }
    }

    /// Whether it has no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Its name, without `tidemill_` and `_total`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a sample; no two of a family have the same labels.
    pub fn add(&mut self, labels: &[(&'static str, &str)], value: u64) {
        // Counts beyond 2^53 lose their last digits, as in Prometheus itself.
        self.add_f64(labels, value as f64);
    }

    /// Adds a sample that is no whole number: seconds.
    pub fn add_f64(&mut self, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        self.samples.push((labels, value));
    }
}

/// The families of one scrape.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in &self.0 {
            let metric_type = match family.kind {
                Kind::Counter => ConstCounter::new(0_u64).metric_type(),
                Kind::Gauge => ConstGauge::new(0_i64).metric_type(),
            };
            let name = format!("tidemill_{}", family.name);
            let mut metrics = encoder.encode_descriptor(&name, family.help, None, metric_type)?;
            for (labels, value) in &family.samples {
                let encoder = metrics.encode_family(labels)?;
                match family.kind {
                    Kind::Counter => ConstCounter::new(*value).encode(encoder)?,
                    Kind::Gauge => ConstGauge::new(*value).encode(encoder)?,
                }
            }
        }
        Ok(())
    }
}

/// The text of these families.
pub(crate) fn text(families: Vec<Family>) -> Result<Vec<u8>, ApiError> {
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut written = String::new();
    text::encode(&mut written, &registry).map_err(|_| ApiError::internal("the metrics cannot be written"))?;
    Ok(written.into_bytes())
}

impl Registry {
    /// Says what `GET /metrics` has; may be called by each part of a service for its own families.
    pub fn metrics(&mut self, collect: impl Fn() -> Vec<Family> + Send + Sync + 'static) {
        self.collectors.push(Part { title: None, collect: Box::new(collect) });
    }

    /// The same, with a panel of these figures on the live page.
    pub fn panel(
        &mut self,
        title: impl Into<String>,
        collect: impl Fn() -> Vec<Family> + Send + Sync + 'static,
    ) {
        self.collectors.push(Part { title: Some(title.into()), collect: Box::new(collect) });
    }
}

/// Samples of one family that a panel shows; `/metrics` has all of them.
const SHOWN: usize = 256;

/// The panels with their figures of now.
pub(crate) fn panels(parts: &[Part]) -> Panels {
    let sample = |(labels, value): (Vec<(&'static str, String)>, f64)| Sample {
        labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        value,
    };
    let family = |family: Family| PanelFamily {
        name: family.name,
        help: family.help.into(),
        grows: family.kind == Kind::Counter,
        samples: family.samples.into_iter().take(SHOWN).map(sample).collect(),
    };
    let panel = |part: &Part| {
        let title = part.title.clone()?;
        Some(Panel { title, families: (part.collect)().into_iter().map(family).collect() })
    };
    Panels { panels: parts.iter().filter_map(panel).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_values_are_as_prometheus_has_them() {
        let mut packets = Family::counter("packets", "Packets by port");
        packets.add(&[("port", "lan"), ("direction", "rx")], 12);
        packets.add(&[("port", "a \"b\"\\\n"), ("direction", "tx")], 0);
        let mut frames = Family::gauge("pool_free_frames", "Frames");
        frames.add(&[], u64::from(u32::MAX));
        let mut seconds = Family::counter("busy_seconds", "Seconds");
        seconds.add_f64(&[("worker", "0")], 0.25);
        let text = String::from_utf8(text(vec![packets, frames, seconds]).unwrap()).unwrap();
        let expected = "# HELP tidemill_packets Packets by port\n# TYPE tidemill_packets counter\n\
            tidemill_packets_total{port=\"lan\",direction=\"rx\"} 12.0\n\
            tidemill_packets_total{port=\"a \\\"b\\\"\\\\\\n\",direction=\"tx\"} 0.0\n\
            # HELP tidemill_pool_free_frames Frames\n# TYPE tidemill_pool_free_frames gauge\n\
            tidemill_pool_free_frames{} 4294967295.0\n\
            # HELP tidemill_busy_seconds Seconds\n# TYPE tidemill_busy_seconds counter\n\
            tidemill_busy_seconds_total{worker=\"0\"} 0.25\n# EOF\n";
        assert_eq!(text, expected);
    }
}
