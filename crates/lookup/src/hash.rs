//! Hash functions of the literature, which its tables are rebuilt with: Ethernet's CRC-32, and lookup3. Neither resists an attacker.

/// Ethernet's polynomial (IEEE 802.3, clause 3.2.9), bits reversed: the least significant bit is the first on the wire.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// What a CRC register becomes by each byte.
const STEPS: [u32; 256] = {
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        steps[byte] = crc;
        byte += 1;
    }
    steps
};

/// Ethernet's CRC-32 as it is usually computed: reversed bits, begun and ended with all ones.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ STEPS[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// `hashlittle` of Bob Jenkins' lookup3.c (May 2006, public domain).
pub fn lookup3(bytes: &[u8], seed: u32) -> u32 {
    let first = 0xdead_beef_u32.wrapping_add(bytes.len() as u32).wrapping_add(seed);
    let (mut a, mut b, mut c) = (first, first, first);
    let mut rest = bytes;
    // The last block, of one to twelve bytes, is mixed otherwise.
    while let Some((block, more)) = rest.split_at_checked(12).filter(|(_, more)| !more.is_empty()) {
        add(block, [&mut a, &mut b, &mut c]);
        for ([x, y, z], turn) in
            [([0, 2, 1], 4), ([1, 0, 2], 6), ([2, 1, 0], 8), ([0, 2, 1], 16), ([1, 0, 2], 19), ([2, 1, 0], 4)]
        {
            let mut words = [a, b, c];
            words[x] = words[x].wrapping_sub(words[y]) ^ words[y].rotate_left(turn);
            words[y] = words[y].wrapping_add(words[z]);
            [a, b, c] = words;
        }
        rest = more;
    }
    if rest.is_empty() {
        return c;
    }
    add(rest, [&mut a, &mut b, &mut c]);
    for ([x, y], turn) in
        [([2, 1], 14), ([0, 2], 11), ([1, 0], 25), ([2, 1], 16), ([0, 2], 4), ([1, 0], 14), ([2, 1], 24)]
    {
        let mut words = [a, b, c];
        words[x] = (words[x] ^ words[y]).wrapping_sub(words[y].rotate_left(turn));
        [a, b, c] = words;
    }
    c
}

/// Adds up to twelve bytes as three little-endian words, what is missing being zeros.
fn add(block: &[u8], words: [&mut u32; 3]) {
    for (word, bytes) in words.into_iter().zip(block.chunks(4)) {
        let mut whole = [0; 4];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = word.wrapping_add(u32::from_le_bytes(whole));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, from the polynomial's definition: the message times x^32, modulo the polynomial.
    fn crc_by_division(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            for bit in 0..8 {
                let top = crc >> 31 ^ u32::from(byte >> bit & 1);
                crc = crc << 1 ^ if top == 1 { 0x04c1_1db7 } else { 0 };
            }
        }
        !crc.reverse_bits()
    }

    #[test]
    fn crc32_is_ethernets() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let bytes: Vec<u8> = (0..40_u8).map(|i| i.wrapping_mul(73)).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc32(&bytes[..len]), crc_by_division(&bytes[..len]), "{len} bytes");
        }
    }

    /// The vectors that lookup3.c prints of itself (its `driver5`).
    #[test]
    fn lookup3_has_the_published_values() {
        let text = b"Four score and seven years ago";
        assert_eq!(lookup3(text, 0), 0x1777_0551);
        assert_eq!(lookup3(text, 1), 0xcd62_8161);
        assert_eq!(lookup3(b"", 0), 0xdead_beef);
        assert_eq!(lookup3(b"", 0xdead_beef), 0xbd5b_7dde);
    }
}
