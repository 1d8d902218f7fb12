//! What the programs and the daemon share, as bpf/kv.h has it, in words.

use tidemill_bpf::{Kernel, Shared, Source};

/// A new number for every change that an older program would misread.
pub(super) const LAYOUT: u32 = 8;

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
    /// Port (network order), serving, missed keys that are told in 2^22 ns.
    pub(in crate::kernel) const PORT: usize = 10;
    /// The newest epoch that a value was stored under.
    pub(in crate::kernel) const KEPT: usize = 11;
    /// Not 0: asking by `mg` could take what an item's client is to win.
    pub(in crate::kernel) const INVALID: usize = 12;
    /// Not 0: `kv_scopes` says something.
    pub(in crate::kernel) const SCOPED: usize = 13;
    pub(in crate::kernel) const RATE_TOTAL: usize = 14;
    // 15: until when later fragments count; 16: what was answered in this second.
    /// What the daemon has done, and why it does not serve.
    pub(in crate::kernel) const ASKED: usize = 17;
    pub(in crate::kernel) const ADMITTED: usize = 18;
    pub(in crate::kernel) const DEATHS: usize = 19;
    pub(in crate::kernel) const WHY: usize = 20;
    /// When it has worked last.
    pub(in crate::kernel) const BEAT: usize = 21;
    /// Connections that memcached has taken and the programs have not seen.
    pub(in crate::kernel) const UNSEEN: usize = 22;
    // 23: when the last mutation came over UDP.
    /// Until then the slots of all mutations wait that are beyond a connection's ring and may not be executed.
    pub(in crate::kernel) const SURE: usize = 24;
    /// Which memcached.
    pub(in crate::kernel) const SERVER: usize = 25;
    /// Not 0: counts are just being taken back.
    pub(in crate::kernel) const BROKEN: usize = 26;
    pub(in crate::kernel) const WORDS: usize = 27;
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

/// Bits of [`state::WHY`]: why the daemon lets nothing be served; each with what it says.
pub(super) mod why {
    pub(in crate::kernel) const NO_SERVER: u64 = 1;
    pub(in crate::kernel) const UNASKED: u64 = 2;
    pub(in crate::kernel) const CROWDED: u64 = 4;
    pub(in crate::kernel) const SHARED: u64 = 8;
    pub(in crate::kernel) const UNCOVERED: u64 = 16;
    pub(in crate::kernel) const TEXTS: [&str; 5] = [
        "there is no memcached",
        "memcached does not say whether a flush_all waits",
        "connections that cannot be followed have no room in the table (--connections)",
        "another process has sockets on memcached's port",
        "an interface is without its programs",
    ];
}

/// Why a connection is blind, by its number less 1.
pub(super) const BLIND: [&str; 8] = [
    "it was not seen from its start",
    "a request that is not understood, or that prints what could look like answers",
    "urgent data, IP options, or a segment in parts",
    "a segment has come another way",
    "it was opened by a SYN cookie",
    "its ends were used again while nothing was served",
    "it may be one of several that bring one stream (Multipath TCP)",
    "its first bytes came with the SYN (TCP Fast Open)",
];

/// Words of 32 bits of `struct conn`.
pub(super) mod conn {
    /// The last 8 bytes of the token that the requests are read to; the low word first.
    pub(in crate::kernel) const TOKEN: usize = 0;
    /// Of the requests: the next sequence number; how far a command is read (its third byte); the command (its second).
    pub(in crate::kernel) const NEXT: usize = 12;
    pub(in crate::kernel) const PHASE: usize = 14;
    pub(in crate::kernel) const COMMAND: usize = 15;
    /// All that is known of how far they are read.
    pub(in crate::kernel) const REQUESTS: std::ops::Range<usize> = 0..18;
    pub(in crate::kernel) const BUSY: usize = 36;
    pub(in crate::kernel) const BLIND: usize = 38;
    pub(in crate::kernel) const DEAF: usize = 39;
    /// Commands that get an answer, and those that have.
    pub(in crate::kernel) const ASKED: usize = 40;
    pub(in crate::kernel) const ANSWERED: usize = 41;
    pub(in crate::kernel) const HEAD: usize = 42;
    pub(in crate::kernel) const TAIL: usize = 43;
    /// Not 0: quiet meta commands have come, that write, and that read.
    pub(in crate::kernel) const META_QUIET: usize = 45;
    pub(in crate::kernel) const MG_QUIET: usize = 53;
    pub(in crate::kernel) const OVERFLOW_IN: usize = 46;
    pub(in crate::kernel) const OVERFLOW_OUT: usize = 47;
    /// The sequence number of the client's first byte.
    pub(in crate::kernel) const FIRST: usize = 49;
    pub(in crate::kernel) const BEYOND_IN: usize = 50;
    pub(in crate::kernel) const BEYOND_OUT: usize = 51;
    /// What memcached's socket is bound to.
    pub(in crate::kernel) const INTERFACE: usize = 54;
    /// Nanoseconds, the low word first.
    pub(in crate::kernel) const OPENED: usize = 58;
    pub(in crate::kernel) const RING: usize = 60;
    /// Behind the ring: barriers and kinds.
    pub(in crate::kernel) const WORDS: usize = RING + 2 * super::RING + 4 + 16 + 2 * 16;
}

pub(super) const SEQ_ONE: u64 = 1 << 24;
pub(super) const PENDING: u64 = SEQ_ONE - 1;
/// Half of [`COMMANDS`]: words of the text protocols.
const WORDS: usize = 32;
pub(super) const WAYS: usize = 4;
pub(super) const RING: usize = 128;
pub(super) const MAX_KEY: usize = 250;
pub(super) const MAX_VALUE: usize = 1024;
pub(super) const MAX_BLOB: usize = 1304;

/// Client, server (16 bytes each; IPv4 addresses mapped), the client's port; network order. And where these addresses are known ([`SCOPE`]).
pub(super) type Tuple = [u32; SCOPE + 1];
/// Of a tuple: the link of addresses that are a link's alone, the VRF of others; 0: the machine.
pub(super) const SCOPE: usize = 9;
pub(super) type Conn = [u32; conn::WORDS];
/// Client, then its port and the request id.
pub(super) type UdpKey = [u32; 5];
/// Nanoseconds, then slot and opcode.
pub(super) type UdpPending = [u64; 2];
/// An address, and the interface that it is taken by; 0: any.
pub(super) type Local = [u32; 5];
/// Interface, family (4 or 6), address.
pub(super) type Allowed = [u32; 6];
/// Of an interface: the scope of addresses that are a link's alone, and that of others.
pub(super) type Scope = [u32; 2];
/// For so long values may be served after a round, and the most TCP connections: the mutations that all their rings, and `kv_udp`, hold together have room in what is
/// pending of one slot.
pub(super) const LEASE_NS: u64 = 1_000_000_000;
pub(super) const MOST_CONNECTIONS: u32 = ((PENDING - 65536) / RING as u64) as u32;

pub(super) static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/kv.bpf.o"),
    program: "tidemill_kv",
    minimum: Kernel(6, 1),
    layout: LAYOUT,
    shared: &[
        Shared { name: "kv_state", key: 4, value: 8 * state::WORDS },
        Shared { name: "kv_slots", key: 4, value: 16 },
        Shared { name: "kv_values", key: 4, value: 8 * entry::WORDS },
        Shared { name: "kv_tags", key: 4, value: 8 },
        Shared { name: "kv_conns", key: size_of::<Tuple>(), value: size_of::<Conn>() },
        Shared { name: "kv_udp", key: size_of::<UdpKey>(), value: size_of::<UdpPending>() },
        Shared { name: "kv_local", key: size_of::<Local>(), value: 4 },
        Shared { name: "kv_allow", key: 4 + size_of::<Allowed>(), value: 4 },
        Shared { name: "kv_scopes", key: 4, value: size_of::<Scope>() },
        Shared { name: "kv_told", key: 4, value: 24 },
        Shared { name: "kv_counts", key: 4, value: 8 },
        Shared { name: "kv_commands", key: 4, value: 16 },
    ],
};
pub(super) const EGRESS: &str = "tidemill_kv_out";
/// On no interface: it takes back what memcached was seen to read, by a frame that says which.
pub(super) const READ: &str = "tidemill_kv_read";
/// A slot that a quiet mutation beyond the ring has moved waits so long, and twice what memcached is given: a second less than in bpf/kv.h (`FAR_NS`).
pub(super) const FAR_NS: u64 = 2_000_000_000;

/// What is counted, in the order of bpf/kv.h, each with what it says.
pub const COUNTS: [(&str, &str); 30] = [
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
        "mutations of a connection with too many unanswered: of those without an answer the keys wait, of others all",
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
    ("event-lost", "missed keys not looked at, or not told: too many"),
    ("get-no-room", "gets passed: the answer does not fit into the frame's memory"),
    (
        "udp-half",
        "datagrams dropped: a value in them is not whole, and memcached would take the rest from another",
    ),
    ("get-too-long", "gets passed: the answer is longer than what every way takes"),
    ("get-limited-total", "gets passed: all sources together ask too much"),
    ("tcp-read", "mutations over TCP that nobody answers, and that memcached has read"),
];

/// Gets that were passed on the short way are counted by one number (`passed` in bpf/kv.h), and are these, besides the command `get` over UDP.
pub(super) const SHORT: [usize; 2] = [2, 24];

/// Which of these count mutations over TCP, and mutations of everything.
pub(super) const TCP_MUTATION: u32 = 12;
pub(super) const FLUSH: u32 = 15;

/// Which of these counts connections that were opened.
pub(super) const OPENED: u32 = 16;

/// Commands that are counted, in the order of bpf/kv.h: words of the text protocols, then the binary opcodes.
pub(super) const COMMANDS: [&str; WORDS + 0x26] = [
    "other",
    "get",
    "gets",
    "gat",
    "gats",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "incr",
    "decr",
    "touch",
    "delete",
    "flush_all",
    "mg",
    "ms",
    "md",
    "ma",
    "me",
    "mn",
    "stats",
    "version",
    "verbosity",
    "quit",
    "lru",
    "lru_crawler",
    "slabs",
    "cache_memlimit",
    "shutdown",
    "extstore",
    "GET",
    "SET",
    "ADD",
    "REPLACE",
    "DELETE",
    "INCREMENT",
    "DECREMENT",
    "QUIT",
    "FLUSH",
    "GETQ",
    "NOOP",
    "VERSION",
    "GETK",
    "GETKQ",
    "APPEND",
    "PREPEND",
    "STAT",
    "SETQ",
    "ADDQ",
    "REPLACEQ",
    "DELETEQ",
    "INCREMENTQ",
    "DECREMENTQ",
    "QUITQ",
    "FLUSHQ",
    "APPENDQ",
    "PREPENDQ",
    "OTHER",
    "TOUCH",
    "GAT",
    "GATQ",
    "OTHER",
    "SASL_LIST",
    "SASL_AUTH",
    "SASL_STEP",
    "GATK",
    "GATKQ",
    "OTHER",
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

#[cfg(test)]
mod tests {
    use super::{MOST_CONNECTIONS, PENDING, RING};

    /// Each may have a ring full under one slot, and so may all datagrams.
    #[test]
    fn what_is_pending_never_reaches_the_number_above_it() {
        let most = |connections: u32| u64::from(connections) * RING as u64 + 65536;
        assert!(most(MOST_CONNECTIONS) <= PENDING && most(MOST_CONNECTIONS + 1) > PENDING);
    }
}
