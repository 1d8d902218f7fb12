//! The section `[bgp]` of a configuration file, as written; [`BgpSection::runner`] is what it comes to.
//!
//! The doc comments here are the text of the JSON schema.

use crate::bmp::View;
use crate::flows::{FlowTrust, RouteTarget};
use crate::runner::{BmpConfig, RunnerConfig};
use crate::session::Export;
use crate::signature::{AoAlgorithm, AoKey, SECRET_MAX, Signature};
use crate::speaker::{PeerConfig, SpeakerConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tidemill_feed::AnyPrefix;

/// Bytes that a password's file may have.
const MOST_PASSWORD_BYTES: u64 = 1 << 16;

/// BGP sessions, and BMP. They run over the kernel's TCP: on an interface with `owner = "kernel"`, or one that is no port at all.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BgpSection {
    /// Our AS, from 1.
    pub asn: u32,
    /// Our BGP identifier, usually an IPv4 address of ours.
    pub id: Ipv4Addr,
    /// Where peers connect to. Default: port 179 of all addresses.
    #[serde(default = "everywhere")]
    pub listen: Vec<SocketAddr>,
    /// Seconds of silence after which a peer is given up, unless it wants fewer; 0 (never) or from 3.
    #[serde(default = "hold_s")]
    pub hold_s: u16,
    /// Whether flow specifications (FlowSpec, RFC 8955) of peers are applied to what ports receive. Which peers': their `flowspec`.
    #[serde(default)]
    pub flowspec: bool,
    /// Interfaces whose packets meet no flow specification: where what was redirected comes back.
    #[serde(default)]
    pub flowspec_except: Vec<String>,
    /// Which VRFs flow specifications redirect packets to. To an address they redirect without.
    #[serde(default)]
    pub redirect: Vec<RedirectSection>,
    /// The peers. Nobody else gets a session.
    #[serde(default)]
    pub peer: Vec<PeerSection>,
    /// What is announced to all peers.
    #[serde(default)]
    pub announce: Vec<AnnounceSection>,
    /// Other routers that tell what they hear.
    #[serde(default)]
    pub bmp: Option<BmpSection>,
}

/// A VRF that flow specifications redirect packets to.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedirectSection {
    /// The route target by which they name it: `"65000:100"`, `"192.0.2.1:100"`, `"[2001:db8::1]:100"`.
    pub target: String,
    /// The VRF, as an interface names it, or `[[vrf]]`; `""` is the one without a name.
    pub vrf: String,
}

/// A BGP peer.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerSection {
    /// What it is called. Default: its address.
    #[serde(default)]
    pub name: Option<String>,
    /// Its address.
    pub address: IpAddr,
    /// Its AS; our own for an internal peer.
    pub asn: u32,
    /// Whether we connect to it, too; else it has to.
    #[serde(default)]
    pub connect: bool,
    /// Its port, when we connect.
    #[serde(default = "port")]
    pub port: u16,
    /// The address of ours that we connect from. Default: the one that the system takes.
    #[serde(default)]
    pub local: Option<IpAddr>,
    /// What it tells: `["ipv4", "ipv6"]`, or one of them.
    #[serde(default = "both")]
    pub families: Vec<FamilyName>,
    /// Whether it may tell several paths per prefix (add-path): up to 64, more are left out and counted.
    #[serde(default)]
    pub add_path: bool,
    /// Whether its paths have to begin with its AS: routes by others are not used. `false` is for a route server, which leaves its own out. An internal peer's may be anything.
    #[serde(default = "yes")]
    pub first_as: bool,
    /// LOCAL_PREF of what it tells: higher is better. An internal peer sends its own.
    #[serde(default = "hundred")]
    pub local_pref: u32,
    /// Prefixes that it may tell; with more its session ends, and it is left alone for five minutes. Those from before its restart make room.
    #[serde(default = "max_prefixes")]
    pub max_prefixes: u32,
    /// Whether its flow specifications are taken: `off`, `validated` (about destinations to which it has told the best route), `trusted` (all of them).
    #[serde(default)]
    pub flowspec: FlowTrust,
    /// Flow specifications that it may give; with more its session ends, and it is left alone for five minutes. Those from before its restart make room.
    #[serde(default = "max_flowspecs")]
    pub max_flowspecs: u32,
    /// Seconds for which its routes may be kept while it restarts (graceful restart), 0 to 4095.
    #[serde(default = "restart_s")]
    pub restart_s: u16,
    /// A file with the password of TCP MD5 signatures in its first line, relative to this file's folder.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// TCP-AO (RFC 5925) instead: signatures that are better than MD5's. It takes Linux 6.7 or newer, built with CONFIG_TCP_AO.
    #[serde(default)]
    pub ao: Option<AoSection>,
}

/// A key of TCP-AO; the peer has the same, with the identifiers the other way round.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AoSection {
    /// A file with the key in its first line, 1 to 80 bytes, relative to this file's folder.
    pub key_file: PathBuf,
    /// By what keys and signatures are made (RFC 5926).
    #[serde(default)]
    pub algorithm: AoAlgorithm,
    /// The identifier in segments that we send.
    #[serde(default)]
    pub send_id: u8,
    /// The identifier in segments that the peer sends.
    #[serde(default)]
    pub receive_id: u8,
}

/// A family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FamilyName {
    /// IPv4 unicast.
    Ipv4,
    /// IPv6 unicast.
    Ipv6,
}

/// A prefix that is announced.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnnounceSection {
    /// The prefix: `"192.0.2.0/24"`, `"2001:db8::/32"`.
    pub prefix: String,
    /// The next hop. Default: our address on the connection; peers of the other family need it.
    #[serde(default)]
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC: of two links to one AS the lower one is taken.
    #[serde(default)]
    pub med: Option<u32>,
    /// LOCAL_PREF, for internal peers.
    #[serde(default = "hundred")]
    pub local_pref: u32,
    /// How often our AS stands in the path beyond the once that it must, 0 to 20: who has another way takes that.
    #[serde(default)]
    pub prepend: u8,
    /// Communities: `["65000:1"]`.
    #[serde(default)]
    pub communities: Vec<String>,
    /// A Gatekeeper's: whether it is withdrawn while none of the Grantors of its policies answers probes. Those of which it covers a part count, too.
    #[serde(default)]
    pub while_grantors: bool,
}

/// BMP: other routers tell what they hear.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmpSection {
    /// Where they connect to: `["0.0.0.0:11019"]`.
    pub listen: Vec<SocketAddr>,
    /// The routers. Nobody else is heard.
    pub router: Vec<BmpRouterSection>,
}

/// A router that tells what it hears.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmpRouterSection {
    /// What it is called. Default: its address.
    #[serde(default)]
    pub name: Option<String>,
    /// Its address.
    pub address: IpAddr,
    /// Which of its tables is taken.
    #[serde(default)]
    pub view: View,
    /// Prefixes that it may tell of each of its peers.
    #[serde(default = "max_prefixes")]
    pub max_prefixes: u32,
}

fn everywhere() -> Vec<SocketAddr> {
    vec![SocketAddr::from(([0; 4], 179)), SocketAddr::from(([0u16; 8], 179))]
}

fn hold_s() -> u16 {
    90
}

fn port() -> u16 {
    179
}

fn both() -> Vec<FamilyName> {
    vec![FamilyName::Ipv4, FamilyName::Ipv6]
}

fn yes() -> bool {
    true
}

fn hundred() -> u32 {
    100
}

fn max_prefixes() -> u32 {
    2_000_000
}

fn max_flowspecs() -> u32 {
    1000
}

fn restart_s() -> u16 {
    120
}

impl BgpSection {
    /// Makes the paths in it relative to `folder`.
    pub fn resolve(&mut self, folder: &Path) {
        for peer in &mut self.peer {
            let key = peer.ao.as_mut().map(|ao| &mut ao.key_file);
            peer.password_file.as_mut().into_iter().chain(key).for_each(|path| *path = folder.join(&*path));
        }
    }

    /// Keys that cannot change while sessions run, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 8] {
        let BgpSection {
            asn,
            id,
            listen,
            hold_s,
            flowspec,
            flowspec_except,
            redirect,
            bmp,
            peer: _,
            announce: _,
        } = self;
        [
            ("bgp.asn", *asn == other.asn),
            ("bgp.id", *id == other.id),
            ("bgp.listen", *listen == other.listen),
            ("bgp.hold_s", *hold_s == other.hold_s),
            ("bgp.flowspec", *flowspec == other.flowspec),
            ("bgp.flowspec_except", *flowspec_except == other.flowspec_except),
            ("bgp.redirect", *redirect == other.redirect),
            ("bgp.bmp", *bmp == other.bmp),
        ]
    }

    /// Checks it.
    ///
    /// # Errors
    /// One line: the key, what is wrong, what to do.
    pub fn check(&self) -> Result<(), String> {
        self.with_passwords(&|_| Ok(String::from("x"))).map(|_| ())
    }

    /// Prefixes that are announced only while a Grantor answers.
    pub fn while_grantors(&self) -> Vec<AnyPrefix> {
        let such = self.announce.iter().filter(|announce| announce.while_grantors);
        such.filter_map(|announce| announce.export().ok()).map(|export| export.prefix).collect()
    }

    /// Route targets that flow specifications redirect to, and the names of their VRFs.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn redirects(&self) -> Result<Vec<(RouteTarget, &str)>, String> {
        let mut list: Vec<(RouteTarget, &str)> = Vec::new();
        for (n, redirect) in self.redirect.iter().enumerate() {
            let wrong = |what: String| format!("bgp.redirect[{n}].target: {what}");
            let target: RouteTarget = redirect.target.parse().map_err(wrong)?;
            if list.iter().any(|(other, _)| *other == target) {
                return Err(wrong(format!("{target} is there already: keep one")));
            }
            list.push((target, redirect.vrf.as_str()));
        }
        let unused = match (self.flowspec, list.is_empty(), self.flowspec_except.is_empty()) {
            (true, ..) | (_, true, true) => return Ok(list),
            (_, false, _) => "redirect",
            (_, true, false) => "flowspec_except",
        };
        let what = "flow specifications are not applied here: set bgp.flowspec = true, or leave it out";
        Err(format!("bgp.{unused}: {what}"))
    }

    /// What it comes to; reads the passwords' files.
    ///
    /// # Errors
    /// As [`check`](Self::check), or a file that cannot be read.
    pub fn runner(&self) -> Result<RunnerConfig, String> {
        self.with_passwords(&|path| {
            let wrong = |what: String| format!("{}: {what}", path.display());
            let bytes = tidemill_archive::read_whole(path, MOST_PASSWORD_BYTES)
                .map_err(|error| wrong(error.to_string()))?;
            let text = String::from_utf8(bytes).map_err(|error| wrong(error.utf8_error().to_string()))?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        })
    }

    fn with_passwords(
        &self,
        password: &dyn Fn(&Path) -> Result<String, String>,
    ) -> Result<RunnerConfig, String> {
        if self.asn == 0 {
            return Err("bgp.asn: 0 is no AS: private use has 64512 to 65534".into());
        }
        if self.id.is_unspecified() {
            return Err("bgp.id: 0.0.0.0 is no identifier: give an address of ours".into());
        }
        if matches!(self.hold_s, 1 | 2) {
            return Err(format!("bgp.hold_s = {}: give 0 or at least 3 (RFC 4271, 4.2)", self.hold_s));
        }
        self.redirects()?;
        let mut addresses = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut peers = Vec::new();
        for (n, peer) in self.peer.iter().enumerate() {
            let config =
                peer.config(password).map_err(|(field, what)| format!("bgp.peer[{n}].{field}: {what}"))?;
            if config.flows != FlowTrust::Off && !self.flowspec {
                let what =
                    "flow specifications are not applied here: set bgp.flowspec = true, or leave it out";
                return Err(format!("bgp.peer[{n}].flowspec: {what}"));
            }
            if !addresses.insert(config.address) {
                return Err(format!("bgp.peer[{n}].address: {} is there already: keep one", config.address));
            }
            if !names.insert(config.name.clone()) {
                return Err(format!("bgp.peer[{n}].name: {:?} is there already: rename one", config.name));
            }
            peers.push(config);
        }
        if self.listen.is_empty() && peers.iter().any(|peer| !peer.connect) {
            return Err("bgp.listen: nobody can connect: give an address, or all peers connect = true".into());
        }
        let mut prefixes = BTreeSet::new();
        let mut exports = Vec::new();
        for (n, announce) in self.announce.iter().enumerate() {
            let export =
                announce.export().map_err(|(field, what)| format!("bgp.announce[{n}].{field}: {what}"))?;
            if !prefixes.insert(export.prefix) {
                return Err(format!(
                    "bgp.announce[{n}].prefix: {} is there already: keep one",
                    export.prefix
                ));
            }
            exports.push(export);
        }
        let mut routers = BTreeSet::new();
        let mut bmp = Vec::new();
        for (n, router) in self.bmp.iter().flat_map(|bmp| &bmp.router).enumerate() {
            if !routers.insert(router.address) {
                let address = router.address;
                return Err(format!("bgp.bmp.router[{n}].address: {address} is there already: keep one"));
            }
            bmp.push(BmpConfig {
                name: router.name.clone().unwrap_or_else(|| router.address.to_string()),
                address: router.address,
                view: router.view,
                max_prefixes: router.max_prefixes,
            });
        }
        let bmp_listen = self.bmp.as_ref().map_or_else(Vec::new, |bmp| bmp.listen.clone());
        if bmp_listen.is_empty() && self.bmp.is_some() {
            return Err("bgp.bmp.listen: empty: give an address, such as \"0.0.0.0:11019\"".into());
        }
        let (asn, id, hold_s) = (self.asn, self.id, self.hold_s);
        let speaker = SpeakerConfig { asn, id, hold_s, peers, exports };
        Ok(RunnerConfig { listen: self.listen.clone(), speaker, bmp_listen, bmp })
    }
}

/// A key, and what is wrong with it.
type Wrong = (&'static str, String);

impl PeerSection {
    fn config(&self, password: &dyn Fn(&Path) -> Result<String, String>) -> Result<PeerConfig, Wrong> {
        if self.asn == 0 {
            return Err(("asn", "0 is no AS".into()));
        }
        if self.families.is_empty() {
            return Err(("families", "empty: give \"ipv4\", \"ipv6\", or both".into()));
        }
        if self.restart_s > 4095 {
            return Err(("restart_s", format!("{}: give 0 to 4095 (RFC 4724)", self.restart_s)));
        }
        if self.port == 0 {
            return Err(("port", "0 is no port".into()));
        }
        if self.local.is_some_and(|local| local.is_ipv4() != self.address.is_ipv4()) {
            return Err(("local", format!("{} is of the other family", self.address)));
        }
        let secret = |field, path: &Path| {
            let text = password(path).map_err(|what| (field, what))?;
            match text.len() {
                1..=SECRET_MAX => Ok(text),
                _ => Err((field, format!("its first line has to have 1 to {SECRET_MAX} bytes"))),
            }
        };
        let signature = match (&self.password_file, &self.ao) {
            (Some(_), Some(_)) => return Err(("ao", "there is password_file, too: keep one".into())),
            (Some(path), None) => Some(Signature::Md5(secret("password_file", path)?)),
            (None, Some(ao)) => Some(Signature::Ao(AoKey {
                algorithm: ao.algorithm,
                send_id: ao.send_id,
                receive_id: ao.receive_id,
                secret: secret("ao.key_file", &ao.key_file)?,
            })),
            (None, None) => None,
        };
        let speaks = |family| self.families.contains(&family);
        Ok(PeerConfig {
            name: self.name.clone().unwrap_or_else(|| self.address.to_string()),
            address: self.address,
            asn: self.asn,
            connect: self.connect,
            port: self.port,
            local: self.local,
            families: [speaks(FamilyName::Ipv4), speaks(FamilyName::Ipv6)],
            add_path: self.add_path,
            first_as: self.first_as,
            local_pref: self.local_pref,
            max_prefixes: self.max_prefixes,
            flows: self.flowspec,
            max_flows: self.max_flowspecs,
            restart_s: self.restart_s,
            signature,
        })
    }
}

impl AnnounceSection {
    fn export(&self) -> Result<Export, Wrong> {
        let wrong = |error: &dyn ToString| ("prefix", error.to_string());
        let prefix = match self.prefix.contains(':') {
            true => AnyPrefix::V6(self.prefix.parse().map_err(|error| wrong(&error))?),
            false => AnyPrefix::V4(self.prefix.parse().map_err(|error| wrong(&error))?),
        };
        if self.next_hop.is_some_and(|hop| hop.is_ipv4() != matches!(prefix, AnyPrefix::V4(_))) {
            return Err(("next_hop", format!("{} is of the other family", self.prefix)));
        }
        if self.prepend > 20 {
            return Err(("prepend", format!("{}: give 0 to 20", self.prepend)));
        }
        let community = |text: &String| {
            let pair = text
                .split_once(':')
                .and_then(|(a, b)| Some((a.parse::<u16>().ok()?, b.parse::<u16>().ok()?)));
            let (high, low) = pair.ok_or_else(|| {
                ("communities", format!("{text:?} is no community such as \"65000:1\", both up to 65535"))
            })?;
            Ok(u32::from(high) << 16 | u32::from(low))
        };
        Ok(Export {
            prefix,
            next_hop: self.next_hop,
            med: self.med,
            local_pref: self.local_pref,
            prepend: self.prepend,
            communities: self.communities.iter().map(community).collect::<Result<_, Wrong>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RunnerConfig, String> {
        let section: BgpSection = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        section.check().and_then(|()| section.runner())
    }

    const HEAD: &str = "asn=65000\nid='192.0.2.1'\n";

    #[test]
    fn little_has_to_be_said() {
        let config = read(&format!("{HEAD}[[peer]]\naddress='192.0.2.9'\nasn=64496\n")).unwrap();
        assert_eq!(
            config.listen.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
            ["0.0.0.0:179", "[::]:179"]
        );
        let peer = PeerConfig::new("192.0.2.9", "192.0.2.9".parse().unwrap(), 64_496);
        assert_eq!(config.speaker.peers, [peer]);
        let server = format!("{HEAD}[[peer]]\naddress='192.0.2.9'\nasn=64496\nfirst_as=false\n");
        assert!(!read(&server).unwrap().speaker.peers[0].first_as);
        let text = "[[announce]]\nprefix='198.51.100.0/24'\ncommunities=['65000:7']\n[bmp]\nlisten=['0.0.0.0:11019']\n\
                    [[bmp.router]]\naddress='192.0.2.8'\nview='loc-rib'\n";
        let config = read(&format!("{HEAD}{text}")).unwrap();
        assert_eq!(config.speaker.exports[0].communities, [65_000 << 16 | 7]);
        assert_eq!((config.bmp[0].view, config.bmp[0].name.as_str()), (View::LocRib, "192.0.2.8"));
    }

    #[test]
    fn redirects_are_vrfs_by_their_route_targets() {
        let text = format!(
            "{HEAD}flowspec=true\nflowspec_except=['back']\n[[redirect]]\ntarget='65000:100'\nvrf='scrub'\n\
             [[redirect]]\ntarget='192.0.2.1:7'\nvrf=''\n"
        );
        let section: BgpSection = toml::from_str(&text).unwrap();
        let (one, two) =
            (RouteTarget::As(65_000, 100), RouteTarget::Address(IpAddr::from([192, 0, 2, 1]), 7));
        assert_eq!(section.redirects(), Ok(vec![(one, "scrub"), (two, "")]));
        assert_eq!(section.check(), Ok(()));
    }

    /// The first line of a file is the secret; the same section means something else when the file has.
    #[test]
    fn secrets_are_read_from_their_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "first\nsecond\n").unwrap();
        let text = format!(
            "{HEAD}[[peer]]\naddress='192.0.2.9'\nasn=64496\nao={{key_file='key', algorithm='aes-128-cmac-96', send_id=3}}\n"
        );
        let mut section: BgpSection = toml::from_str(&text).unwrap();
        section.resolve(folder.path());
        let key = |secret: &str| AoKey {
            algorithm: AoAlgorithm::AesCmac,
            send_id: 3,
            receive_id: 0,
            secret: secret.into(),
        };
        let read =
            |section: &BgpSection| section.runner().map(|runner| runner.speaker.peers[0].signature.clone());
        assert_eq!(read(&section), Ok(Some(Signature::Ao(key("first")))));
        std::fs::write(folder.path().join("key"), "another\n").unwrap();
        assert_eq!(read(&section), Ok(Some(Signature::Ao(key("another")))));
        std::fs::write(folder.path().join("key"), "\n").unwrap();
        let error = read(&section).unwrap_err();
        assert_eq!(error, "bgp.peer[0].ao.key_file: its first line has to have 1 to 80 bytes");
    }

    #[test]
    fn mistakes_name_the_key_and_the_way_out() {
        let peer = "[[peer]]\naddress='192.0.2.9'\nasn=64496\n";
        for (text, error) in [
            ("asn=0\nid='192.0.2.1'".into(), "bgp.asn: 0 is no AS: private use has 64512 to 65534"),
            (format!("{HEAD}hold_s=2"), "bgp.hold_s = 2: give 0 or at least 3 (RFC 4271, 4.2)"),
            (format!("{HEAD}{peer}{peer}"), "bgp.peer[1].address: 192.0.2.9 is there already: keep one"),
            (
                format!("{HEAD}{peer}families=[]"),
                "bgp.peer[0].families: empty: give \"ipv4\", \"ipv6\", or both",
            ),
            (
                format!("{HEAD}{peer}flowspec='trusted'"),
                "bgp.peer[0].flowspec: flow specifications are not applied here: set bgp.flowspec = true, or leave it out",
            ),
            (
                format!("{HEAD}[[redirect]]\ntarget='65000:100'\nvrf='scrub'"),
                "bgp.redirect: flow specifications are not applied here: set bgp.flowspec = true, or leave it out",
            ),
            (
                format!("{HEAD}flowspec_except=['lan']"),
                "bgp.flowspec_except: flow specifications are not applied here: set bgp.flowspec = true, or leave it out",
            ),
            (
                format!("{HEAD}flowspec=true\n[[redirect]]\ntarget='scrub'\nvrf='scrub'"),
                "bgp.redirect[0].target: \"scrub\" is no route target such as \"65000:100\", \"192.0.2.1:100\" or \"[2001:db8::1]:100\"",
            ),
            (
                format!(
                    "{HEAD}flowspec=true\n[[redirect]]\ntarget='65000:1'\nvrf='a'\n[[redirect]]\ntarget='65000:1'\nvrf='b'"
                ),
                "bgp.redirect[1].target: 65000:1 is there already: keep one",
            ),
            (format!("{HEAD}{peer}restart_s=5000"), "bgp.peer[0].restart_s: 5000: give 0 to 4095 (RFC 4724)"),
            (
                format!("{HEAD}listen=[]\n{peer}"),
                "bgp.listen: nobody can connect: give an address, or all peers connect = true",
            ),
            (
                format!("{HEAD}[[announce]]\nprefix='198.51.100.1/24'"),
                "bgp.announce[0].prefix: 198.51.100.1/24 has host bits set: did you mean 198.51.100.0/24?",
            ),
            (
                format!("{HEAD}[[announce]]\nprefix='198.51.100.0/24'\nnext_hop='2001:db8::1'"),
                "bgp.announce[0].next_hop: 198.51.100.0/24 is of the other family",
            ),
            (
                format!("{HEAD}[[announce]]\nprefix='198.51.100.0/24'\ncommunities=['x']"),
                "bgp.announce[0].communities: \"x\" is no community such as \"65000:1\", both up to 65535",
            ),
        ] {
            assert_eq!(read(&text).unwrap_err(), error);
        }
        assert!(read(&format!("{HEAD}speed=1")).unwrap_err().contains("unknown field `speed`"));
        let both = read(&format!("{HEAD}{peer}password_file='a'\nao={{key_file='b'}}"));
        assert_eq!(both.unwrap_err(), "bgp.peer[0].ao: there is password_file, too: keep one");
        let missing = read(&format!("{HEAD}{peer}ao={{key_file='/nonexistent/key'}}")).unwrap_err();
        assert!(missing.starts_with("bgp.peer[0].ao.key_file: /nonexistent/key: "), "{missing}");
        let missing = read(&format!("{HEAD}{peer}password_file='/nonexistent/password'")).unwrap_err();
        assert!(missing.starts_with("bgp.peer[0].password_file: /nonexistent/password: "), "{missing}");
        let endless = read(&format!("{HEAD}{peer}password_file='/dev/zero'")).unwrap_err();
        assert_eq!(endless, "bgp.peer[0].password_file: /dev/zero: a device or a folder, and no file");
    }
}
