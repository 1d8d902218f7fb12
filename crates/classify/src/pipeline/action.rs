//! What a rule says is to become of its packets, and what that does to the key that later tables look at.

use crate::key::{FRAGMENT_LATER, Field, Key, Mask, VLAN_PRESENT};
use tidemill_wire::EtherType;

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// Out by a port; not by the one that it came in by.
    Port(u16),
    /// Back out by the port that it came in by.
    InPort,
    /// As a learning bridge would.
    Normal,
    /// Out by all ports of its VLAN but the one that it came in by.
    Flood,
    /// Out by all ports but the one that it came in by, whatever their VLANs.
    All,
}

/// A step of what becomes of a packet. Steps are taken in order; outputs and groups get a copy as it is by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends a copy.
    Output(Output),
    /// Gives bits of a field other values. [`Field::Vlan`] with [`VLAN_PRESENT`] gives a packet without a tag one.
    Set {
        /// Which.
        field: Field,
        /// The values; no bits outside the mask.
        value: u128,
        /// The bits.
        mask: u128,
    },
    /// Puts an empty tag in front, announced by this ethertype.
    PushVlan(EtherType),
    /// Takes the outer tag off, if there is one.
    PopVlan,
    /// Lowers TTL or hop limit by one; a packet that has no more is dropped.
    DecTtl,
    /// Gives a copy to a group.
    Group(u32),
    /// Goes on only if a meter's rate allows it.
    Meter(u32),
}

/// Actions, and the table to go on with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Instructions {
    /// In order. None, and no table to go on with: the packet is dropped.
    pub actions: Vec<Action>,
    /// The table to go on with, of a higher number than the rule's.
    pub goto: Option<u8>,
}

impl Instructions {
    /// Only these actions.
    pub fn actions(actions: impl IntoIterator<Item = Action>) -> Self {
        Instructions { actions: actions.into_iter().collect(), goto: None }
    }

    /// Whether any packet leaves by these actions.
    pub fn sends(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Output(_) | Action::Group(_)))
    }
}

/// Fields that [`Action::Set`] may change.
pub const SETTABLE: [Field; 11] = [
    Field::Ipv4Source,
    Field::Ipv4Destination,
    Field::Ipv6Source,
    Field::Ipv6Destination,
    Field::SourcePort,
    Field::DestinationPort,
    Field::Tos,
    Field::Vlan,
    Field::MacSource,
    Field::MacDestination,
    Field::Metadata,
];

/// A key on its way through the tables.
#[derive(Debug, Clone, Copy)]
pub struct Travelling {
    /// As the actions so far have made it.
    pub key: Key,
    /// Bits that actions have given their values: they are the same for all packets that go this way.
    pub written: Mask,
    /// Tags and what is behind them are no longer known from the key: a tag was put in front of another, or one was taken off another.
    pub stacked: bool,
}

impl Travelling {
    /// At the start.
    pub fn new(key: &Key) -> Self {
        Travelling { key: *key, written: Mask::NONE, stacked: false }
    }

    fn write(&mut self, field: Field, value: u128, mask: u128) {
        let bits = Mask::NONE.with(field, mask);
        let value = Key::default().with(field, value);
        for (i, word) in self.key.0.iter_mut().enumerate() {
            *word = *word & !bits.0[i] | value.0[i] & bits.0[i];
        }
        self.written = self.written.or(&bits);
    }

    /// What an action does to the key; `see` is told bits that this depends on.
    pub fn apply(&mut self, action: &Action, mut see: impl FnMut(Mask)) {
        // Bits that are written are no packet's own.
        let mut look = |written: &Mask, field: Field, bits: u128| {
            let bits = Mask::NONE.with(field, bits);
            see(Mask(std::array::from_fn(|i| bits.0[i] & !written.0[i])));
        };
        match *action {
            Action::Set { field, value, mask } => {
                let ports = matches!(field, Field::SourcePort | Field::DestinationPort);
                if ports {
                    look(&self.written, Field::Fragment, FRAGMENT_LATER.into());
                    if self.key.get(Field::Fragment) & u128::from(FRAGMENT_LATER) != 0 {
                        // It has no ports that could be set.
                        return;
                    }
                }
                self.write(field, value, mask);
            }
            Action::PushVlan(_) => {
                look(&self.written, Field::Vlan, VLAN_PRESENT.into());
                self.stacked |= self.tagged();
                self.write(Field::Vlan, VLAN_PRESENT.into(), u128::MAX);
            }
            Action::PopVlan => {
                look(&self.written, Field::Vlan, VLAN_PRESENT.into());
                if self.tagged() {
                    look(&self.written, Field::EtherType, u128::MAX);
                    self.stacked |= EtherType(self.key.get(Field::EtherType) as u16).is_vlan();
                }
                self.write(Field::Vlan, 0, u128::MAX);
            }
            Action::Output(_) | Action::DecTtl | Action::Group(_) | Action::Meter(_) => {}
        }
    }

    fn tagged(&self) -> bool {
        self.key.get(Field::Vlan) & u128::from(VLAN_PRESENT) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(key: Key, actions: &[Action]) -> (Travelling, Mask) {
        let (mut travelling, mut seen) = (Travelling::new(&key), Mask::NONE);
        for action in actions {
            travelling.apply(action, |bits| seen = seen.or(&bits));
        }
        (travelling, seen)
    }

    const PUSH: Action = Action::PushVlan(EtherType::VLAN);

    fn set(field: Field, value: u128) -> Action {
        Action::Set { field, value, mask: u128::MAX }
    }

    #[test]
    fn tags_come_and_go() {
        let plain = Key::ipv4(1, 2, 3, 4, 6);
        let tagged = plain.with(Field::Vlan, 0x7005);
        let present = Mask::NONE.with(Field::Vlan, 0x1000);
        let vlan = set(Field::Vlan, 0x1009);
        let (travelling, seen) = apply(plain, &[PUSH, vlan]);
        assert_eq!((travelling.key.get(Field::Vlan), travelling.stacked, seen), (0x1009, false, present));
        let (travelling, seen) = apply(plain, &[PUSH, vlan, Action::PopVlan]);
        assert_eq!((travelling.key, travelling.stacked), (plain, false));
        // The tag that is taken off is our own: whether there is another behind it is still to be seen.
        assert!(present.within(&seen));
        assert!(apply(tagged, &[PUSH]).0.stacked);
        let (travelling, seen) = apply(tagged, &[Action::PopVlan]);
        assert_eq!((travelling.key, travelling.stacked), (plain, false));
        assert_eq!(seen, present.with(Field::EtherType, 0xffff));
        assert!(apply(tagged.with(Field::EtherType, 0x8100), &[Action::PopVlan]).0.stacked);
        // Untagged: nothing to take off, and no ethertype to look at.
        assert_eq!(apply(plain, &[Action::PopVlan]).1, present);
        // Only the number: the priority stays the packet's.
        let number = Action::Set { field: Field::Vlan, value: 0x1009, mask: 0x1fff };
        assert_eq!(apply(tagged, &[number]).0.key.get(Field::Vlan), 0x7009);
        assert_eq!(apply(plain, &[number]).0.key.get(Field::Vlan), 0x1009);
    }

    #[test]
    fn later_fragments_have_no_ports_to_set() {
        let first = Key::ipv4(1, 2, 3, 4, 6).with(Field::Fragment, 1);
        let later = Key::ipv4(1, 2, 0, 0, 6).with(Field::Fragment, 3);
        let port = set(Field::DestinationPort, 80);
        let bit = Mask::NONE.with(Field::Fragment, 2);
        let (travelling, seen) = apply(first, &[port]);
        assert_eq!((travelling.key.ports(), seen), ([3, 80], bit));
        let (travelling, seen) = apply(later, &[port]);
        assert_eq!((travelling.key, seen, travelling.written), (later, bit, Mask::NONE));
    }
}
