//! What the programs and the daemon share, as bpf/kv.h has it, in words.

use tidemill_bpf::{Kernel, Shared, Source};

/// A new number for every change that an older program would misread.
pub(super) const LAYOUT: u32 = 4;

/// Words of `struct state`.
pub(super) mod state {
    pub(in crate::kernel) const EPOCH: usize = 0;
    pub(in crate::kernel) const LEASE: usize = 1;
    pub(in crate::kernel) const NOT_BEFORE: usize = 2;
    pub(in crate::kernel) const FLUSH_UNTIL: usize = 3;
    pub(in crate::kernel) const BLIND: usize = 4;
    pub(in crate::kernel) const HOLD: usize = 5;
    pub(in crate::kernel) const SEED: usize = 6;
    pub(in crate::kernel) const SETTLE: usize = 7;
    pub(in crate::kernel) const RATE: usize = 8;
    pub(in crate::kernel) const MASKS: usize = 9;
    /// Port (network order), serving, events per millisecond.
    pub(in crate::kernel) const PORT: usize = 10;
    pub(in crate::kernel) const SERVER: usize = 11;
    /// Not 0: asking by `mg` could take what an item's client is to win.
    pub(in crate::kernel) const INVALID: usize = 12;
    /// Not 0: counts are just being taken back.
    pub(in crate::kernel) const BROKEN: usize = 13;
    pub(in crate::kernel) const WORDS: usize = 14;
}

/// Words of `struct entry`, and of its blob.
pub(super) mod entry {
    pub(in crate::kernel) const VERSION: usize = 0;
    pub(in crate::kernel) const HASH: usize = 1;
    pub(in crate::kernel) const WORD: usize = 2;
    pub(in crate::kernel) const EPOCH: usize = 3;
    pub(in crate::kernel) const EXPIRES: usize = 4;
    pub(in crate::kernel) const HITS: usize = 5;
    /// Lengths of key, blob and value, and the blob's sum: 16 bits each.
    pub(in crate::kernel) const LENGTHS: usize = 6;
    pub(in crate::kernel) const FLAGS: usize = 7;
    pub(in crate::kernel) const BLOB: usize = 8;
    pub(in crate::kernel) const WORDS: usize = BLOB + super::MAX_BLOB / 8;
}

/// Words of 32 bits of `struct conn`.
pub(super) mod conn {
    pub(in crate::kernel) const BLIND: usize = 38;
    pub(in crate::kernel) const DEAF: usize = 39;
    pub(in crate::kernel) const HEAD: usize = 42;
    pub(in crate::kernel) const TAIL: usize = 43;
    pub(in crate::kernel) const OVERFLOW_IN: usize = 46;
    pub(in crate::kernel) const OVERFLOW_OUT: usize = 47;
    /// Nanoseconds, the low word first.
    pub(in crate::kernel) const OPENED: usize = 52;
    pub(in crate::kernel) const RING: usize = 54;
    /// Behind the ring: barriers and kinds.
    pub(in crate::kernel) const WORDS: usize = RING + 2 * super::RING + 4 + 16 + 2 * 16;
}

pub(super) const SEQ_ONE: u64 = 1 << 24;
pub(super) const PENDING: u64 = SEQ_ONE - 1;
pub(super) const WAYS: usize = 4;
pub(super) const RING: usize = 128;
pub(super) const MAX_KEY: usize = 250;
pub(super) const MAX_VALUE: usize = 1024;
pub(super) const MAX_BLOB: usize = 1304;

/// Client, server (16 bytes each; IPv4 addresses mapped), the client's port; network order.
pub(super) type Tuple = [u32; 9];
pub(super) type Conn = [u32; conn::WORDS];
/// Client, then its port and the request id.
pub(super) type UdpKey = [u32; 5];
/// Nanoseconds, then slot and opcode.
pub(super) type UdpPending = [u64; 2];

pub(super) static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/kv.bpf.o"),
    program: "tidemill_kv",
    minimum: Kernel(6, 1),
    layout: LAYOUT,
    shared: &[
        Shared { name: "kv_state", key: 4, value: 8 * state::WORDS },
        Shared { name: "kv_slots", key: 4, value: 16 },
        Shared { name: "kv_values", key: 4, value: 8 * entry::WORDS },
        Shared { name: "kv_conns", key: size_of::<Tuple>(), value: size_of::<Conn>() },
        Shared { name: "kv_udp", key: size_of::<UdpKey>(), value: size_of::<UdpPending>() },
        Shared { name: "kv_local", key: 16, value: 4 },
        Shared { name: "kv_allow", key: 20, value: 4 },
        Shared { name: "kv_counts", key: 4, value: 8 },
    ],
};
pub(super) const EGRESS: &str = "tidemill_kv_out";

/// What is counted, in the order of bpf/kv.h, each with what it says.
pub const COUNTS: [(&str, &str); 28] = [
    ("get-hit", "datagrams answered in the kernel"),
    ("keys-hit", "keys in them"),
    ("get-miss", "gets passed: a key is not here"),
    ("get-parked", "gets passed: nothing is answered now"),
    ("get-denied", "gets passed: the source is not allowed, or the destination not ours"),
    ("get-limited", "gets passed: the source asks too much"),
    ("get-other", "gets passed: of a form that is not answered here"),
    ("get-raced", "gets passed: the value was being written"),
    ("bad-checksum", "packets with a wrong checksum"),
    ("udp-mutation", "mutations over UDP"),
    ("udp-noreply", "of these, without an answer"),
    ("udp-released", "mutations over UDP that were answered"),
    ("tcp-mutation", "mutations over TCP"),
    ("tcp-released", "mutations over TCP that were answered"),
    (
        "tcp-overflow",
        "mutations of a connection with too many unanswered: nothing is admitted until they are",
    ),
    ("flush", "mutations of everything"),
    ("tcp-opened", "connections opened"),
    ("tcp-out-of-order", "segments dropped: one before is missing"),
    ("tcp-busy", "segments dropped: another processor reads the connection"),
    ("tcp-old", "segments seen before"),
    ("tcp-blind", "connections whose requests cannot be followed"),
    ("tcp-deaf", "connections whose replies cannot be followed"),
    ("void", "everything made void: a fragment, an unknown command"),
    ("event", "missed keys told to the daemon"),
    ("event-lost", "missed keys not told: too many"),
    ("get-no-room", "gets passed: the answer does not fit into the frame's memory"),
    ("udp-half", "datagrams dropped: half a command, that memcached would go on with in another datagram"),
    ("get-too-long", "gets passed: the answer is longer than what every way takes"),
];

/// As `mixed` and `stirred`: the hash of a key.
pub(super) fn hash(seed: u64, key: &[u8]) -> u64 {
    let mut h = key.iter().fold(seed, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

/// The Internet checksum's sum of bytes, in this machine's order, not inverted.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|two| u64::from(u16::from_ne_bytes([two[0], two.get(1).copied().unwrap_or_default()])));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
