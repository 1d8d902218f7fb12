//! A network namespace with two cables and a feed in it, and what the feed has told.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidemill_feed::AnyPrefix;
use tidemill_feed::kernel::{Hop, KernelEvent, KernelFeed, KernelOptions, KernelPath, MAIN_TABLE};

/// Whether this is root; elsewhere the test is skipped by name, but not in CI.
pub(crate) fn may_run(test: &str) -> bool {
    let root = std::fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("Uid:\t0\t0"));
    if !root {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI");
        println!("skipped: {test} (needs root)");
    }
    root
}

pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace that goes with its value, also when the test panics.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tm-feed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(&format!("ip netns add {name}"));
        Namespace(name)
    }

    pub(crate) fn ip(&self, arguments: &str) -> String {
        run(&format!("ip -n {} {arguments}", self.0))
    }

    pub(crate) fn sysctl(&self, setting: &str) {
        run(&format!("ip netns exec {} sysctl -qw {setting}", self.0));
    }

    /// `left <-> left-far`, `right <-> right-far`, all up; 10.0.0.1/24 and 10.1.0.1/24, fd00::1/64 and fd01::1/64.
    pub(crate) fn cables(&self) {
        self.ip("link set dev lo up");
        for (number, name) in ["left", "right"].into_iter().enumerate() {
            self.ip(&format!("link add name {name} type veth peer name {name}-far"));
            self.ip(&format!("link set dev {name} up"));
            self.ip(&format!("link set dev {name}-far up"));
            self.ip(&format!("address add 10.{number}.0.1/24 dev {name}"));
            self.ip(&format!("address add fd0{number}::1/64 dev {name} nodad"));
        }
    }

    pub(crate) fn open(&self, options: &KernelOptions) -> KernelFeed {
        let open = || {
            let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
            KernelFeed::open(options).unwrap()
        };
        // Only a thread of its own moves: the socket stays where it was made.
        std::thread::scope(|scope| scope.spawn(open).join().unwrap())
    }

    /// `ip -batch` of the lines.
    pub(crate) fn batch(&self, lines: impl Iterator<Item = String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.collect::<Vec<_>>().join("\n")).unwrap();
        self.ip(&format!("-batch {}", file.path().display()));
    }

    /// The best route of each prefix of the main table, as `ip` shows it.
    pub(crate) fn routes(&self) -> Routes {
        let mut routes = Routes::new();
        for family in ["-4", "-6"] {
            let text = self.ip(&format!("{family} -json route show table main"));
            let shown: Value = serde_json::from_str(&text).unwrap();
            for route in shown.as_array().unwrap() {
                let prefix = prefix(route["dst"].as_str().unwrap(), family == "-4");
                let metric = route["metric"].as_u64().unwrap_or(0);
                let Some(path) = self.path(route) else { continue };
                let entry = routes.entry(prefix).or_insert((metric, path.clone()));
                if metric < entry.0 {
                    *entry = (metric, path);
                }
            }
        }
        routes
    }

    fn path(&self, route: &Value) -> Option<KernelPath> {
        match route["type"].as_str().unwrap_or("unicast") {
            "unicast" => {}
            "blackhole" => return Some(KernelPath::Blackhole),
            "unreachable" => return Some(KernelPath::Unreachable),
            "prohibit" => return Some(KernelPath::Prohibit),
            other => panic!("{other}"),
        }
        let one = std::slice::from_ref(route);
        let hops = route["nexthops"].as_array().map_or(one, Vec::as_slice).iter();
        let dead = |hop: &Value| {
            hop["flags"]
                .as_array()
                .is_some_and(|flags| flags.iter().any(|flag| flag == "dead" || flag == "linkdown"))
        };
        let mut hops: Vec<Hop> = hops
            .filter(|hop| !dead(hop))
            .map(|hop| {
                let via = hop["gateway"].as_str().or(hop["via"]["host"].as_str());
                Hop {
                    index: self.index(hop["dev"].as_str().unwrap()),
                    gateway: via.map(|via| via.parse().unwrap()),
                    weight: hop["weight"].as_u64().unwrap_or(1) as u32,
                }
            })
            .collect();
        hops.sort();
        (!hops.is_empty()).then_some(KernelPath::Via(hops))
    }

    pub(crate) fn index(&self, name: &str) -> u32 {
        // Asked for a hundred thousand times.
        thread_local!(static KNOWN: std::cell::RefCell<BTreeMap<(String, String), u32>> = Default::default());
        let key = (self.0.clone(), name.to_owned());
        if let Some(index) = KNOWN.with_borrow(|known| known.get(&key).copied()) {
            return index;
        }
        let link: Value = serde_json::from_str(&self.ip(&format!("-json link show dev {name}"))).unwrap();
        let index = link[0]["ifindex"].as_u64().unwrap() as u32;
        KNOWN.with_borrow_mut(|known| known.insert(key, index));
        index
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "delete", &self.0]).status());
    }
}

/// By prefix: metric, path.
pub(crate) type Routes = BTreeMap<AnyPrefix, (u64, KernelPath)>;

pub(crate) fn prefix(text: &str, v4: bool) -> AnyPrefix {
    match (text, v4) {
        ("default", true) => "0.0.0.0/0".parse().map(AnyPrefix::V4).unwrap(),
        ("default", false) => "::/0".parse().map(AnyPrefix::V6).unwrap(),
        (_, true) => text.parse().map(AnyPrefix::V4).unwrap(),
        (_, false) => text.parse().map(AnyPrefix::V6).unwrap(),
    }
}

/// A neighbor's address on its link, and whether it was confirmed lately.
type Hardware = (Option<[u8; 6]>, bool);

/// A feed and the sum of its events.
pub(crate) struct Follower {
    pub(crate) feed: KernelFeed,
    pub(crate) routes: BTreeMap<(u32, AnyPrefix), Arc<KernelPath>>,
    /// By index: name, up.
    pub(crate) links: BTreeMap<u32, (String, bool)>,
    pub(crate) addresses: Vec<(u32, IpAddr, u8)>,
    pub(crate) neighbors: BTreeMap<(u32, IpAddr), Hardware>,
    /// Route events since the last [`Follower::sync`].
    pub(crate) route_events: Vec<KernelEvent>,
    pub(crate) syncs: u32,
}

impl Follower {
    pub(crate) fn new(feed: KernelFeed) -> Self {
        let mut follower = Follower::unread(feed);
        follower.until("the first dump", |follower| follower.syncs > 0);
        follower
    }

    pub(crate) fn unread(feed: KernelFeed) -> Self {
        Follower {
            feed,
            routes: BTreeMap::new(),
            links: BTreeMap::new(),
            addresses: Vec::new(),
            neighbors: BTreeMap::new(),
            route_events: Vec::new(),
            syncs: 0,
        }
    }

    /// Polls until all is read and no dump is due.
    pub(crate) fn sync(&mut self) {
        self.route_events.clear();
        let start = Instant::now();
        while self.poll() {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", self.feed.stats());
        }
    }

    /// Polls until something is so.
    pub(crate) fn until(&mut self, what: &str, so: impl Fn(&Follower) -> bool) {
        let start = Instant::now();
        while !so(self) {
            self.poll();
            let (routes, links) = (self.routes.len(), &self.links);
            let stats = self.feed.stats();
            assert!(start.elapsed() < Duration::from_secs(60), "no {what}: {routes} {links:?} {stats:?}");
        }
    }

    /// One poll; `true` if there is more to come.
    pub(crate) fn poll(&mut self) -> bool {
        let mut events = Vec::new();
        let progress = self.feed.poll(&mut events).unwrap();
        if events.is_empty() && !progress.more && progress.syncing {
            std::thread::sleep(Duration::from_millis(1));
        }
        for event in events {
            self.take(event);
        }
        progress.more || progress.syncing
    }

    fn take(&mut self, event: KernelEvent) {
        match event {
            KernelEvent::Route { table, prefix, ref path } => {
                let old = match path {
                    Some(path) => self.routes.insert((table, prefix), path.clone()),
                    None => self.routes.remove(&(table, prefix)),
                };
                assert_ne!(old, *path, "{prefix} is told again");
                self.route_events.push(event);
            }
            KernelEvent::Link { index, removed: true, .. } => {
                assert!(self.links.remove(&index).is_some(), "{index} is removed twice");
            }
            KernelEvent::Link { index, name, up, .. } => drop(self.links.insert(index, (name, up))),
            KernelEvent::Address { index, address, prefix_len, removed } => {
                let known = self.addresses.iter().position(|a| *a == (index, address, prefix_len));
                assert_eq!(known.is_some(), removed, "{address}");
                match known {
                    Some(at) => drop(self.addresses.swap_remove(at)),
                    None => self.addresses.push((index, address, prefix_len)),
                }
            }
            KernelEvent::Neighbor { index, address, mac, reachable } => {
                self.neighbors.insert((index, address), (mac, reachable));
            }
            KernelEvent::InSync => self.syncs += 1,
        }
    }

    /// What `ip route` shows is what the events add up to, and what the mirror says it has told.
    pub(crate) fn matches(&mut self, namespace: &Namespace) {
        self.sync();
        let shown = namespace.routes();
        let told = |table: u32, prefix| {
            assert_eq!(table, MAIN_TABLE);
            (prefix, ())
        };
        assert_eq!(self.routes.len(), shown.len(), "{:?}", self.difference(&shown));
        for (&(table, prefix), path) in &self.routes {
            told(table, prefix);
            assert_eq!(Some(&**path), shown.get(&prefix).map(|(_, path)| path), "{prefix}");
        }
        let mirrored: BTreeMap<_, _> =
            self.feed.routes().map(|(table, prefix, path)| ((table, prefix), path)).collect();
        assert_eq!(mirrored, self.routes);
        assert_eq!(self.feed.stats().undecodable, 0, "{:?}", self.feed.stats());
    }

    fn difference(&self, shown: &Routes) -> Vec<String> {
        let missing = shown.iter().filter(|(prefix, _)| !self.routes.contains_key(&(MAIN_TABLE, **prefix)));
        let left = self.routes.iter().filter(|((_, prefix), _)| !shown.contains_key(prefix));
        let missing = missing.map(|(prefix, path)| format!("missing {prefix} {path:?}"));
        missing.chain(left.map(|((_, prefix), path)| format!("left {prefix} {path:?}"))).take(8).collect()
    }

    /// The path of a prefix in the main table.
    pub(crate) fn path(&self, text: &str) -> Option<KernelPath> {
        let path = self.routes.get(&(MAIN_TABLE, prefix(text, !text.contains(':'))));
        path.map(|path| (**path).clone())
    }
}
