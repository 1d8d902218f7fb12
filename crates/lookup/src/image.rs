//! Table images: tables as bytes, with indices only, for what outlives a process: a router's state, a NAT's sessions, a filter's connections.
//!
//! Numbers are in the byte order of the machine that wrote them; a reader of the other order refuses.
//!
//! ```text
//! 0    magic "TIDEMILL"
//! 8    byte-order mark 0x01020304        12   format version
//! 16   kind, ASCII, zero-padded: "nat-sessions"
//! 32   version of the kind               36   label width in bits
//! 40   number of sections                44   CRC-32C of the whole image, with this field zero
//! 48   length of the image in bytes      56   zero
//! 64   section table: name (16 bytes, ASCII, zero-padded), offset, length (8 bytes each)
//! ...  sections, each on a multiple of 64, in the order of the table, zeros between them
//! ```
//!
//! [`Image::parse`] is total: any bytes give an image whose sections lie inside, or an error with its offset. What the
//! sections say is for those whose kind it is to check.

use std::fmt;

const MAGIC: [u8; 8] = *b"TIDEMILL";
const ORDER_MARK: u32 = 0x0102_0304;
/// The version of this layout.
pub const FORMAT_VERSION: u32 = 1;
/// Sections begin on a multiple of this.
pub const SECTION_ALIGN: usize = 64;
/// Bytes of the header.
pub const HEADER: usize = 64;
const ENTRY: usize = 32;
const CHECKSUM_AT: usize = 44;
const NAME: usize = 16;
/// More sections than any structure needs: bounds what a damaged count can ask for.
const MAX_SECTIONS: u32 = 64;

/// Why bytes are not an image; offsets count from the image's first byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Shorter than its own structure.
    #[error("table image ends at byte {len}, before its {what} at byte {offset} is complete")]
    Truncated {
        /// Bytes there are.
        len: usize,
        /// What is missing.
        what: &'static str,
        /// Where it begins.
        offset: usize,
    },
    /// Not an image.
    #[error("byte 0: not a table image (it does not begin with \"TIDEMILL\")")]
    Magic,
    /// Written by a machine of the other byte order.
    #[error(
        "byte 8: byte-order mark {0:#010x}: written on a machine of the other byte order, convert the table there"
    )]
    ByteOrder(u32),
    /// A later format.
    #[error("byte 12: image format version {0}, this program reads version {FORMAT_VERSION}")]
    Version(u32),
    /// A header field, section entry or padding that no writer writes.
    #[error("byte {offset}: {what}")]
    Field {
        /// Where.
        offset: usize,
        /// What is wrong.
        what: String,
    },
    /// Damaged content.
    #[error(
        "byte 44: checksum {stored:#010x} of the table image does not match its content ({computed:#010x}): the file is damaged"
    )]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// An image of another structure than the one asked for.
    #[error(
        "byte 16: the image holds a {found:?} of version {found_version}, not a {expected:?} of version {expected_version}"
    )]
    Kind {
        /// In the image.
        found: String,
        /// In the image.
        found_version: u32,
        /// Asked for.
        expected: &'static str,
        /// Asked for.
        expected_version: u32,
    },
    /// A section that the structure needs.
    #[error("the image has no section {0:?}")]
    NoSection(&'static str),
    /// A section whose content the structure cannot use.
    #[error("byte {offset}: section {section:?}: {what}")]
    Content {
        /// Where in the image.
        offset: usize,
        /// The section.
        section: &'static str,
        /// What is wrong.
        what: String,
    },
}

/// Up to 16 ASCII bytes without zero: names of kinds and sections.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name([u8; NAME]);

impl Name {
    fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; NAME];
        let valid = !text.is_empty() && text.len() <= NAME && text.bytes().all(|b| b.is_ascii_graphic());
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        valid.then_some(Name(bytes))
    }

    fn read(bytes: [u8; NAME]) -> Option<Self> {
        let len = bytes.iter().position(|&b| b == 0).unwrap_or(NAME);
        let valid =
            len > 0 && bytes[..len].iter().all(u8::is_ascii_graphic) && bytes[len..].iter().all(|&b| b == 0);
        valid.then_some(Name(bytes))
    }

    fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&b| b == 0).unwrap_or(NAME);
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Writes an image.
#[derive(Debug)]
pub struct ImageBuilder {
    kind: Name,
    kind_version: u32,
    label_bits: u32,
    sections: Vec<(Name, Vec<u8>)>,
}

impl ImageBuilder {
    /// An image of a `kind` of table in its `kind_version`, with labels of `label_bits` (8, 16 or 32).
    ///
    /// # Panics
    /// If `kind` is not 1 to 16 printable ASCII characters (a constant of the program).
    pub fn new(kind: &'static str, kind_version: u32, label_bits: u8) -> Self {
        let kind = Name::new(kind).unwrap_or_else(|| panic!("{kind:?} cannot be an image's kind"));
        ImageBuilder { kind, kind_version, label_bits: u32::from(label_bits), sections: Vec::new() }
    }

    /// Appends a section.
    ///
    /// # Panics
    /// If `name` is not 1 to 16 printable ASCII characters, is there already, or is the 65th (constants of the
    /// program).
    pub fn section(mut self, name: &'static str, bytes: Vec<u8>) -> Self {
        let name = Name::new(name).unwrap_or_else(|| panic!("{name:?} cannot be a section's name"));
        assert!(self.sections.iter().all(|(other, _)| *other != name), "section {name:?} twice");
        assert!(self.sections.len() < MAX_SECTIONS as usize, "too many sections");
        self.sections.push((name, bytes));
        self
    }

    /// The image's bytes.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&ORDER_MARK.to_ne_bytes());
        bytes.extend_from_slice(&FORMAT_VERSION.to_ne_bytes());
        bytes.extend_from_slice(&self.kind.0);
        for word in [self.kind_version, self.label_bits, self.sections.len() as u32, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.resize(HEADER, 0);
        let mut offset = (HEADER + ENTRY * self.sections.len()).next_multiple_of(SECTION_ALIGN);
        for (name, content) in &self.sections {
            bytes.extend_from_slice(&name.0);
            bytes.extend_from_slice(&(offset as u64).to_ne_bytes());
            bytes.extend_from_slice(&(content.len() as u64).to_ne_bytes());
            offset = (offset + content.len()).next_multiple_of(SECTION_ALIGN);
        }
        for (_, content) in &self.sections {
            bytes.resize(bytes.len().next_multiple_of(SECTION_ALIGN), 0);
            bytes.extend_from_slice(content);
        }
        bytes.resize(offset, 0);
        bytes[48..56].copy_from_slice(&(offset as u64).to_ne_bytes());
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_ne_bytes());
        bytes
    }
}

/// CRC-32C of an image with its checksum field taken as zero.
fn checksum(bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(CHECKSUM_AT.min(bytes.len()));
    let crc = crc32c::crc32c_append(crc32c::crc32c(head), &[0; 4]);
    crc32c::crc32c_append(crc, rest.get(4..).unwrap_or_default())
}

/// A parsed image: a view of the bytes, whose checksum and section table have been checked.
#[derive(Debug, Clone)]
pub struct Image<'a> {
    bytes: &'a [u8],
    kind: Name,
    kind_version: u32,
    label_bits: u8,
    sections: Vec<(Name, usize, usize)>,
}

fn array<const N: usize>(bytes: &[u8], offset: usize, what: &'static str) -> Result<[u8; N], ImageError> {
    let found = offset.checked_add(N).and_then(|end| bytes.get(offset..end)).and_then(|b| b.try_into().ok());
    found.ok_or(ImageError::Truncated { len: bytes.len(), what, offset })
}

fn word(bytes: &[u8], offset: usize) -> Result<u32, ImageError> {
    array(bytes, offset, "header").map(u32::from_ne_bytes)
}

fn field<T>(offset: usize, what: impl Into<String>) -> Result<T, ImageError> {
    Err(ImageError::Field { offset, what: what.into() })
}

/// Whether a file that begins with these bytes, [`HEADER`] of them or all that there are, is an image of this kind, or once was: it may be damaged, or cut
/// anywhere behind the magic.
pub fn is_begun(bytes: &[u8], kind: &str) -> bool {
    let mut name = [0_u8; NAME];
    let Some(begin) = name.get_mut(..kind.len()) else { return false };
    begin.copy_from_slice(kind.as_bytes());
    let there = bytes.get(16..).unwrap_or_default();
    bytes.starts_with(&MAGIC) && name.starts_with(&there[..there.len().min(NAME)])
}

/// The bytes that an image has by its header; `None` if these, [`HEADER`] of them, are none of one.
pub fn length(header: &[u8]) -> Option<u64> {
    if !header.starts_with(&MAGIC) {
        return None;
    }
    array(header, 48, "header").ok().map(u64::from_ne_bytes)
}

impl<'a> Image<'a> {
    /// Checks and opens an image. `bytes` need no alignment.
    ///
    /// # Errors
    /// [`ImageError`], with the offset of what is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        if array(bytes, 0, "header")? != MAGIC {
            return Err(ImageError::Magic);
        }
        match word(bytes, 8)? {
            ORDER_MARK => {}
            other => return Err(ImageError::ByteOrder(other)),
        }
        match word(bytes, 12)? {
            FORMAT_VERSION => {}
            other => return Err(ImageError::Version(other)),
        }
        let len = u64::from_ne_bytes(array(bytes, 48, "header")?);
        if array::<8>(bytes, 56, "header")? != [0; 8] {
            return field(56, "reserved bytes are not zero");
        }
        if len > bytes.len() as u64 {
            return Err(ImageError::Truncated { len: bytes.len(), what: "content", offset: HEADER });
        }
        if len < bytes.len() as u64 {
            return field(48, format!("length {len}, but there are {} bytes", bytes.len()));
        }
        let (stored, computed) = (word(bytes, CHECKSUM_AT)?, checksum(bytes));
        if stored != computed {
            return Err(ImageError::Checksum { stored, computed });
        }
        // From here on only a wrong writer can be at fault, not a damaged file. Check all the same.
        let Some(kind) = Name::read(array(bytes, 16, "header")?) else {
            return field(16, "the kind is not a padded ASCII name");
        };
        let label_bits = match word(bytes, 36)? {
            bits @ (8 | 16 | 32) => bits as u8,
            bits => return field(36, format!("label width {bits}: it is 8, 16 or 32")),
        };
        let count = word(bytes, 40)?;
        if count > MAX_SECTIONS {
            return field(40, format!("{count} sections: at most {MAX_SECTIONS} are possible"));
        }
        let mut image =
            Image { bytes, kind, kind_version: word(bytes, 32)?, label_bits, sections: Vec::new() };
        let mut free = HEADER + ENTRY * count as usize;
        for i in 0..count as usize {
            free = image.parse_section(HEADER + i * ENTRY, free)?;
        }
        image.check_zeros(free, bytes.len())?;
        Ok(image)
    }

    /// Reads the section entry at `entry`; `free` is the first byte behind what came before. Returns the new `free`.
    fn parse_section(&mut self, entry: usize, free: usize) -> Result<usize, ImageError> {
        let Some(name) = Name::read(array(self.bytes, entry, "section table")?) else {
            return field(entry, "the section's name is not a padded ASCII name");
        };
        let offset = u64::from_ne_bytes(array(self.bytes, entry + 16, "section table")?);
        let len = u64::from_ne_bytes(array(self.bytes, entry + 24, "section table")?);
        if offset != free.next_multiple_of(SECTION_ALIGN) as u64 {
            return field(
                entry + 16,
                format!("section {name:?} at {offset} does not follow what is before it"),
            );
        }
        let end = offset.checked_add(len).filter(|&end| end <= self.bytes.len() as u64);
        let Some(end) = end else {
            return field(
                entry + 24,
                format!("section {name:?} of {len} bytes at {offset} ends behind the image"),
            );
        };
        if self.sections.iter().any(|(other, _, _)| *other == name) {
            return field(entry, format!("section {name:?} is there twice"));
        }
        self.check_zeros(free, offset as usize)?;
        self.sections.push((name, offset as usize, len as usize));
        Ok(end as usize)
    }

    fn check_zeros(&self, from: usize, to: usize) -> Result<(), ImageError> {
        let padding = self.bytes.get(from..to).unwrap_or_default();
        match padding.iter().position(|&b| b != 0) {
            Some(at) => field(from + at, "padding is not zero"),
            None => Ok(()),
        }
    }

    /// The structure's name, as given to [`ImageBuilder::new`].
    pub fn kind(&self) -> &str {
        self.kind.as_str()
    }

    /// The version of the structure's own layout.
    pub fn kind_version(&self) -> u32 {
        self.kind_version
    }

    /// Width of labels in bits: 8, 16 or 32.
    pub fn label_bits(&self) -> u8 {
        self.label_bits
    }

    /// Names of the sections, in order.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().map(|(name, _, _)| name.as_str())
    }

    /// Refuses an image of another structure or version.
    ///
    /// # Errors
    /// [`ImageError::Kind`].
    pub fn expect(&self, expected: &'static str, expected_version: u32) -> Result<(), ImageError> {
        if self.kind() == expected && self.kind_version == expected_version {
            return Ok(());
        }
        let (found, found_version) = (self.kind().to_owned(), self.kind_version);
        Err(ImageError::Kind { found, found_version, expected, expected_version })
    }

    /// A section's bytes.
    ///
    /// # Errors
    /// [`ImageError::NoSection`].
    pub fn section(&self, name: &'static str) -> Result<&'a [u8], ImageError> {
        let found = self.sections.iter().find(|(n, _, _)| n.as_str() == name);
        let bytes = found.and_then(|&(_, offset, len)| self.bytes.get(offset..offset + len));
        bytes.ok_or(ImageError::NoSection(name))
    }

    /// A section as 32-bit numbers.
    ///
    /// # Errors
    /// If it is not there or its length is not a multiple of 4.
    pub fn section_u32(
        &self,
        name: &'static str,
    ) -> Result<impl ExactSizeIterator<Item = u32> + 'a, ImageError> {
        let (words, rest) = self.section(name)?.as_chunks::<4>();
        if rest.is_empty() {
            return Ok(words.iter().map(|&word| u32::from_ne_bytes(word)));
        }
        let what = format!("{} bytes are not a whole number of 4-byte words", words.len() * 4 + rest.len());
        Err(self.content(name, 0, what))
    }

    /// The error for a structure that finds nonsense at `at` bytes into a section.
    pub fn content(&self, section: &'static str, at: usize, what: impl Into<String>) -> ImageError {
        let start =
            self.sections.iter().find(|(n, _, _)| n.as_str() == section).map_or(0, |&(_, start, _)| start);
        ImageError::Content { offset: start + at, section, what: what.into() }
    }
}

#[cfg(test)]
mod tests;
