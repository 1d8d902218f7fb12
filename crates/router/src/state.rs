//! The state image: what a router has learnt and would lose with its process, as bytes to start from again.
//!
//! It is a [table image](tidemill_lookup::image) of the kind `router-state`: versioned, checksummed as a whole, and
//! validated on loading beyond the checksum, so that no bytes whatsoever make a wrong route.
//!
//! ```text
//! meta            JSON: names of the labels, next hops, routes added through the API, what `auto` has chosen
//! origin          of whoever saves it: from which files the routes were made
//! table4.first    addresses, 4 bytes each      table6.first    addresses, 16 bytes each
//! table4.len      lengths, a byte each         table6.len
//! table4.label    labels, 4 bytes each         table6.label
//! kernel4.first   the same for the kernel's routes, VRF after VRF; instead of labels, places in the list of next
//! ...             hops, which name interfaces: their numbers may be others when the router starts again
//! ```
//! **What it holds:** routes of sources that do not come back by themselves, or late: the table with all its updates, routes
//! added through the API, the kernel's. Not: our own addresses and links and configured routes, which the configuration says,
//! and neighbors, who are asked again.
//!
//! **The kernel's routes** are held so that a router forwards before it has read a million of them from netlink. They count
//! until the first dump is complete; then those that it did not name are withdrawn.
//!
//! **The lookup structures** are not in it, on purpose: they are built from the routes, a million of them in some 55 ms. What
//! makes a loaded one take changes, the writer's books, would have to be built all the same, and an image of each structure
//! kept true to its code. What `auto` has chosen is held, for measuring again would take longer than all the rest.

use crate::config::RouteConfig;
use crate::labels::NextHop;
use crate::rules;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use tidemill_feed::{Labels, NextHopName, Numbering};
use tidemill_ip::Interfaces;
use tidemill_lookup::image::{Image, ImageBuilder, ImageError};
use tidemill_lpm::{Address, Label, Prefix};
use tidemill_wire::MacAddr;

/// The kind of its images.
pub const KIND: &str = "router-state";
const VERSION: u32 = 1;
const META: &str = "meta";
const ORIGIN: &str = "origin";

/// Routes in ascending order of their prefixes, each prefix once.
pub type List<A> = Vec<(Prefix<A>, Label)>;

/// What a router has learnt.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Opaque here: from which files the routes were made.
    pub origin: Vec<u8>,
    /// What the table calls its labels.
    pub labels: Labels,
    /// The table's IPv4 routes, updates included, by those labels.
    pub v4: List<u32>,
    /// The table's IPv6 routes.
    pub v6: List<u128>,
    /// Routes added through the API.
    pub added: Vec<RouteConfig>,
    /// What the control side takes over when it is made.
    pub resumed: Resumed,
}

/// The part of a [`State`] that [`RouterControl::resume`](crate::RouterControl::resume) takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Next hops of the kernel's routes.
    pub hops: Vec<SavedHop>,
    /// The kernel's routes by VRF; their labels are places in `hops`.
    pub kernel: Vec<KernelRoutes>,
    /// What `auto` has chosen.
    pub chosen: Vec<ChosenStructure>,
}

/// The kernel's routes of one VRF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelRoutes {
    /// The VRF's name; empty for the one without.
    pub vrf: String,
    /// IPv4.
    pub v4: List<u32>,
    /// IPv6.
    pub v6: List<u128>,
}

/// Which lookup structure a table was in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChosenStructure {
    /// The VRF's name; empty for the one without.
    pub vrf: String,
    /// 4 or 6.
    pub family: u8,
    /// The structure's name.
    pub algorithm: String,
    /// Why.
    pub why: String,
}

/// A next hop that names its interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedHop {
    /// To the kernel.
    Kernel,
    /// Dropped silently.
    Blackhole,
    /// Dropped: the host cannot be reached.
    Unreachable,
    /// Dropped: forbidden.
    Prohibited,
    /// The destination itself, on this interface.
    OnLink(String),
    /// A neighbor on this interface.
    Via(String, IpAddr),
    /// A neighbor on this interface, by MAC address.
    Mac(String, [u8; 6]),
    /// Several of the others, with their weights.
    Group(Vec<(SavedHop, u32)>),
}

impl SavedHop {
    /// A next hop as it is saved; `None` for what is never a kernel route's.
    pub(crate) fn of(hop: &NextHop, interfaces: &Interfaces) -> Option<Self> {
        let name = |number: &u16| interfaces.get(*number).map(|interface| interface.name.clone());
        Some(match hop {
            NextHop::Kernel => SavedHop::Kernel,
            NextHop::Blackhole => SavedHop::Blackhole,
            NextHop::Unreachable => SavedHop::Unreachable,
            NextHop::Prohibited => SavedHop::Prohibited,
            NextHop::OnLink(number) => SavedHop::OnLink(name(number)?),
            NextHop::Via(number, address) => SavedHop::Via(name(number)?, *address),
            NextHop::Mac(number, mac) => SavedHop::Mac(name(number)?, mac.0),
            NextHop::Group(members) => {
                let member = |(hop, weight): &(NextHop, u32)| Some((SavedHop::of(hop, interfaces)?, *weight));
                SavedHop::Group(members.iter().filter_map(member).collect())
            }
            NextHop::Local | NextHop::Broadcast | NextHop::Named(_) => return None,
        })
    }

    /// The next hop among the interfaces that there are now; `None` if none of them is left.
    pub(crate) fn resolve(&self, interfaces: &Interfaces) -> Option<NextHop> {
        let number = |name: &String| interfaces.by_name(name);
        Some(match self {
            SavedHop::Kernel => NextHop::Kernel,
            SavedHop::Blackhole => NextHop::Blackhole,
            SavedHop::Unreachable => NextHop::Unreachable,
            SavedHop::Prohibited => NextHop::Prohibited,
            SavedHop::OnLink(name) => NextHop::OnLink(number(name)?),
            SavedHop::Via(name, address) => NextHop::Via(number(name)?, *address),
            SavedHop::Mac(name, mac) => NextHop::Mac(number(name)?, MacAddr(*mac)),
            SavedHop::Group(members) => {
                let member = |(hop, weight): &(SavedHop, u32)| Some((hop.resolve(interfaces)?, *weight));
                return rules::group(members.iter().filter_map(member).collect());
            }
        })
    }

    /// Whether it could have been saved: a group has members, and none of them is a group.
    fn is_sound(&self) -> bool {
        match self {
            SavedHop::Group(members) => {
                let single =
                    |(hop, weight): &(SavedHop, u32)| *weight > 0 && !matches!(hop, SavedHop::Group(_));
                !members.is_empty() && members.iter().all(single)
            }
            _ => true,
        }
    }
}

/// The section `meta`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    numbering: Numbering,
    names: Vec<(u32, NextHopName)>,
    hops: Vec<SavedHop>,
    /// VRFs with the numbers of their IPv4 and IPv6 routes.
    kernel: Vec<(String, u32, u32)>,
    added: Vec<RouteConfig>,
    chosen: Vec<ChosenStructure>,
}

/// The names of three sections.
struct Columns {
    first: &'static str,
    len: &'static str,
    label: &'static str,
}

const TABLE4: Columns = Columns { first: "table4.first", len: "table4.len", label: "table4.label" };
const TABLE6: Columns = Columns { first: "table6.first", len: "table6.len", label: "table6.label" };
const KERNEL4: Columns = Columns { first: "kernel4.first", len: "kernel4.len", label: "kernel4.hop" };
const KERNEL6: Columns = Columns { first: "kernel6.first", len: "kernel6.len", label: "kernel6.hop" };
const ALL: [&Columns; 4] = [&TABLE4, &TABLE6, &KERNEL4, &KERNEL6];

impl Columns {
    fn write<'a, A: Address>(
        &self,
        image: ImageBuilder,
        lists: impl Iterator<Item = &'a List<A>>,
    ) -> ImageBuilder {
        let bytes = usize::from(A::BITS / 8);
        let (mut first, mut len, mut label) = (Vec::new(), Vec::new(), Vec::new());
        for (prefix, to) in lists.flatten() {
            let address = prefix.first().to_u128();
            match bytes {
                4 => first.extend_from_slice(&(address as u32).to_ne_bytes()),
                _ => first.extend_from_slice(&address.to_ne_bytes()),
            }
            len.push(prefix.len());
            label.extend_from_slice(&to.0.to_ne_bytes());
        }
        image.section(self.first, first).section(self.len, len).section(self.label, label)
    }

    /// Reads lists of these lengths, or one list of everything; labels are those that `known` says.
    fn read<A: Address>(
        &self,
        image: &Image<'_>,
        counts: Option<&[u32]>,
        known: impl Fn(Label) -> bool,
    ) -> Result<Vec<List<A>>, ImageError> {
        let bytes = usize::from(A::BITS / 8);
        let (first, lens) = (image.section(self.first)?, image.section(self.len)?);
        let mut labels = image.section_u32(self.label)?;
        let total = lens.len();
        if first.len() != total * bytes || labels.len() != total {
            let what = format!(
                "{} bytes of addresses and {} labels do not go with {total} lengths",
                first.len(),
                labels.len()
            );
            return Err(image.content(self.len, 0, what));
        }
        let counts = counts.map_or_else(|| vec![total as u32], <[u32]>::to_vec);
        let sum: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        if sum != total as u64 {
            return Err(image.content(self.len, 0, format!("{total} routes where {sum} were announced")));
        }
        let mut rows = first.chunks_exact(bytes).zip(lens).enumerate();
        let mut lists = Vec::with_capacity(counts.len());
        for count in counts {
            let mut list: List<A> = Vec::with_capacity(count as usize);
            for (at, (address, &len)) in rows.by_ref().take(count as usize) {
                let address = match *address {
                    [a, b, c, d] => u128::from(u32::from_ne_bytes([a, b, c, d])),
                    _ => address.try_into().map_or(0, u128::from_ne_bytes),
                };
                let prefix = Prefix::new(A::from_u128(address), len)
                    .filter(|prefix| prefix.first().to_u128() == address);
                let Some(prefix) = prefix else {
                    let what = format!("{address:#x}/{len} is no prefix");
                    return Err(image.content(self.first, at * bytes, what));
                };
                if list.last().is_some_and(|(before, _)| *before >= prefix) {
                    return Err(image.content(self.first, at * bytes, format!("{prefix} is out of order")));
                }
                let label = labels.next().map(Label).filter(|label| known(*label));
                let Some(label) = label else {
                    return Err(image.content(
                        self.label,
                        at * 4,
                        format!("{prefix} has an unknown next hop"),
                    ));
                };
                list.push((prefix, label));
            }
            lists.push(list);
        }
        Ok(lists)
    }
}

impl State {
    /// The image's bytes.
    ///
    /// # Errors
    /// Texts that JSON cannot hold: there are none.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let Resumed { hops, kernel, chosen } = &self.resumed;
        let meta = Meta {
            numbering: self.labels.numbering(),
            names: self.labels.iter().map(|(label, name)| (label.0, name.clone())).collect(),
            hops: hops.clone(),
            kernel: kernel.iter().map(|k| (k.vrf.clone(), k.v4.len() as u32, k.v6.len() as u32)).collect(),
            added: self.added.clone(),
            chosen: chosen.clone(),
        };
        let image = ImageBuilder::new(KIND, VERSION, 32)
            .section(META, serde_json::to_vec(&meta)?)
            .section(ORIGIN, self.origin.clone());
        let image = TABLE4.write(image, std::iter::once(&self.v4));
        let image = TABLE6.write(image, std::iter::once(&self.v6));
        let image = KERNEL4.write(image, kernel.iter().map(|k| &k.v4));
        let image = KERNEL6.write(image, kernel.iter().map(|k| &k.v6));
        Ok(image.finish())
    }

    /// Reads an image and checks all of it.
    ///
    /// # Errors
    /// What is wrong, with its offset. Any bytes are allowed.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let image = Image::parse(bytes)?;
        image.expect(KIND, VERSION)?;
        let names = ALL.iter().flat_map(|columns| [columns.first, columns.len, columns.label]);
        let expected = [META, ORIGIN].into_iter().chain(names);
        if !image.sections().eq(expected) {
            return Err(image.content(META, 0, "the image's sections are not those of this version"));
        }
        let meta: Meta = serde_json::from_slice(image.section(META)?)
            .map_err(|error| image.content(META, error.column(), error.to_string()))?;
        let names = meta.names.into_iter().map(|(label, name)| (Label(label), name));
        let labels = Labels::restore(meta.numbering, names)
            .ok_or_else(|| image.content(META, 0, "the names of the labels contradict each other"))?;
        if !meta.hops.iter().all(SavedHop::is_sound) {
            return Err(image.content(META, 0, "a group of next hops is empty, or inside another"));
        }
        if let Some(twin) =
            meta.kernel.iter().enumerate().find(|(n, k)| meta.kernel[..*n].iter().any(|other| other.0 == k.0))
        {
            return Err(image.content(META, 0, format!("the VRF {:?} is there twice", twin.1.0)));
        }
        let named = |label: Label| labels.name(label).is_some();
        let v4 = TABLE4.read::<u32>(&image, None, named)?.pop().unwrap_or_default();
        let v6 = TABLE6.read::<u128>(&image, None, named)?.pop().unwrap_or_default();
        let hop = |label: Label| (label.0 as usize) < meta.hops.len();
        let counts: Vec<u32> = meta.kernel.iter().map(|kernel| kernel.1).collect();
        let kernel4 = KERNEL4.read::<u32>(&image, Some(&counts), hop)?;
        let counts: Vec<u32> = meta.kernel.iter().map(|kernel| kernel.2).collect();
        let kernel6 = KERNEL6.read::<u128>(&image, Some(&counts), hop)?;
        let kernel = meta.kernel.into_iter().zip(kernel4.into_iter().zip(kernel6));
        let kernel = kernel.map(|((vrf, ..), (v4, v6))| KernelRoutes { vrf, v4, v6 }).collect();
        Ok(State {
            origin: image.section(ORIGIN)?.to_vec(),
            labels,
            v4,
            v6,
            added: meta.added,
            resumed: Resumed { hops: meta.hops, kernel, chosen: meta.chosen },
        })
    }
}

#[cfg(test)]
mod tests;
