//! The control side: owns the routes, turns them into tables and next hops, and publishes both to the workers.

use crate::config::RouterConfig;
use crate::icmp::{IcmpBoard, IcmpStats};
use crate::next_hop::{NextHops, Own, Rules};
use crate::settings::{ConfigError, PortInfo, Settings};
use std::sync::Arc;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::table::{Algorithm, Applied, Family, Table};
use tidemill_lpm::{BuildError, Fib, Label, Prefix, Rib};
use tidemill_wire::EtherType;

/// One family's routes as a feed brings them.
#[derive(Clone)]
pub struct Routes<A: Family> {
    /// Prefixes and labels.
    pub rib: Rib<A>,
    /// What the table's file calls the labels, as far as it has names; for `[[next_hop]] name = ...`.
    pub names: Vec<(Label, String)>,
    /// Static routes: prefixes of `rib` that no later change touches.
    pub fixed: Vec<Prefix<A>>,
}

impl<A: Family> Default for Routes<A> {
    fn default() -> Self {
        Routes { rib: Rib::new(), names: Vec::new(), fixed: Vec::new() }
    }
}

/// Why a router cannot be made, or cannot take a change.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A lookup structure.
    #[error("IPv{family} table: {source}")]
    Table {
        /// 4 or 6.
        family: u8,
        /// What the structure says.
        source: BuildError,
    },
    /// A label beyond what next hops are kept for.
    #[error("route {prefix}: label {label} is larger than {max}: number next hops from 1", max = Rules::MAX)]
    Label {
        /// The route.
        prefix: String,
        /// Its label.
        label: u32,
    },
}

/// What one family's lookups run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupStats {
    /// 4 or 6.
    pub family: u8,
    /// The lookup structure.
    pub algorithm: String,
    /// Prefixes, the router's own included.
    pub prefixes: usize,
    /// Bytes that lookups can touch.
    pub bytes: usize,
    /// Next hops, "no route" and the router's own included.
    pub next_hops: usize,
    /// Published so far: 1 at first, one more for each change.
    pub generation: u64,
}

/// A family that the router routes.
pub trait Routed: Family {
    /// This family's half of the control side.
    #[doc(hidden)]
    fn plane(control: &mut RouterControl) -> &mut Plane<Self>;
}

/// One family's half of the control side.
#[doc(hidden)]
pub struct Plane<A: Family> {
    table: Table<A>,
    hops: Publisher<NextHops>,
    rules: Rules,
    /// The router's own prefixes and the static ones, which no feed overrides.
    own: Vec<Prefix<A>>,
    highest: Label,
}

/// The control side of a router. Workers hold views of what it publishes; dropping it while they run is safe.
pub struct RouterControl {
    pub(crate) settings: Arc<Settings>,
    pub(crate) icmp: Arc<IcmpBoard>,
    v4: Plane<u32>,
    v6: Plane<u128>,
}

impl Routed for u32 {
    fn plane(control: &mut RouterControl) -> &mut Plane<u32> {
        &mut control.v4
    }
}

impl Routed for u128 {
    fn plane(control: &mut RouterControl) -> &mut Plane<u128> {
        &mut control.v6
    }
}

impl RouterControl {
    /// Checks `config` against `ports` and builds the tables, for the workers of `domain`.
    ///
    /// The router adds routes of its own: to each of its addresses, and to the prefixes that they are on. Those win
    /// over the same prefixes from a feed (RFC 1812 5.2.4.3 leaves preference to the implementer; a link that we are
    /// on is the better news).
    ///
    /// # Errors
    /// A configuration that makes no sense, or a table that does not fit its structure.
    pub fn new(
        config: &RouterConfig,
        ports: &[PortInfo],
        v4: Routes<u32>,
        v6: Routes<u128>,
        domain: &Domain,
    ) -> Result<Self, RouterError> {
        let settings = Settings::new(config, ports)?;
        for (i, entry) in config.next_hop.iter().enumerate() {
            let known =
                |names: &[(Label, String)]| names.iter().any(|(_, name)| Some(name) == entry.name.as_ref());
            if entry.name.is_some() && !known(&v4.names) && !known(&v6.names) {
                let name = entry.name.as_deref().unwrap_or_default();
                let what = format!("no table names a next hop {name:?}: give its label, or remove the entry");
                return Err(ConfigError::new(format!("next_hop[{i}].name"), what).into());
            }
        }
        let own4 = own_routes(settings.interfaces.iter().map(|i| &i.v4[..]), true);
        let own6 = own_routes(settings.interfaces.iter().map(|i| &i.v6[..]), false);
        let algorithm = |key: &str, error: &dyn ToString| ConfigError::new(key, error.to_string());
        let algorithm4 = Algorithm::parse::<u32>(&config.router.algorithm)
            .map_err(|error| algorithm("router.algorithm", &error))?;
        let algorithm6 = Algorithm::parse::<u128>(&config.router.algorithm6)
            .map_err(|error| algorithm("router.algorithm6", &error))?;
        let v4 = Plane::new(config, ports, &settings, EtherType::IPV4, own4, v4, &algorithm4, domain)?;
        let v6 = Plane::new(config, ports, &settings, EtherType::IPV6, own6, v6, &algorithm6, domain)?;
        Ok(RouterControl { settings: Arc::new(settings), icmp: Arc::default(), v4, v6 })
    }

    /// Applies a feed's changes to one family's routes, while workers run. Changes to the router's own prefixes and to
    /// static routes are ignored.
    ///
    /// # Errors
    /// A label that is too large, or a table that outgrows its structure; nothing has changed then.
    pub fn apply<A: Routed>(&mut self, changes: &[Change<A>]) -> Result<Applied, RouterError> {
        A::plane(self).apply(changes)
    }

    /// What IPv4 and IPv6 lookups run on.
    pub fn lookup_stats(&self) -> [LookupStats; 2] {
        [self.v4.stats(), self.v6.stats()]
    }

    /// ICMP errors so far, all workers together.
    pub fn icmp_stats(&self) -> IcmpStats {
        self.icmp.sum()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Frees replaced tables that no worker can see any more; call it now and then. Returns how many still wait.
    pub fn collect(&mut self) -> usize {
        self.v4.collect() + self.v6.collect()
    }

    pub(crate) fn views4(&self) -> (View<Arc<dyn Fib<u32>>>, View<NextHops>) {
        (self.v4.table.view(), self.v4.hops.view())
    }

    pub(crate) fn views6(&self) -> (View<Arc<dyn Fib<u128>>>, View<NextHops>) {
        (self.v6.table.view(), self.v6.hops.view())
    }
}

/// The router's own routes: which prefix, and what it means.
type OwnRoutes<A> = Vec<(Prefix<A>, Own)>;

fn own_routes<'a, A: Family, T>(
    interfaces: impl Iterator<Item = &'a [(T, Prefix<A>)]>,
    broadcasts: bool,
) -> OwnRoutes<A>
where
    T: Copy + Into<std::net::IpAddr> + 'a,
{
    let host = |address: A| Prefix::new(address, A::BITS);
    let (mut local, mut links) = (Vec::new(), Vec::new());
    for (port, addresses) in interfaces.enumerate() {
        for &(address, prefix) in addresses {
            let address = match address.into() {
                std::net::IpAddr::V4(v4) => A::from_u128(u32::from(v4).into()),
                std::net::IpAddr::V6(v6) => A::from_u128(v6.into()),
            };
            local.extend(host(address).map(|host| (host, Own::Local)));
            if prefix.len() < A::BITS {
                links.push((prefix, Own::Connected(port)));
            }
            if broadcasts && prefix.len() + 1 < A::BITS {
                links.extend(host(prefix.last()).map(|host| (host, Own::Broadcast)));
            }
        }
    }
    // Of two equal prefixes the first counts: our own address before another link's broadcast address.
    local.extend(links);
    let mut routes: OwnRoutes<A> = Vec::new();
    for (prefix, own) in local {
        if !routes.iter().any(|(known, _)| *known == prefix) {
            routes.push((prefix, own));
        }
    }
    routes
}

impl<A: Family> Plane<A> {
    #[allow(clippy::too_many_arguments)] // a private constructor with everything that it is made of
    fn new(
        config: &RouterConfig,
        ports: &[PortInfo],
        settings: &Settings,
        ethertype: EtherType,
        own: OwnRoutes<A>,
        routes: Routes<A>,
        algorithm: &Algorithm,
        domain: &Domain,
    ) -> Result<Self, RouterError> {
        // One label per meaning: they are few, and small labels keep the structures small.
        let mut meanings: Vec<Own> = Vec::new();
        let mut labelled = Vec::new();
        for (prefix, own) in own {
            let at = meanings.iter().position(|known| *known == own).unwrap_or_else(|| {
                meanings.push(own);
                meanings.len() - 1
            });
            labelled.push((prefix, Label(at as u32 + 1)));
        }
        let rules = Rules::new(config, ports, &settings.interfaces, ethertype, meanings, &routes.names)?;
        let mut highest = routes.names.iter().map(|(label, _)| *label).max().unwrap_or_default();
        // Nothing of our own: labels stay as they are, and so does the RIB.
        let mut rib = if labelled.is_empty() { routes.rib } else { shift(&routes.rib, &rules)? };
        let shift_by = rules.fib_label(Label(1)).map_or(0, |label| label.0 - 1);
        for (prefix, label) in rib.iter() {
            let label = Label(label.0.saturating_sub(shift_by));
            if label.0 > Rules::MAX {
                return Err(RouterError::Label { prefix: prefix.to_string(), label: label.0 });
            }
            highest = highest.max(label);
        }
        highest = highest.min(Label(Rules::MAX));
        for (prefix, label) in &labelled {
            rib.insert(*prefix, *label);
        }
        let hops = Publisher::new(domain, rules.table(highest));
        let table = Table::new(domain, rib, algorithm)
            .map_err(|source| RouterError::Table { family: A::FAMILY, source })?;
        let own = labelled.into_iter().map(|(prefix, _)| prefix).chain(routes.fixed).collect();
        Ok(Plane { table, hops, rules, own, highest })
    }

    fn apply(&mut self, changes: &[Change<A>]) -> Result<Applied, RouterError> {
        let mut highest = self.highest;
        let mut mapped = Vec::with_capacity(changes.len());
        for change in changes {
            if self.own.contains(&change.prefix()) {
                continue;
            }
            mapped.push(match *change {
                Change::Withdraw(prefix) => Change::Withdraw(prefix),
                Change::Announce(prefix, label) => {
                    highest = highest.max(label);
                    Change::Announce(prefix, fib_label(&self.rules, prefix, label)?)
                }
            });
        }
        // Next hops first: no worker may meet a label before its meaning.
        if highest > self.highest {
            self.hops.publish(self.rules.table(highest));
            self.highest = highest;
        }
        self.table.apply(&mapped).map_err(|source| RouterError::Table { family: A::FAMILY, source })
    }

    fn stats(&self) -> LookupStats {
        LookupStats {
            family: A::FAMILY,
            algorithm: self.table.fib().name(),
            prefixes: self.table.rib().len(),
            bytes: self.table.fib().bytes(),
            next_hops: self.hops.current().len(),
            generation: self.table.generation(),
        }
    }

    fn collect(&mut self) -> usize {
        self.table.collect() + self.hops.collect()
    }
}

fn fib_label<A: Family>(rules: &Rules, prefix: Prefix<A>, label: Label) -> Result<Label, RouterError> {
    rules.fib_label(label).ok_or_else(|| RouterError::Label { prefix: prefix.to_string(), label: label.0 })
}

fn shift<A: Family>(rib: &Rib<A>, rules: &Rules) -> Result<Rib<A>, RouterError> {
    rib.iter().map(|(prefix, label)| Ok((prefix, fib_label(rules, prefix, label)?))).collect()
}
