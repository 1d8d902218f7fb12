//! What a policy is asked: about packets of one flow that came together.

use tidemill_wire::flow::Addresses;

/// The outer code point of a packet that has a grant, and asks for its renewal.
pub(crate) const RENEWAL: u8 = 2;
/// That of a new flow's first packets: 38, as if it had waited for a quarter of a second, and 3.
const NEW: u8 = 41;

/// Where a packet stands in a fragmented one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fragment {
    /// It is whole.
    No = 0,
    /// The first fragment: it has the ports.
    First = 1,
    /// A later one: its ports are unknown.
    Later = 2,
}

/// May this flow send? Plain data: it crosses to the policy's thread by copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// The flow.
    pub flow: Addresses,
    /// The outer DSCP: 2 asks for renewal, 3 to 63 for permission (higher is more urgent).
    pub dscp: u8,
    /// The upper-layer protocol of the inner packet, behind IPv6 extension headers.
    pub protocol: u8,
    /// Where the packet stands in a fragmented one.
    pub fragment: Fragment,
    /// The flags byte of TCP; 0 for other protocols.
    pub tcp_flags: u8,
    /// Of TCP, UDP and SCTP; 0 where there is none, as in later fragments.
    pub source_port: u16,
    /// The same.
    pub destination_port: u16,
    /// Bytes of the inner packet; of the first if there are several.
    pub length: u16,
    /// Packets that this question stands for: at least 1.
    pub packets: u32,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Question {
    /// About one packet of a flow, the rest 0.
    pub fn about(flow: Addresses) -> Question {
        Question {
            flow,
            dscp: 41,
            protocol: 0,
            fragment: Fragment::No,
            tcp_flags: 0,
            source_port: 0,
            destination_port: 0,
            length: 0,
            packets: 1,
            bytes: 0,
        }
    }

    /// Whether its flow has a grant.
    pub(crate) fn is_renewal(&self) -> bool {
        self.dscp == RENEWAL
    }

    /// How many of so many places for questions it leaves to others: of strangers an eighth is for renewals, and as many again for who has come before and waited for longer than a new
    /// flow counts to have.
    pub(crate) fn leaves(&self, places: usize) -> usize {
        match self.dscp {
            RENEWAL => 0,
            dscp if dscp > NEW => places / 8,
            _ => places / 4,
        }
    }

    /// Another question of the same signature is answered with this one.
    pub(crate) fn add(&mut self, other: &Question) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// By which fields of a question a policy decides: questions that agree in these are asked once and answered alike.
/// What a policy does not name is that of the first of them; `packets` and `bytes` are sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature(u8);

/// The part of a question that its signature keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Signed {
    source: u128,
    destination: u128,
    /// Address family, protocol, ports, DSCP, fragment, flags.
    rest: u128,
}

impl Signature {
    /// The names of the fields, as scripts have them.
    pub const FIELDS: [&'static str; 8] = [
        "source",
        "destination",
        "protocol",
        "source_port",
        "destination_port",
        "dscp",
        "fragment",
        "tcp_flags",
    ];

    /// All fields.
    pub const ALL: Signature = Signature(0xff);

    /// No field: one answer for all questions of a batch.
    pub(crate) const NONE: Signature = Signature(0);

    /// With one more field, if there is one of this name.
    pub(crate) fn with(self, name: &str) -> Option<Signature> {
        let at = Self::FIELDS.iter().position(|field| *field == name)?;
        Some(Signature(self.0 | 1 << at))
    }

    pub(crate) fn of(self, question: &Question) -> Signed {
        let has = |at: u8| u128::from(self.0 >> at & 1);
        let (family, source, destination) = match question.flow {
            Addresses::V4 { src, dst } => (4, src.into(), dst.into()),
            Addresses::V6 { src, dst } => (6, src, dst),
        };
        let rest = [
            (2, question.protocol.into(), 8),
            (3, u128::from(question.source_port), 16),
            (4, question.destination_port.into(), 16),
            (5, question.dscp.into(), 8),
            (6, question.fragment as u128, 8),
            (7, question.tcp_flags.into(), 8),
        ];
        let mut packed: u128 = family;
        for (at, value, bits) in rest {
            packed = (packed << bits) | (value * has(at));
        }
        Signed { source: source * has(0), destination: destination * has(1), rest: packed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_keeps_its_fields_and_no_others() {
        let flow = Addresses::V4 { src: 1, dst: 2 };
        let first = Question { source_port: 1000, destination_port: 80, ..Question::about(flow) };
        let other_port = Question { source_port: 1001, ..first };
        let other_flow = Question { flow: Addresses::V4 { src: 3, dst: 2 }, ..first };
        let other_family = Question { flow: Addresses::V6 { src: 1, dst: 2 }, ..first };
        let pair = Signature::NONE.with("source").and_then(|s| s.with("destination")).unwrap();
        assert_eq!(pair.of(&first), pair.of(&other_port));
        assert_ne!(pair.of(&first), pair.of(&other_flow));
        assert_ne!(pair.of(&first), pair.of(&other_family));
        assert_ne!(Signature::ALL.of(&first), Signature::ALL.of(&other_port));
        for (at, field) in Signature::FIELDS.iter().enumerate() {
            let mut changed = first;
            match at {
                0 => changed.flow = Addresses::V4 { src: 9, dst: 2 },
                1 => changed.flow = Addresses::V4 { src: 1, dst: 9 },
                2 => changed.protocol = 9,
                3 => changed.source_port = 9,
                4 => changed.destination_port = 9,
                5 => changed.dscp = 9,
                6 => changed.fragment = Fragment::Later,
                _ => changed.tcp_flags = 9,
            }
            let alone = Signature::NONE.with(field).unwrap();
            assert_ne!(alone.of(&first), alone.of(&changed), "{field}");
            assert_eq!(Signature::NONE.of(&first), Signature::NONE.of(&changed), "{field}");
        }
        assert_eq!(Signature::NONE.with("colour"), None);
    }
}
