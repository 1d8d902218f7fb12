//! A bandwidth as people write it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A bandwidth, 64 kbps to 10,000 Gbps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a bandwidth: give bits per second, or such as \"10 Gbps\"")]
pub enum Bandwidth {
    /// Bits per second.
    Bits(u64),
    /// A number and `Gbps`, `Mbps`, `kbps` or `bps`.
    Text(String),
}

impl Bandwidth {
    /// Bits per second.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn bits_per_s(&self) -> Result<u64, String> {
        let bits = match self {
            Bandwidth::Bits(bits) => *bits,
            Bandwidth::Text(text) => {
                let wrong = || format!("{text:?}: give bits per second, or such as \"10 Gbps\"");
                let lower = text.trim().to_ascii_lowercase();
                let units = [("gbps", 1e9), ("mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)];
                let (number, unit) = units
                    .iter()
                    .find_map(|(name, unit)| Some((lower.strip_suffix(name)?.trim_end(), *unit)))
                    .ok_or_else(wrong)?;
                let number: f64 = number.parse().map_err(|_| wrong())?;
                // Negative ones become 0, and NaN too.
                (number * unit) as u64
            }
        };
        if (64_000..=10_u64.pow(13)).contains(&bits) {
            Ok(bits)
        } else {
            Err(format!("{bits} bits per second: give 64 kbps to 10,000 Gbps"))
        }
    }
}
