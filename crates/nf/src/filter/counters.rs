//! What has been counted: one registry of stable names; a board for each worker, read while it counts.

tidemill_graph::counters! {
    Passed = "passed": "packets that passed",
    ByState = "by-state": "of those: let through by a connection that is known, without looking at rules",
    ByRules = "by-rules": "packets that rules were asked about",
    Blocked = "blocked": "packets that a rule blocks or rejects",
    OutOfWindow = "out-of-window": "TCP segments that did not fit their connection",
    ErrorsPassed = "errors-passed": "ICMP errors about a packet of a connection",
    Fragments = "fragments": "later fragments that passed with their first one",
    FragmentsHeld = "fragments-held": "fragments that had to wait for the first one of their packet",
    StatesMade = "states-made": "connections that were let in",
    StatesEnded = "states-ended": "connections that were silent for too long",
    StatesRevoked = "states-revoked": "connections that new rules or tables did not allow",
    HalfOpenEvicted = "half-open-evicted": "half-open connections that gave way to newer ones: a flood of SYNs, or too little room",
    StatesFull = "states-full": "packets that found no room for their connection",
    Logged = "logged": "packets that were logged",
    LogSkipped = "log-skipped": "packets that should have been logged and were too many in their second",
    HandedOver = "handed-over": "packets that came to one worker and belong to another",
    States4 = "states4" now: "IPv4 connections now",
    States6 = "states6" now: "IPv6 connections now",
    HalfOpen4 = "half-open4" now: "of those half-open TCP connections, IPv4",
    HalfOpen6 = "half-open6" now: "the same, IPv6",
}
