/// Why bytes are not the packet that they were taken for, or why a packet could not be written.
///
/// Offsets are bytes from the start of the header of the protocol named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before a field does.
    #[error("{protocol}: {field} at byte {offset} needs {needed} bytes, {present} present")]
    Truncated {
        /// Protocol, lower case.
        protocol: &'static str,
        /// What was being read.
        field: &'static str,
        /// Where it starts.
        offset: usize,
        /// Bytes from the start of the header to the end of the field.
        needed: usize,
        /// Bytes from the start of the header to the end of the data.
        present: usize,
    },
    /// A length field points past the end of the data.
    #[error("{protocol}: {field} {value} at byte {offset} exceeds the {present} bytes present")]
    Exceeds {
        /// Protocol, lower case.
        protocol: &'static str,
        /// The length field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// What it says, in bytes.
        value: usize,
        /// Bytes from the start of what it measures to the end of the data.
        present: usize,
    },
    /// A length field is smaller than what it must cover.
    #[error("{protocol}: {field} {value} at byte {offset} is below {minimum}")]
    Below {
        /// Protocol, lower case.
        protocol: &'static str,
        /// The length field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// What it says, in bytes.
        value: usize,
        /// The least that it can say.
        minimum: usize,
    },
    /// A field holds a value that it cannot have.
    #[error("{protocol}: {field} {value} at byte {offset} is not {wanted}")]
    Invalid {
        /// Protocol, lower case.
        protocol: &'static str,
        /// The field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// What it holds.
        value: u64,
        /// What it may hold, in words.
        wanted: &'static str,
    },
    /// The buffer is too small for the header to be written.
    #[error("{protocol}: {needed} bytes to write, {present} in the buffer")]
    NoRoom {
        /// Protocol, lower case.
        protocol: &'static str,
        /// Bytes that the header takes.
        needed: usize,
        /// Bytes in the buffer.
        present: usize,
    },
}

impl Error {
    /// The protocol whose header is at fault, lower case.
    pub fn protocol(&self) -> &'static str {
        match self {
            Error::Truncated { protocol, .. }
            | Error::Exceeds { protocol, .. }
            | Error::Below { protocol, .. }
            | Error::Invalid { protocol, .. }
            | Error::NoRoom { protocol, .. } => protocol,
        }
    }

    /// The byte at fault, counted from the start of that header.
    pub fn offset(&self) -> usize {
        match self {
            Error::Truncated { offset, .. }
            | Error::Exceeds { offset, .. }
            | Error::Below { offset, .. }
            | Error::Invalid { offset, .. } => *offset,
            Error::NoRoom { .. } => 0,
        }
    }

    /// The same fault seen from a header that starts `base` bytes earlier.
    pub(crate) fn shifted(mut self, base: usize) -> Self {
        match &mut self {
            Error::Truncated { offset, needed, present, .. } => {
                *offset += base;
                *needed += base;
                *present += base;
            }
            Error::Exceeds { offset, .. } | Error::Below { offset, .. } | Error::Invalid { offset, .. } => {
                *offset += base;
            }
            Error::NoRoom { .. } => {}
        }
        self
    }
}
