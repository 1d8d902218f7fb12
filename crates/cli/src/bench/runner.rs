//! `bench lpm --runner`: our side of the comparison with peers. The protocol is in `bench/README.md`.

use super::lpm::Lpm;
use super::pass::{BLOCK, Order, key_pages, on_huge_pages, timed_pass};
use crate::json;
use crate::usage;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::repeated;
use tidemill_lpm::{Address, Algorithm, Family, Rib};

/// Keys per call in `rnd` and `rep`, as the protocol says.
const BATCH: usize = 256;

pub(super) fn run(args: &Lpm) -> Result<bool> {
    let Some(keys) = args.keys() else {
        return Err(usage("--runner: needs --keys FILE"));
    };
    let table = args.table().load()?;
    let chosen = args.structures().choose(&table)?;
    match (chosen.v4.as_slice(), chosen.v6.as_slice()) {
        ([one], []) => serve(&table.v4, *one, keys),
        ([], [one]) => serve(&table.v6, *one, keys),
        _ => Err(usage("--runner: needs a table of one family and one structure")),
    }
}

fn serve<A: Family>(rib: &Rib<A>, algorithm: Algorithm, keys: &Path) -> Result<bool> {
    let start = Instant::now();
    let writer = algorithm.writer(rib, &Domain::new())?;
    let build_seconds = json::significant(start.elapsed().as_secs_f64());
    let fib = writer.fib();
    let keys = on_huge_pages(read_keys::<A>(keys)?);
    let repeated = on_huge_pages(repeated(&keys));
    let params = json!({"batch": BATCH, "key_pages": key_pages(&[&keys[..], &repeated[..]])});
    json::print(&json!({"v": json::VERSION, "ready": true, "subject": fib.name(), "routes": rib.len(),
        "rejected": 0, "build_seconds": build_seconds, "bytes": fib.bytes(), "params": params}))?;
    for line in crate::files::lines(std::io::stdin().lock()) {
        let line = line.context("standard input")?;
        let independent = Order::Independent { batch: BATCH };
        let (case, keys, order) = match line.as_str() {
            "run rnd" => ("rnd", &keys, independent),
            "run rep" => ("rep", &repeated, independent),
            "run seq" => ("seq", &keys, Order::Dependent),
            "quit" => return Ok(true),
            other => {
                let error: Value = format!("unknown command {other:?}: use run rnd|seq|rep or quit").into();
                json::print(&json!({"v": json::VERSION, "error": error}))?;
                continue;
            }
        };
        let pass = timed_pass(fib.as_ref(), keys, order);
        json::print(&json!({"v": json::VERSION, "bench": "lpm", "subject": fib.name(), "case": case,
            "lookups": keys.len(), "seconds": pass.time.as_secs_f64(), "checksum": pass.checksum}))?;
    }
    Ok(true)
}

/// Reads keys: IPv4 as little-endian `u32` in host order of value, IPv6 as 16 bytes in network order.
pub(super) fn read_keys<A: Address>(file: &Path) -> Result<Vec<A>> {
    let bytes = crate::tables::read_keys(file)?;
    let width = usize::from(A::BITS / 8);
    let count = bytes.len() / width;
    if bytes.len() % width != 0 || count == 0 || count % BLOCK != 0 {
        return Err(usage(format!(
            "{}: {} bytes are not a multiple of {BLOCK} keys of {width} bytes: give a key file of the table's family",
            file.display(),
            bytes.len()
        )));
    }
    let value = |key: &[u8]| {
        let byte = |value: u128, byte: &u8| value << 8 | u128::from(*byte);
        A::from_u128(if width == 4 { key.iter().rev().fold(0, byte) } else { key.iter().fold(0, byte) })
    };
    Ok(bytes.chunks_exact(width).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_protocols_byte_orders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, [1_u8, 0, 0, 10].repeat(BLOCK)).unwrap();
        assert_eq!(read_keys::<u32>(&file).unwrap(), vec![0x0a00_0001; BLOCK]);
        let address = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap();
        std::fs::write(&file, address.octets().repeat(BLOCK)).unwrap();
        assert_eq!(read_keys::<u128>(&file).unwrap(), vec![u128::from(address); BLOCK]);
        std::fs::write(&file, [0; 10]).unwrap();
        for error in [
            read_keys::<u32>(&file).unwrap_err(),
            read_keys::<u128>(&folder.path().join("none")).unwrap_err(),
        ] {
            assert!(error.is::<crate::Usage>(), "{error}");
        }
    }
}
