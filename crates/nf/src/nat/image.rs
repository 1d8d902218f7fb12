//! Sessions as bytes, so that a restart or another box goes on with them: connections live on.
//!
//! It is a [table image](tidemill_lookup::image) of the kind `nat-sessions`: versioned, checksummed as a whole, and validated beyond the
//! checksum, so that no bytes whatsoever make two hosts one or a session that cannot be.
//!
//! ```text
//! sessions4    38 bytes each, rising      sessions6    74 bytes each, rising
//!
//! protocol, what TCP has seen, flags, 0                                              a byte each
//! ports: inside, outside, remote                                                     two bytes each
//! addresses: inside, outside, remote                                                 as in packets
//! what is left of its life, milliseconds; packets from inside; from outside          8, 4, 4 bytes
//!
//! flags: 1: begun from outside, 2: answered, 4: of a static mapping
//! ```
//!
//! Version 1 did not say which mappings were static, and is refused: a port forward that the configuration has no longer would stay open.
//! Clocks are not in it: what is left of a life is, so that two boxes need not agree on the time. Nor is what the configuration says.

use crate::nat::ip::{About, Endpoint, Family, Proto};
use crate::nat::state::Saved;
use tidemill_lookup::image::{Image, ImageBuilder, ImageError};

/// The kind of these images.
pub const KIND: &str = "nat-sessions";
const VERSION: u32 = 2;
const SECTION4: &str = "sessions4";
const SECTION6: &str = "sessions6";
/// The longest life that a configuration can give, milliseconds.
pub(crate) const LONGEST_MS: u64 = 31_536_000_000;
const FROM_OUTSIDE: u8 = 1;
const ANSWERED: u8 = 2;
const STATIC: u8 = 4;

/// What a NAT has, to be taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sessions {
    /// IPv4's, rising by protocol, outside endpoint, remote endpoint.
    pub v4: Vec<Saved<u32>>,
    /// IPv6's.
    pub v6: Vec<Saved<u128>>,
}

impl Sessions {
    /// As bytes. What is there twice (it was read while packets flowed) is written once.
    pub fn encode(mut self) -> Vec<u8> {
        tidy(&mut self.v4);
        tidy(&mut self.v6);
        ImageBuilder::new(KIND, VERSION, 32)
            .section(SECTION4, write(&self.v4))
            .section(SECTION6, write(&self.v6))
            .finish()
    }

    /// From bytes.
    ///
    /// # Errors
    /// Where they are no such image, or say what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, ImageError> {
        let image = Image::parse(bytes)?;
        image.expect(KIND, VERSION)?;
        Ok(Sessions { v4: read(&image, SECTION4)?, v6: read(&image, SECTION6)? })
    }
}

/// By what they are in order.
fn place<A: Copy>(saved: &Saved<A>) -> (Proto, Endpoint<A>, Endpoint<A>) {
    (saved.about.proto, saved.about.outside, saved.remote)
}

/// In order, each once; of two mappings that cannot be both (one ended while another was read) those that live longest.
fn tidy<A: Copy + Ord + std::hash::Hash>(sessions: &mut Vec<Saved<A>>) {
    use std::collections::HashMap;
    sessions.sort_by_key(|saved| std::cmp::Reverse(saved.left_ms));
    let (mut outsides, mut insides) = (HashMap::new(), HashMap::new());
    sessions.retain(|saved| {
        let About { proto, inside, outside } = saved.about;
        let looks = (outside, saved.is_static);
        *outsides.entry((proto, inside)).or_insert(looks) == looks
            && *insides.entry((proto, outside)).or_insert(inside) == inside
    });
    sessions.sort_by_key(place);
    sessions.dedup_by_key(|saved| place(saved));
}

const fn record(address: usize) -> usize {
    4 + 3 * 2 + 3 * address + 8 + 4 + 4
}

fn write<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    sessions: &[Saved<A>],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sessions.len() * record(A::BYTES));
    for saved in sessions {
        let About { proto, inside, outside } = saved.about;
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(saved.from_outside, FROM_OUTSIDE)
            | flag(saved.answered, ANSWERED)
            | flag(saved.is_static, STATIC);
        bytes.extend_from_slice(&[proto as u8, saved.tcp, flags, 0]);
        for end in [inside, outside, saved.remote] {
            bytes.extend_from_slice(&end.port.to_ne_bytes());
        }
        for end in [inside, outside, saved.remote] {
            let mut address = [0; 16];
            end.address.write(&mut address);
            bytes.extend_from_slice(&address[..A::BYTES]);
        }
        bytes.extend_from_slice(&saved.left_ms.to_ne_bytes());
        bytes.extend_from_slice(&saved.packets.0.to_ne_bytes());
        bytes.extend_from_slice(&saved.packets.1.to_ne_bytes());
    }
    bytes
}

fn read<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    image: &Image<'_>,
    section: &'static str,
) -> Result<Vec<Saved<A>>, ImageError> {
    let bytes = image.section(section)?;
    let size = record(A::BYTES);
    if !bytes.len().is_multiple_of(size) {
        let what = format!("{} bytes are no whole number of sessions of {size} bytes", bytes.len());
        return Err(image.content(section, 0, what));
    }
    let mut sessions: Vec<Saved<A>> = Vec::with_capacity(bytes.len() / size);
    for (n, bytes) in bytes.chunks_exact(size).enumerate() {
        let wrong = |what: &str| image.content(section, n * size, format!("session {n}: {what}"));
        let saved = one(bytes).map_err(wrong)?;
        if let Some(before) = sessions.last() {
            if place(before) >= place(&saved) {
                return Err(wrong("is not behind the one before"));
            }
            let same = (before.about.proto, before.about.outside) == (saved.about.proto, saved.about.outside);
            if same && before.about.inside != saved.about.inside {
                return Err(wrong("has the outside endpoint of another inside endpoint"));
            }
            if same && before.is_static != saved.is_static {
                return Err(wrong("has the mapping of the one before, static in one of the two"));
            }
        }
        sessions.push(saved);
    }
    let mut ends: Vec<_> =
        sessions.iter().map(|s| (s.about.proto, s.about.inside, s.about.outside)).collect();
    ends.sort_unstable();
    if let Some(two) =
        ends.windows(2).find(|two| (two[0].0, two[0].1) == (two[1].0, two[1].1) && two[0].2 != two[1].2)
    {
        let (inside, port) = (two[0].1.address.ip(), two[0].1.port);
        return Err(image.content(section, 0, format!("{inside}, port {port}, has two outside endpoints")));
    }
    Ok(sessions)
}

fn one<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    bytes: &[u8],
) -> Result<Saved<A>, &'static str> {
    let at = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let u16_at =
        |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |two| u16::from_ne_bytes(*two));
    let u32_at =
        |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |four| u32::from_ne_bytes(*four));
    let end = |n: usize| Endpoint {
        address: A::read(bytes.get(10 + n * A::BYTES..).unwrap_or_default()),
        port: u16_at(4 + 2 * n),
    };
    let (inside, outside, remote) = (end(0), end(1), end(2));
    let rest = 10 + 3 * A::BYTES;
    let left = bytes.get(rest..).and_then(|b| b.first_chunk()).map_or(0, |eight| u64::from_ne_bytes(*eight));
    let proto = *Proto::ALL.get(usize::from(at(0))).ok_or("no such protocol")?;
    let (tcp, flags) = (at(1), at(2));
    let (from_outside, answered) = (flags & FROM_OUTSIDE != 0, flags & ANSWERED != 0);
    let is_tcp = proto == Proto::Tcp;
    if flags > FROM_OUTSIDE | ANSWERED | STATIC || at(3) != 0 || tcp > 0x7f || (!is_tcp && tcp != 0) {
        return Err("flags that there are not");
    }
    if answered && !(from_outside && is_tcp) {
        return Err("answered, and nobody has asked");
    }
    let ports = [inside.port, outside.port, remote.port];
    if (proto != Proto::Icmp && ports.contains(&0)) || (proto == Proto::Icmp && remote.port != 0) {
        return Err("a port that cannot be");
    }
    if !(1..=LONGEST_MS).contains(&left) {
        return Err("a life that is over, or longer than a year");
    }
    Ok(Saved {
        about: About { proto, inside, outside },
        remote,
        left_ms: left,
        tcp,
        from_outside,
        answered,
        is_static: flags & STATIC != 0,
        packets: (u32_at(rest + 8), u32_at(rest + 12)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(host: u32, port: u16, remote: u32) -> Saved<u32> {
        let inside = Endpoint { address: 0x0a00_0000 + host, port };
        let outside = Endpoint { address: 0xc000_0201, port: port + host as u16 };
        Saved {
            about: About { proto: Proto::Tcp, inside, outside },
            remote: Endpoint { address: remote, port: 443 },
            left_ms: 7_440_000,
            tcp: 3,
            from_outside: false,
            answered: false,
            is_static: false,
            packets: (7, 9),
        }
    }

    fn sessions() -> Sessions {
        let v4 = vec![saved(1, 4000, 9), saved(1, 4000, 8), saved(2, 4000, 8), saved(1, 4000, 8)];
        let v6 = vec![Saved {
            about: About {
                proto: Proto::Icmp,
                inside: Endpoint { address: 0xfd00 << 112 | 1, port: 0 },
                outside: Endpoint { address: 0x2001_0db8 << 96 | 1, port: 77 },
            },
            remote: Endpoint { address: 0x2001_0db8 << 96 | 2, port: 0 },
            left_ms: 1,
            tcp: 0,
            from_outside: true,
            answered: false,
            is_static: true,
            packets: (1, 0),
        }];
        Sessions { v4, v6 }
    }

    #[test]
    fn what_is_written_is_read_in_order_and_once() {
        let bytes = sessions().encode();
        let read = Sessions::decode(&bytes).unwrap();
        assert_eq!(read.v4, [saved(1, 4000, 8), saved(1, 4000, 9), saved(2, 4000, 8)]);
        assert_eq!((read.v6.clone(), read.clone().encode()), (sessions().v6, bytes));
        assert_eq!(Sessions::decode(&Sessions::default().encode()).unwrap(), Sessions::default());
    }

    #[test]
    fn of_two_that_cannot_be_the_one_that_lives_longer_is_written() {
        let (mut old, new) = (saved(1, 4000, 8), saved(2, 4000, 8));
        (old.about.outside, old.left_ms) = (new.about.outside, 5);
        let bytes = Sessions { v4: vec![old, new], v6: Vec::new() }.encode();
        assert_eq!(Sessions::decode(&bytes).unwrap().v4, [new]);
        // Nor is a mapping static and is not.
        let (stale, remote) = (Saved { is_static: true, left_ms: 5, ..new }, saved(2, 4000, 9).remote);
        let bytes = Sessions { v4: vec![stale, Saved { remote, ..new }], v6: Vec::new() }.encode();
        assert_eq!(Sessions::decode(&bytes).unwrap().v4, [Saved { remote, ..new }]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let as_written = |v4: &[Saved<u32>]| {
            let sections = ImageBuilder::new(KIND, VERSION, 32).section(SECTION4, write(v4));
            Sessions::decode(&sections.section(SECTION6, Vec::new()).finish())
        };
        let good = saved(1, 4000, 8);
        assert!(as_written(&[good]).is_ok());
        let about = |about| Saved { about, ..good };
        let port = |port| Endpoint { port, ..good.about.inside };
        for (wrong, what) in [
            (vec![good, good], "session 1: is not behind the one before"),
            (vec![Saved { left_ms: 0, ..good }], "session 0: a life that is over"),
            (vec![Saved { left_ms: LONGEST_MS + 1, ..good }], "session 0: a life"),
            (vec![Saved { tcp: 0x80, ..good }], "session 0: flags"),
            (vec![Saved { answered: true, ..good }], "session 0: answered"),
            (vec![about(About { inside: port(0), ..good.about })], "session 0: a port"),
            (vec![about(About { proto: Proto::Udp, ..good.about })], "session 0: flags"),
            (
                vec![
                    good,
                    Saved {
                        remote: saved(1, 4000, 9).remote,
                        ..about(About { inside: port(9), ..good.about })
                    },
                ],
                "session 1: has the outside endpoint of another",
            ),
            (
                vec![good, Saved { is_static: true, ..saved(1, 4000, 9) }],
                "session 1: has the mapping of the one before, static in one",
            ),
            (
                vec![good, about(About { outside: saved(2, 4000, 8).about.outside, ..good.about })],
                "10.0.0.1, port 4000, has two outside endpoints",
            ),
        ] {
            let said = as_written(&wrong).unwrap_err().to_string();
            assert!(said.contains(what) && said.contains("section \"sessions4\""), "{said}");
        }
        let bytes = sessions().encode();
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            assert!(Sessions::decode(&wrong).is_err(), "byte {at}");
            assert!(Sessions::decode(&bytes[..at]).is_err());
        }
        assert!(Sessions::decode(&ImageBuilder::new("dxr", 1, 32).finish()).is_err());
        let said = Sessions::decode(&ImageBuilder::new(KIND, 1, 32).finish()).unwrap_err().to_string();
        assert!(said.contains("of version 1, not a \"nat-sessions\" of version 2"), "{said}");
    }
}
