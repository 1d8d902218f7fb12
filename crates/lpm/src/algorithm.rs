//! The structures by name, as configurations and the command line know them.

use crate::auto;
use crate::dxr::{self, Dxr, DxrConfig, Layout};
use crate::fib::{BuildError, Built, FibWriter};
use crate::prefix::Address;
use crate::rib::Rib;
use crate::{
    binarytrie, bloomlpm, cuvpp, cuvpplengths, dir24, hashlengths, lctrie, lengthsearch, lulea, lulea97,
    patricia, pbf, popdir, poptrie, rangetrie, sail, sail6, treebitmap, twowaytrie,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidemill_lookup::qsbr::Domain;

/// A FIB structure with its parameters, as named in configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The structure that suits the table: see [`crate::auto`].
    Auto,
    /// [`crate::rangetrie`], with the width of its root.
    RangeTrie {
        /// 12, 16, 20 or 24.
        root_bits: u8,
    },
    /// [`crate::poptrie`], with the width of its direct table.
    Poptrie {
        /// 12 to 24.
        root_bits: u8,
    },
    /// [`crate::lulea`], IPv6 only.
    Lulea,
    /// A structure without parameters, by its name in [`Family::named`].
    Named(&'static str),
    /// [`crate::dxr`], IPv4 only.
    Dxr(Layout),
    /// [`crate::popdir`], IPv4 only.
    Popdir(popdir::Layout),
}

/// A name that is no algorithm of the family.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not an IPv{family} lookup structure: {}use one of {}", forms(name, *family), names.join(", "))]
pub struct AlgorithmError {
    /// What was asked for.
    pub name: String,
    /// 4 or 6.
    pub family: u8,
    /// What there is.
    pub names: Vec<String>,
}

/// Structures with parameters: how their names begin, the families that have them, and which parameters there are.
const FORMS: &[(&str, &[u8], &str)] = &[
    ("dxr", &[4], "dxr-dKr has K from 16 to 24, dxr-dDxXr has D from 8 to 16 and D + X from 16 to 24"),
    ("popdir", &[4], "popdir-d19 has no blocks, popdir-dDxX has D from 8 to 16 and D + X = 19"),
    ("rangetrie", &[4, 6], "rangetrie-dD has D = 12, 16, 20 or 24"),
    ("poptrie", &[4, 6], "poptrie-dK has K from 12 to 24"),
];

/// Which parameters there are, for a name that begins as that of a structure with parameters; else nothing.
fn forms(name: &str, family: u8) -> String {
    let form = FORMS.iter().find(|(stem, families, _)| name.starts_with(stem) && families.contains(&family));
    form.map_or_else(String::new, |(_, _, form)| format!("{form}; else "))
}

impl Algorithm {
    /// The algorithms of a family, those with parameters in their usual forms.
    pub fn all<A: Family>() -> Vec<Algorithm> {
        let tries = [16, 20].map(|root_bits| Algorithm::RangeTrie { root_bits });
        let poptrie = Algorithm::Poptrie { root_bits: 18 };
        let named = A::named().iter().map(|named| Algorithm::Named(named.name));
        let first = [Algorithm::Auto].into_iter().chain(A::own_algorithms());
        first.chain(tries).chain([poptrie]).chain(named).collect()
    }

    /// Whether it is one of those without parameters that are here to be compared with: they are patched as
    /// [copies](crate::copies), and neither `auto` nor `tidemill tune` considers them.
    pub fn is_yardstick(&self) -> bool {
        matches!(self, Algorithm::Named(_))
    }

    /// Reads a name as in configurations, for the family `A`.
    ///
    /// # Errors
    /// Anything that is neither one of [`all`](Self::all), which the error lists, nor another layout of DXR or Popdir, nor another
    /// root of the range trie or Poptrie.
    pub fn parse<A: Family>(name: &str) -> Result<Self, AlgorithmError> {
        let known = Self::all::<A>().into_iter().find(|algorithm| algorithm.to_string() == name);
        let width = |stem: &str| -> Option<u8> { name.strip_prefix(stem)?.parse().ok() };
        let trie = width("rangetrie-d").filter(|bits| rangetrie::RangeTrie::<A>::ROOT_BITS.contains(bits));
        let trie = trie.map(|root_bits| Algorithm::RangeTrie { root_bits });
        let poptrie = width("poptrie-d").filter(|bits| poptrie::Poptrie::<A>::ROOT_BITS.contains(bits));
        let poptrie = poptrie.map(|root_bits| Algorithm::Poptrie { root_bits });
        let other = trie.or(poptrie).filter(|algorithm| algorithm.to_string() == name);
        known.or(other).or_else(|| A::parse_own(name)).ok_or_else(|| AlgorithmError {
            name: name.into(),
            family: A::FAMILY,
            names: Self::all::<A>().iter().map(Self::to_string).collect(),
        })
    }

    /// Builds the structure from `rib`, for readers of `domain`; for [`Auto`](Self::Auto) by fixed knowledge, without a
    /// measurement.
    ///
    /// # Errors
    /// What the structure says: see [`BuildError`].
    pub fn writer<A: Family>(&self, rib: &Rib<A>, domain: &Domain) -> Built<A> {
        match *self {
            Algorithm::Auto => Ok(auto::choose(rib, domain, Duration::ZERO)?.writer),
            Algorithm::RangeTrie { root_bits } => {
                Ok(Box::new(rangetrie::Writer::new(rib, root_bits, domain)?))
            }
            Algorithm::Poptrie { root_bits } => Ok(Box::new(poptrie::Writer::new(rib, root_bits, domain)?)),
            Algorithm::Named(name) => match A::named().iter().find(|named| named.name == name) {
                Some(named) => (named.writer)(rib, domain),
                None => Err(other_family::<A>(*self)),
            },
            own => A::own_writer(own, rib, domain),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Auto => f.write_str("auto"),
            Algorithm::RangeTrie { root_bits } => write!(f, "rangetrie-d{root_bits}"),
            Algorithm::Poptrie { root_bits } => write!(f, "poptrie-d{root_bits}"),
            Algorithm::Lulea => f.write_str("lulea"),
            Algorithm::Named(name) => f.write_str(name),
            Algorithm::Dxr(layout) => layout.fmt(f),
            Algorithm::Popdir(layout) => layout.fmt(f),
        }
    }
}

/// A structure without parameters.
pub struct Named<A: Address> {
    /// As in configurations.
    pub name: &'static str,
    /// Builds it.
    pub writer: fn(&Rib<A>, &Domain) -> Built<A>,
}

/// What an address family adds to the structures that serve both.
pub trait Family: Address {
    /// What `auto` considers, the best first where we measured.
    fn likely() -> Vec<Algorithm>;
    /// Structures for this family only that have parameters, in their usual forms.
    fn own_algorithms() -> Vec<Algorithm>;
    /// Their other forms.
    fn parse_own(name: &str) -> Option<Algorithm>;
    /// Structures without parameters.
    fn named() -> &'static [Named<Self>];
    /// Builds one of them.
    ///
    /// # Errors
    /// What the structure says; and there is none of that kind for this family.
    fn own_writer(algorithm: Algorithm, rib: &Rib<Self>, domain: &Domain) -> Built<Self>;
    /// Builds structures that share what they have in common, for the tables of VRFs. `None`: those of this kind have nothing
    /// to share. [`Algorithm::Auto`] is the kind that suits many VRFs.
    fn sharing(algorithm: Algorithm, domain: &Domain) -> Option<Sharing<Self>>;
}

/// Builds structures that share what they have in common; see [`Family::sharing`].
pub type Sharing<A> = Arc<dyn Fn(&Rib<A>, &Domain) -> Result<Shares<A>, BuildError> + Send + Sync>;

/// The writer of a structure that shares; or that of another one, which holds a table that those that share cannot, and why it is that.
pub type Shares<A> = (Box<dyn FibWriter<A>>, Option<String>);

/// Those that `make` builds; for [`Algorithm::Auto`] another one holds what they cannot, as without sharing.
fn sharing<A: Family>(
    algorithm: Algorithm,
    make: impl Fn(&Rib<A>, &Domain) -> Built<A> + Send + Sync + 'static,
) -> Sharing<A> {
    Arc::new(move |rib, domain| match make(rib, domain) {
        Ok(writer) => Ok((writer, None)),
        Err(error) if algorithm == Algorithm::Auto => {
            let auto::Chosen { writer, why, .. } = auto::choose(rib, domain, Duration::ZERO)?;
            Ok((writer, Some(format!("{why}; shares nothing: {error}"))))
        }
        Err(error) => Err(error),
    })
}

fn other_family<A: Address>(algorithm: Algorithm) -> BuildError {
    let expected = format!("{algorithm} is for the other family");
    BuildError::Parameter { parameter: "address family", value: A::FAMILY.into(), expected }
}

impl Family for u32 {
    fn likely() -> Vec<Algorithm> {
        let popdir = [popdir::Layout::D16X3, popdir::Layout::D19].map(Algorithm::Popdir);
        popdir.into_iter().chain([Algorithm::Dxr(Layout::D16X4R)]).collect()
    }
    fn own_algorithms() -> Vec<Algorithm> {
        let dxr = [Layout::D16X4R, Layout::D18R].map(Algorithm::Dxr);
        let popdir = [popdir::Layout::D16X3, popdir::Layout::D19].map(Algorithm::Popdir);
        dxr.into_iter().chain(popdir).collect()
    }
    fn named() -> &'static [Named<Self>] {
        &[
            Named { name: "binary-trie", writer: binarytrie::writer },
            Named { name: "patricia", writer: patricia::writer },
            Named { name: "dir-24-8", writer: dir24::writer },
            Named { name: "tree-bitmap", writer: treebitmap::writer },
            Named { name: "lc-trie", writer: lctrie::writer },
            Named { name: "sail-b", writer: sail::writer_b },
            Named { name: "sail-u", writer: sail::writer_u },
            Named { name: "sail-l", writer: sail::writer_l },
            Named { name: "sail-l8", writer: sail::writer_l8 },
            Named { name: "sail-lv", writer: sail::writer_lv },
            Named { name: "sail-m", writer: sail::writer_m },
            Named { name: "hash-per-length", writer: hashlengths::writer },
            Named { name: "cuvpp", writer: cuvpp::writer },
            Named { name: "bloom-lpm", writer: bloomlpm::writer },
            Named { name: "two-way-trie", writer: twowaytrie::writer },
            Named { name: "length-search", writer: lengthsearch::writer },
            Named { name: "pbf", writer: pbf::writer },
            Named { name: "lulea-1997", writer: lulea97::writer },
            Named { name: "cuvpp-simd", writer: cuvpp::simd_writer },
            Named { name: "cuvpp-lengths", writer: cuvpplengths::writer },
        ]
    }
    fn parse_own(name: &str) -> Option<Algorithm> {
        let dxr = Layout::parse(name).map(Algorithm::Dxr);
        dxr.or_else(|| popdir::Layout::parse(name).map(Algorithm::Popdir))
    }
    fn own_writer(algorithm: Algorithm, rib: &Rib<Self>, domain: &Domain) -> Built<Self> {
        match algorithm {
            Algorithm::Dxr(layout) => Ok(Box::new(Dxr::writer(rib, &DxrConfig::new(layout), domain)?)),
            Algorithm::Popdir(layout) => Ok(Box::new(popdir::Writer::new(rib, layout, domain)?)),
            _ => Err(other_family::<Self>(algorithm)),
        }
    }
    fn sharing(algorithm: Algorithm, domain: &Domain) -> Option<Sharing<Self>> {
        let layout = match algorithm {
            Algorithm::Dxr(layout) => layout,
            Algorithm::Auto => Layout::D16X4R,
            _ => return None,
        };
        Some(sharing(algorithm, dxr::Shared::new(&DxrConfig::new(layout), domain).make()))
    }
}

impl Family for u128 {
    fn likely() -> Vec<Algorithm> {
        let mut likely = vec![Algorithm::RangeTrie { root_bits: 16 }, Algorithm::RangeTrie { root_bits: 20 }];
        // For keys inside prefixes it is quicker with AVX-512 or AVX2, and slower with neither.
        let at = if lulea::has_wide_kernel() { 0 } else { likely.len() };
        likely.insert(at, Algorithm::Lulea);
        likely
    }
    fn own_algorithms() -> Vec<Algorithm> {
        vec![Algorithm::Lulea]
    }
    fn named() -> &'static [Named<Self>] {
        &[
            Named { name: "binary-trie", writer: binarytrie::writer },
            Named { name: "patricia", writer: patricia::writer },
            Named { name: "sail-l", writer: sail6::small::writer },
            Named { name: "tree-bitmap", writer: treebitmap::writer },
            Named { name: "lc-trie", writer: lctrie::writer },
            Named { name: "hash-per-length", writer: hashlengths::writer },
            Named { name: "cuvpp", writer: cuvpp::writer },
            Named { name: "bloom-lpm", writer: bloomlpm::writer },
            Named { name: "sail-hybrid", writer: sail6::hybrid::writer },
            Named { name: "two-way-trie", writer: twowaytrie::writer },
            Named { name: "length-search", writer: lengthsearch::writer },
            Named { name: "pbf", writer: pbf::writer },
            Named { name: "cuvpp-simd", writer: cuvpp::simd_writer },
            Named { name: "cuvpp-lengths", writer: cuvpplengths::writer },
        ]
    }
    fn parse_own(_: &str) -> Option<Algorithm> {
        None
    }
    fn own_writer(algorithm: Algorithm, rib: &Rib<Self>, domain: &Domain) -> Built<Self> {
        match algorithm {
            Algorithm::Lulea => Ok(Box::new(lulea::Writer::new(rib, domain)?)),
            _ => Err(other_family::<Self>(algorithm)),
        }
    }
    fn sharing(algorithm: Algorithm, domain: &Domain) -> Option<Sharing<Self>> {
        let shares = matches!(algorithm, Algorithm::Lulea | Algorithm::Auto);
        shares.then(|| sharing(algorithm, lulea::Shared::new(domain).make()))
    }
}
