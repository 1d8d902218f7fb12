//! A collector (RFC 7011): it learns templates from messages, and checks lengths and sequence numbers on the way.

use std::collections::HashMap;

/// A record by the numbers of its information elements.
pub(crate) type Fields = HashMap<u16, Vec<u8>>;

/// Element numbers that tests ask for.
pub(crate) const OCTETS: u16 = 1;
pub(crate) const PACKETS: u16 = 2;
pub(crate) const FLOW_END_REASON: u16 = 136;
pub(crate) const IGNORED_PACKETS: u16 = 164;
pub(crate) const EXPORTED_RECORDS: u16 = 42;

#[derive(Default)]
pub(crate) struct Collector {
    templates: HashMap<u16, Vec<(u16, usize)>>,
    options: Vec<u16>,
    sequence: Option<u32>,
    pub(crate) flows: Vec<Fields>,
    pub(crate) statistics: Vec<Fields>,
    pub(crate) messages: usize,
    /// Messages with templates.
    pub(crate) told: usize,
}

/// A number of up to eight bytes.
pub(crate) fn number(fields: &Fields, element: u16) -> u64 {
    fields[&element].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn u16_of(bytes: &mut &[u8]) -> u16 {
    u16::from_be_bytes(take(bytes, 2).try_into().unwrap())
}

fn u32_of(bytes: &mut &[u8]) -> u32 {
    u32::from_be_bytes(take(bytes, 4).try_into().unwrap())
}

impl Collector {
    pub(crate) fn take(&mut self, message: &[u8]) {
        let mut bytes = message;
        assert_eq!(u16_of(&mut bytes), 10);
        assert_eq!(usize::from(u16_of(&mut bytes)), message.len());
        u32_of(&mut bytes);
        let sequence = u32_of(&mut bytes);
        assert_eq!(sequence, self.sequence.unwrap_or(sequence), "records before this message");
        assert_eq!(u32_of(&mut bytes), 1);
        let mut records = 0;
        let mut told = false;
        while !bytes.is_empty() {
            let (id, length) = (u16_of(&mut bytes), u16_of(&mut bytes));
            let mut set = take(&mut bytes, usize::from(length) - 4);
            match id {
                2 | 3 => {
                    told = true;
                    self.learn(id == 3, set);
                }
                _ => {
                    let template = &self.templates[&id];
                    let size: usize = template.iter().map(|(_, size)| size).sum();
                    while set.len() >= size {
                        let fields =
                            template.iter().map(|&(element, size)| (element, take(&mut set, size).to_vec()));
                        let fields = fields.collect();
                        let list =
                            if self.options.contains(&id) { &mut self.statistics } else { &mut self.flows };
                        list.push(fields);
                        records += 1;
                    }
                    assert!(set.is_empty(), "no padding is sent");
                }
            }
        }
        self.sequence = Some(sequence.wrapping_add(records));
        self.messages += 1;
        self.told += usize::from(told);
    }

    fn learn(&mut self, options: bool, mut set: &[u8]) {
        while !set.is_empty() {
            let (id, count) = (u16_of(&mut set), u16_of(&mut set));
            if options {
                assert_eq!(u16_of(&mut set), 1, "one scope");
                self.options.push(id);
            }
            let fields = (0..count).map(|_| (u16_of(&mut set), usize::from(u16_of(&mut set)))).collect();
            self.templates.insert(id, fields);
        }
    }

    pub(crate) fn sum(&self, element: u16) -> u64 {
        self.flows.iter().map(|flow| number(flow, element)).sum()
    }
}
