//! Addresses that never cross a router, as prefixes: first address, length. Who drops packets from and to them, and who takes no routes to them, goes by these lists.

/// IPv4's (RFC 1122, 3.2.1.3; RFC 1112, 4; RFC 3927).
pub mod v4 {
    /// This network.
    pub const THIS_NETWORK: (u32, u8) = (0, 8);
    /// Of a machine to itself.
    pub const LOOPBACK: (u32, u8) = (0x7f00_0000, 8);
    /// On one link.
    pub const LINK_LOCAL: (u32, u8) = (0xa9fe_0000, 16);
    /// Groups: nobody's own address.
    pub const MULTICAST: (u32, u8) = (0xe000_0000, 4);
    /// Class E, with the limited broadcast at its end.
    pub const CLASS_E: (u32, u8) = (0xf000_0000, 4);
    /// All of them.
    pub const ALL: [(u32, u8); 5] = [THIS_NETWORK, LOOPBACK, LINK_LOCAL, MULTICAST, CLASS_E];
}

/// IPv6's (RFC 4291).
pub mod v6 {
    /// `::`.
    pub const UNSPECIFIED: (u128, u8) = (0, 128);
    /// `::1`.
    pub const LOOPBACK: (u128, u8) = (1, 128);
    /// IPv4's in the form of IPv6's.
    pub const IPV4_MAPPED: (u128, u8) = (0xffff << 32, 96);
    /// On one link.
    pub const LINK_LOCAL: (u128, u8) = (0xfe80 << 112, 10);
    /// Groups: nobody's own address.
    pub const MULTICAST: (u128, u8) = (0xff << 120, 8);
    /// All of them.
    pub const ALL: [(u128, u8); 5] = [UNSPECIFIED, LOOPBACK, IPV4_MAPPED, LINK_LOCAL, MULTICAST];
}
