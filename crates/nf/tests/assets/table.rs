//! The table beside a list that is walked from end to end; floods; bounds.

use crate::frames::ip;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::Ipv4Addr;
use tidemill_nf::assets::table::{MOST_NAMES, MOST_SERVICES, OF_EACH};
use tidemill_nf::assets::text::Text;
use tidemill_nf::assets::{Assets, Fact, Host, Observation};
use tidemill_wire::MacAddr;

fn host(n: u32) -> Host {
    Host::Ip(Ipv4Addr::from(0x0a00_0000 + n).into())
}

fn see(n: u32, fact: Fact) -> Observation {
    Observation { host: host(n), fact }
}

/// Hosts as a list: last seen, number, known.
struct Model(Vec<(u64, u32, bool)>);

impl Model {
    const ROOM: usize = 24;
    const IDLE_MS: u64 = 500;

    fn observe(&mut self, now_ms: u64, n: u32, known: bool) {
        let before = self.0.iter().position(|host| host.1 == n).map(|at| self.0.remove(at));
        if before.is_none() && self.0.len() == Self::ROOM {
            self.0.sort_by_key(|&(last, n, known)| (known, last, host(n)));
            self.0.remove(0);
        }
        self.0.push((now_ms, n, known || before.is_some_and(|host| host.2)));
        while self.0.iter().filter(|host| host.2).count() > Self::ROOM - Self::ROOM / 8 {
            self.0.sort_by_key(|&(last, n, known)| (!known, last, host(n)));
            self.0.remove(0);
        }
    }
}

#[test]
fn the_table_is_what_the_list_is() {
    let mut random = StdRng::seed_from_u64(3);
    let (mut table, mut model) = (Assets::new(Model::ROOM, Model::IDLE_MS), Model(Vec::new()));
    let mut now_ms = 10_000;
    for _ in 0..20_000 {
        now_ms += random.random_range(0..20);
        let (n, known) = (random.random_range(0..60), random.random_bool(0.3));
        let fact = if known { Fact::Answers(random.random_range(1..4)) } else { Fact::Present };
        table.observe(now_ms, see(n, fact));
        model.observe(now_ms, n, known);
        if random.random_bool(0.1) {
            table.expire(now_ms);
            model.0.retain(|host| host.0 + Model::IDLE_MS >= now_ms);
        }
        let mut list: Vec<(Host, u64)> = model.0.iter().map(|&(last, n, _)| (host(n), last)).collect();
        list.sort();
        let shown: Vec<(Host, u64)> = table.after(None).map(|asset| (asset.host, asset.last_ms)).collect();
        assert_eq!(shown, list);
        assert!(table.is_consistent());
    }
    let done = table.done();
    assert!(done.evicted_bare > 100 && done.evicted_known > 100 && done.expired > 100, "{done:?}");
    assert_eq!(done.added, done.expired + done.evicted_bare + done.evicted_known + table.len() as u64);
}

/// Sources that are forged take the place of each other.
#[test]
fn a_flood_leaves_known_hosts_alone() {
    let mut table = Assets::new(80, 1_000_000);
    (0..70).for_each(|n| table.observe(1, see(n, Fact::Answers(80))));
    (1000..100_000).for_each(|n| table.observe(2, see(n, Fact::Present)));
    assert!((0..70).all(|n| table.get(host(n)).is_some()));
    assert_eq!((table.len(), table.done().evicted_known), (80, 0));
}

#[test]
fn a_host_is_bounded() {
    let mut table = Assets::new(1000, 1000);
    for port in 0..500 {
        table.observe(1, see(1, Fact::Answers(port)));
        table.observe(1, see(1, Fact::Name(Text::new(&port.to_be_bytes()))));
    }
    let asset = table.get(host(1)).unwrap();
    assert_eq!((asset.services.len(), asset.names.len()), (MOST_SERVICES, MOST_NAMES));
    assert_eq!(table.done().facts_full as usize, 1000 - MOST_SERVICES - MOST_NAMES);
}

/// All ports of many hosts take no more than what is shared, and leave each host its own; it comes back with whoever goes.
#[test]
fn forged_services_of_many_hosts_are_bounded_together() {
    const ROOM: usize = 64;
    let mut table = Assets::new(ROOM, 1000);
    let offer = |table: &mut Assets, now_ms: u64, n: u32, ports: u16| {
        for port in 0..ports {
            table.observe(now_ms, see(n, Fact::Answers(port)));
            table.observe(now_ms, see(n, Fact::Announces(Text::new(&port.to_be_bytes()), None)));
        }
        assert!(table.is_consistent());
    };
    (0..ROOM as u32).for_each(|n| offer(&mut table, 1, n, 128));
    let facts: usize = table.after(None).map(|asset| asset.services.len() + asset.announced.len()).sum();
    assert!(facts <= ROOM * (OF_EACH + 1), "{facts}");
    assert!(table.done().facts_full > 10_000, "{:?}", table.done());
    offer(&mut table, 2, 1000, 6);
    let late = table.get(host(1000)).unwrap();
    assert_eq!((late.services.len(), late.announced.len()), (OF_EACH / 2, OF_EACH / 2));
    // What it has it goes on with.
    let full = table.done().facts_full;
    table.observe(3, see(1000, Fact::Answers(0)));
    assert_eq!(table.done().facts_full, full);
    table.expire(2000);
    assert!(table.is_empty());
    offer(&mut table, 2000, 7, 60);
    let alone = table.get(host(7)).unwrap();
    assert_eq!(alone.services.len() + alone.announced.len(), OF_EACH + ROOM);
}

#[test]
fn pages_follow_each_other() {
    let mut table = Assets::new(1000, 1000);
    (0..100).for_each(|n| table.observe(1, see(n, Fact::Present)));
    let mac = Host::Mac(MacAddr([2; 6]));
    table.observe(1, Observation { host: mac, fact: Fact::Present });
    table.observe(1, Observation { host: Host::Ip(ip("2001:db8::1")), fact: Fact::Present });
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page: Vec<Host> = table.after(after).take(7).map(|asset| asset.host).collect();
        seen.extend(&page);
        let Some(last) = page.last() else { break };
        after = Some(*last);
    }
    let all: Vec<Host> = table.after(None).map(|asset| asset.host).collect();
    assert_eq!((seen.len(), seen.last()), (102, Some(&mac)));
    assert_eq!(seen, all);
}
