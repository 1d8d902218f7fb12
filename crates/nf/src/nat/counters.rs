//! What has been counted: one registry of stable names; a board for each worker, read while it counts.

tidemill_graph::counters! {
    Out = "out": "packets from inside that were translated",
    In = "in": "packets from outside that were translated",
    Hairpin = "hairpin": "packets from inside to what is mapped for another inside endpoint",
    ErrorsOut = "errors-out": "ICMP errors from inside that were translated, with what they quote; our own count, too",
    ErrorsIn = "errors-in": "ICMP errors from outside that were translated, with what they quote",
    Addresses = "addresses": "packets without ports of hosts that have a whole address; the address was translated",
    Fragments = "fragments": "later fragments that were translated",
    FragmentsHeld = "fragments-held": "fragments that had to wait for the first one of their packet",
    Passed = "passed": "packets to an address of the pool that nothing is mapped for, on to us: the address is an interface's, too",
    HandedOver = "handed-over": "packets that came to one worker and belong to another",
    SessionsEnded = "sessions-ended": "sessions that were silent for too long",
    SessionsEvicted = "sessions-evicted": "connections from outside that nobody inside had answered, and that gave way to others",
    Unnoted = "unnoted": "datagrams of static mappings that passed without a session, for there was no room",
    Mappings4 = "mappings4" now: "IPv4 mappings now",
    Mappings6 = "mappings6" now: "IPv6 mappings now",
    Sessions4 = "sessions4" now: "IPv4 sessions now",
    Sessions6 = "sessions6" now: "IPv6 sessions now",
}
