//! The section `[gatekeeper]` as written; its comments are the schema's text. What follows from it: [`crate::settings`].

use schemars::JsonSchema;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tidemill_decision::keys::KeyText;
use tidemill_ip::queue::Bandwidth;

/// A gate between the networks in front of it and those behind it. What comes in from the front passes as the policies say; what comes
/// in from the back is routed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatekeeperSection {
    /// The interfaces towards the Internet. Default: the first port.
    pub front: Vec<String>,
    /// What becomes of packets from the front, by their destinations; the longest prefix counts.
    pub policy: Vec<PolicyConfig>,
    /// What becomes of destinations that no policy has. Our own addresses are always reached.
    pub default: DefaultAction,
    /// The addresses that requests and granted packets are sent from, at most one of each family. Default: the first address of an
    /// interface that is not in front.
    pub source: Vec<String>,
    /// What flows are spread over a policy's Grantors by. Gatekeepers with the same number choose alike, also after a restart. Whoever knows it can aim
    /// at one of the Grantors: give a number of your own.
    pub spread: u64,
    /// Flows that each worker has room for, of IPv4 and as many of IPv6: 53 and 83 bytes each. So many are made by packets; what is decided has room for a quarter more, in the same memory.
    pub flows: usize,
    /// Seconds after which a flow that has asked and sends no more is forgotten; also after a grant or a refusal has expired. Who has waited for longer asks as a new one. 1 to 86,400.
    pub idle_s: u32,
    /// The bandwidth of the way to the Grantors: `"10 Gbps"`, `"500 Mbps"`, or bits per second. One budget for all links at the back: of several give the narrowest one's. Default: 10 Gbps, whatever the links are.
    pub bandwidth: Option<Bandwidth>,
    /// How much of `bandwidth` requests may use, in percent; 1 to 100.
    #[serde(deserialize_with = "percent")]
    pub request_percent: u8,
    /// Requests that each worker keeps waiting at most; 1 to 65,536. Each occupies a frame.
    pub request_queue: usize,
    /// Which decisions of Grantors to obey. Default: `"authenticated"` where there are keys, else `"none"`.
    pub decisions: Option<DecisionFormat>,
    /// The file of the keys that decisions are authenticated with: a line for each, its number (1 to 65,535) and 64 hexadecimal digits; the first signs,
    /// all verify. Nobody but its owner may read it. A reload reads it again.
    pub key_file: Option<PathBuf>,
    /// The keys themselves, one such line each, instead of a file. A record keeps the text of the configuration: give a file where secrets matter.
    #[serde(deserialize_with = "tidemill_decision::keys::texts")]
    pub keys: Vec<KeyText>,
    /// Seconds by which a Grantor's clock may differ from ours: what was sent earlier or later counts as stale. 1 to 300. So long, after we have started
    /// again, may what was sent before be sent to us once more by somebody who kept it.
    pub clock_s: u16,
    /// How it is found out whether Grantors are there. Only where decisions are authenticated.
    pub probes: ProbesConfig,
    /// Milliseconds for which what was granted passes after it has been revoked, while the Grantor is asked again; 0 to 10,000.
    pub revocation_grace_ms: u16,
    /// Flows with a program that each worker has room for, of IPv4 and as many of IPv6: 68 bytes each.
    pub program_flows: u32,
    /// Flow programs besides those that come with it (0 granted, 1 declined, 2 grantedv2, 3 web, 4 tcp-services).
    pub program: Vec<ProgramConfig>,
    /// Whether packets from the front that are routed, not sent to a Grantor, keep their code point (DSCP). Default: no, they get 0, for behind the gate code points
    /// say what is a request and what was granted, and a [[queue]] there believes them.
    pub keep_dscp: bool,
    /// In which order a burst is looked up.
    pub order: Order,
    /// How lookups of flows hide the memory's latency.
    pub driver: Driver,
    /// What drops packets of declined flows before they come in here, where these send much, and forwards those that the gate does not judge: from the back, and to where the policy says route. Traces, captures and the counters
    /// of ports do not see what is done there.
    pub offload: OffloadKind,
}

/// Reads `request_percent`. What no byte holds is refused by what the key can be; the rest is checked with all other keys.
fn percent<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let number = i64::deserialize(from)?;
    u8::try_from(number).map_err(|_| D::Error::custom(format!("request_percent: {number}: give 1 to 100")))
}

/// What drops packets of declined flows before they come in, and forwards what is not judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OffloadKind {
    /// Nothing.
    #[default]
    None,
    /// An XDP program on network interfaces, in their drivers where these can (Linux; feature `xdp`): drops on those of ports in front, forwards from all (`router.offload_mb` is its memory for routes; not with
    /// `bgp.flowspec`). It has room for 65,536 flows of each family, at most three quarters of them declined, or dropped by a policy; what it does not deal with comes in as ever. Where it cannot be loaded the gatekeeper says why, and works without it.
    Xdp,
}

impl GatekeeperSection {
    /// Keys that cannot change while packets flow, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 8] {
        [
            ("flows", self.flows == other.flows),
            ("program_flows", self.program_flows == other.program_flows),
            ("program", self.program == other.program),
            ("spread", self.spread == other.spread),
            ("request_queue", self.request_queue == other.request_queue),
            ("bandwidth", self.bandwidth == other.bandwidth),
            ("request_percent", self.request_percent == other.request_percent),
            ("offload", self.offload == other.offload),
        ]
    }
}

impl Default for GatekeeperSection {
    fn default() -> Self {
        GatekeeperSection {
            front: Vec::new(),
            policy: Vec::new(),
            default: DefaultAction::Route,
            source: Vec::new(),
            spread: 0,
            flows: 1 << 20,
            idle_s: 60,
            bandwidth: None,
            request_percent: 5,
            request_queue: 1024,
            decisions: None,
            key_file: None,
            keys: Vec::new(),
            clock_s: 10,
            probes: ProbesConfig::default(),
            revocation_grace_ms: 100,
            program_flows: 1 << 16,
            program: Vec::new(),
            keep_dscp: false,
            order: Order::OnePass,
            driver: Driver::Group,
            offload: OffloadKind::None,
        }
    }
}

/// Probes of Grantors, in rounds: one that does not answer is left out of the choice, and only its flows move.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProbesConfig {
    /// Milliseconds from one round to the next, 10 to 60,000; 0: no Grantor is probed, and all are held for there; one that has started again with an earlier clock is not told then, and nothing of it counts.
    pub interval_ms: u32,
    /// Rounds in a row without an answer after which a Grantor is left out; 1 to 1,000.
    pub fall: u16,
    /// Rounds in a row with an answer after which it is back; 1 to 1,000.
    pub rise: u16,
}

impl Default for ProbesConfig {
    fn default() -> Self {
        ProbesConfig { interval_ms: 200, fall: 3, rise: 5 }
    }
}

/// A flow program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramConfig {
    /// By which decisions call it: 5 to 255.
    pub number: u8,
    /// An ELF object with the sections `init` and `pkt`.
    pub file: PathBuf,
}

/// What becomes of packets to a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// The destinations: `"192.0.2.0/24"`, `"2001:db8::/32"`.
    pub prefix: String,
    /// What is done.
    pub action: Action,
    /// With action `grantor`: the Grantors' addresses, of the prefix's family. Flows are spread over them.
    #[serde(default)]
    pub grantors: Vec<String>,
}

/// What is done with packets from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A Grantor decides: who has no grant asks.
    Grantor,
    /// Routed as by any router: what needs no protection.
    Route,
    /// Dropped: `policy-drop`.
    Drop,
}

impl Action {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Action::Grantor => "grantor",
            Action::Route => "route",
            Action::Drop => "drop",
        }
    }
}

/// What is done where there is no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DefaultAction {
    /// Routed.
    Route,
    /// Dropped: `policy-drop`.
    Drop,
}

/// A format of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecisionFormat {
    /// None that comes over the wire: only the operator's (`tidemill gate grant`, `tidemill gate decline`).
    None,
    /// Ours, version 2, from the policies' Grantors and the back only: authenticated, and nothing counts twice. It needs keys.
    Authenticated,
    /// That of the public Gatekeeper, version 1, from the policies' Grantors and the back only. It carries no authentication: whoever can send
    /// by the back with a Grantor's address decides.
    Interoperable,
}

/// An order of lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The policy, then the flow, which is found or made in the same step.
    OnePass,
    /// The flow; the policy of those that have none; then their flows are made (Fu 2020, algorithm 5). The baseline.
    FlowFirst,
}

/// A way to look up the flows of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// One after the other. The baseline.
    Plain,
    /// All in step (Fu 2020, 4.5.3).
    Group,
    /// As many at once as pays, each going on when its memory has come (Fu 2020, 4.5.4).
    Coroutine,
}
