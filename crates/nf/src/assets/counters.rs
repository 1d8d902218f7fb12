//! What has been counted: one registry of stable names; a board for each worker, read while it counts.

tidemill_graph::counters! {
    Packets = "packets": "packets that were looked at",
    Observations = "observations": "facts that were new, or not reported lately",
    Lost = "lost": "facts that the table was too busy for; they are reported with the next such packet",
    Malformed = "malformed": "messages of DHCP and mDNS that could not be read",
    Added = "added": "hosts that were new",
    Expired = "expired": "hosts that were silent for too long",
    EvictedBare = "evicted-bare": "hosts that had only sent packets, and gave way to others",
    EvictedKnown = "evicted-known": "hosts of which more was known, and that gave way to others",
    FactsFull = "facts-full": "facts that a host had no more room for",
    Hosts = "hosts" now: "hosts now",
    KnownHosts = "known-hosts" now: "of those known by more than packets",
}
