//! What has been counted: one registry of stable names; a board for each worker, read while it counts.

tidemill_graph::counters! {
    ExactHits = "exact-hits": "packets that an exact match decided",
    MegaflowHits = "megaflow-hits": "packets that a megaflow decided",
    SignatureHits = "signature-hits": "those among them whose mask was known by the packet's signature",
    Misses = "misses": "packets that the rules decided",
    Probes = "probes": "masks that megaflows were probed with",
    Renewed = "renewed": "cached decisions of older rules that no change concerned",
    Outdated = "outdated": "cached decisions of older rules that were thrown away",
    NotKept = "not-kept": "decisions that found no room in the caches",
    TurnedAway = "turned-away": "those among them that came for the first time while there was little room, or megaflows were dearer than the rules: these alone decided",
    Spared = "spared": "packets that megaflows were not probed for, or only those that packets had found before: in a flood of new ones that was in vain for most, or they were behind too many masks",
    Megaflows = "megaflows" now: "megaflows now, of all workers",
    Masks = "masks" now: "masks of megaflows now, of all workers",
    Ways = "ways" now: "ways through the tables that cached decisions have now, of all workers",
    Copies = "copies": "copies of packets that were made to be sent more than once",
    CopiesLost = "copies-lost": "copies that were not made: no frame was free",
    CutShort = "cut-short": "packets that had been sent by a port when their way ended early: no rule of a later table, a second tag in front of one, too many rules, a meter, a TTL, an edit",
    Flooded = "flooded": "packets that the bridge sent by all ports of their VLAN",
    StationsNew = "stations-new": "stations that were learnt",
    StationsMoved = "stations-moved": "stations that came in by another port",
    StationsReplaced = "stations-replaced": "stations that were learnt in place of others in a full bucket",
}
