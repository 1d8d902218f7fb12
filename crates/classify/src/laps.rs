//! Where a packet's time goes, layer by layer: for measurements.
//!
//! Who measures hands in a stopwatch; in the normal build it is `()`, which the compiler leaves out. So the code that is measured is
//! the code that runs, and no data path reads a clock by itself.

/// What a packet's time is spent in (HALO, ISCA 2019, section 3.2, splits it likewise).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// All that is outside of the switch: ports, the worker between them.
    Io,
    /// Packets to keys.
    Parse,
    /// Exact matches: asking for them, and putting them in.
    Exact,
    /// Megaflows, mask by mask.
    Megaflow,
    /// The rules, and what is kept of their answers.
    Rules,
    /// What is done to the packet.
    Actions,
}

impl Layer {
    /// Every layer, in a packet's order.
    pub const ALL: [Layer; 6] =
        [Layer::Io, Layer::Parse, Layer::Exact, Layer::Megaflow, Layer::Rules, Layer::Actions];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Io => "io",
            Layer::Parse => "parse",
            Layer::Exact => "exact",
            Layer::Megaflow => "megaflow",
            Layer::Rules => "rules",
            Layer::Actions => "actions",
        }
    }
}

/// A stopwatch.
pub trait Laps {
    /// The time since the last call was spent in this layer.
    fn lap(&mut self, layer: Layer);
}

/// Nobody measures.
impl Laps for () {
    #[inline(always)]
    fn lap(&mut self, _layer: Layer) {}
}
