//! What the answers must be: the table as disjoint intervals, searched by bisection. Shares no code with the structures
//! that are measured.

use super::table::{Route, Table};

pub(crate) struct Reference {
    /// First address of each interval, ascending; the first is 0.
    starts: Vec<u128>,
    labels: Vec<u32>,
}

impl Reference {
    pub(crate) fn new(table: &Table) -> Reference {
        let mut routes = table.routes.clone();
        // Parents before children; of equal prefixes the later line stays innermost, and so wins.
        routes.sort_by_key(|route| (route.address, route.length));
        let mut reference = Reference { starts: vec![0], labels: vec![0] };
        let mut open: Vec<(u128, u32)> = Vec::new();
        for route in &routes {
            reference.close(&mut open, Some(route.address));
            reference.begin(route.address, route.label);
            open.push((last(route, table.bits()), route.label));
        }
        reference.close(&mut open, None);
        reference
    }

    /// Closes the prefixes that end before `until`; behind each, its parent goes on.
    fn close(&mut self, open: &mut Vec<(u128, u32)>, until: Option<u128>) {
        while let Some((last, _)) =
            open.last().copied().filter(|(last, _)| until.is_none_or(|until| *last < until))
        {
            open.pop();
            if let Some(next) = last.checked_add(1) {
                self.begin(next, open.last().map_or(0, |(_, label)| *label));
            }
        }
    }

    fn begin(&mut self, start: u128, label: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.labels.pop();
        }
        self.starts.push(start);
        self.labels.push(label);
    }

    /// The label of an address; 0 is no route.
    pub(crate) fn lookup(&self, address: u128) -> u32 {
        self.labels[self.starts.partition_point(|start| *start <= address) - 1]
    }
}

/// The last address of a route.
fn last(route: &Route, bits: u8) -> u128 {
    let host = if route.length == bits { 0 } else { u128::MAX >> (128 - bits + route.length) };
    route.address | host
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::keys::SplitMix;

    /// The definition: of the routes that contain the address the longest, of those the last.
    fn naive(table: &Table, address: u128) -> u32 {
        let inside = table.routes.iter().filter(|r| r.address <= address && address <= last(r, table.bits()));
        inside.max_by_key(|route| route.length).map_or(0, |route| route.label)
    }

    #[test]
    fn intervals_answer_like_the_definition() {
        let mut random = SplitMix::new(1);
        for family in [4, 6] {
            for size in [1, 2, 5, 30] {
                let table = super::super::lpm::small_table(family, size, &mut random);
                let reference = Reference::new(&table);
                for route in &table.routes {
                    let end = last(route, table.bits());
                    let all = if family == 4 { u128::from(u32::MAX) } else { u128::MAX };
                    for key in
                        [route.address, end, route.address.saturating_sub(1), end.saturating_add(1).min(all)]
                    {
                        assert_eq!(
                            reference.lookup(key),
                            naive(&table, key),
                            "{key:x} in {:x?}",
                            table.routes
                        );
                    }
                }
            }
        }
    }
}
