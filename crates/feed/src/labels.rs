//! The label dictionary: which next hop a label stands for.
//!
//! Structures know labels, files know texts. When every value of a table is a number of at most
//! [`Labels::DIRECT_MAX`], the number is the label: label 7 is `7` in the file. If 0 occurs among them (DPDK's files count
//! from 0), every label is the number plus one, because label 0 means "no route". Anything else - addresses,
//! `nexthop@interface`, AS numbers beyond that bound, keywords - is numbered from 1 in the order of first appearance.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use tidemill_lpm::Label;

/// A next hop as a file names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NextHopName {
    /// A plain number: a label, a port, an AS number.
    Number(u32),
    /// A next hop's address.
    Address(IpAddr),
    /// `address@interface`.
    Via(IpAddr, Box<str>),
    /// Anything else: `veth27`, `rjct`, `receive@Loopback3`.
    Word(Box<str>),
}

impl NextHopName {
    /// The longest text that is taken for a name, in bytes.
    pub const TEXT_MAX: usize = 255;

    /// Reads a name; `None` if the text is empty, longer than [`TEXT_MAX`](Self::TEXT_MAX), or has white space or quotes
    /// in it: a table with such a name could not be written so that it loads again.
    pub fn parse(text: &str) -> Option<Self> {
        let separates = |c: char| c.is_whitespace() || c == '"';
        if text.is_empty() || text.len() > Self::TEXT_MAX || text.contains(separates) {
            return None;
        }
        if text.bytes().all(|b| b.is_ascii_digit())
            && let Ok(number) = text.parse()
        {
            return Some(NextHopName::Number(number));
        }
        if let Ok(address) = text.parse() {
            return Some(NextHopName::Address(address));
        }
        if let Some((address, interface)) = text.split_once('@')
            && let Ok(address) = address.parse()
            && !interface.is_empty()
        {
            return Some(NextHopName::Via(address, interface.into()));
        }
        Some(NextHopName::Word(text.into()))
    }

    /// The next hop's address, where it has one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            NextHopName::Address(address) | NextHopName::Via(address, _) => Some(*address),
            NextHopName::Number(_) | NextHopName::Word(_) => None,
        }
    }
}

impl fmt::Display for NextHopName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHopName::Number(number) => number.fmt(f),
            NextHopName::Address(address) => address.fmt(f),
            NextHopName::Via(address, interface) => write!(f, "{address}@{interface}"),
            NextHopName::Word(word) => f.write_str(word),
        }
    }
}

/// How labels come from names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Numbering {
    /// Label 7 is the number 7.
    Direct,
    /// Label 8 is the number 7: the file counts from 0.
    Shifted,
    /// Labels count the names from 1, in order of first appearance.
    #[default]
    Appearance,
}

/// Labels and their names. Label 0, "no route", never has one.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// By label. A numbered table may leave gaps.
    names: Vec<Option<NextHopName>>,
    index: HashMap<NextHopName, Label>,
    numbering: Numbering,
}

impl Labels {
    /// The largest number that is used as a label itself: what fits 16-bit labels.
    pub const DIRECT_MAX: u32 = 65_535;

    /// An empty dictionary that numbers in order of appearance.
    pub fn new() -> Self {
        Self::default()
    }

    /// The dictionary of the numbers `1..=count` as their own labels: what generated tables have.
    pub fn numbers(count: u32) -> Self {
        let mut labels = Labels { numbering: Numbering::Direct, ..Self::default() };
        for number in 1..=count {
            labels.put(Label(number), NextHopName::Number(number));
        }
        labels
    }

    /// The dictionary with these names, as [`iter`](Self::iter) gave them; `None` if a label or a name is there twice, a label is
    /// 0, or one is larger than any that so many names can get.
    pub fn restore(
        numbering: Numbering,
        names: impl ExactSizeIterator<Item = (Label, NextHopName)>,
    ) -> Option<Self> {
        let largest = Self::DIRECT_MAX as usize + 1 + names.len();
        let mut labels = Labels { numbering, ..Self::default() };
        for (label, name) in names {
            let possible = (1..=largest).contains(&(label.0 as usize));
            if !possible || labels.name(label).is_some() || labels.index.contains_key(&name) {
                return None;
            }
            labels.put(label, name);
        }
        Some(labels)
    }

    /// How labels come from names.
    pub fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The name of a label.
    pub fn name(&self, label: Label) -> Option<&NextHopName> {
        self.names.get(label.0 as usize)?.as_ref()
    }

    /// The label of a name.
    pub fn get(&self, name: &NextHopName) -> Option<Label> {
        self.index.get(name).copied()
    }

    /// The label of a name; a new name gets the number that it is (in a numbered dictionary, within
    /// [`DIRECT_MAX`](Self::DIRECT_MAX)), or the next free label.
    pub fn label(&mut self, name: &NextHopName) -> Label {
        if let Some(&label) = self.index.get(name) {
            return label;
        }
        let own = match (self.numbering, name) {
            (Numbering::Direct, &NextHopName::Number(n)) if (1..=Self::DIRECT_MAX).contains(&n) => Some(n),
            (Numbering::Shifted, &NextHopName::Number(n)) if n < Self::DIRECT_MAX => Some(n + 1),
            _ => None,
        };
        let label = match own.map(Label).filter(|&label| self.name(label).is_none()) {
            Some(label) => label,
            None => Label(self.names.len().max(1) as u32),
        };
        self.put(label, name.clone());
        label
    }

    /// All labels with their names, by label.
    pub fn iter(&self) -> impl Iterator<Item = (Label, &NextHopName)> {
        self.names.iter().enumerate().filter_map(|(i, name)| Some((Label(i as u32), name.as_ref()?)))
    }

    fn put(&mut self, label: Label, name: NextHopName) {
        let at = label.0 as usize;
        if self.names.len() <= at {
            self.names.resize(at + 1, None);
        }
        self.names[at] = Some(name.clone());
        self.index.insert(name, label);
    }

    /// Decides the numbering once all names of a table are known. Returns the final label of every provisional one
    /// (by order of appearance), or `None` where those stay.
    pub(crate) fn settle(&mut self) -> Option<Vec<Label>> {
        let numbers: Option<Vec<u32>> = (self.names.iter().skip(1))
            .map(|name| match name {
                Some(NextHopName::Number(n)) => Some(*n),
                _ => None,
            })
            .collect();
        let numbers = numbers.filter(|n| !n.is_empty())?;
        let shift = u32::from(numbers.contains(&0));
        if numbers.iter().any(|&n| n > Self::DIRECT_MAX - shift) {
            return None;
        }
        let numbering = if shift == 1 { Numbering::Shifted } else { Numbering::Direct };
        *self = Labels { numbering, ..Self::default() };
        let mut map = vec![Label::NONE];
        for number in numbers {
            self.put(Label(number + shift), NextHopName::Number(number));
            map.push(Label(number + shift));
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(texts: &[&str]) -> Labels {
        let mut labels = Labels::new();
        for text in texts {
            labels.label(&NextHopName::parse(text).unwrap());
        }
        labels.settle();
        labels
    }

    fn label(labels: &mut Labels, text: &str) -> u32 {
        labels.label(&NextHopName::parse(text).unwrap()).0
    }

    #[test]
    fn names_read_and_write_their_text() {
        let via = NextHopName::Via([10, 0, 0, 1].into(), "ae0.10".into());
        for (text, name) in [
            ("7", NextHopName::Number(7)),
            ("10.0.0.1", NextHopName::Address([10, 0, 0, 1].into())),
            ("10.0.0.1@ae0.10", via),
            ("receive@Loopback3", NextHopName::Word("receive@Loopback3".into())),
            ("4294967296", NextHopName::Word("4294967296".into())),
            ("+7", NextHopName::Word("+7".into())),
        ] {
            assert_eq!(NextHopName::parse(text), Some(name.clone()));
            assert_eq!(name.to_string(), text);
        }
        for bad in ["", "a b", "a\tb", "\"a", "a\u{a0}b"] {
            assert_eq!(NextHopName::parse(bad), None, "{bad:?}");
        }
        assert_eq!(NextHopName::parse(&"x".repeat(256)), None);
    }

    #[test]
    fn numbers_are_their_own_labels_and_shift_when_they_count_from_zero() {
        let mut direct = dictionary(&["148", "3"]);
        assert_eq!(direct.numbering(), Numbering::Direct);
        assert_eq!(
            [label(&mut direct, "148"), label(&mut direct, "3"), label(&mut direct, "9")],
            [148, 3, 9]
        );
        assert_eq!([label(&mut direct, "drop"), label(&mut direct, "149")], [149, 150]);
        assert_eq!(direct.name(Label(0)), None);
        let mut shifted = dictionary(&["5", "0"]);
        assert_eq!(shifted.numbering(), Numbering::Shifted);
        assert_eq!([label(&mut shifted, "5"), label(&mut shifted, "0")], [6, 1]);
        assert_eq!(shifted.name(Label(6)), Some(&NextHopName::Number(5)));
    }

    #[test]
    fn a_restored_dictionary_goes_on_as_the_first() {
        for texts in [&["148", "3"][..], &["5", "0"], &["veth6", "12"], &[]] {
            let mut labels = dictionary(texts);
            labels.label(&NextHopName::Word("static 10.0.0.0/8".into()));
            let names = labels.iter().map(|(label, name)| (label, name.clone())).collect::<Vec<_>>();
            let mut again = Labels::restore(labels.numbering(), names.clone().into_iter()).unwrap();
            assert!(again.iter().eq(labels.iter()));
            for text in ["9", "new", "10.0.0.1", "65536"] {
                assert_eq!(label(&mut again, text), label(&mut labels, text), "{text} after {texts:?}");
            }
            for wrong in [
                (Label(0), NextHopName::Number(77)),
                (Label(1 << 20), NextHopName::Number(77)),
                (Label(70), names[0].1.clone()),
                (names[0].0, NextHopName::Number(77)),
            ] {
                let names = names.iter().cloned().chain([wrong]).collect::<Vec<_>>();
                assert!(Labels::restore(labels.numbering(), names.into_iter()).is_none());
            }
        }
    }

    #[test]
    fn everything_else_counts_in_order_of_appearance() {
        for texts in
            [&["3356", "394977", "80"][..], &["veth6", "12", "veth6", "7"], &["10.0.0.1", "10.0.0.2"]]
        {
            let mut labels = dictionary(texts);
            assert_eq!(labels.numbering(), Numbering::Appearance);
            assert_eq!([label(&mut labels, texts[0]), label(&mut labels, texts[1])], [1, 2]);
        }
    }
}
