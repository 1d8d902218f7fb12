//! How long keys and values are. A key has its sizes for ever: they are drawn by its number, not by request.

/// A distribution of sizes, as the size that a part `u` (0 to 1) of all keys stays at or below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sizes {
    /// Parts of all, each with sizes evenly between a least and a most; parts add up to 1.
    Parts(&'static [(f64, u32, u32)]),
    /// Generalized extreme value distribution.
    Gev {
        /// Bytes.
        location: f64,
        /// Bytes.
        scale: f64,
        /// Not 0.
        shape: f64,
    },
    /// Sizes 0, 1, ... one by one, as parts of all; above them a generalized Pareto distribution.
    Pareto {
        /// Below `location`.
        small: &'static [f64],
        /// Bytes.
        location: f64,
        /// Bytes.
        scale: f64,
        /// Not 0.
        shape: f64,
    },
}

impl Sizes {
    /// The size at `u`, from 0 to `most`.
    pub fn at(&self, u: f64, most: u32) -> u32 {
        let size = match *self {
            Sizes::Parts(parts) => return parted(parts, u).min(most),
            Sizes::Gev { location, scale, shape } => {
                location + scale * ((-u.ln()).powf(-shape) - 1.0) / shape
            }
            Sizes::Pareto { small, location, scale, shape } => {
                let mut below = 0.0;
                for (size, part) in small.iter().enumerate() {
                    below += part;
                    if u < below {
                        return (size as u32).min(most);
                    }
                }
                let rest = (u - below) / (1.0 - below);
                location + scale * ((1.0 - rest).powf(-shape) - 1.0) / shape
            }
        };
        // What is no number (u = 0) becomes 0.
        size.clamp(0.0, f64::from(most)) as u32
    }
}

fn parted(parts: &[(f64, u32, u32)], u: f64) -> u32 {
    let mut below = 0.0;
    for &(part, least, most) in parts {
        if u < below + part {
            let within = (u - below) / part;
            return least + (within * f64::from(most - least + 1)) as u32;
        }
        below += part;
    }
    parts.last().map_or(0, |&(_, _, most)| most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_at_the_published_quantiles() {
        let keys = Sizes::Gev { location: 30.7984, scale: 8.20449, shape: 0.078688 };
        // The median of a GEV is location + scale ((ln 2)^-shape - 1) / shape.
        assert_eq!(keys.at(0.5, 250), 33);
        assert_eq!((keys.at(0.0, 250), keys.at(1.0, 250)), (0, 250));
        let values = Sizes::Pareto { small: &[0.5, 0.25], location: 15.0, scale: 214.476, shape: 0.348238 };
        assert_eq!((values.at(0.4, 1 << 20), values.at(0.6, 1 << 20)), (0, 1));
        // Halfway up the rest: location + scale (2^shape - 1) / shape.
        assert_eq!(values.at(0.875, 1 << 20), 183);
        assert_eq!(values.at(1.0, 1 << 20), 1 << 20);
        let parts = Sizes::Parts(&[(0.7, 500, 500), (0.3, 10, 19)]);
        assert_eq!((parts.at(0.69, 9999), parts.at(0.71, 9999), parts.at(0.999, 9999)), (500, 10, 19));
    }
}
