//! Which addresses a Grantor cannot have: those that no packet is routed to, and those that lead back to us.

use std::fmt;
use std::net::IpAddr;
use tidemill_ip::{Interfaces, martian};

/// Our addresses with their links' prefixes, as of a configuration of interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ours(Vec<Own>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Own {
    interface: String,
    address: IpAddr,
    /// The link's first and last address; none where both are machines' (RFC 3021, RFC 6164).
    ends: Option<[IpAddr; 2]>,
}

/// Why an address cannot be a Grantor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// No machine has it.
    NoMachine(&'static str),
    /// We have it, at this interface.
    Own(String),
    /// All machines on this interface's link have it, or none.
    Link(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoMachine(why) => write!(f, "{why}: give an address that packets are routed to"),
            Unfit::Own(interface) => {
                write!(f, "our own address, of interface {interface:?}: a Grantor is another machine")
            }
            Unfit::Link(interface) => {
                write!(
                    f,
                    "no machine's address but that of a whole link, interface {interface:?}'s: give a machine's"
                )
            }
        }
    }
}

impl Ours {
    pub(crate) fn of(interfaces: &Interfaces) -> Self {
        let own = |interface: &tidemill_ip::Interface| {
            let name = interface.name.clone();
            let v4 = interface.v4.iter().map(|(address, link)| {
                let ends = [link.first(), link.last()].map(|end| IpAddr::V4(end.into()));
                (IpAddr::V4(*address), (link.len() < 31).then_some(ends))
            });
            let v6 = interface.v6.iter().map(|(address, link)| {
                // Nothing is broadcast; the first one is any router's (RFC 4291, 2.6.1).
                let first = IpAddr::V6(link.first().into());
                (IpAddr::V6(*address), (link.len() < 127).then_some([first; 2]))
            });
            let own = |(address, ends)| Own { interface: name.clone(), address, ends };
            v4.chain(v6).map(own).collect::<Vec<_>>()
        };
        Ours(interfaces.iter().flat_map(own).collect())
    }

    /// Whether we have an address, and where.
    pub(crate) fn has(&self, address: IpAddr) -> Option<&str> {
        self.0.iter().find(|own| own.address == address).map(|own| own.interface.as_str())
    }

    /// Why an address cannot be a Grantor's, if it cannot.
    pub(crate) fn unfit(&self, address: IpAddr) -> Option<Unfit> {
        if let Some(why) = martian::sort_of(address) {
            return Some(Unfit::NoMachine(why));
        }
        if let Some(interface) = self.has(address) {
            return Some(Unfit::Own(interface.into()));
        }
        let ends = |own: &&Own| own.ends.is_some_and(|ends| ends.contains(&address));
        self.0.iter().find(ends).map(|own| Unfit::Link(own.interface.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_ip::Interface;

    #[test]
    fn who_cannot_be_a_grantor() {
        let mut back = Interface::of_port(0, "back");
        back.v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
        back.v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
        let mut narrow = Interface::of_port(1, "narrow");
        narrow.v4.push(("10.1.0.0".parse().unwrap(), "10.1.0.0/31".parse().unwrap()));
        narrow.v6.push(("fd01::".parse().unwrap(), "fd01::/127".parse().unwrap()));
        narrow.v4.push(("10.2.0.255".parse().unwrap(), "10.2.0.255/32".parse().unwrap()));
        let ours = Ours::of(&Interfaces::new(vec![back, narrow], 2));
        for (address, why) in [
            ("0.0.0.0", "the unspecified address: give an address that packets are routed to"),
            ("::", "the unspecified address: "),
            ("0.0.0.7", "a reserved address: "),
            ("127.0.0.9", "a loopback address: "),
            ("::1", "a loopback address: "),
            ("224.0.0.1", "a multicast address: "),
            ("ff02::1", "a multicast address: "),
            ("255.255.255.255", "the broadcast address: "),
            ("240.0.0.1", "a reserved address: "),
            ("169.254.1.1", "a link-local address: "),
            ("fe80::1", "a link-local address: "),
            ("::ffff:10.0.0.9", "an IPv4-mapped address: "),
            ("10.0.0.1", "our own address, of interface \"back\": a Grantor is another machine"),
            ("fd00::1", "our own address, of interface \"back\""),
            ("10.1.0.0", "our own address, of interface \"narrow\""),
            ("10.0.0.255", "no machine's address but that of a whole link, interface \"back\"'s"),
            ("10.0.0.0", "no machine's address but that of a whole link"),
            ("fd00::", "no machine's address but that of a whole link"),
        ] {
            let said = ours.unfit(address.parse().unwrap()).map(|unfit| unfit.to_string());
            assert!(said.as_ref().is_some_and(|said| said.starts_with(why)), "{address}: {said:?}");
        }
        for address in
            ["10.0.0.2", "10.1.0.1", "fd01::1", "fd00::ffff:ffff:ffff:ffff", "10.2.0.0", "192.0.2.255"]
        {
            assert_eq!(ours.unfit(address.parse().unwrap()), None, "{address}");
        }
    }
}
