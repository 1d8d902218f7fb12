use std::fmt;

/// The options of an IPv4 or TCP header as they stand on the wire: at most 40 bytes, a multiple of four.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OptionBytes {
    // Bytes from `len` on are zero, so that comparing and hashing see the options only.
    bytes: [u8; Self::MAX],
    len: u8,
}

impl OptionBytes {
    /// Most bytes that a header of at most 60 leaves for options.
    pub const MAX: usize = 40;
    /// No options.
    pub const NONE: OptionBytes = OptionBytes { bytes: [0; Self::MAX], len: 0 };

    /// Takes encoded options and pads them with zeros (end of options, in both protocols) to a multiple of four.
    /// `None` when they are longer than 40 bytes.
    pub fn new(encoded: &[u8]) -> Option<Self> {
        let mut options = Self::NONE;
        options.bytes.get_mut(..encoded.len())?.copy_from_slice(encoded);
        options.len = encoded.len().next_multiple_of(4) as u8;
        Some(options)
    }

    /// The bytes, padding included.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Bytes taken in the header; a multiple of four.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for OptionBytes {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OptionBytes").field(&self.as_slice()).finish()
    }
}
