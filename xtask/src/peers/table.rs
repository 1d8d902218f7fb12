//! A routing table as plain text, `prefix TAB label`: read here, written again for the runners.

use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::io::BufRead;
use std::net::IpAddr;
use std::path::Path;

/// One route. An IPv4 address stands in the low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) address: u128,
    pub(crate) length: u8,
    pub(crate) label: u32,
}

/// Routes of one family.
pub(crate) struct Table {
    pub(crate) family: u8,
    pub(crate) routes: Vec<Route>,
}

impl Table {
    /// Width of an address in bits.
    pub(crate) fn bits(&self) -> u8 {
        if self.family == 4 { 32 } else { 128 }
    }

    /// The greatest label.
    pub(crate) fn greatest_label(&self) -> u32 {
        self.routes.iter().map(|route| route.label).max().unwrap_or(0)
    }

    /// Reads a file, compressed or not.
    pub(crate) fn read(path: &Path) -> Result<Table> {
        let mut table = Table { family: 0, routes: Vec::new() };
        let reader = tidemill_archive::open(path).with_context(|| path.display().to_string())?;
        for (number, line) in reader.lines().enumerate() {
            let place = || format!("{}:{}", path.display(), number + 1);
            let line = line.with_context(place)?;
            if !line.is_empty() && !line.starts_with('#') {
                table.add(&line).with_context(place)?;
            }
        }
        ensure!(!table.routes.is_empty(), "{}: no routes", path.display());
        Ok(table)
    }

    /// Adds the route of a line; columns after the second are not ours.
    pub(crate) fn add(&mut self, line: &str) -> Result<()> {
        let mut columns = line.split('\t');
        let (prefix, label) = (columns.next().unwrap_or_default(), columns.next());
        let label = label.context("not `prefix TAB label` (tidemill fib convert makes such a file)")?;
        let label: u32 = label.parse().with_context(|| format!("{label:?} is no label"))?;
        ensure!(label > 0, "label 0 is kept for \"no route\"");
        let (address, length) = prefix.split_once('/').with_context(|| format!("{prefix:?} is no prefix"))?;
        let address: IpAddr = address.parse().with_context(|| format!("{address:?} is no address"))?;
        let length: u8 = length.parse().with_context(|| format!("{length:?} is no length"))?;
        let (family, value) = match address {
            IpAddr::V4(v4) => (4, u128::from(u32::from(v4))),
            IpAddr::V6(v6) => (6, u128::from(v6)),
        };
        if self.family == 0 {
            self.family = family;
        }
        ensure!(self.family == family, "a route of another family than the first");
        if length > self.bits() {
            bail!("a length of {length}, at most {}", self.bits());
        }
        let host = if length == self.bits() { 0 } else { u128::MAX >> (128 - self.bits() + length) };
        ensure!(value & host == 0, "{prefix} has host bits set");
        self.routes.push(Route { address: value, length, label });
        Ok(())
    }

    /// Writes what a runner reads.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::with_capacity(self.routes.len() * 24);
        for route in &self.routes {
            let address: IpAddr = match self.family {
                4 => std::net::Ipv4Addr::from(route.address as u32).into(),
                _ => std::net::Ipv6Addr::from(route.address).into(),
            };
            writeln!(text, "{address}/{}\t{}", route.length, route.label)?;
        }
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_bad_ones_refused() {
        let mut table = Table { family: 0, routes: Vec::new() };
        for line in ["0.0.0.0/0\t1", "10.0.0.0/8\t7\tmore", "10.0.0.1/32\t9"] {
            table.add(line).unwrap();
        }
        assert_eq!(table.routes[1], Route { address: 0x0a00_0000, length: 8, label: 7 });
        for line in [
            "10.0.0.1/8\t1",
            "10.0.0.0/33\t1",
            "10.0.0.0/8",
            "10.0.0.0/8\t0",
            "::/0\t1",
            "10.0.0.0\t1",
            "x/8\t1",
        ] {
            assert!(table.add(line).is_err(), "{line}");
        }
        let mut table = Table { family: 0, routes: Vec::new() };
        table.add("2001:db8::/32\t1").unwrap();
        table.add("::/0\t2").unwrap();
        assert!(table.add("2001:db8::1/127\t1").is_err());
    }
}
