//! Redirecting from one device to another: which devices take it, and when no program runs any more that has begun before.
//!
//! A frame that a program redirects in one device's driver is handed to the other's. A driver without `ndo_xdp_xmit` drops it, as does a virtual cable (veth)
//! whose other end has neither an XDP program nor GRO, and nobody is told. The kernel says of each device whether it takes such frames by the generic netlink family
//! `netdev` (Linux 6.3; include/uapi/linux/netdev.h). Behind the drivers (generic mode) every device takes them.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};
use rustix::thread::{MembarrierCommand, membarrier};
use std::io;
use std::os::fd::OwnedFd;

/// `struct nlmsghdr` and `struct genlmsghdr`.
const HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `GENL_ID_CTRL`, its question for a family by its name, and attributes.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NETDEV_CMD_DEV_GET` and attributes.
const GET_DEVICE: u8 = 1;
const DEVICE: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const TAKES: u64 = 4;

/// Whom to ask which devices take what other drivers redirect.
#[derive(Debug)]
pub struct Receivers {
    netlink: OwnedFd,
    family: u16,
    number: u32,
}

impl Receivers {
    /// In the network namespace of the thread. `None`: this kernel does not say (before 6.3).
    ///
    /// # Errors
    /// The system refuses.
    pub fn open() -> io::Result<Option<Self>> {
        let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::GENERIC))?;
        let mut receivers = Receivers { netlink, family: CONTROLLER, number: 0 };
        let answer = receivers.ask(GET_FAMILY, FAMILY_NAME, b"netdev\0")?;
        let family = answer.and_then(|answer| attribute(&answer, FAMILY_ID)?.try_into().ok());
        Ok(family.map(|family| Receivers { family: u16::from_ne_bytes(family), ..receivers }))
    }

    /// Whether the device of this number takes them. One that is not there does not.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take(&mut self, device: u32) -> io::Result<bool> {
        let answer = self.ask(GET_DEVICE, DEVICE, &device.to_ne_bytes())?;
        let features = answer.and_then(|answer| attribute(&answer, XDP_FEATURES)?.try_into().ok());
        Ok(features.is_some_and(|features| u64::from_ne_bytes(features) & TAKES != 0))
    }

    /// The message that answers a question with one attribute; `None`: there is no such thing.
    fn ask(&mut self, command: u8, kind: u16, value: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.number = self.number.wrapping_add(1);
        send(&self.netlink, &question(self.family, command, self.number, kind, value), SendFlags::empty())?;
        let mut room = vec![0; 8192];
        // The answer is there when the question is sent. What was not taken of an earlier one goes.
        loop {
            let (length, _) = match recv(&self.netlink, &mut room[..], RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return Ok(None),
                other => other?,
            };
            let answer = room.get(..length).unwrap_or_default();
            if word(answer, 8) == Some(self.number) {
                return read(answer);
            }
        }
    }
}

/// A message with one attribute.
fn question(family: u16, command: u8, number: u32, kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = ATTRIBUTE + value.len();
    let length = HEADER + GENERIC + attribute.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend((attribute as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length, 0);
    bytes
}

/// The message, unless it is an error: no such family, command or device is none.
fn read(answer: &[u8]) -> io::Result<Option<Vec<u8>>> {
    if half(answer, 4) != Some(ERROR) {
        let length = word(answer, 0).map_or(0, |length| length as usize);
        return Ok(answer.get(..length).map(<[u8]>::to_vec));
    }
    match word(answer, HEADER).map(|code| (code as i32).wrapping_neg()) {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Ok(None),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Ok(None),
    }
}

/// The first attribute of a kind.
fn attribute(answer: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut at = HEADER + GENERIC;
    loop {
        let (length, kind) = (usize::from(half(answer, at)?), half(answer, at + 2)?);
        let value = answer.get(at + ATTRIBUTE..at + length)?;
        if kind == wanted {
            return Some(value);
        }
        at += length.next_multiple_of(4);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Waits until no program on any interface runs any more that was running when this was called: what only such a one could still have been reading may be
/// used again. Takes some ten milliseconds.
///
/// Programs run in sections of RCU that the kernel's global memory barrier waits for (`synchronize_rcu` in kernel/sched/membarrier.c; on a machine with one
/// processor, a thread runs only when no program does).
///
/// # Errors
/// The kernel has no such barrier, as with `nohz_full`.
pub fn grace() -> io::Result<()> {
    membarrier(MembarrierCommand::Global).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_never_beyond_the_end() {
        let mut message = question(7, 1, 3, 9, b"abc");
        message.extend(8_u16.to_ne_bytes());
        message.extend(3_u16.to_ne_bytes());
        message.extend([1, 2, 3, 4]);
        assert_eq!(attribute(&message, 3), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&message, 9), Some(&b"abc"[..]));
        assert_eq!(attribute(&message, 4), None);
        for length in 0..message.len() {
            assert_eq!(attribute(&message[..length], 3), None, "{length} bytes");
        }
        // A length of nothing would be read for ever.
        let endless = [&message[..20], &[0; 8]].concat();
        assert_eq!(attribute(&endless, 3), None);
    }

    #[test]
    fn errors_are_told_apart() {
        let error = |code: i32| {
            let mut message = question(ERROR, 0, 1, 0, &[]);
            message[HEADER..HEADER + 4].copy_from_slice(&(-code).to_ne_bytes());
            read(&message)
        };
        assert!(matches!(error(libc::ENODEV), Ok(None)));
        assert_eq!(error(libc::EPERM).map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
    }

    #[test]
    fn a_device_that_is_not_there_takes_nothing_and_a_grace_ends() {
        match Receivers::open() {
            Ok(Some(mut receivers)) => assert!(!receivers.take(u32::MAX >> 1).unwrap_or(true)),
            Ok(None) => println!("skipped: this kernel does not say which devices take redirected frames"),
            Err(error) => println!("skipped: no netlink socket: {error}"),
        }
        match grace() {
            Ok(()) => {}
            Err(error) => println!("skipped: no memory barrier here: {error}"),
        }
    }
}
