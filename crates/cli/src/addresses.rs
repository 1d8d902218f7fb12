//! Addresses inside a table's prefixes: for generated traffic, and for giving a capture's packets destinations that
//! the table at hand routes.

use std::net::IpAddr;
use std::sync::Arc;
use tidemill_feed::LoadedTable;
use tidemill_lpm::{Address, Prefix, Rib};
use tidemill_port::Choose;
use tidemill_port::generator::AddressSource;
use tidemill_port::rng::mix;

/// The prefixes of a table, to draw addresses from: every prefix is as likely as every other, and so is every address
/// in it (Fu 3.5.2, "prefix-based").
#[derive(Clone, Default)]
pub(crate) struct TableAddresses {
    v4: Arc<[Prefix<u32>]>,
    v6: Arc<[Prefix<u128>]>,
}

impl TableAddresses {
    pub(crate) fn of(table: &LoadedTable) -> Self {
        TableAddresses { v4: prefixes(&table.v4), v6: prefixes(&table.v6) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The address that `hash` stands for, of the same family as `like`, if the table has that family.
    pub(crate) fn like(&self, like: IpAddr, hash: u64) -> Option<IpAddr> {
        match like {
            IpAddr::V4(_) => inside(&self.v4, hash),
            IpAddr::V6(_) => inside(&self.v6, hash),
        }
    }

    /// A source for generators: IPv4 if the table has any, else IPv6.
    pub(crate) fn source(&self) -> Box<dyn AddressSource> {
        let own = self.clone();
        Box::new(move |rng: &mut tidemill_port::rng::Rng| {
            let hash = rng.bits();
            inside(&own.v4, hash)
                .or_else(|| inside(&own.v6, hash))
                .unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
        })
    }

    /// For [`Remap`](tidemill_port::Remap).
    pub(crate) fn choose(&self) -> Choose {
        let own = self.clone();
        Box::new(move |original, hash| own.like(original, hash))
    }
}

fn prefixes<A: Address>(rib: &Rib<A>) -> Arc<[Prefix<A>]> {
    rib.iter().map(|(prefix, _)| prefix).collect()
}

fn inside<A: Address>(prefixes: &[Prefix<A>], hash: u64) -> Option<IpAddr> {
    let at = ((u128::from(hash) * prefixes.len() as u128) >> 64) as usize;
    let prefix = prefixes.get(at)?;
    let bits = (u128::from(mix(hash)) << 64) | u128::from(mix(hash ^ 0x5bd1_e995));
    let host = A::from_u128(bits) & !A::mask(prefix.len());
    Some((prefix.first() | host).to_ip())
}
