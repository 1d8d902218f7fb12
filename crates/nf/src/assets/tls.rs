//! A TLS server's first message, the ServerHello (RFC 8446, section 4.1.3; RFC 5246, section 7.4.1.3): which version and cipher it has chosen.

use crate::assets::text::Text;

const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
const SUPPORTED_VERSIONS: u16 = 43;
/// A ServerHello with this random asks the client to begin again (RFC 8446, section 4.1.3): its first bytes.
const RETRY: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// What a server has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerHello {
    /// `0x0303` is TLS 1.2, `0x0304` TLS 1.3.
    pub version: u16,
    /// The cipher suite by its number in IANA's registry.
    pub cipher: u16,
}

/// A reader of bytes that ends where they do.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

/// Reads the beginning of a server's stream. `None`: it is no ServerHello, or it is cut before the cipher.
pub fn server_hello(stream: &[u8]) -> Option<ServerHello> {
    let mut bytes = Bytes(stream);
    if bytes.u8()? != HANDSHAKE || bytes.u8()? != 3 {
        return None;
    }
    bytes.take(3)?;
    if bytes.u8()? != SERVER_HELLO {
        return None;
    }
    bytes.take(3)?;
    let mut version = bytes.u16()?;
    if version >> 8 != 3 {
        return None;
    }
    let random = bytes.take(32)?;
    let session = bytes.u8()?;
    if session > 32 || random.starts_with(&RETRY) {
        return None;
    }
    bytes.take(session.into())?;
    let cipher = bytes.u16()?;
    bytes.u8()?;
    // TLS 1.3 says in an extension that it is that. What is cut before there says what it says.
    if let Some(length) = bytes.u16() {
        let mut extensions = Bytes(&bytes.0[..bytes.0.len().min(length.into())]);
        while let (Some(kind), Some(length)) = (extensions.u16(), extensions.u16()) {
            let Some(data) = extensions.take(length.into()) else { break };
            if kind == SUPPORTED_VERSIONS
                && let &[high, low] = data
            {
                version = u16::from_be_bytes([high, low]);
            }
        }
    }
    Some(ServerHello { version, cipher })
}

impl ServerHello {
    /// `TLS 1.3, cipher 1301`
    pub fn text(&self) -> Text {
        let version: &[u8] = match self.version {
            0x0300 => b"SSL 3.0",
            0x0301 => b"TLS 1.0",
            0x0302 => b"TLS 1.1",
            0x0303 => b"TLS 1.2",
            0x0304 => b"TLS 1.3",
            _ => b"TLS of another version",
        };
        let mut text = Text::new(version);
        text.push(b", cipher ");
        for shift in [12, 8, 4, 0] {
            text.push(&[b"0123456789abcdef"[usize::from(self.cipher >> shift & 15)]]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: u16, extensions: &[u8]) -> Vec<u8> {
        let mut body = version.to_be_bytes().to_vec();
        body.extend([7; 32]);
        body.push(4);
        body.extend([9; 4]);
        body.extend([0x13, 0x01, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![SERVER_HELLO, 0, 0, body.len() as u8];
        message.extend(body);
        let mut record = vec![HANDSHAKE, 3, 3, 0, message.len() as u8];
        record.extend(message);
        record
    }

    #[test]
    fn versions_are_told_apart() {
        let plain = server_hello(&hello(0x0303, &[])).unwrap();
        assert_eq!(plain, ServerHello { version: 0x0303, cipher: 0x1301 });
        let newer = server_hello(&hello(0x0303, &[0, 51, 0, 1, 0, 0, 43, 0, 2, 3, 4])).unwrap();
        assert_eq!(newer.text().to_string(), "TLS 1.3, cipher 1301");
    }

    #[test]
    fn what_is_cut_or_something_else_is_none() {
        let whole = hello(0x0303, &[0, 43, 0, 2, 3, 4]);
        // The cipher is there from byte 50 on; the last byte before the extensions is number 50.
        assert!((0..51).all(|length| server_hello(&whole[..length]).is_none()));
        assert!((51..=whole.len()).all(|length| server_hello(&whole[..length]).is_some()));
        let mut client = whole.clone();
        client[5] = 1;
        assert_eq!(server_hello(&client), None);
        assert_eq!(server_hello(b"HTTP/1.1 200 OK"), None);
    }
}
