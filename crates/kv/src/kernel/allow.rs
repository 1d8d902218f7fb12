//! Whom the programs may answer, where, and by which addresses of this machine.

use super::cache::{Cache, system};
use super::layout::{Allowed, Local};
use super::{KvError, machine, places};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use tidemill_bpf::maps::lpm_trie::Key;
use tidemill_bpf::to_io;

/// Of the key, before the address: interface and family.
const BEFORE: u32 = 64;

/// Sources that may be answered: where, and which.
pub(super) type Who = BTreeSet<(u32, IpAddr, u8)>;

/// A prefix with nothing behind its length; one of mapped IPv4 addresses is of these.
fn plain((address, length): (IpAddr, u8)) -> (IpAddr, u8) {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            (IpAddr::V4((v4.to_bits() & mask).into()), length)
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if length >= 96 => plain((IpAddr::V4(v4), length - 96)),
            _ => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                (IpAddr::V6((v6.to_bits() & mask).into()), length)
            }
        },
    }
}

fn key((interface, address, length): (u32, IpAddr, u8)) -> Key<Allowed> {
    let [a, b, c, d] = machine::words(address);
    let (family, before) = if address.is_ipv4() { (4, BEFORE + 96) } else { (6, BEFORE) };
    Key::new(before + u32::from(length), [interface, family, a, b, c, d])
}

impl Cache {
    fn who(&self) -> Result<Who, KvError> {
        let mut who = Who::new();
        for place in &self.places {
            let prefixes = match &self.options.allow[..] {
                [] => machine::subnets(&place.interface),
                given => given.to_vec(),
            };
            // The program runs in a bond's members, and sees their numbers.
            let mut interfaces = vec![place.index];
            for member in machine::members(&place.interface) {
                interfaces.extend(places::index(&member)?);
            }
            for interface in interfaces {
                who.extend(prefixes.iter().map(|prefix| {
                    let (address, length) = plain(*prefix);
                    (interface, address, length)
                }));
            }
        }
        Ok(who)
    }

    /// What there is to say of whom it answers, an interface a line.
    pub(super) fn whom(&self) -> Vec<String> {
        let lines = self.places.iter().map(|place| {
            let here = self.allowed.iter().filter(|(interface, ..)| *interface == place.index);
            let prefixes: Vec<String> =
                here.map(|(_, address, length)| format!("{address}/{length}")).collect();
            match &prefixes[..] {
                [] => {
                    format!("nobody is answered on {}: it has no subnet: say --allow PREFIX", place.interface)
                }
                some => format!("{} are answered on {}", some.join(", "), place.interface),
            }
        });
        lines.collect()
    }

    /// Tells the programs who may be answered, and by which addresses: only what is sent to one of this machine's, at which memcached takes datagrams.
    pub(super) fn localize(&mut self) -> Result<(), KvError> {
        self.scope(&[])?;
        let who = self.who()?;
        let is_new = who != self.allowed;
        let action = "cannot tell the programs whom to answer";
        let mut allow = self.object.prefixes::<Allowed, u32>("kv_allow").map_err(system(action))?;
        let there: HashSet<(u32, Allowed)> =
            allow.keys().flatten().map(|key| (key.prefix_len(), key.data())).collect();
        let wanted: Vec<Key<Allowed>> = who.iter().map(|one| key(*one)).collect();
        let known: HashSet<(u32, Allowed)> =
            wanted.iter().map(|key| (key.prefix_len(), key.data())).collect();
        for (length, data) in there.difference(&known) {
            allow.remove(&Key::new(*length, *data)).map_err(|error| system(action)(to_io(error)))?;
        }
        let new = wanted.iter().filter(|key| !there.contains(&(key.prefix_len(), key.data())));
        // Those that find no room are not answered here.
        let mut left_out = new.filter(|key| allow.insert(key, 1, 0).is_err()).count();
        self.allowed = who;
        if is_new && self.is_told_whom {
            let lines = self.whom();
            self.notes.extend(lines);
        }

        let action = "cannot tell the programs this machine's addresses";
        let lo = self.places.iter().find(|place| place.interface == "lo").map(|place| place.index);
        let sockets = self.server.as_ref().map_or(&[][..], |server| &server.udp);
        let answers = machine::udp_addresses(self.options.port, sockets);
        let wanted: HashSet<Local> = answers
            .into_iter()
            .filter_map(|(address, interface)| {
                let [a, b, c, d] = machine::words(address);
                let by = if address.is_loopback() { lo? } else { interface };
                Some([a, b, c, d, by])
            })
            .collect();
        let mut local = self.object.table::<Local, u32>("kv_local").map_err(system(action))?;
        let there: HashSet<Local> = local.keys().map_err(system(action))?.into_iter().collect();
        for address in there.difference(&wanted) {
            local.remove(address).map_err(system(action))?;
        }
        left_out += wanted.difference(&there).filter(|address| local.insert(address, &1).is_err()).count();
        if left_out != self.left_out {
            self.left_out = left_out;
            if left_out > 0 {
                self.notes.push(format!(
                    "{left_out} sources or addresses of this machine have no room in the programs' tables: memcached answers there"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::plain;
    use std::net::IpAddr;

    #[test]
    fn prefixes_have_nothing_behind_their_length() {
        let of = |text: &str, length| {
            let address: IpAddr = text.parse().unwrap_or_else(|_| panic!("{text}"));
            let (address, length) = plain((address, length));
            format!("{address}/{length}")
        };
        assert_eq!(of("10.1.2.3", 8), "10.0.0.0/8");
        assert_eq!(of("10.1.2.3", 0), "0.0.0.0/0");
        assert_eq!(of("10.1.2.3", 32), "10.1.2.3/32");
        assert_eq!(of("fd00:9::1", 64), "fd00:9::/64");
        assert_eq!(of("fd00:9::1", 0), "::/0");
        assert_eq!(of("::ffff:10.1.2.3", 104), "10.0.0.0/8");
    }
}
