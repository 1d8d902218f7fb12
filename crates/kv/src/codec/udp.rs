//! The 8 bytes in front of every datagram: four numbers of 16 bits, most significant byte first.
//!
//! ```text
//!  request id | sequence | total | reserved | text or binary
//! ```
//!
//! memcached drops a request whose total is not 1, ignores its sequence and reserved, and executes every whole command behind the header. A reply has
//! the request's id; one that does not fit a datagram comes in `total` numbered parts of at most 1,400 bytes. Yet a `get` of several keys is answered
//! by one datagram **for each hit**, every one numbered 0 of 1, and by an empty one, 0 of 0, if
//! its first key is not there: only the text says whether a reply is complete.

/// Bytes of a frame header.
pub const HEADER: usize = 8;

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The client's number of the request; the reply repeats it.
    pub id: u16,
    /// Which part this is, from 0.
    pub sequence: u16,
    /// How many parts there are.
    pub total: u16,
    /// 0.
    pub reserved: u16,
}

impl Frame {
    /// Of a message that fits a datagram.
    pub fn whole(id: u16) -> Self {
        Frame { id, sequence: 0, total: 1, reserved: 0 }
    }

    /// Reads it; and what is behind it. `None`: the datagram is shorter than a header.
    pub fn read(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, rest) = datagram.split_first_chunk::<HEADER>()?;
        let at = |index: usize| u16::from_be_bytes([header[index], header[index + 1]]);
        Some((Frame { id: at(0), sequence: at(2), total: at(4), reserved: at(6) }, rest))
    }

    /// Appends it.
    pub fn write(&self, to: &mut Vec<u8>) {
        for number in [self.id, self.sequence, self.total, self.reserved] {
            to.extend(number.to_be_bytes());
        }
    }

    /// Whether memcached takes a request so framed.
    pub fn is_taken(&self) -> bool {
        self.total == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let frame = Frame { id: 0x1234, sequence: 1, total: 0x203, reserved: 4 };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        assert_eq!(bytes, [0x12, 0x34, 0, 1, 2, 3, 0, 4]);
        assert_eq!(Frame::read(&[&bytes[..], b"get"].concat()), Some((frame, &b"get"[..])));
        assert_eq!(Frame::read(&bytes[..7]), None);
        assert!(Frame::whole(1).is_taken() && !frame.is_taken());
    }
}
