//! What has been counted: one registry of stable names; a board for each worker, read while it counts.

tidemill_graph::counters! {
    Packets = "packets": "packets that were looked at: each is in one record or one of the three below",
    NotIp = "not-ip": "packets that are neither IPv4 nor IPv6: in no flow",
    Malformed = "malformed": "packets whose IP header is wrong: in no flow",
    FlowsFull = "flows-full": "packets of flows that found no room: in no record",
    FlowsFullBytes = "flows-full-bytes": "bytes of these",
    Flows = "flows" now: "flows now",
    Waited = "waited": "times that a record had to wait in the table, for the exporter was busy",
    Records = "records": "records that were sent",
    RecordPackets = "record-packets": "packets in them",
    RecordBytes = "record-bytes": "bytes in them, from the IP header on",
    Messages = "messages": "messages that were sent",
    MessageBytes = "message-bytes": "bytes of them",
    Unsent = "unsent": "records that the system refused to send",
    UnsentPackets = "unsent-packets": "packets in them",
    UnsentBytes = "unsent-bytes": "bytes in them",
}
