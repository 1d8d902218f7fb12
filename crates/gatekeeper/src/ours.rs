//! Which addresses a Grantor cannot have: those that no packet is routed to, and those that lead back to us. And which policies are without effect, for our own
//! addresses and links.

use crate::config::PolicyConfig;
use std::fmt;
use std::net::IpAddr;
use tidemill_ip::{Interfaces, martian};
use tidemill_lpm::Prefix;

/// Our addresses with their links' prefixes, as of a configuration of interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ours(Vec<Own>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Own {
    interface: String,
    /// The interface's number.
    number: usize,
    /// Whether it is in the VRF without a name, by which Grantors are reached.
    is_usual: bool,
    address: IpAddr,
    /// The link's first and last address, and how many bits these share.
    link: [IpAddr; 2],
    len: u8,
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
        let own = |(number, interface): (usize, &tidemill_ip::Interface)| {
            let (name, is_usual) = (interface.name.clone(), interface.vrf == 0);
            let v4 = interface.v4.iter().map(|(address, link)| {
                let ends = [link.first(), link.last()].map(|end| IpAddr::V4(end.into()));
                (IpAddr::V4(*address), ends, link.len(), (link.len() < 31).then_some(ends))
            });
            let v6 = interface.v6.iter().map(|(address, link)| {
                let ends = [link.first(), link.last()].map(|end| IpAddr::V6(end.into()));
                // Nothing is broadcast; the first one is any router's (RFC 4291, 2.6.1).
                (IpAddr::V6(*address), ends, link.len(), (link.len() < 127).then_some([ends[0]; 2]))
            });
            let own = |(address, link, len, ends)| Own {
                interface: name.clone(),
                number,
                is_usual,
                address,
                link,
                len,
                ends,
            };
            v4.chain(v6).map(own).collect::<Vec<_>>()
        };
        Ours(interfaces.iter().enumerate().flat_map(own).collect())
    }

    /// On which link a Grantor with this address is, if that is one in front. As in any table the longest one counts; a route to it may be longer still.
    fn in_front(&self, grantor: IpAddr, front: &[bool]) -> Option<&str> {
        let is_front = |own: &Own| front.get(own.number).copied().unwrap_or(false);
        // Those of one family lie side by side.
        let there =
            self.0.iter().filter(|own| own.is_usual && own.link[0] <= grantor && grantor <= own.link[1]);
        let longest = there.max_by_key(|own| (own.len, !is_front(own)))?;
        is_front(longest).then_some(longest.interface.as_str())
    }

    /// What policies say without effect, a line each; `front` is whether an interface, by its number, is in front, `key` names a policy's field.
    pub(crate) fn remarks(
        &self,
        policies: &[PolicyConfig],
        front: &[bool],
        key: impl Fn(usize, &str) -> String,
    ) -> Vec<String> {
        let mut remarks = Vec::new();
        for (i, policy) in policies.iter().enumerate() {
            if let Some(interface) = one(&policy.prefix).and_then(|address| self.has(address)) {
                remarks.push(format!(
                    "{} has no effect: {} is our own address, of interface {interface:?}, which is reached whatever policies say",
                    key(i, "prefix"),
                    policy.prefix
                ));
            }
            let mut grantors = policy.grantors.iter().filter_map(|text| text.parse::<IpAddr>().ok());
            let astray = grantors.find_map(|grantor| Some((grantor, self.in_front(grantor, front)?)));
            if let Some((grantor, interface)) = astray {
                remarks.push(format!(
                    "{}: {grantor} is on the link of interface {interface:?}, in front: requests go out there, and decisions count by the back only: give a Grantor behind us, or a \
                     route to it by the back",
                    key(i, "grantors")
                ));
            }
        }
        remarks
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

/// The address that this is the prefix of, if it is one's alone.
fn one(prefix: &str) -> Option<IpAddr> {
    if prefix.contains(':') {
        let prefix: Prefix<u128> = prefix.parse().ok()?;
        return (prefix.len() == 128).then(|| IpAddr::V6(prefix.first().into()));
    }
    let prefix: Prefix<u32> = prefix.parse().ok()?;
    (prefix.len() == 32).then(|| IpAddr::V4(prefix.first().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Action;
    use tidemill_ip::Interface;

    #[test]
    fn what_our_addresses_and_links_undo_is_said() {
        let link = |interface: &mut Interface, v4: &str, v6: &str| {
            let first = |text: &str| text.split_once('/').unwrap().0.to_owned();
            let prefix = |text: &str| text.replacen(".1/", ".0/", 1).replacen("::1/", "::/", 1);
            interface.v4.push((first(v4).parse().unwrap(), prefix(v4).parse().unwrap()));
            interface.v6.push((first(v6).parse().unwrap(), prefix(v6).parse().unwrap()));
        };
        let (mut wan, mut lan) = (Interface::of_port(0, "wan"), Interface::of_port(1, "lan"));
        let mut other = Interface { vrf: 1, ..Interface::of_port(2, "other") };
        link(&mut wan, "10.0.0.1/8", "fd00::1/32");
        // Within that of the front.
        link(&mut lan, "10.0.1.1/24", "fd00:0:1::1/48");
        link(&mut other, "172.16.0.1/16", "fd99::1/32");
        let ours = Ours::of(&Interfaces::new(vec![wan, lan, other], 3));
        let front = [true, false, true];
        let said = |prefix: &str, grantors: &[&str]| {
            let grantors: Vec<String> = grantors.iter().map(|grantor| (*grantor).into()).collect();
            let action = if grantors.is_empty() { Action::Drop } else { Action::Grantor };
            let policy = PolicyConfig { prefix: prefix.into(), action, grantors };
            ours.remarks(&[policy], &front, |i, field| format!("policy[{i}].{field}"))
        };
        for (prefix, interface) in [
            ("10.0.0.1/32", "wan"),
            ("10.0.1.1/32", "lan"),
            ("fd00:0:1::1/128", "lan"),
            ("fd99::1/128", "other"),
        ] {
            let wanted = format!(
                "policy[0].prefix has no effect: {prefix} is our own address, of interface \"{interface}\", which is reached whatever policies say"
            );
            assert_eq!(said(prefix, &[]), [wanted]);
        }
        for (prefix, grantor) in [
            ("203.0.113.0/24", "10.0.2.9"),
            ("203.0.113.0/24", "10.255.255.254"),
            ("2001:db8::/32", "fd00::9"),
        ] {
            let lines = said(prefix, &["192.0.2.1", grantor, grantor]);
            let wanted =
                format!("policy[0].grantors: {grantor} is on the link of interface \"wan\", in front: ");
            assert!(lines.len() == 1 && lines[0].starts_with(&wanted), "{lines:?}");
        }
        // More than our address, and another.
        for prefix in ["10.0.0.0/31", "10.0.0.0/8", "10.0.0.2/32", "fd00::/127"] {
            assert_eq!(said(prefix, &[]), [""; 0], "{prefix}");
        }
        // At the back; behind it; by the VRF that Grantors are not reached by.
        for (prefix, grantors) in [
            ("203.0.113.0/24", &["10.0.1.9", "11.0.0.0", "9.255.255.255"][..]),
            ("203.0.113.0/24", &["172.16.0.9"]),
            ("2001:db8::/32", &["fd00:0:1::9", "fd01::9", "2001:db8::9"]),
        ] {
            assert_eq!(said(prefix, grantors), [""; 0], "{prefix} {grantors:?}");
        }
    }

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
