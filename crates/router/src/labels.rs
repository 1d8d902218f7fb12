//! FIB labels: one for each next hop that a route of the family uses, given out densely and counted.
//!
//! A label that no route uses any more keeps its meaning, and is not given out again, before every worker has passed a
//! burst boundary: until then a packet on its way may still carry it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use tidemill_lookup::qsbr::{Domain, Epoch};
use tidemill_lpm::Label;
use tidemill_wire::MacAddr;

/// What a route leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHop {
    /// To us.
    Local,
    /// To the kernel.
    Kernel,
    /// A directed broadcast.
    Broadcast,
    /// Dropped silently.
    Blackhole,
    /// Dropped: the host cannot be reached.
    Unreachable,
    /// Dropped: forbidden.
    Prohibited,
    /// The destination itself, on this interface.
    OnLink(u16),
    /// A neighbor of this interface, to be resolved.
    Via(u16, IpAddr),
    /// A neighbor of this interface, whose MAC address is given.
    Mac(u16, MacAddr),
    /// A label of the table's file; what it means is in the configuration.
    Named(Label),
    /// Several with their weights, sorted; flows are spread over them.
    Group(Vec<(NextHop, u32)>),
}

impl NextHop {
    /// Whether destinations themselves are asked for on that interface.
    pub(crate) fn gleans(&self, interface: u16) -> bool {
        match self {
            NextHop::OnLink(number) => *number == interface,
            NextHop::Group(members) => members.iter().any(|(member, _)| member.gleans(interface)),
            _ => false,
        }
    }
}

struct Entry {
    hop: NextHop,
    /// Routes and groups that use it; with none left it rests.
    users: usize,
    /// Labels of a group's members, in the group's order.
    members: Vec<Label>,
}

/// The labels in use.
pub(crate) struct Labels {
    /// By label; `None` is free, and so is 0, which means "no route".
    entries: Vec<Option<Entry>>,
    index: HashMap<NextHop, Label>,
    /// The smallest is given out first: structures with narrow labels have no others.
    free: BTreeSet<Label>,
    resting: VecDeque<(Epoch, Vec<Label>)>,
    released: Vec<Label>,
}

impl Default for Labels {
    fn default() -> Self {
        Labels {
            entries: vec![None],
            index: HashMap::new(),
            free: BTreeSet::new(),
            resting: VecDeque::new(),
            released: Vec::new(),
        }
    }
}

/// What changed with a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    /// It is new: its adjacency must be published before any route has it.
    New,
    /// It was there.
    Known,
}

impl Labels {
    /// The label of a next hop, one more user counted.
    pub(crate) fn take(&mut self, hop: &NextHop) -> (Label, Used) {
        if let Some(&label) = self.index.get(hop) {
            if let Some(Some(entry)) = self.entries.get_mut(label.0 as usize) {
                entry.users += 1;
            }
            return (label, Used::Known);
        }
        let members = match hop {
            NextHop::Group(members) => members.iter().map(|(member, _)| self.take(member).0).collect(),
            _ => Vec::new(),
        };
        let label = self.free.pop_first().unwrap_or_else(|| {
            self.entries.push(None);
            Label(self.entries.len() as u32 - 1)
        });
        self.entries[label.0 as usize] = Some(Entry { hop: hop.clone(), users: 1, members });
        self.index.insert(hop.clone(), label);
        (label, Used::New)
    }

    /// One user fewer; the last one's label is free after [`rest`](Self::rest) and a grace period. True for the last.
    pub(crate) fn give_back(&mut self, label: Label) -> bool {
        let Some(Some(entry)) = self.entries.get_mut(label.0 as usize) else { return false };
        let last = entry.users == 1;
        entry.users = entry.users.saturating_sub(1);
        if last {
            self.index.remove(&entry.hop);
            self.released.push(label);
            for member in entry.members.clone() {
                self.give_back(member);
            }
        }
        last
    }

    /// Starts the grace period of what was given back; call it when no published table has those labels any more.
    pub(crate) fn rest(&mut self, domain: &Domain) {
        if !self.released.is_empty() {
            self.resting.push_back((domain.advance(), std::mem::take(&mut self.released)));
        }
    }

    /// How many have been given back and do not rest yet.
    pub(crate) fn released(&self) -> usize {
        self.released.len()
    }

    /// Frees at once what has been given back since [`released`](Self::released) said `from`, which no worker has ever seen in
    /// a table.
    pub(crate) fn free_unseen(&mut self, from: usize) {
        for label in self.released.drain(from..) {
            self.entries[label.0 as usize] = None;
            self.free.insert(label);
        }
    }

    /// Ends the grace periods that are over.
    pub(crate) fn collect(&mut self, domain: &Domain) {
        while self.resting.front().is_some_and(|(epoch, _)| domain.passed(*epoch)) {
            for label in self.resting.pop_front().into_iter().flat_map(|(_, labels)| labels) {
                self.entries[label.0 as usize] = None;
                self.free.insert(label);
            }
        }
    }

    /// The next hop of a label in use, or at rest.
    pub(crate) fn hop(&self, label: Label) -> Option<&NextHop> {
        self.entries.get(label.0 as usize)?.as_ref().map(|entry| &entry.hop)
    }

    /// The label of a next hop in use.
    pub(crate) fn label(&self, hop: &NextHop) -> Option<Label> {
        self.index.get(hop).copied()
    }

    /// Every label from 0 to the highest: its next hop, in use or at rest, and the labels of a group's members.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Label, Option<(&NextHop, &[Label])>)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(n, entry)| (Label(n as u32), entry.as_ref().map(|entry| (&entry.hop, &entry.members[..]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_shared_counted_and_used_again_after_a_grace_period() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let mut labels = Labels::default();
        let (one, new) = labels.take(&NextHop::OnLink(1));
        assert_eq!((one, new), (Label(1), Used::New));
        assert_eq!(labels.take(&NextHop::OnLink(1)), (one, Used::Known));
        assert!(!labels.give_back(one) && labels.give_back(one));
        labels.rest(&domain);
        labels.collect(&domain);
        assert_eq!(labels.take(&NextHop::OnLink(2)).0, Label(2), "a packet may still carry label 1");
        reader.quiescent();
        labels.collect(&domain);
        assert_eq!(labels.take(&NextHop::OnLink(3)).0, Label(1));
        assert_eq!((labels.hop(Label(1)), labels.index.len()), (Some(&NextHop::OnLink(3)), 2));
    }

    #[test]
    fn the_smallest_free_label_is_given_out() {
        let (domain, hop) = (Domain::new(), NextHop::OnLink);
        let mut labels = Labels::default();
        let all: Vec<Label> = (0..20).map(|n| labels.take(&hop(n)).0).collect();
        for &label in &all[4..] {
            labels.give_back(label);
        }
        labels.rest(&domain);
        labels.collect(&domain);
        assert_eq!([20, 21].map(|n| labels.take(&hop(n)).0), [Label(5), Label(6)]);
        // What no worker has seen is there again at once, and what was given back before rests.
        labels.give_back(Label(5));
        let before = labels.released();
        let group = labels.take(&NextHop::Group(vec![(hop(30), 1), (hop(31), 1)])).0;
        assert_eq!(labels.take(&hop(32)).0, Label(10));
        labels.give_back(group);
        labels.free_unseen(before);
        let next: Vec<Label> = (40..44).map(|n| labels.take(&hop(n)).0).collect();
        assert_eq!(next, [7, 8, 9, 11].map(Label));
        assert!(labels.hop(Label(5)).is_some(), "at rest");
    }

    #[test]
    fn a_group_uses_its_members() {
        let domain = Domain::new();
        let mut labels = Labels::default();
        let via = |n: u8| NextHop::Via(0, IpAddr::from([10, 0, 0, n]));
        let (single, _) = labels.take(&via(1));
        let group = NextHop::Group(vec![(via(1), 1), (via(2), 3)]);
        let (label, _) = labels.take(&group);
        let members = labels.iter().nth(label.0 as usize).and_then(|(_, entry)| entry).unwrap().1.to_vec();
        assert_eq!(members, [single, labels.label(&via(2)).unwrap()]);
        labels.give_back(single);
        assert!(labels.hop(single).is_some(), "the group uses it");
        labels.give_back(label);
        labels.rest(&domain);
        assert!(labels.index.is_empty());
    }
}
