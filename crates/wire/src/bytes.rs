//! Big-endian access that cannot panic.
//!
//! Every view reads and writes through these. After a view's length check all of them are in range; where a caller
//! skipped the check or spoilt a length field by a setter, a read gives zero, a write does nothing and a range is
//! clipped to the data. So totality does not hang on any one check being right. They cost what indexing costs.

use crate::Error;

#[inline(always)]
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    match data.get(at..).and_then(|tail| tail.first_chunk::<N>()) {
        Some(chunk) => *chunk,
        None => [0; N],
    }
}

#[inline(always)]
pub(crate) fn u8_at(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

#[inline(always)]
pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(data, at))
}

#[inline(always)]
pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(data, at))
}

#[inline(always)]
pub(crate) fn put<const N: usize>(data: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(chunk) = data.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<N>()) {
        *chunk = value;
    }
}

#[inline(always)]
pub(crate) fn put_u8(data: &mut [u8], at: usize, value: u8) {
    put(data, at, [value]);
}

#[inline(always)]
pub(crate) fn put_u16(data: &mut [u8], at: usize, value: u16) {
    put(data, at, value.to_be_bytes());
}

#[inline(always)]
pub(crate) fn put_u32(data: &mut [u8], at: usize, value: u32) {
    put(data, at, value.to_be_bytes());
}

/// `data[from..to]`, clipped to what is there.
#[inline(always)]
pub(crate) fn part(data: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(data.len());
    data.get(from.min(to)..to).unwrap_or_default()
}

/// `data[from..to]`, clipped to what is there.
#[inline(always)]
pub(crate) fn part_mut(data: &mut [u8], from: usize, to: usize) -> &mut [u8] {
    let to = to.min(data.len());
    data.get_mut(from.min(to)..to).unwrap_or_default()
}

/// At least `needed` bytes, or the error that says so of a whole header.
#[inline(always)]
pub(crate) fn need(
    protocol: &'static str,
    field: &'static str,
    data: &[u8],
    needed: usize,
) -> Result<(), Error> {
    if data.len() < needed {
        return Err(Error::Truncated { protocol, field, offset: 0, needed, present: data.len() });
    }
    Ok(())
}

/// Room for `needed` bytes to be written.
#[inline(always)]
pub(crate) fn room(protocol: &'static str, data: &[u8], needed: usize) -> Result<(), Error> {
    if data.len() < needed {
        return Err(Error::NoRoom { protocol, needed, present: data.len() });
    }
    Ok(())
}

/// The part of a view that is the same for every protocol. The module defines `check(&[u8]) -> Result<(), Error>`.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Wraps `buffer` if it holds a whole, consistent header. After this no accessor panics.
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, crate::Error> {
                $check(buffer.as_ref())?;
                Ok(Self { buffer })
            }

            /// Wraps `buffer` as it is. Accessors do not panic on it either, but what lies outside the buffer reads
            /// as zero.
            #[inline]
            pub fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Gives the buffer back.
            #[inline]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline(always)]
            fn bytes(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $name<T> {
            #[inline(always)]
            #[allow(dead_code)]
            fn bytes_mut(&mut self) -> &mut [u8] {
                self.buffer.as_mut()
            }
        }
    };
}
pub(crate) use view;
