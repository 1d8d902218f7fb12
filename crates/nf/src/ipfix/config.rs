//! The section `[ipfix]` as written; its comments are the schema's text.

use schemars::JsonSchema;
use serde::Deserialize;

/// Flow export by IPFIX (RFC 7011) over UDP: which flows the ports have received. It changes and delays no packet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IpfixSection {
    /// Where the collector is: address and port, as `192.0.2.1:4739` or `[2001:db8::1]:4739`.
    pub collector: String,
    /// Flows that each worker has room for, of each family; 31 to 16777216. Packets of flows beyond are counted as `flows-full`.
    pub flows: usize,
    /// Seconds of silence after which a flow is exported, 1 to 3600.
    pub idle_s: u32,
    /// Seconds after which a flow that goes on is exported, and counted anew; 1 to 86400.
    pub active_s: u32,
    /// Seconds between two repetitions of the templates and of what was left out, 1 to 86400: UDP may lose them.
    pub template_s: u32,
    /// Bytes that a message has at most, 512 to 65000. The default is right for every path of IPv6.
    pub message_bytes: usize,
    /// The observation domain, which tells this exporter's flows from another's at the same address.
    pub domain: u32,
}

impl Default for IpfixSection {
    fn default() -> Self {
        IpfixSection {
            collector: String::new(),
            flows: 1 << 16,
            idle_s: 15,
            active_s: 60,
            template_s: 60,
            message_bytes: 1232,
            domain: 1,
        }
    }
}
