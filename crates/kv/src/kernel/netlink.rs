//! What the kernel answers over netlink: messages one after the other, with attributes in them. Its diagnosis socket and its list of interfaces are asked by this.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Of `struct nlmsghdr`.
pub(super) const HEADER: usize = 16;
/// A question about one thing, and one that all that there is answers.
pub(super) const ONE: u16 = 1;
pub(super) const ALL: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The list was changed while it was read: something may be missing.
const INTERRUPTED: u16 = 0x10;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    /// Of the question that it answers.
    pub(super) number: u32,
    pub(super) body: &'a [u8],
}

/// A socket that the kernel is asked by, in the network namespace of the thread.
///
/// # Errors
/// The kernel has no such protocol.
pub(super) fn socket(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// A header, with what is asked behind it.
pub(super) fn question(kind: u16, flags: u16, number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// All that answers a question ([`ALL`]), by what is made of the messages of one kind; asked again where it was changed meanwhile.
///
/// # Errors
/// The kernel refuses, what it says cannot be read, or it changes all the time.
pub(super) fn list<T>(
    socket: &OwnedFd,
    question: &[u8],
    kind: u16,
    read: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut buffer = vec![0; 32768];
    for _ in 0..4 {
        let mut all = Vec::new();
        rustix::net::sendto(socket, question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut whole = true;
        loop {
            let (length, _) = match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                got => got?,
            };
            let mut take = |message: Message<'_>| {
                if message.kind == kind {
                    all.push(read(message.body).ok_or_else(odd)?);
                }
                Ok(())
            };
            let (is_done, is_whole) = messages(buffer.get(..length).unwrap_or_default(), &mut take)?;
            // The rest of a list that was changed comes all the same.
            whole &= is_whole;
            if is_done {
                break;
            }
        }
        if whole {
            return Ok(all);
        }
    }
    Err(io::Error::other("what the kernel lists changes all the time"))
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what the kernel lists ends within a message")
}

/// Reads what came: whether that was the last of a list, and false where the list was changed meanwhile.
///
/// # Errors
/// A message is not whole; the kernel answers by an error; `each` fails.
pub(super) fn messages(
    mut bytes: &[u8],
    each: &mut dyn FnMut(Message<'_>) -> io::Result<()>,
) -> io::Result<(bool, bool)> {
    let mut is_whole = true;
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let (kind, flags) = (u16::from_ne_bytes([e, f]), u16::from_ne_bytes([g, h]));
        let body = bytes.get(HEADER..length).ok_or_else(odd)?;
        is_whole &= flags & INTERRUPTED == 0;
        if kind == ERROR || kind == DONE {
            let code = body.first_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
            return if code < 0 {
                Err(io::Error::from_raw_os_error(code.saturating_neg()))
            } else {
                Ok((true, is_whole))
            };
        }
        each(Message { kind, number: u32::from_ne_bytes([i, j, k, l]), body })?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((false, is_whole))
}

/// The attribute of this kind, the first where there are several.
pub(super) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    // Its upper two bits say how it is written.
    const KIND: u16 = 0x3fff;
    loop {
        let (length, kind) = (usize::from(half(bytes, 0)?), half(bytes, 2)?);
        let attribute = bytes.get(4..length)?;
        if kind & KIND == wanted {
            return Some(attribute);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is the end, whether it is whole, and the messages: kind and length.
    type Read = (bool, bool, Vec<(u16, usize)>);

    fn read(bytes: &[u8]) -> io::Result<Read> {
        let mut seen = Vec::new();
        let (is_done, is_whole) = messages(bytes, &mut |message| {
            seen.push((message.kind, message.body.len()));
            Ok(())
        })?;
        Ok((is_done, is_whole, seen))
    }

    #[test]
    fn a_list_that_is_cut_or_refused_is_an_error() {
        let one = question(20, 2, 7, &[0; 72]);
        assert_eq!(read(&one).unwrap(), (false, true, vec![(20, 72)]));
        for end in HEADER..one.len() {
            assert!(read(&one[..end]).is_err(), "{end}");
        }
        assert!(read(&question(ERROR, 0, 7, &(-2_i32).to_ne_bytes())).is_err());
        assert!(read(&question(ERROR, 0, 7, &i32::MIN.to_ne_bytes())).is_err());
        assert_eq!(read(&question(DONE, 2, 7, &[0; 4])).unwrap(), (true, true, vec![]));
        let both = [one, question(DONE, 2 | INTERRUPTED, 7, &[0; 4])].concat();
        assert_eq!(read(&both).unwrap(), (true, false, vec![(20, 72)]));
        // A length of nothing would be read for ever.
        assert!(read(&[0; HEADER]).is_err());
    }

    #[test]
    fn attributes_are_found_or_not_there() {
        let bytes = [7, 0, 5, 0, 1, 2, 3, 0, 8, 0, 6, 0x80, 4, 5, 6, 7];
        assert_eq!(attribute(&bytes, 5), Some(&[1, 2, 3][..]));
        assert_eq!(attribute(&bytes, 6), Some(&[4, 5, 6, 7][..]));
        assert_eq!(attribute(&bytes, 7), None);
        assert_eq!(attribute(&bytes[..15], 6), None);
        // One of no length is no way on.
        assert_eq!(attribute(&[0; 8], 1), None);
        assert_eq!(attribute(&[4, 0, 9, 0, 0, 0, 0, 0], 1), None);
    }
}
