//! The oracle: what the manual page says, with a map that is always large enough. It is told what packets are and reads no bytes.

use super::Flow;
use std::collections::HashMap;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Outside to inside; of a fragmented datagram the first, with its identification.
    Answer(Option<u32>),
    /// Outside to inside.
    Later(u32),
    /// Inside to outside.
    Query,
    /// Inside to outside, right in every way.
    Complaint,
    /// The same, wrong in some way.
    Lie,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Suspected { last_s: u64 },
    Solicited { until_s: u64 },
    Filtered { until_s: u64 },
}

#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub tuple: u8,
    pub expiry_s: u64,
    pub suspect_s: u64,
    pub query_s: u64,
}

#[derive(Debug)]
pub struct Oracle {
    rules: Rules,
    flows: HashMap<(IpAddr, Option<IpAddr>, u16, u16), State>,
    fragments: HashMap<(IpAddr, IpAddr, u32), u64>,
    pub made: u64,
    pub dropped: u64,
    pub lifted: u64,
    pub solicited: u64,
}

impl Oracle {
    pub fn new(rules: Rules) -> Self {
        Oracle {
            rules,
            flows: HashMap::new(),
            fragments: HashMap::new(),
            made: 0,
            dropped: 0,
            lifted: 0,
            solicited: 0,
        }
    }

    fn key(&self, flow: &Flow) -> (IpAddr, Option<IpAddr>, u16, u16) {
        let Flow { amplifier, victim, port, victim_port } = *flow;
        match self.rules.tuple {
            4 => (amplifier, Some(victim), port, victim_port),
            3 => (amplifier, Some(victim), port, 0),
            2 => (amplifier, Some(victim), 0, 0),
            _ => (amplifier, None, 0, 0),
        }
    }

    /// What holds of a flow at this time.
    fn now(&self, flow: &Flow, now_s: u64) -> Option<State> {
        self.flows.get(&self.key(flow)).copied().filter(|state| match *state {
            State::Suspected { last_s } => now_s - last_s <= self.rules.suspect_s,
            State::Solicited { until_s } | State::Filtered { until_s } => until_s > now_s,
        })
    }

    /// Which packets of a burst are dropped.
    pub fn burst(&mut self, now_s: u64, burst: &[(Flow, What)]) -> Vec<bool> {
        let mut drops = vec![false; burst.len()];
        // In order: what the flows are; then what victims say; then what has no ports.
        for (at, (flow, what)) in burst.iter().enumerate() {
            drops[at] = match what {
                What::Answer(fragment) => self.answer(now_s, flow, *fragment),
                What::Query => {
                    self.query(now_s, flow);
                    false
                }
                _ => false,
            };
        }
        for (flow, _) in burst.iter().filter(|(_, what)| *what == What::Complaint) {
            if let Some(State::Suspected { .. }) = self.now(flow, now_s) {
                self.made += 1;
                let until_s = now_s + self.rules.expiry_s;
                self.flows.insert(self.key(flow), State::Filtered { until_s });
            }
        }
        for (at, (flow, what)) in burst.iter().enumerate() {
            if let What::Later(ident) = what {
                let when = self.fragments.get(&(flow.amplifier, flow.victim, *ident));
                drops[at] = when.is_some_and(|when| now_s - when <= 3);
            }
        }
        self.dropped += drops.iter().filter(|&&drops| drops).count() as u64;
        drops
    }

    fn answer(&mut self, now_s: u64, flow: &Flow, fragment: Option<u32>) -> bool {
        let state = self.now(flow, now_s);
        let drops = matches!(state, Some(State::Filtered { .. }));
        match state {
            Some(State::Filtered { .. }) => {}
            Some(State::Solicited { .. }) => self.solicited += 1,
            _ => _ = self.flows.insert(self.key(flow), State::Suspected { last_s: now_s }),
        }
        if let Some(ident) = fragment {
            let datagram = (flow.amplifier, flow.victim, ident);
            if drops {
                self.fragments.insert(datagram, now_s);
            } else {
                self.fragments.remove(&datagram);
            }
        }
        drops
    }

    fn query(&mut self, now_s: u64, flow: &Flow) {
        if self.rules.query_s == 0 || self.rules.tuple == 1 {
            return;
        }
        if let Some(State::Filtered { .. }) = self.now(flow, now_s) {
            if self.rules.tuple == 2 {
                return;
            }
            self.lifted += 1;
        }
        self.flows.insert(self.key(flow), State::Solicited { until_s: now_s + self.rules.query_s });
    }
}
