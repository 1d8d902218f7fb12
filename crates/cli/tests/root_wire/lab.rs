//! What is on the bench: hosts around one router, each on a cable of its own.
//!
//! ```text
//!   left: 10.1.0.2  ----  10.1.0.1 [tm-left   router   tm-right] 10.2.0.1  ----  10.2.0.2 :right
//!        fd00:1::2        fd00:1::1                              fd00:2::1       fd00:2::2
//! ```

use crate::dut::{Dut, Router};
use crate::net::{Netns, cable};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The two families, in which every test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn number(self) -> u8 {
        match self {
            Family::V4 => 4,
            Family::V6 => 6,
        }
    }

    /// One of two, by family.
    pub(crate) fn pick<T>(self, v4: T, v6: T) -> T {
        match self {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

/// Whose the addresses of the router's interfaces are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Us,
    Kernel,
}

/// A cable between the router and a host.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The port's name; the router's interface is `tm-NAME`, the host's is `NAME`.
    pub(crate) name: &'static str,
    /// The host at the other end; links to one host name the same.
    pub(crate) host: &'static str,
    /// The first parts of the addresses: the router is `.1`, the host `.2`.
    pub(crate) v4: String,
    pub(crate) v6: String,
    /// Length of the IPv4 prefix.
    pub(crate) v4_len: u8,
    pub(crate) mtu: u16,
    /// Whether it has addresses, besides those that the test gives it.
    pub(crate) addresses: bool,
    /// Further keys of Tidemill's `[[port]]` and `[[interface]]`.
    pub(crate) port: &'static str,
    pub(crate) interface: &'static str,
}

impl Link {
    /// A cable to a host of the same name, with networks of this number.
    pub(crate) fn new(name: &'static str, net: u8) -> Self {
        Link {
            name,
            host: name,
            v4: format!("10.{net}.0"),
            v6: format!("fd00:{net}:"),
            v4_len: 24,
            mtu: 1500,
            addresses: true,
            port: "",
            interface: "",
        }
    }

    /// The router's address.
    pub(crate) fn router(&self, family: Family) -> IpAddr {
        family.pick(format!("{}.1", self.v4), format!("{}:1", self.v6)).parse().unwrap()
    }

    /// The host's address.
    pub(crate) fn host(&self, family: Family) -> IpAddr {
        family.pick(format!("{}.2", self.v4), format!("{}:2", self.v6)).parse().unwrap()
    }

    /// Both with the length of the prefix, as written in configurations.
    fn with_length(&self, of: impl Fn(Family) -> IpAddr) -> [String; 2] {
        [format!("{}/{}", of(Family::V4), self.v4_len), format!("{}/64", of(Family::V6))]
    }
}

/// A lab to be.
pub(crate) struct Plan {
    pub(crate) links: Vec<Link>,
    pub(crate) owner: Owner,
    /// Prefixes with the addresses of their next hops.
    pub(crate) routes: Vec<(String, Vec<String>)>,
    /// What kind Tidemill's ports are.
    pub(crate) kind: &'static str,
    /// Further tables of Tidemill's configuration.
    pub(crate) config: String,
    /// Where Tidemill runs, if there are files for it.
    pub(crate) folder: Option<tempfile::TempDir>,
}

/// A lab.
pub(crate) struct Lab {
    pub(crate) router: Router,
    pub(crate) links: Vec<Link>,
    hosts: BTreeMap<&'static str, Netns>,
}

/// Quick neighbors: a test does not wait half a minute.
pub(crate) const QUICK_NEIGHBORS: &str = "[neighbors]\nreachable_s = 1\n";

/// The kernel's settings in the router's namespace when it routes: as we would.
const KERNEL_ROUTES: &[&str] = &[
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv6.icmp.ratelimit=0",
    "net.ipv4.fib_multipath_hash_policy=1",
    "net.ipv6.fib_multipath_hash_policy=1",
    "net.ipv4.fib_multipath_use_neigh=1",
];

/// The same for the neighbors of one interface: as quick as in `QUICK_NEIGHBORS`.
const KERNEL_NEIGHBORS: &[&str] =
    &["base_reachable_time_ms=1000", "delay_first_probe_time=1", "retrans_time_ms=200"];

const EVERYWHERE: &[&str] = &[
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.conf.default.dad_transmits=0",
    "net.ipv6.conf.default.accept_ra=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.rp_filter=0",
];

const HOSTS: &[&str] = &[
    // TCP asks at least every second while nobody answers (since Linux 6.15).
    "net.ipv4.tcp_rto_max_ms=1000",
    "net.ipv4.tcp_retries2=100",
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv6.icmp.ratelimit=0",
    // Addresses and routes outlive a link that goes down for a moment.
    "net.ipv6.conf.default.keep_addr_on_down=1",
    "net.ipv6.conf.all.keep_addr_on_down=1",
];

/// The router is Tidemill and the addresses are its own: the kernel keeps out.
const KERNEL_IS_SILENT: &[&str] =
    &["net.ipv4.ip_forward=0", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.all.disable_ipv6=1"];

impl Plan {
    pub(crate) fn new(links: impl Into<Vec<Link>>) -> Self {
        Plan {
            links: links.into(),
            owner: Owner::Us,
            kind: "af_packet",
            routes: Vec::new(),
            config: String::new(),
            folder: None,
        }
    }

    /// Two hosts, `left` and `right`.
    pub(crate) fn two_hosts() -> Self {
        Plan::new([Link::new("left", 1), Link::new("right", 2)])
    }

    pub(crate) fn config(mut self, text: &str) -> Self {
        self.config += text;
        self
    }

    pub(crate) fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    pub(crate) fn route(mut self, prefix: &str, via: &[IpAddr]) -> Self {
        self.routes.push((prefix.into(), via.iter().map(IpAddr::to_string).collect()));
        self
    }

    /// Runs Tidemill in a folder that has files for it.
    pub(crate) fn folder(mut self, folder: tempfile::TempDir) -> Self {
        self.folder = Some(folder);
        self
    }

    /// Builds it and starts the router.
    pub(crate) fn build(mut self, dut: Dut) -> Lab {
        let router = Netns::new("router");
        router.sysctl(EVERYWHERE);
        match (dut, self.owner) {
            (Dut::Kernel, _) => router.sysctl(KERNEL_ROUTES),
            (Dut::Tidemill, Owner::Us) => router.sysctl(KERNEL_IS_SILENT),
            (Dut::Tidemill, Owner::Kernel) => router.sysctl(&["net.ipv4.ip_forward=0"]),
        }
        let mut hosts = BTreeMap::new();
        for link in &self.links {
            let host = hosts.entry(link.host).or_insert_with(|| {
                let host = Netns::new(link.host);
                host.sysctl(EVERYWHERE);
                host.sysctl(HOSTS);
                host
            });
            cable(&router, &format!("tm-{}", link.name), host, link.name, link.mtu);
            if dut == Dut::Kernel {
                for setting in KERNEL_NEIGHBORS {
                    let [v4, v6] = [4, 6].map(|n| format!("net.ipv{n}.neigh.tm-{}.{setting}", link.name));
                    router.sysctl(&[&v4, &v6]);
                }
            }
            if link.addresses {
                link.give_host_addresses(host);
            }
        }
        let router = match dut {
            Dut::Kernel => {
                self.give_kernel_addresses(&router);
                for (prefix, via) in &self.routes {
                    let paths: String = via.iter().map(|via| format!(" nexthop via {via}")).collect();
                    router.run(&format!("ip route add {prefix}{paths}"));
                }
                Router::kernel(router)
            }
            Dut::Tidemill => {
                if self.owner == Owner::Kernel {
                    self.give_kernel_addresses(&router);
                }
                let folder = self.folder.take().unwrap_or_else(|| tempfile::tempdir().unwrap());
                Router::tidemill(router, folder, &self.text())
            }
        };
        Lab { router, links: self.links, hosts }
    }

    fn give_kernel_addresses(&self, router: &Netns) {
        for link in self.links.iter().filter(|link| link.addresses) {
            for address in link.with_length(|family| link.router(family)) {
                router.add_address(&address, &format!("tm-{}", link.name));
            }
        }
    }

    /// Tidemill's configuration.
    pub(crate) fn text(&self) -> String {
        let mut text =
            format!("version = 1\nrole = \"router\"\n[control]\nsocket = \"router.sock\"\n{}\n", self.config);
        for link in &self.links {
            let Link { name, port, interface, .. } = link;
            text += &format!(
                "[[port]]\nname = \"{name}\"\nkind = \"{}\"\ninterface = \"tm-{name}\"\n{port}\n",
                self.kind
            );
            text += &format!("[[interface]]\nport = \"{name}\"\n{interface}\n");
            match self.owner {
                Owner::Us if link.addresses => {
                    text += &format!("addresses = {:?}\n", link.with_length(|family| link.router(family)));
                }
                Owner::Us => {}
                Owner::Kernel => text += "owner = \"kernel\"\n",
            }
        }
        for (prefix, via) in &self.routes {
            text += &format!("[[route]]\nprefix = \"{prefix}\"\nvia = {via:?}\n");
        }
        text
    }
}

impl Link {
    /// Gives the host's end its addresses, and the routes by way of the router.
    pub(crate) fn give_host_addresses(&self, host: &Netns) {
        for address in self.with_length(|family| self.host(family)) {
            host.add_address(&address, self.name);
        }
        self.give_host_routes(host);
    }

    /// The routes by way of the router; they go whenever the host's interface goes down. Another link may have them.
    pub(crate) fn give_host_routes(&self, host: &Netns) {
        for family in [Family::V4, Family::V6] {
            host.attempt(&format!("ip route add default via {} dev {}", self.router(family), self.name));
        }
    }
}

impl Lab {
    pub(crate) fn host(&self, name: &str) -> &Netns {
        &self.hosts[name]
    }

    pub(crate) fn left(&self) -> &Netns {
        self.host("left")
    }

    pub(crate) fn right(&self) -> &Netns {
        self.host("right")
    }

    pub(crate) fn link(&self, name: &str) -> &Link {
        self.links.iter().find(|link| link.name == name).unwrap()
    }

    /// The address of the host at the end of a link.
    pub(crate) fn address(&self, link: &str, family: Family) -> IpAddr {
        self.link(link).host(family)
    }

    /// Stops the router; Tidemill's books, which balance.
    pub(crate) fn finish(mut self) -> Option<Value> {
        self.router.stop()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hosts: String = self.hosts.values().map(Netns::describe).collect();
            println!("{}{hosts}", self.router.describe());
        }
    }
}
