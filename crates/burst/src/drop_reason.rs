//! The one registry of drop reasons. Names are stable: they appear in counters, in `--json`, in alerts.

/// Declares the reasons once: variant, stable name, what it means for an operator.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal : $help:literal,)*) => {
        /// Why a packet was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $help] $variant,)* }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// One line for an operator.
            pub const fn help(self) -> &'static str {
                match self { $(DropReason::$variant => $help,)* }
            }
        }
    };
}

reasons! {
    // Ports.
    FrameTooSmall = "frame-too-small": "packet longer than a frame's room; raise memory.frame_size",
    NoFrames = "no-frames": "the pool had no free frame; raise memory.frames",
    TxFailed = "tx-failed": "the output port refused the packet",
    TxFull = "tx-full": "the output port had no room",
    InjectedLoss = "injected-loss": "dropped by the fault injector, as configured",
    PortClosed = "port-closed": "still held by a port when it was closed",
    SpreadFull = "spread-full": "the worker that this flow belongs to fell behind",
    CaptureTruncated = "capture-truncated": "the capture holds only the first bytes of this packet (snap length)",
    RxRingFull = "rx-ring-full": "the device's receive ring was full: the worker is too slow; raise rx_ring_kib (AF_PACKET), rx_ring (AF_XDP), rx_descriptors (DPDK)",
    RxError = "rx-error": "the device found the frame damaged, too long or too short",
    OffloadInvalid = "offload-invalid": "the note on segmentation or checksum that came with the packet does not fit it",
    // Graph.
    QueueFull = "queue-full": "a node's queue inside the graph was full",
    StageFull = "stage-full": "the next worker of the chain (run.stages) fell behind",
    // Link layer.
    EthernetTooShort = "ethernet-too-short": "shorter than an Ethernet header",
    EthernetBadSource = "ethernet-bad-source": "the source MAC address is a group's",
    EtherTypeUnknown = "ethertype-unknown": "neither IPv4, IPv6 nor ARP",
    VlanUnknown = "vlan-unknown": "carries a VLAN tag that no interface has",
    ArpIgnored = "arp-ignored": "ARP on a port where nobody answers it",
    ArpInvalid = "arp-invalid": "ARP for other hardware or protocols, or with impossible addresses",
    NdInvalid = "nd-invalid": "neighbor discovery that RFC 4861 says to discard",
    InterfaceDown = "interface-down": "the interface to send by is down",
    NotForUs = "not-for-us": "the destination MAC address is another station's",
    // IPv4 (RFC 1812 5.2.2, 5.3.7) and IPv6 (RFC 8200).
    Ipv4TooShort = "ipv4-too-short": "shorter than an IPv4 header",
    Ipv4BadVersion = "ipv4-bad-version": "EtherType says IPv4, the header does not",
    Ipv4BadHeaderLength = "ipv4-bad-header-length": "IHL below 5 or beyond the packet",
    Ipv4BadLength = "ipv4-bad-length": "total length below the header's or beyond the packet",
    Ipv4BadChecksum = "ipv4-bad-checksum": "the header checksum is wrong",
    Ipv4BadOption = "ipv4-bad-option": "an option runs over the header's end",
    Ipv4SourceRoute = "ipv4-source-route": "source-routed packets are not forwarded",
    Ipv6TooShort = "ipv6-too-short": "shorter than an IPv6 header",
    Ipv6BadVersion = "ipv6-bad-version": "EtherType says IPv6, the header does not",
    Ipv6BadLength = "ipv6-bad-length": "payload length beyond the packet",
    MartianSource = "martian-source": "source address that cannot be one (RFC 1812 5.3.7, RFC 6890)",
    MartianDestination = "martian-destination": "destination that must not be forwarded (RFC 1812 5.3.7, RFC 6890)",
    Multicast = "multicast": "multicast is not routed here",
    Broadcast = "broadcast": "broadcasts are not forwarded",
    LinkLocal = "link-local": "link-local addresses are not forwarded",
    TtlExpired = "ttl-expired": "TTL or hop limit reached zero",
    NoRoute = "no-route": "no route to the destination",
    Unreachable = "unreachable": "the route says unreachable",
    Blackhole = "blackhole": "the route says discard",
    Prohibited = "prohibited": "the route says administratively prohibited",
    NextHopUnknown = "next-hop-unknown": "the route's label names no next hop",
    NeighborUnresolved = "neighbor-unresolved": "the next hop's link-layer address is unknown: it did not answer ARP or ND",
    NeighborQueueFull = "neighbor-queue-full": "too many packets wait for ARP or ND: this one, or the oldest, gave way",
    NeighborRateLimited = "neighbor-rate-limited": "too many unknown neighbors asked for (an address scan?): not resolved",
    TooBig = "too-big": "longer than the next link's MTU, with fragmentation forbidden",
    FragmentFailed = "fragment-failed": "could not be fragmented (no frame, or the MTU is too small)",
    ReassemblyFailed = "reassembly-failed": "a fragment to us that overlaps, is too long, or is of a datagram that was refused",
    ReassemblyTimeout = "reassembly-timeout": "a fragment to us whose packet never became whole",
    NoListener = "no-listener": "to a port of ours that nobody listens on",
    ProtocolUnknown = "protocol-unknown": "to us, in a protocol that nobody here speaks",
    Ipv6RoutingHeader = "ipv6-routing-header": "to us, with an IPv6 routing header that would send it on (RFC 5095)",
    Ipv6OptionUnknown = "ipv6-option-unknown": "to us, with an unknown IPv6 option that must not be skipped (RFC 8200 4.2)",
    LocalBadChecksum = "local-bad-checksum": "addressed to us, with a wrong ICMP, UDP or TCP checksum",
    LocalUnhandled = "local-unhandled": "addressed to us, and nobody here takes it",
    // Queues in front of a port, and the solicitor.
    OperationalQueueFull = "operational-queue-full": "too many operational packets (DSCP 0, ARP, ND) waited for the link",
    RequestEvicted = "request-evicted": "a capability request that waited gave way to one of higher priority",
    RequestQueueFull = "request-queue-full": "a capability request, while the queue was full of ones at least as urgent",
    GrantedQueueFull = "granted-queue-full": "too many granted packets waited for the link; raise queue.granted_packets",
    RedDrop = "red-drop": "a granted packet, dropped early (RED): too many for its destination wait on average",
    // Services.
    Amplification = "amplification": "a reflected answer: its destination has said that nobody there wants it",
    // Switch.
    RuleDrop = "rule-drop": "a rule of the switch says drop",
    NoRule = "no-rule": "no rule of a table of the switch matches",
    Metered = "metered": "more than its meter lets through",
    OutputNowhere = "output-nowhere": "its rule leads to no port but the one that it came in by, or to a group that is not there",
    Ipv6HeadersUnfollowed = "ipv6-headers-unfollowed": "its IPv6 headers cannot be followed to what lies above, which rules of its tables ask for",
    FirstFragmentCut = "first-fragment-cut": "the first fragment of a packet ends before its ports or flags, which rules of its tables ask for",
    IpHeaderBroken = "ip-header-broken": "its rule changes an IP header that is broken or cut off",
    VlanStacked = "vlan-stacked": "rules would have to look behind a second tag: a tag was pushed in front of another, or one was popped off another",
    RulesTooDeep = "rules-too-deep": "its way through the tables has more rules than a way may have",
    VlanRefused = "vlan-refused": "of a VLAN that the port is not in, tagged on an access port, or with a second tag that a port without tags would show",
    BridgeReserved = "bridge-reserved": "to a group address that bridges do not forward (01:80:c2:00:00:00 to 0f)",
    BridgeSamePort = "bridge-same-port": "its destination is behind the port that it came in by",
    NoHeadroom = "no-headroom": "no room in its frame for another tag",
    // Gatekeeper.
    PolicyDrop = "policy-drop": "the policy for its destination says drop",
    TunnelForged = "tunnel-forged": "from the front to a Grantor's own address, in the form of what Gatekeepers send there: in an outer packet, or a probe",
    FlowDeclined = "flow-declined": "its destination has declined this source",
    FlowOverRate = "flow-over-rate": "more than its destination has granted this source",
    DecisionRefused = "decision-refused": "decisions from where none are taken: set gatekeeper.decisions, and check the policies' Grantors",
    DecisionForged = "decision-forged": "decisions whose tag is wrong: forged, changed on the way, or with another secret under the same key's number",
    DecisionStale = "decision-stale": "decisions that were sent too long ago, or by a clock that differs from ours by more than gatekeeper.clock_s",
    DecisionReplayed = "decision-replayed": "decisions that have come before, or of a Grantor that has started again since",
    DecisionUnchecked = "decision-unchecked": "decisions dropped unread: too many at once, or of too many senders that we do not know",
    DecisionMalformed = "decision-malformed": "decisions that contradict themselves, or whose checksum is wrong or absent",
    // Grantor.
    TunnelRefused = "tunnel-refused": "an outer packet from an address that is no Gatekeeper's: check grantor.gatekeepers",
    TunnelMalformed = "tunnel-malformed": "an outer packet whose inner one is cut off, broken, or of the other address family",
    TunnelNested = "tunnel-nested": "an outer packet inside another, with a Gatekeeper's address as its source: forged",
    TunnelCongestion = "tunnel-congestion": "met congestion in the tunnel, and its inner packet cannot say so (RFC 6040)",
    AskQueueFull = "ask-queue-full": "too many packets wait for the policy's answers; raise grantor.policy.queue",
    PolicyRefused = "policy-refused": "the policy does not let this packet on",
    PolicyFailed = "policy-failed": "the policy gave no answer in time, or failed and its fail-safe does not let packets on",
    ProbeRefused = "probe-refused": "a probe that is no Gatekeeper's: its form, key, tag or time is wrong; or too many at once",
    // Network functions: NAT.
    NatUnmapped = "nat-unmapped": "to an address of nat.pool, where nothing is mapped",
    NatFiltered = "nat-filtered": "to something mapped, from where its inside host has not sent to (nat.filtering)",
    NatPortsExhausted = "nat-ports-exhausted": "no port was free for its inside host: give nat.pool more addresses",
    NatHostLimit = "nat-host-limit": "its inside host has as many mappings as nat.host_mappings allows, or its /64 three quarters of nat.mappings",
    NatHostSessions = "nat-host-sessions": "its inside host has as many sessions as nat.host_sessions allows, or its /64 three quarters of nat.sessions",
    NatSourceLimit = "nat-source-limit": "an address outside (of IPv6: a /64) has as many connections to what is inside as nat.source_sessions allows",
    NatTableFull = "nat-table-full": "no room for another mapping or session; raise nat.mappings, nat.sessions",
    NatHostUnknown = "nat-host-unknown": "from an inside address that nat.deterministic has no ports for",
    NatUnasked = "nat-unasked": "a TCP segment or an ICMP reply that belongs to no session, and cannot begin one",
    NatProtocol = "nat-protocol": "a protocol without ports, or a message of ICMP, that cannot be translated",
    NatMalformed = "nat-malformed": "ends before its ports, has port 0, or a length or checksum that does not fit what is translated",
    NatErrorUnmatched = "nat-error-unmatched": "an ICMP error about a packet of no session",
    NatFragmentRefused = "nat-fragment-refused": "a fragment that overlaps another, is too small, or is of a datagram that was refused",
    NatFragmentTimeout = "nat-fragment-timeout": "a fragment whose first one, with the ports, did not come in time, or before others needed the room",
    NatUntranslated = "nat-untranslated": "from outside straight to an inside address, or to what is mapped by an interface on neither side",
    NatHandoverFull = "nat-handover-full": "the worker that its mapping belongs to fell behind",
    // Network functions: the packet filter.
    FilterBlocked = "filter-blocked": "a rule of the filter says block",
    FilterRejected = "filter-rejected": "a rule of the filter says reject: its sender is told",
    FilterOutOfWindow = "filter-out-of-window": "a TCP segment, or an error that quotes one, that does not fit its connection: outside its window, or against its state",
    FilterStatesFull = "filter-states-full": "no room for another connection; raise filter.states",
    FilterSourceLimit = "filter-source-limit": "its source (of IPv6: its /64) has as many connections as filter.states_per_source allows, which is fewer while the last quarter of filter.states is taken",
    FilterMalformed = "filter-malformed": "ends before its ports or flags, has port 0, lengths that contradict, or goes to itself",
    FilterHeaders = "filter-headers": "IPv6 extension headers that cannot be followed, or a routing header that would send it on",
    FilterFragmentRefused = "filter-fragment-refused": "a fragment of a packet whose first one was refused, that overlaps another, or that came before it where none may wait (filter.fragments = 0)",
    FilterFragmentTimeout = "filter-fragment-timeout": "a fragment whose first one, with the ports, did not come in time, or before others needed the room",
    FilterHandoverFull = "filter-handover-full": "the worker that its connection belongs to fell behind",
    // The cache in front of a memcached.
    KvHalfCommand = "kv-half-command": "half a command to memcached in a datagram: memcached would go on with it in anybody's next one",
    KvOutOfOrder = "kv-out-of-order": "a segment from or to memcached before which one is missing (TCP sends both again), or with urgent data, or data in a SYN",
    // Flow specifications.
    FlowspecDrop = "flowspec-drop": "a flow specification of a BGP peer says drop: see `tidemill show flowspec`",
    FlowspecRate = "flowspec-rate": "more than a flow specification of a BGP peer lets through: see `tidemill show flowspec`",
    FlowspecRedirect = "flowspec-redirect": "a flow specification of a BGP peer redirects it to where no way leads on: see `tidemill show flowspec`, and the routes of that VRF",
}

/// How many packets were dropped for each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl Default for DropCounts {
    fn default() -> Self {
        DropCounts([0; DropReason::ALL.len()])
    }
}

impl DropCounts {
    /// Counts one drop.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts `packets` drops.
    #[inline]
    pub fn count_many(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    /// Packets dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &DropCounts) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The reasons that occurred, with their counts, in the order of the registry.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().zip(&self.0).filter(|(_, n)| **n > 0).map(|(reason, n)| (*reason, *n))
    }
}

#[cfg(test)]
mod tests {
    use super::{DropCounts, DropReason};
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_kebab_case() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        assert!(
            names
                .iter()
                .all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'))
        );
        assert!(DropReason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }

    #[test]
    fn counts_add_up() {
        let mut a = DropCounts::default();
        a.count(DropReason::NoRoute);
        a.count_many(DropReason::LocalUnhandled, 2);
        let mut b = a;
        b.add(&a);
        assert_eq!(b.iter().collect::<Vec<_>>(), [(DropReason::NoRoute, 2), (DropReason::LocalUnhandled, 4)]);
        assert_eq!((b.total(), b.get(DropReason::NoRoute)), (6, 2));
    }
}
