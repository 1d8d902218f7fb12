//! Keys: which there are, who signs with which, and opening and sealing with them.
//!
//! A key is 32 secret bytes with a number. Of several the **first signs and all verify**, so keys change in three steps, each a reload of both
//! sides, none of which loses a datagram: add the new one as the second; make it the first; take the old one away.
//!
//! As text, one key a line, `#` begins a comment:
//!
//! ```text
//! # number, 64 hexadecimal digits
//! 2 6f0d...
//! 1 9c4e...
//! ```
//!
//! **The tag** is HMAC-SHA-256 (RFC 2104), its first 16 bytes, over the sender's and the receiver's address and port and all of the datagram before
//! the tag. Each direction has a key of its own, derived from the secret, so that a datagram which is sent back to its sender never verifies; nor
//! does one that is sent to another receiver, or from another address. It is compared in constant time.
//!
//! **Secrets** are in no message, `Debug` or counter; a file of keys is refused if others than its owner may read it. They are not wiped from memory. Of keys that
//! were taken away nothing is kept but [fingerprints](Fingerprint).

use crate::authenticated::{HEADER_LEN, Header, Opened, Refusal, TAG_LEN};
use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use sha2::Sha256;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

/// Bytes of a secret.
pub const SECRET_LEN: usize = 32;
/// Keys that a ring holds at most.
pub const MOST_KEYS: usize = 8;
/// The longest file of keys, in bytes.
const MOST_TEXT: u64 = 64 << 10;

/// A key as it is written in a configuration. It is not shown.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct KeyText(pub String);

impl std::fmt::Debug for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyText(..)")
    }
}

/// Reads the keys of a configuration; what is written there instead of a list is in no message.
///
/// # Errors
/// It is no list of strings.
pub fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<KeyText>, D::Error> {
    struct Texts;

    impl<'de> Visitor<'de> for Texts {
        type Value = Vec<KeyText>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of strings, one for each key")
        }

        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Err(E::custom("keys: one string: give a list of strings, one for each key"))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut keys = Vec::new();
            while let Some(key) = list.next_element()? {
                keys.push(key);
            }
            Ok(keys)
        }
    }

    from.deserialize_seq(Texts)
}

/// A message without what may be a secret: 32 and more hexadecimal digits in a row.
pub fn without_keys(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let len = from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len());
        let (digits, behind) = from.split_at(len);
        shown.push_str(before);
        shown.push_str(if len < SECRET_LEN { digits } else { "(not shown)" });
        rest = behind;
    }
    shown + rest
}

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a Grantor to a Gatekeeper.
    ToGatekeeper,
    /// From a Gatekeeper to a Grantor.
    ToGrantor,
}

impl Direction {
    /// The byte on the wire.
    pub(crate) fn code(self) -> u8 {
        match self {
            Direction::ToGatekeeper => 1,
            Direction::ToGrantor => 2,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Direction::ToGatekeeper => b"tidemill decision 2, to the gatekeeper",
            Direction::ToGrantor => b"tidemill decision 2, to the grantor",
        }
    }
}

/// Where a datagram comes from and where it goes, as its IP and UDP headers have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The sender's address and port.
    pub source: (IpAddr, u16),
    /// The receiver's.
    pub destination: (IpAddr, u16),
}

impl Ends {
    /// 36 bytes, an IPv4 address as the IPv6 address that stands for it.
    fn bytes(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        let (ends, _) = bytes.as_chunks_mut::<18>();
        for (part, (address, port)) in ends.iter_mut().zip([self.source, self.destination]) {
            let address = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            part[..16].copy_from_slice(&address.octets());
            part[16..].copy_from_slice(&port.to_be_bytes());
        }
        bytes
    }
}

/// Why keys cannot be used. No secret is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A line that is no key.
    #[error("line {line}: {what}: give a number of 1 to 65535, a space, and 64 hexadecimal digits")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Two keys have one number.
    #[error("line {line}: there is a key {id} already: give each its own number")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// The number.
        id: u16,
    },
    /// None at all.
    #[error("there is no key")]
    Empty,
    /// More than anybody needs.
    #[error("line {line}: more than {MOST_KEYS} keys: take away those that nobody signs with")]
    TooMany {
        /// Counted from 1.
        line: usize,
    },
    /// A file that cannot be read.
    #[error("{0}")]
    File(String),
    /// A file that others may read.
    #[error("others than its owner may read it (mode {mode:04o}): chmod 600")]
    Open {
        /// Its permissions.
        mode: u32,
    },
}

/// Tells a key from others without its secret: its number, and a digest of the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    id: u16,
    digest: [u8; 16],
}

/// The number only.
impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.id, f)
    }
}

#[derive(Clone)]
struct Key {
    fingerprint: Fingerprint,
    /// With the derived key of each direction already in it.
    to_gatekeeper: Hmac<Sha256>,
    to_grantor: Hmac<Sha256>,
}

impl Key {
    fn new(id: u16, secret: &[u8; SECRET_LEN]) -> Self {
        let derived = |label: &[u8]| mac(secret).chain_update(label).finalize().into_bytes();
        let keyed = |direction: Direction| mac(derived(direction.label()).as_ref());
        let mut digest = [0; 16];
        digest.copy_from_slice(&derived(b"tidemill decision 2, fingerprint")[..16]);
        Key {
            fingerprint: Fingerprint { id, digest },
            to_gatekeeper: keyed(Direction::ToGatekeeper),
            to_grantor: keyed(Direction::ToGrantor),
        }
    }

    fn mac(&self, direction: Direction) -> Hmac<Sha256> {
        match direction {
            Direction::ToGatekeeper => self.to_gatekeeper.clone(),
            Direction::ToGrantor => self.to_grantor.clone(),
        }
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    // A key of 32 bytes lies in one block of SHA-256, which is what `new` wants.
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    let len = key.len().min(block.len());
    block[..len].copy_from_slice(&key[..len]);
    Hmac::new(&block)
}

/// The keys of a configuration: the first signs, all verify.
#[derive(Clone)]
pub struct Keyring(Vec<Key>);

/// Numbers only.
impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// The same numbers and secrets in the same order.
impl PartialEq for Keyring {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprints().eq(other.fingerprints())
    }
}

impl Keyring {
    /// One key; for tests and tools.
    pub fn single(id: u16, secret: &[u8; SECRET_LEN]) -> Self {
        Keyring(vec![Key::new(id, secret)])
    }

    /// The keys of a configuration: of a file, or the lines themselves; none if there is neither.
    ///
    /// # Errors
    /// Which of the two is wrong, by the name `key_file` or `keys`, and why; no secret is in it.
    pub fn configured(file: Option<&Path>, keys: &[KeyText]) -> Result<Option<Self>, (&'static str, String)> {
        match (file, keys) {
            (None, []) => Ok(None),
            (Some(_), [_, ..]) => Err(("keys", "there is a key_file as well: give one of the two".into())),
            (Some(path), []) => {
                let read = Keyring::read(path);
                let path = without_keys(&path.display().to_string());
                read.map(Some).map_err(|error| ("key_file", format!("{path}: {error}")))
            }
            (None, keys) => {
                if keys.iter().any(|key| key.0.lines().count() > 1) {
                    return Err(("keys", "a key with more than one line: give each its own string".into()));
                }
                let lines: Vec<&str> = keys.iter().map(|key| key.0.as_str()).collect();
                Keyring::parse(&lines.join("\n")).map(Some).map_err(|error| ("keys", error.to_string()))
            }
        }
    }

    /// Keys as text; see the [module](self).
    ///
    /// # Errors
    /// Which line is wrong.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys: Vec<Key> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line_number = at + 1;
            let wrong = |what| KeyError::Line { line: line_number, what };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (id, digits) = line.split_once(char::is_whitespace).ok_or(wrong("no key"))?;
            let id = id.parse().ok().filter(|id| *id != 0).ok_or(wrong("no number of a key"))?;
            let secret = secret(digits.trim()).ok_or(wrong("no secret"))?;
            if secret == [0; SECRET_LEN] {
                return Err(wrong("a secret of zeros, which anybody can guess"));
            }
            if keys.iter().any(|key| key.fingerprint.id == id) {
                return Err(KeyError::Twice { line: line_number, id });
            }
            if keys.len() == MOST_KEYS {
                return Err(KeyError::TooMany { line: line_number });
            }
            keys.push(Key::new(id, &secret));
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(Keyring(keys)) }
    }

    /// Keys of a file that nobody but its owner may read.
    ///
    /// # Errors
    /// The file, or which line is wrong.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let wrong = |error: std::io::Error| KeyError::File(error.to_string());
        // Opening a pipe would wait for whoever writes to it.
        if !std::fs::metadata(path).map_err(wrong)?.is_file() {
            return Err(KeyError::File("not a file".into()));
        }
        let mut file = std::fs::File::open(path).map_err(wrong)?;
        // Of the file that is open, whatever the path means by now.
        let metadata = file.metadata().map_err(wrong)?;
        if !metadata.is_file() {
            return Err(KeyError::File("not a file".into()));
        }
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777;
            if mode & 0o077 != 0 {
                return Err(KeyError::Open { mode });
            }
        }
        let mut text = String::new();
        (&mut file).take(MOST_TEXT + 1).read_to_string(&mut text).map_err(wrong)?;
        if text.len() as u64 > MOST_TEXT {
            return Err(KeyError::File(format!("longer than {MOST_TEXT} bytes: leave only keys in it")));
        }
        Self::parse(&text)
    }

    /// The keys' numbers; the first signs.
    pub fn ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.fingerprints().map(|fingerprint| fingerprint.id)
    }

    /// What the keys are known by once their secrets are gone, in order.
    pub fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> + '_ {
        self.0.iter().map(|key| key.fingerprint)
    }

    /// The place of the key that a header names.
    pub fn place(&self, header: &Header) -> Option<usize> {
        self.ids().position(|id| id == header.key)
    }

    /// Checks the tag of a datagram, then its time. What is opened has been sent by a holder of the key, for us, in this direction, within
    /// `tolerance_ns` of our clock; whether it has been [taken](crate::replay::Window::take) already is another question.
    ///
    /// # Errors
    /// [`Refusal::UnknownKey`], [`Refusal::Forged`], [`Refusal::Stale`].
    pub fn open<'a>(
        &self,
        header: &Header,
        datagram: &'a [u8],
        ends: &Ends,
        (now_ns, tolerance_ns): (u64, u64),
    ) -> Result<Opened<'a>, Refusal> {
        let key = self.place(header).and_then(|at| self.0.get(at)).ok_or(Refusal::UnknownKey)?;
        let (signed, tag) = datagram.split_last_chunk::<TAG_LEN>().ok_or(Refusal::Forged)?;
        let mac = key.mac(header.direction).chain_update(ends.bytes()).chain_update(signed);
        mac.verify_truncated_left(tag).map_err(|_| Refusal::Forged)?;
        if now_ns.abs_diff(header.time_ns) > tolerance_ns {
            return Err(Refusal::Stale { behind_ns: now_ns.wrapping_sub(header.time_ns) as i64 });
        }
        Ok(Opened::new(signed.get(HEADER_LEN..).unwrap_or_default()))
    }

    /// The number of the key that signs.
    pub(crate) fn signer(&self) -> u16 {
        self.ids().next().unwrap_or(0)
    }

    /// The tag of what is to be sent.
    pub(crate) fn tag(&self, direction: Direction, ends: &Ends, signed: &[u8]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        if let Some(key) = self.0.first() {
            let mac = key.mac(direction).chain_update(ends.bytes()).chain_update(signed);
            tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG_LEN]);
        }
        tag
    }
}

/// 64 hexadecimal digits.
fn secret(digits: &str) -> Option<[u8; SECRET_LEN]> {
    let mut secret = [0; SECRET_LEN];
    if digits.len() != 2 * SECRET_LEN {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(secret)
}

#[cfg(test)]
mod tests;
