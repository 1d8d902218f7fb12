//! Whole frames sent and received by hand, VLAN tags included: packet sockets.
//!
//! This module is one of the named homes of `unsafe`: rustix knows neither the address of a packet socket nor the
//! auxiliary data in which the kernel hands over a frame's VLAN tag.

use crate::net::Netns;
use rustix::net::{AddressFamily, MMsgHdr, Protocol, SendAncillaryBuffer, SendFlags, SocketType, netdevice};
use std::io::{Error, IoSlice};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A socket on one interface.
pub(crate) struct Raw {
    fd: OwnedFd,
}

/// A received frame.
pub(crate) struct Frame {
    /// The VLAN of its tag; the tag itself is taken out.
    pub(crate) vlan: Option<u16>,
    pub(crate) bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn open(namespace: &Netns, interface: &str) -> Self {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let protocol = Protocol::from_raw(u32::from(all).try_into().unwrap());
        let open = || rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, Some(protocol)).unwrap();
        let fd = namespace.enter(open);
        let index = netdevice::name_to_index(&fd, interface).unwrap();
        // SAFETY: a C structure of integers, for which zeros are a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the pointer and the length are those of a live sockaddr_ll.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "{interface}: {}", Error::last_os_error());
        let on = 1i32;
        // SAFETY: the pointer and the length are those of a live int, which is what this option takes.
        let set = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_AUXDATA,
                (&raw const on).cast(),
                size_of::<i32>() as u32,
            )
        };
        assert_eq!(set, 0, "PACKET_AUXDATA: {}", Error::last_os_error());
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, 8 << 20).unwrap();
        Raw { fd }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.fd, frame, SendFlags::empty()).unwrap();
    }

    /// Sends all frames; those for which the kernel has no room are left out. Returns how many went.
    pub(crate) fn send_many(&self, frames: &[Vec<u8>]) -> usize {
        let slices: Vec<[IoSlice<'_>; 1]> = frames.iter().map(|frame| [IoSlice::new(frame)]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            frames.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<MMsgHdr<'_>> =
            slices.iter().zip(&mut controls).map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
        rustix::net::sendmmsg(&self.fd, &mut messages, SendFlags::empty()).unwrap_or(0)
    }

    /// The next frame that the interface receives; what it sends is not shown.
    pub(crate) fn receive(&self, limit: Duration) -> Option<Frame> {
        let end = Instant::now() + limit;
        loop {
            // A timeout of zero would be none at all.
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
            rustix::net::sockopt::set_socket_timeout(
                &self.fd,
                rustix::net::sockopt::Timeout::Recv,
                Some(left),
            )
            .unwrap();
            match self.message() {
                Some((frame, false)) => return Some(frame),
                Some((_, true)) => {}
                None if Instant::now() >= end => return None,
                None => {}
            }
        }
    }

    /// One frame, and whether this side sent it; none after the socket's timeout.
    fn message(&self) -> Option<(Frame, bool)> {
        let mut bytes = vec![0u8; 70_000];
        // Enough for one tpacket_auxdata, aligned like every control message.
        let mut control = [0u64; 16];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: C structures of integers and pointers, for which zeros are a value.
        let (mut message, mut from): (libc::msghdr, libc::sockaddr_ll) = unsafe { (zeroed(), zeroed()) };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: all pointers in the message are to live memory of the lengths given with them.
        let length = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0) };
        if length < 0 {
            return None;
        }
        bytes.truncate(length as usize);
        let mut vlan = None;
        // SAFETY: recvmsg has filled in the message; its control buffer lives until the end of this function.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: not null, so a whole control message inside the buffer.
            let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
            if (level, kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                // SAFETY: a control message of this kind holds a tpacket_auxdata, perhaps not aligned.
                let data: libc::tpacket_auxdata =
                    unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
                if data.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    vlan = Some(data.tp_vlan_tci & 0xfff);
                }
            }
            // SAFETY: as for the first one.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        Some((Frame { vlan, bytes }, from.sll_pkttype == libc::PACKET_OUTGOING))
    }
}
