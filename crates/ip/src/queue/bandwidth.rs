//! A bandwidth as people write it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is taken; the same words are in the attribute below.
const ACCEPTED: &str = "give a number with Gbps, Mbps, kbps or bps in quotes (\"2.5 Gbps\"), or bits per second as a whole number";

/// A bandwidth, 64 kbps to 10,000 Gbps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "no bandwidth: give a number with Gbps, Mbps, kbps or bps in quotes (\"2.5 Gbps\"), or bits per second as a whole number"
)]
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
                let wrong = || format!("{text:?}: {ACCEPTED}");
                let lower = text.trim().to_ascii_lowercase();
                let units = [("gbps", 1e9), ("mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)];
                let (number, unit) = units
                    .iter()
                    .find_map(|(name, unit)| Some((lower.strip_suffix(name)?.trim_end(), *unit)))
                    .ok_or_else(wrong)?;
                let number: f64 = number.parse().map_err(|_| wrong())?;
                let bits = number * unit;
                if !bits.is_finite() || bits < 0.0 {
                    return Err(wrong());
                }
                // Too much is the largest number.
                bits as u64
            }
        };
        if (64_000..=10_u64.pow(13)).contains(&bits) {
            return Ok(bits);
        }
        // As it is written: too much is another number here.
        let written = match self {
            Bandwidth::Bits(bits) => format!("{bits} bits per second"),
            Bandwidth::Text(text) => format!("{text:?}"),
        };
        Err(format!("{written}: give 64 kbps to 10,000 Gbps"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_or_refused_in_words() {
        let bits = |text: &str| Bandwidth::Text(text.into()).bits_per_s();
        for (text, wanted) in [
            ("10 Gbps", 10_000_000_000),
            ("2.5GBPS", 2_500_000_000),
            (" 64 kbps", 64_000),
            ("1e9 bps", 1_000_000_000),
        ] {
            assert_eq!(bits(text), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "Gbps",
            "10G",
            "10 Gbit/s",
            "ten Gbps",
            "-1 Gbps",
            "nan Gbps",
            "inf bps",
            "1,000 Mbps",
            "10 GB/s",
        ] {
            assert_eq!(bits(text), Err(format!("{text:?}: {ACCEPTED}")), "{text}");
        }
        for text in ["0 bps", "63.9 kbps", "10001 Gbps", "1e300 bps", "99999999999999999999 Gbps"] {
            assert_eq!(bits(text), Err(format!("{text:?}: give 64 kbps to 10,000 Gbps")));
        }
        let said = "63999 bits per second: give 64 kbps to 10,000 Gbps";
        assert_eq!(Bandwidth::Bits(63_999).bits_per_s(), Err(said.into()));
    }
}
