//! Several workers that share nothing: every packet finds the worker that has its mapping, and together they are one NAT.

use crate::packets::*;
use std::collections::HashMap;
use tidemill_burst::DropReason;
use tidemill_nf::nat::config::Filtering;
use tidemill_nf::nat::settings::{Plan, Times, Whose};
use tidemill_nf::nat::{Endpoint, Fate, Nat, Now, Proto, Share, Token, Way};

/// A fragment that waits: worker, way, token, bytes.
type Waiting = (usize, Way, Token, Vec<u8>);

struct Workers<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize> {
    nats: Vec<Nat<A, E, S, T>>,
    times: Times,
    /// Who cannot come from outside.
    near: Vec<(u128, bool)>,
    handed: usize,
    /// Fragments that wait, with the worker where they do.
    waiting: Vec<Waiting>,
    out: Vec<Vec<u8>>,
}

impl<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize> Workers<A, E, S, T> {
    fn new(plan: &Plan<A>, workers: usize) -> Self {
        let nat = |worker| Nat::new(plan.clone(), Share { worker, workers }, 7 + worker as u128).unwrap();
        Workers {
            nats: (0..workers).map(nat).collect(),
            times: times(),
            near: Vec::new(),
            handed: 0,
            waiting: Vec::new(),
            out: Vec::new(),
        }
    }

    /// A packet comes to a worker; what becomes of it in the end. What passes is in `out`.
    fn come(&mut self, worker: usize, way: Way, packet: &[u8]) -> Fate {
        let owners = vec![Whose::Pool; 8];
        let mut packet = packet.to_vec();
        let now = Now { ms: 1000, times: &self.times, owners: &owners, near: &self.near };
        match self.nats[worker].translate(&now, way, &mut packet) {
            Fate::Elsewhere(handover) => {
                self.handed += 1;
                // The first one goes before those that have waited for it.
                let last = self.go_on(handover.worker, handover.way, &mut packet);
                self.release(worker, handover.first.as_slice());
                last
            }
            fate => {
                self.settle(worker, way, fate, &packet);
                fate
            }
        }
    }

    fn settle(&mut self, worker: usize, way: Way, fate: Fate, packet: &[u8]) {
        match fate {
            Fate::Waits(token) => self.waiting.push((worker, way, token, packet.to_vec())),
            Fate::First(token, arrival) => {
                self.out.push(packet.to_vec());
                self.release(worker, &[token]);
                self.release(worker, arrival.as_slice());
            }
            Fate::Translated => self.out.push(packet.to_vec()),
            Fate::Drop(_) | Fate::Tell(_) => {
                let settled: Vec<Token> = self.nats[worker].settled().collect();
                self.release(worker, &settled);
            }
            Fate::Passed => {}
            Fate::Elsewhere(_) => panic!("it is on its way"),
        }
    }

    /// At the worker that it was handed over to.
    fn go_on(&mut self, mut worker: usize, mut way: Way, packet: &mut [u8]) -> Fate {
        let owners = vec![Whose::Pool; 8];
        for _ in 0..3 {
            let now = Now { ms: 1000, times: &self.times, owners: &owners, near: &self.near };
            let fate = self.nats[worker].adopt(&now, way, packet);
            if let Fate::Elsewhere(handover) = fate {
                self.handed += 1;
                (worker, way) = (handover.worker, handover.way);
                continue;
            }
            self.settle(worker, way, fate, packet);
            return fate;
        }
        panic!("it goes round and round");
    }

    fn release(&mut self, at: usize, tokens: &[Token]) {
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (go, stay): (Vec<Waiting>, _) = all.partition(|(w, _, t, _)| *w == at && tokens.contains(t));
        self.waiting = stay;
        let owners = vec![Whose::Pool; 8];
        for (worker, way, token, mut packet) in go {
            let now = Now { ms: 1000, times: &self.times, owners: &owners, near: &self.near };
            match self.nats[worker].resume(&now, way, token, &mut packet) {
                Fate::Elsewhere(handover) => {
                    self.handed += 1;
                    self.go_on(handover.worker, handover.way, &mut packet);
                }
                Fate::Translated => self.out.push(packet),
                Fate::Waits(token) => self.waiting.push((worker, way, token, packet)),
                Fate::Drop(DropReason::NatFragmentRefused) => {}
                fate => panic!("{fate:?}"),
            }
        }
    }

    /// The ends of the one packet that has passed since.
    fn passed(&mut self) -> (Endpoint<A>, Endpoint<A>) {
        let out = std::mem::take(&mut self.out);
        assert_eq!(out.len(), 1);
        ends::<A, E, S, T>(&out[0])
    }
}

fn one_nat<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>() {
    let mut plan = plan::<A, E, S, T>(2);
    plan.filtering = Filtering::EndpointIndependent;
    plan.fixed = vec![(Proto::Tcp, end(A::inside(77), 80), end(A::pool(1), 8080))];
    for workers in [2, 3, 5] {
        let mut all = Workers::new(&plan, workers);
        let mut given: HashMap<Endpoint<A>, Endpoint<A>> = HashMap::new();
        for n in 0..400_u16 {
            let (inside, remote) = (end(A::inside((n % 50) as u8 + 1), 3000 + n / 50), end(A::remote(1), 53));
            // It may come to any of them, and does not always come to the same one.
            for arrives in 0..2 {
                let fate =
                    all.come((usize::from(n) + arrives) % workers, Way::Leaving, &udp(inside, remote, b""));
                assert_eq!(fate, Fate::Translated);
                let (looks, _) = all.passed();
                let before = given.insert(looks, inside);
                assert!(before.is_none_or(|before| before == inside), "{looks:?} is two hosts'");
            }
        }
        assert_eq!(given.len(), 400);
        for (n, (looks, inside)) in given.clone().into_iter().enumerate() {
            let fate = all.come(n % workers, Way::ToPool, &udp(end(A::remote(9), 9), looks, b""));
            assert_eq!((fate, all.passed()), (Fate::Translated, (end(A::remote(9), 9), inside)));
            // An error about it, at any worker.
            let about = udp(looks, end(A::remote(1), 53), b"");
            let fate = all.come((n + 1) % workers, Way::ToPool, &error(A::remote(8), looks.address, &about));
            assert_eq!(fate, Fate::Translated);
            let out = std::mem::take(&mut all.out);
            assert_eq!(A::read(&out[0][A::SOURCE + A::BYTES..]), inside.address);
        }
        // Hairpins between hosts of any two workers, and what is said of them.
        let pairs: Vec<_> = given.into_iter().take(60).collect();
        for (n, (looks, inside)) in pairs.iter().enumerate() {
            let (other_looks, other) = pairs[(n + 7) % pairs.len()];
            let fate = all.come(n % workers, Way::Hairpin, &udp(*inside, other_looks, b"hello"));
            assert_eq!(fate, Fate::Translated);
            let came = all.out.pop().unwrap();
            assert_eq!(ends::<A, E, S, T>(&came), (*looks, other));
            let fate = all.come((n + 1) % workers, Way::Hairpin, &udp(other, *looks, b"and you"));
            assert_eq!((fate, all.passed()), (Fate::Translated, (other_looks, *inside)));
            let fate = all.come(n % workers, Way::Hairpin, &error(other.address, looks.address, &came));
            assert_eq!(fate, Fate::Translated);
            let said = all.out.pop().unwrap();
            assert_eq!(A::read(&said[A::SOURCE + A::BYTES..]), inside.address);
            let upper = if A::V6 { 40 } else { 20 };
            assert_eq!(said[upper + 8..], udp(*inside, other_looks, b"hello"));
        }
        // A static mapping belongs to one of them.
        for arrives in 0..workers {
            let client = end(A::remote(3), 100 + arrives as u16);
            let fate = all.come(arrives, Way::ToPool, &tcp(client, end(A::pool(1), 8080), SYN));
            assert_eq!((fate, all.passed()), (Fate::Translated, (client, end(A::inside(77), 80))));
        }
        assert!(all.handed > 400, "{}", all.handed);
    }
}

fn fragments_of_one_datagram<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>() {
    let mut plan = plan::<A, E, S, T>(1);
    plan.filtering = Filtering::EndpointIndependent;
    plan.fragments = 1024;
    let mut all = Workers::new(&plan, 3);
    let remote = end(A::remote(1), 53);
    let payload: Vec<u8> = (0..2000_u32).map(|n| n as u8).collect();
    for host in 1..=12 {
        let inside = end(A::inside(host), 4000);
        for (n, order) in [[0, 1, 2], [2, 1, 0], [1, 0, 2]].into_iter().enumerate() {
            let ident = u16::from(host) * 10 + n as u16;
            let pieces = fragments::<A, E, S, T>(&udp(inside, remote, &payload), 800, ident);
            // Fragments of one packet all come to one worker: they have no ports to be told apart by.
            for at in order {
                all.come(n, Way::Leaving, &pieces[at]);
            }
            let (source, to) = ends::<A, E, S, T>(&joined::<A, E, S, T>(&std::mem::take(&mut all.out)));
            assert_eq!(to, remote);
            let pieces = fragments::<A, E, S, T>(&udp(remote, source, &payload), 800, ident);
            for at in order {
                all.come(2 - n, Way::ToPool, &pieces[at]);
            }
            let whole = joined::<A, E, S, T>(&std::mem::take(&mut all.out));
            assert_eq!(ends::<A, E, S, T>(&whole), (remote, inside));
            assert!(all.waiting.is_empty());
            // To nobody: the others go with their first one.
            let unasked = udp(remote, end(A::pool(1), 100 + ident), &payload);
            let pieces = fragments::<A, E, S, T>(&unasked, 800, ident + 1000);
            for at in order {
                all.come(n, Way::ToPool, &pieces[at]);
            }
            assert!(all.waiting.is_empty() && all.out.is_empty(), "{order:?}");
        }
    }
}

/// A route may lead outside to an address of a network inside: who is there answers, but begins nothing.
fn answers_of_one_near<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>() {
    let mut plan = plan::<A, E, S, T>(1);
    plan.filtering = Filtering::EndpointIndependent;
    plan.fragments = 1024;
    let (remote, other, payload) = (end(A::remote(1), 53), end(A::remote(1), 54), [7_u8; 100]);
    for workers in 1..=3 {
        let mut all = Workers::new(&plan, workers);
        all.near = vec![(A::remote(1).into(), true), (A::remote(2).into(), false)];
        for host in 1..=12 {
            let inside = end(A::inside(host), 4000);
            assert_eq!(all.come(0, Way::Leaving, &udp(inside, remote, b"")), Fate::Translated);
            let (udp_looks, _) = all.passed();
            assert_eq!(all.come(0, Way::Leaving, &tcp(inside, remote, SYN)), Fate::Translated);
            let (tcp_looks, _) = all.passed();
            for arrives in 0..workers {
                for answer in [udp(remote, udp_looks, b""), tcp(remote, tcp_looks, SYN | ACK)] {
                    assert_eq!(all.come(arrives, Way::ToPool, &answer), Fate::Translated);
                    assert_eq!(all.passed(), (remote, inside));
                }
                let ident = u16::from(host) * 10 + arrives as u16;
                for piece in fragments::<A, E, S, T>(&udp(remote, udp_looks, &payload), 48, ident) {
                    all.come(arrives, Way::ToPool, &piece);
                }
                assert_eq!(all.out.len(), 3, "{workers} workers");
                let whole = joined::<A, E, S, T>(&std::mem::take(&mut all.out));
                assert_eq!(ends::<A, E, S, T>(&whole), (remote, inside));
                for begins in [udp(other, udp_looks, b""), tcp(other, tcp_looks, SYN)] {
                    let fate = all.come(arrives, Way::ToPool, &begins);
                    assert_eq!(fate, Fate::Drop(DropReason::MartianSource));
                }
            }
        }
    }
}

/// Where the filter remembers whom somebody has sent to, such a one may answer from another port, as TFTP's servers do; another one begins nothing.
fn answers_from_another_port<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>() {
    let mut plan = plan::<A, E, S, T>(1);
    plan.filtering = Filtering::AddressDependent;
    plan.fragments = 1024;
    let (remote, other, payload) = (end(A::remote(1), 69), end(A::remote(1), 2000), [7_u8; 100]);
    for workers in 1..=3 {
        let mut all = Workers::new(&plan, workers);
        all.near = vec![(A::remote(1).into(), true), (A::remote(2).into(), true)];
        for host in 1..=12 {
            let inside = end(A::inside(host), 4000);
            assert_eq!(all.come(0, Way::Leaving, &udp(inside, remote, b"")), Fate::Translated);
            let (looks, _) = all.passed();
            for arrives in 0..workers {
                assert_eq!(all.come(arrives, Way::ToPool, &udp(other, looks, b"")), Fate::Translated);
                assert_eq!(all.passed(), (other, inside));
                let ident = u16::from(host) * 10 + arrives as u16;
                for piece in fragments::<A, E, S, T>(&udp(other, looks, &payload), 48, ident) {
                    all.come(arrives, Way::ToPool, &piece);
                }
                let whole = joined::<A, E, S, T>(&std::mem::take(&mut all.out));
                assert_eq!(ends::<A, E, S, T>(&whole), (other, inside));
                let fate = all.come(arrives, Way::ToPool, &udp(end(A::remote(2), 69), looks, b""));
                assert_eq!(fate, Fate::Drop(DropReason::MartianSource));
            }
        }
    }
}

#[test]
fn who_seems_to_be_near_answers_at_any_worker() {
    answers_of_one_near::<u32, 1, 2, 4>();
    answers_of_one_near::<u128, 3, 5, 5>();
    answers_from_another_port::<u32, 1, 2, 4>();
    answers_from_another_port::<u128, 3, 5, 5>();
}

#[test]
fn a_hairpin_to_nobody_maps_nothing_where_that_is_known() {
    let mut all = Workers::<u32, 1, 2, 4>::new(&plan(1), 3);
    let host = u32::inside(1);
    let own = all.nats[0].state().worker_of_host(host);
    let mut known = 0;
    for n in 0..60 {
        let nobody = end(u32::pool(1), 20_000 + n);
        known += usize::from(all.nats[0].state().worker_of(Proto::Udp, nobody) == own);
        let fate = all.come(own, Way::Hairpin, &udp(end(host, 3000 + n), nobody, b""));
        assert_eq!(fate, Fate::Drop(DropReason::NatUnmapped));
    }
    assert_eq!((known, all.nats[own].state().mappings()), (20, 40));
}

#[test]
fn together_they_are_one_nat() {
    one_nat::<u32, 1, 2, 4>();
    one_nat::<u128, 3, 5, 5>();
}

#[test]
fn fragments_go_where_their_first_one_belongs() {
    fragments_of_one_datagram::<u32, 1, 2, 4>();
    fragments_of_one_datagram::<u128, 3, 5, 5>();
}

#[test]
fn each_has_its_part_of_the_ports() {
    let mut plan = plan::<u32, 1, 2, 4>(1);
    plan.ports = 2000..=2023;
    let mut all = Workers::new(&plan, 3);
    let mut fates = [0; 2];
    for n in 0..200_u16 {
        let inside = end(u32::inside((n % 100) as u8 + 1), 3000 + n);
        match all.come(0, Way::Leaving, &udp(inside, end(u32::remote(1), 53), b"")) {
            Fate::Translated => fates[0] += 1,
            fate => {
                assert_eq!(fate, Fate::Tell(DropReason::NatPortsExhausted));
                fates[1] += 1;
            }
        }
    }
    assert_eq!(fates, [24, 176], "all of them in the end, eight each");
}
