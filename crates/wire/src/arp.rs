//! ARP for IPv4 over Ethernet (RFC 826; announcements and probes RFC 5227).

use crate::bytes::{array, need, put, put_u16, room, u8_at, u16_at, view};
use crate::{Error, EtherType, MacAddr};
use std::net::Ipv4Addr;

mod field {
    pub(super) const HARDWARE: usize = 0;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const HARDWARE_LEN: usize = 4;
    pub(super) const PROTOCOL_LEN: usize = 5;
    pub(super) const OPERATION: usize = 6;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
}

/// Bytes in a message.
pub const HEADER_LEN: usize = 28;

const ETHERNET: u16 = 1;

/// The check behind [`Packet::new_checked`]: a whole message, of Ethernet and IPv4 addresses.
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("arp", "message", data, HEADER_LEN)?;
    let kinds = [
        ("hardware type", field::HARDWARE, u16_at(data, field::HARDWARE), ETHERNET, "1"),
        ("protocol type", field::PROTOCOL, u16_at(data, field::PROTOCOL), EtherType::IPV4.0, "0x0800"),
        ("hardware address length", field::HARDWARE_LEN, u8_at(data, field::HARDWARE_LEN).into(), 6, "6"),
        ("protocol address length", field::PROTOCOL_LEN, u8_at(data, field::PROTOCOL_LEN).into(), 4, "4"),
    ];
    for (field, offset, value, right, wanted) in kinds {
        if value != right {
            return Err(Error::Invalid { protocol: "arp", field, offset, value: value.into(), wanted });
        }
    }
    Ok(())
}

/// What a message asks or says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has it.
    Reply,
    /// Any other.
    Other(u16),
}

impl From<u16> for Operation {
    fn from(value: u16) -> Self {
        match value {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => Operation::Other(other),
        }
    }
}

impl From<Operation> for u16 {
    fn from(operation: Operation) -> u16 {
        match operation {
            Operation::Request => 1,
            Operation::Reply => 2,
            Operation::Other(other) => other,
        }
    }
}

view! {
    /// A message.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// What the message asks or says.
    #[inline]
    pub fn operation(&self) -> Operation {
        u16_at(self.bytes(), field::OPERATION).into()
    }

    /// The sender's Ethernet address.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array(self.bytes(), field::SENDER_MAC))
    }

    /// The sender's IPv4 address; zero in a probe.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(array(self.bytes(), field::SENDER_IP))
    }

    /// The target's Ethernet address; meaningless in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array(self.bytes(), field::TARGET_MAC))
    }

    /// The IPv4 address asked for, or, in a reply, the asker's.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(array(self.bytes(), field::TARGET_IP))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets what the message asks or says.
    pub fn set_operation(&mut self, operation: Operation) {
        put_u16(self.bytes_mut(), field::OPERATION, operation.into());
    }

    /// Sets the sender's addresses.
    pub fn set_sender(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        put(self.bytes_mut(), field::SENDER_MAC, mac.0);
        put(self.bytes_mut(), field::SENDER_IP, ip.octets());
    }

    /// Sets the target's addresses.
    pub fn set_target(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        put(self.bytes_mut(), field::TARGET_MAC, mac.0);
        put(self.bytes_mut(), field::TARGET_IP, ip.octets());
    }
}

/// A message as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// What the message asks or says.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// The sender's IPv4 address; zero in a probe.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: MacAddr,
    /// The IPv4 address asked for, or, in a reply, the asker's.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Reads a message.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        Ok(Repr {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        })
    }

    /// The answer to this request from the station that has the address asked for.
    pub fn reply(&self, mac: MacAddr) -> Self {
        Repr {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the message to the front of `buf`; returns its length.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        room("arp", buf, HEADER_LEN)?;
        put_u16(buf, field::HARDWARE, ETHERNET);
        put_u16(buf, field::PROTOCOL, EtherType::IPV4.0);
        put(buf, field::HARDWARE_LEN, [6, 4]);
        let mut packet = Packet::new_unchecked(buf);
        packet.set_operation(self.operation);
        packet.set_sender(self.sender_mac, self.sender_ip);
        packet.set_target(self.target_mac, self.target_ip);
        Ok(HEADER_LEN)
    }
}
