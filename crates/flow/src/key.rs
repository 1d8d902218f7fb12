//! Keys as words.

/// A key of `W` 64-bit words: 8 bytes are one word, 16 two, 36 and 40 five. Words compare and hash in a few
/// instructions each, and can be read while another thread writes them.
///
/// ```text
/// 36 bytes   |  word 0  |  word 1  |  word 2  |  word 3  | 4 bytes, 4 zeros |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Key<const W: usize>(pub [u64; W]);

impl<const W: usize> Key<W> {
    /// From bytes in memory order, the last word filled up with zeros. Of `8 W - 7` to `8 W` bytes: any other length does
    /// not compile. Keys of one table all have one length, so equal words are equal bytes.
    #[inline]
    pub fn from_bytes<const N: usize>(bytes: &[u8; N]) -> Self {
        const { assert!(N.div_ceil(8) == W, "a key of N bytes has N/8 words, rounded up") };
        let mut words = [0; W];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(whole);
        }
        Key(words)
    }

    /// The first `N` bytes: what [`from_bytes`](Self::from_bytes) was given.
    pub fn to_bytes<const N: usize>(&self) -> [u8; N] {
        const { assert!(N.div_ceil(8) == W, "a key of N bytes has N/8 words, rounded up") };
        let mut bytes = [0; N];
        for (chunk, word) in bytes.chunks_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn bytes_come_back() {
        let bytes: [u8; 36] = std::array::from_fn(|i| i as u8 + 1);
        let key = Key::<5>::from_bytes(&bytes);
        assert_eq!((key.0[0], key.0[4]), (0x0807_0605_0403_0201, 0x2423_2221));
        assert_eq!(key.to_bytes::<36>(), bytes);
        assert_eq!(Key::<1>::from_bytes(&7_u64.to_le_bytes()), Key([7]));
    }
}
