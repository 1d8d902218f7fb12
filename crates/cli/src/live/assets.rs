//! `tidemill show assets`: hosts that a running process has detected.

use super::{Live, failed, print_line};
use crate::assets::print_list;
use anyhow::Result;
use clap::Args;
use std::net::IpAddr;
use tidemill_control::schema::assets::{Assets, AssetsQuery, path};

/// Hosts asked for at once.
const PAGE: u32 = 1000;

/// Which hosts.
#[derive(Args)]
pub(super) struct AssetArgs {
    /// Only this host
    #[arg(value_name = "ADDR")]
    address: Option<IpAddr>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// What is counted, instead
    #[arg(long)]
    counters: bool,
}

pub(super) fn run(live: &Live, args: &AssetArgs) -> Result<bool> {
    if args.counters {
        return live.counters(path::COUNTERS);
    }
    let client = live.client()?;
    let address = args.address.map(|address| address.to_string());
    let mut query = AssetsQuery { address, ..AssetsQuery::default() };
    let (mut left, mut shown) = (args.limit, Vec::new());
    while left > 0 {
        query.limit = Some(left.min(PAGE));
        let mut page: Assets = client.get(path::ASSETS, &query).map_err(failed)?;
        page.assets.truncate(left as usize);
        left -= page.assets.len() as u32;
        if live.json {
            page.assets.iter().try_for_each(print_line)?;
        } else {
            shown.extend(page.assets);
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    if !live.json {
        print_list(&shown, "there are no such hosts");
    }
    Ok(true)
}
