//! The configuration checked, as workers read it.

use crate::allow::Allow;
use crate::config::{MitigatorSection, OffloadKind, PROTOCOLS, ProtocolItem};
use crate::error::AmpError;
use crate::offload::OffloadSettings;
use crate::tuple::{Mode, WORDS4, WORDS6};

/// Flows that a worker may have room for at most.
pub const MOST_ENTRIES: usize = 1 << 28;

/// What a configuration says to the data path. Published to the workers, which look at it once per burst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What rules look at.
    pub mode: Mode,
    pub(crate) mask4: [u64; WORDS4],
    pub(crate) mask6: [u64; WORDS6],
    /// One bit for each UDP port.
    ports: Box<[u64; 1024]>,
    /// The ports that answers come from, ascending.
    pub protocols: Vec<u16>,
    /// Seconds that a rule holds.
    pub expiry_s: u32,
    /// Seconds that a suspicion holds.
    pub suspect_s: u32,
    /// Seconds that a question is remembered; 0: questions are not looked at.
    pub query_s: u32,
    /// What is never filtered.
    pub allow: Allow,
    /// Confirmations per second and inside address; 0: any number.
    pub icmp_rate: u32,
    /// Whether everything is let through.
    pub dry_run: bool,
    /// How often the settings have changed: rules are held against a new allow-list once.
    pub(crate) generation: u64,
    /// The number of `expiry_s` that rules keep, 1 to 15; 0: nobody will know how old they are.
    pub(crate) lifetime: u8,
}

/// The UDP port of a protocol.
pub(crate) fn port_of(item: &ProtocolItem) -> Result<u16, String> {
    match item {
        ProtocolItem::Port(0) => Err("there is no UDP port 0: give 1 to 65535".into()),
        ProtocolItem::Port(port) => Ok(*port),
        ProtocolItem::Name(name) => {
            PROTOCOLS.iter().find(|(known, _)| known == name).map(|(_, port)| *port).ok_or_else(|| {
                let known: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
                format!("there is no protocol {name:?}: give a UDP port, or one of {}", known.join(", "))
            })
        }
    }
}

impl Settings {
    /// Checks a section of the configuration.
    ///
    /// # Errors
    /// Which key is wrong, and what to do.
    pub fn new(section: &MitigatorSection) -> Result<Self, AmpError> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            let range = (least..=most).contains(&value);
            range
                .then_some(())
                .ok_or_else(|| AmpError::config(key, format!("{value}: give {least} to {most}")))
        };
        within("expiry_s", section.expiry_s.into(), 1, 365 * 86_400)?;
        within("suspect_s", section.suspect_s.into(), 1, 3600)?;
        within("query_s", section.query_s.into(), 0, 3600)?;
        within("entries", section.entries as u64, 1, MOST_ENTRIES as u64)?;
        if let Some(pin) = &section.offload_pin {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if !(1..=64).contains(&pin.len()) || !pin.chars().all(fits) {
                let what = format!("{pin:?}: give 1 to 64 letters, digits, - and _");
                return Err(AmpError::config("offload_pin", what));
            }
        }
        let mode = Mode::new(section.tuple)
            .ok_or_else(|| AmpError::config("tuple", format!("{}: give 4, 3, 2 or 1", section.tuple)))?;
        let mut ports = Box::new([0; 1024]);
        let mut protocols = Vec::new();
        for item in &section.protocols {
            let port = port_of(item).map_err(|what| AmpError::config("protocols", what))?;
            ports[usize::from(port / 64)] |= 1 << (port % 64);
            protocols.push(port);
        }
        protocols.sort_unstable();
        protocols.dedup();
        if protocols.is_empty() {
            return Err(AmpError::config(
                "protocols",
                "none: nothing would be looked at; leave it out for all that are known",
            ));
        }
        let allow = Allow::new(&section.allow)?;
        if let Some(entry) = allow.everything() {
            let what = format!(
                "entry {}: nothing would ever be filtered; to only count, write dry_run = true",
                entry + 1
            );
            return Err(AmpError::config("allow", what));
        }
        if section.offload == OffloadKind::None && section.offload_pin.is_some() {
            let what = "there is no offload to keep: write offload = \"xdp\", or leave it out";
            return Err(AmpError::config("offload_pin", what));
        }
        if section.offload != OffloadKind::None && mode < Mode::Three && !allow.is_empty() {
            return Err(AmpError::config(
                "offload",
                "rules of tuple = 2 or 1 cannot be held against allow in the driver: leave one of the three out",
            ));
        }
        Ok(Settings {
            mode,
            mask4: mode.mask4(),
            mask6: mode.mask6(),
            ports,
            protocols,
            expiry_s: section.expiry_s,
            suspect_s: section.suspect_s,
            query_s: section.query_s,
            allow,
            icmp_rate: section.icmp_rate,
            dry_run: section.dry_run,
            generation: 0,
            lifetime: 0,
        })
    }

    /// Whether answers that can be abused come from this port.
    #[inline(always)]
    pub fn is_protocol(&self, port: u16) -> bool {
        self.ports[usize::from(port / 64)] >> (port % 64) & 1 != 0
    }

    /// Whether a question has its answers let through: not where a rule is about a server alone, for one who asks would switch the
    /// protection off for all others.
    pub fn heeds_questions(&self) -> bool {
        self.query_s > 0 && self.mode > Mode::One
    }

    /// Whether a question ends a rule that is about its answers: only where the tuple is that of the conversation, or all conversations of
    /// the two with one protocol.
    pub fn questions_lift(&self) -> bool {
        self.query_s > 0 && self.mode >= Mode::Three
    }

    /// What an offload is told.
    pub(crate) fn for_offload(&self, entries: usize) -> OffloadSettings {
        OffloadSettings {
            tuple: self.mode as u8,
            protocols: self.protocols.clone(),
            dry_run: self.dry_run,
            entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(toml: &str) -> Result<Settings, AmpError> {
        Settings::new(&toml::from_str(toml).unwrap())
    }

    #[test]
    fn ports_are_those_of_the_list() {
        let all = settings("").unwrap();
        assert_eq!(all.protocols, [17, 19, 53, 123, 161, 389, 1900, 11211]);
        let some = settings("protocols = [65535, 'dns', 53]").unwrap();
        assert_eq!(some.protocols, [53, 65535]);
        for port in 0..=u16::MAX {
            assert_eq!(all.is_protocol(port), all.protocols.contains(&port));
            assert_eq!(some.is_protocol(port), some.protocols.contains(&port));
        }
    }

    #[test]
    fn questions_count_where_they_speak_for_those_who_ask() {
        let of = |toml: &str| settings(toml).map(|s| (s.heeds_questions(), s.questions_lift())).unwrap();
        assert_eq!(of("tuple = 4"), (true, true));
        assert_eq!(of("tuple = 3"), (true, true));
        assert_eq!(of("tuple = 2"), (true, false));
        assert_eq!(of("tuple = 1"), (false, false));
        assert_eq!(of("query_s = 0"), (false, false));
    }

    #[test]
    fn one_family_may_be_left_out() {
        for toml in [
            "allow = ['0.0.0.0/0']",
            "allow = ['::/0']",
            "allow = ['0.0.0.0/0', {source = '::/0', port = 'dns'}]",
        ] {
            assert!(settings(toml).is_ok(), "{toml}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (toml, error) in [
            ("tuple = 5", "mitigator.tuple: 5: give 4, 3, 2 or 1"),
            ("expiry_s = 0", "mitigator.expiry_s: 0: give 1 to 31536000"),
            ("suspect_s = 3601", "mitigator.suspect_s: 3601: give 1 to 3600"),
            ("query_s = 3601", "mitigator.query_s: 3601: give 0 to 3600"),
            ("entries = 0", "mitigator.entries: 0: give 1 to 268435456"),
            ("protocols = [0]", "mitigator.protocols: there is no UDP port 0: give 1 to 65535"),
            (
                "protocols = []",
                "mitigator.protocols: none: nothing would be looked at; leave it out for all that are known",
            ),
            (
                "allow = ['0.0.0.0/0', '8.8.8.8', {source = '::/0', destination = '::/0'}, '::/0']",
                "mitigator.allow: entry 3: nothing would ever be filtered; to only count, write dry_run = true",
            ),
            (
                "tuple = 1\noffload = 'xdp'\nallow = ['::1']",
                "mitigator.offload: rules of tuple = 2 or 1 cannot be held against allow in the driver: leave one of the three out",
            ),
        ] {
            assert_eq!(settings(toml).unwrap_err().to_string(), error);
        }
    }
}
