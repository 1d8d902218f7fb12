//! `tidemill route`: static routes of a running router.

use super::{Live, failed};
use crate::usage;
use anyhow::Result;
use clap::Subcommand;
use std::net::IpAddr;
use tidemill_control::schema::{Done, Refusal, RouteAdd, RouteDelete, path};

/// The verbs of `tidemill route`.
#[derive(Subcommand)]
pub(crate) enum RouteVerb {
    /// Add a static route, or replace it
    #[command(
        override_usage = "tidemill route add PREFIX via ADDR[,ADDR..] [dev IF] [--vrf NAME]\n       \
            tidemill route add PREFIX dev IF [--vrf NAME]\n       \
            tidemill route add PREFIX blackhole|unreachable|prohibited [--vrf NAME]",
        after_help = "It lasts until the router stops, through reloads too. Several gateways are equal-cost paths.\n\n\
            Examples:\n  tidemill route add 10.9.0.0/16 via 10.1.0.2\n  \
            tidemill route add 2001:db8::/32 via fe80::1 dev left\n  tidemill route add 10.66.0.0/16 blackhole --vrf blue"
    )]
    Add {
        /// To where
        prefix: String,
        /// How: via ADDR[,ADDR..] [dev IF], dev IF, blackhole, unreachable, prohibited
        #[arg(value_name = "HOW", required = true)]
        how: Vec<String>,
        /// In which VRF
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
    },
    /// Delete a static route
    #[command(visible_alias = "del", after_help = "Example:\n  tidemill route delete 10.9.0.0/16 --vrf blue")]
    Delete {
        /// To where
        prefix: String,
        /// In which VRF
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
    },
}

pub(super) fn run(live: &Live, verb: &RouteVerb) -> Result<bool> {
    let done: Done = match verb {
        RouteVerb::Add { prefix, how, vrf } => {
            let add = RouteAdd { vrf: vrf.clone(), ..parse(prefix, how)? };
            live.client()?.post(path::ROUTES, &add).map_err(failed)?
        }
        RouteVerb::Delete { prefix, vrf } => {
            let delete = RouteDelete { prefix: super::show::prefix(prefix)?, vrf: vrf.clone() };
            live.client()?.delete(path::ROUTES, &delete).map_err(failed)?
        }
    };
    live.done(&done)
}

/// Reads a route in words.
fn parse(prefix: &str, how: &[String]) -> Result<RouteAdd> {
    let mut route = RouteAdd { prefix: super::show::prefix(prefix)?, ..RouteAdd::default() };
    let mut words = how.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = |what| words.next().ok_or_else(|| usage(format!("{word}: give {what} behind it")));
        match word {
            "via" => {
                for address in value("an address, or several with commas between them")?.split(',') {
                    // As in the file: an interface and a weight may stand behind it.
                    let bare = address.split(['%', '@']).next().unwrap_or_default();
                    bare.parse::<IpAddr>().map_err(|_| {
                        usage(format!(
                            "via {address}: is no address: give 192.0.2.1, fe80::1%lan or 192.0.2.1@3"
                        ))
                    })?;
                    route.via.push(address.to_owned());
                }
            }
            "dev" => route.dev = Some(value("an interface")?.to_owned()),
            "blackhole" => route.kind = Some(Refusal::Blackhole),
            "unreachable" => route.kind = Some(Refusal::Unreachable),
            "prohibited" | "prohibit" => route.kind = Some(Refusal::Prohibited),
            _ => {
                let known = "via ADDR, dev IF, blackhole, unreachable or prohibited";
                return Err(usage(format!("{word}: a route goes {known}")));
            }
        }
    }
    if route.kind.is_some() && (route.dev.is_some() || !route.via.is_empty()) {
        return Err(usage(format!(
            "{prefix}: a route that forwards nothing has no gateway and no interface"
        )));
    }
    Ok(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_in_words() {
        let read = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            parse(&words[0], &words[1..])
        };
        let route = read("10.9.0.0/16 via 10.1.0.2,10.1.0.3 dev left").unwrap();
        assert_eq!((route.via.join("+"), route.dev.as_deref()), ("10.1.0.2+10.1.0.3".into(), Some("left")));
        assert_eq!(read("2001:DB8::/32 unreachable").unwrap().kind, Some(Refusal::Unreachable));
        assert_eq!(read("2001:DB8::/32 dev left").unwrap().prefix, "2001:db8::/32");
        for (line, why) in [
            ("10.9.0.1/16 dev left", "host bits"),
            ("10.9.0.0/16 via", "behind it"),
            ("10.9.0.0/16 via 10.1.0", "no address"),
            ("10.9.0.0/16 via 10.1.0.2,", "no address"),
            ("10.9.0.0/16 over left", "a route goes"),
            ("10.9.0.0/16 blackhole dev left", "forwards nothing"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
