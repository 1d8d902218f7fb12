//! Which VLANs a port is in, and how its packets show that.

use crate::config::{SwitchError, SwitchSection, VlanRange};
use tidemill_classify::flows::PortNames;

/// No VLAN: packets without a tag, where no port says otherwise.
pub const UNTAGGED: u16 = 0;

/// VLAN numbers, one bit each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set(Box<[u64; 64]>);

impl Set {
    fn has(&self, vlan: u16) -> bool {
        self.0[usize::from(vlan >> 6) & 63] >> (vlan & 63) & 1 != 0
    }
}

/// A port's VLANs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    vlans: Set,
    /// The VLAN of packets without a tag; its packets leave without one. `None`: a port of tags only.
    native: Option<u16>,
    /// Whether tags are refused.
    access: bool,
}

/// Every port's VLANs. A port that says nothing is in all, 1 to 4094, and its packets without a tag are in none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vlans(Vec<Member>);

impl Vlans {
    /// As a configuration says.
    ///
    /// # Errors
    /// A port that there is not, a VLAN that cannot be.
    pub fn new(section: &SwitchSection, ports: &PortNames) -> Result<Self, SwitchError> {
        let mut every = [u64::MAX; 64];
        // 4095 is no VLAN's number (IEEE 802.1Q, table 9-2).
        every[63] &= !(1 << 63);
        let all = Member { vlans: Set(Box::new(every)), native: Some(UNTAGGED), access: false };
        let mut members = vec![all; ports.0.len()];
        for (name, vlans) in &section.vlans {
            let key = format!("vlans.{name}");
            let wrong = |what: String| SwitchError::config(key.clone(), what);
            let at = ports.0.iter().position(|port| port == name);
            let Some(member) = at.and_then(|at| members.get_mut(at)) else {
                return Err(wrong(format!("there is no port {name:?}: there are {}", ports.0.join(", "))));
            };
            let fits = |vlan: u16| {
                if (1..=4094).contains(&vlan) {
                    Ok(vlan)
                } else {
                    Err(wrong(format!("{vlan}: VLANs go from 1 to 4094")))
                }
            };
            let mut set = Set(Box::new([0; 64]));
            let mut put = |vlan: u16| set.0[usize::from(vlan >> 6) & 63] |= 1 << (vlan & 63);
            match (vlans.access, &vlans.trunk) {
                (Some(_), Some(_)) => return Err(wrong("give access or trunk, not both".into())),
                (Some(vlan), None) => {
                    if vlans.native.is_some() {
                        return Err(wrong("native belongs to a trunk: the VLAN of access is native".into()));
                    }
                    put(fits(vlan)?);
                    *member = Member { vlans: set, native: Some(vlan), access: true };
                }
                (None, trunk) => {
                    for range in trunk.iter().flatten() {
                        let (first, last) = match range {
                            VlanRange::One(vlan) => (*vlan, *vlan),
                            VlanRange::Range(text) => range_of(text).map_err(wrong)?,
                        };
                        (fits(first)?..=fits(last)?).for_each(&mut put);
                    }
                    if let Some(native) = vlans.native {
                        put(fits(native)?);
                    }
                    // Who names the VLANs takes no other packets.
                    let native = vlans.native.or(trunk.is_none().then_some(UNTAGGED));
                    let vlans = if trunk.is_some() { set } else { member.vlans.clone() };
                    *member = Member { vlans, native, access: false };
                }
            }
        }
        Ok(Vlans(members))
    }

    /// The VLAN of a packet that comes in by a port with this tag's number; `None`: it may not.
    #[inline]
    pub fn of(&self, port: usize, tag: Option<u16>) -> Option<u16> {
        let member = self.0.get(port)?;
        // A tag with number 0 only has a priority.
        match tag.filter(|&vlan| vlan != 0) {
            None => member.native,
            Some(_) if member.access => None,
            Some(vlan) => member.vlans.has(vlan).then_some(vlan),
        }
    }

    /// Whether a port sends packets of a VLAN, and with a tag.
    #[inline]
    pub fn sends(&self, port: usize, vlan: u16) -> Option<bool> {
        let member = self.0.get(port)?;
        if vlan == UNTAGGED {
            // What has no VLAN does not come out where all packets without a tag have one.
            return (member.native == Some(UNTAGGED)).then_some(false);
        }
        member.vlans.has(vlan).then_some(Some(vlan) != member.native)
    }
}

fn range_of(text: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("{text:?}: give a VLAN, or a range such as \"100-199\"");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok((first, last)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vlans(text: &str) -> Result<Vlans, String> {
        let names = PortNames(["lan", "trunk", "plain"].map(str::to_owned).to_vec());
        let section: SwitchSection = toml::from_str(text).unwrap();
        Vlans::new(&section, &names).map_err(|error| error.to_string())
    }

    #[test]
    fn ports_are_in_their_vlans() {
        let vlans =
            vlans("[vlans.lan]\naccess = 10\n[vlans.trunk]\ntrunk = [10, \"20-29\"]\nnative = 5\n").unwrap();
        assert_eq!(
            (vlans.of(0, None), vlans.of(0, Some(0)), vlans.of(0, Some(10))),
            (Some(10), Some(10), None)
        );
        assert_eq!(vlans.of(1, None), Some(5));
        assert_eq!(
            [10, 20, 29, 30].map(|vlan| vlans.of(1, Some(vlan))),
            [Some(10), Some(20), Some(29), None]
        );
        assert_eq!((vlans.of(2, None), vlans.of(2, Some(30))), (Some(0), Some(30)));
        assert_eq!((vlans.of(2, Some(4094)), vlans.of(2, Some(4095))), (Some(4094), None));
        assert_eq!((vlans.sends(2, 4094), vlans.sends(2, 4095)), (Some(true), None));
        assert_eq!((vlans.sends(0, 10), vlans.sends(0, 20), vlans.sends(0, 0)), (Some(false), None, None));
        assert_eq!(
            (vlans.sends(1, 10), vlans.sends(1, 5), vlans.sends(1, 0)),
            (Some(true), Some(false), None)
        );
        assert_eq!(
            (vlans.sends(2, 0), vlans.sends(2, 7), vlans.sends(9, 7)),
            (Some(false), Some(true), None)
        );
    }

    #[test]
    fn a_trunk_without_a_native_vlan_takes_tags_only() {
        let vlans = vlans("[vlans.trunk]\ntrunk = [10]\n[vlans.plain]\nnative = 5\n").unwrap();
        let [none, zero, ten] = [None, Some(0), Some(10)].map(|tag| vlans.of(1, tag));
        assert_eq!((none, zero, ten), (None, None, Some(10)));
        assert_eq!((vlans.sends(1, UNTAGGED), vlans.sends(1, 10)), (None, Some(true)));
        assert_eq!((vlans.of(0, None), vlans.sends(0, UNTAGGED)), (Some(UNTAGGED), Some(false)));
        // All tags, and those without one are in VLAN 5.
        assert_eq!((vlans.of(2, None), vlans.of(2, Some(7))), (Some(5), Some(7)));
        assert_eq!((vlans.sends(2, 5), vlans.sends(2, UNTAGGED)), (Some(false), None));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, error) in [
            (
                "[vlans.wan]\naccess = 1",
                "switch.vlans.wan: there is no port \"wan\": there are lan, trunk, plain",
            ),
            ("[vlans.lan]\naccess = 0", "switch.vlans.lan: 0: VLANs go from 1 to 4094"),
            ("[vlans.lan]\naccess = 1\ntrunk = [2]", "switch.vlans.lan: give access or trunk, not both"),
            (
                "[vlans.lan]\ntrunk = [\"9-3\"]",
                "switch.vlans.lan: \"9-3\": give a VLAN, or a range such as \"100-199\"",
            ),
        ] {
            assert_eq!(vlans(text).unwrap_err(), error);
        }
    }
}
