//! A flow that is to be told.

use std::net::IpAddr;

/// Why a flow was exported (`flowEndReason`, RFC 5102).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Ended {
    /// It was silent.
    Idle = 1,
    /// It goes on, and was long enough.
    Active = 2,
    /// It has said so: FIN or RST.
    Over = 3,
    /// The run has ended.
    Forced = 4,
}

/// What is known of a flow: one direction of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Who has sent.
    pub source: IpAddr,
    /// To whom; of the same family.
    pub destination: IpAddr,
    /// Source and destination port; 0 of what has none.
    pub ports: (u16, u16),
    /// Of ICMP type and code; 0 of others.
    pub icmp: u16,
    /// The protocol.
    pub protocol: u8,
    /// Type of service, or traffic class.
    pub class: u8,
    /// The port of ours, by its number from 0.
    pub port: u16,
    /// TCP's flags, all that were seen.
    pub flags: u16,
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// When the first came, ms since the Unix epoch.
    pub first_ms: u64,
    /// And the last.
    pub last_ms: u64,
    /// Why this is told.
    pub ended: Ended,
}
