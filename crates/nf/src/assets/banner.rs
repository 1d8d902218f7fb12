//! Services by what they say: greetings and answers that only a server sends, or (SSH) that both sides send alike.
//!
//! What is looked at is a segment's or a datagram's payload, as it is; nothing is put together. A greeting comes in the first segment,
//! and answers begin with one.

use crate::assets::text::Text;
use crate::assets::tls;

/// Bytes of a payload that are looked at.
const LOOKED_AT: usize = 2048;

/// What a service speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Not known: somebody answers there.
    Unknown,
    /// SSH (RFC 4253, section 4.2).
    Ssh,
    /// HTTP/1 (RFC 9112).
    Http,
    /// SMTP (RFC 5321).
    Smtp,
    /// FTP (RFC 959).
    Ftp,
    /// POP3 (RFC 1939).
    Pop3,
    /// IMAP (RFC 9051).
    Imap,
    /// TLS, and something in it.
    Tls,
    /// memcached's text protocol.
    Memcached,
    /// Redis' protocol, RESP.
    Redis,
    /// MySQL and MariaDB.
    Mysql,
    /// Remote framebuffer, VNC (RFC 6143).
    Vnc,
    /// DNS (RFC 1035).
    Dns,
    /// NTP (RFC 5905).
    Ntp,
}

impl Protocol {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Unknown => "unknown",
            Protocol::Ssh => "ssh",
            Protocol::Http => "http",
            Protocol::Smtp => "smtp",
            Protocol::Ftp => "ftp",
            Protocol::Pop3 => "pop3",
            Protocol::Imap => "imap",
            Protocol::Tls => "tls",
            Protocol::Memcached => "memcached",
            Protocol::Redis => "redis",
            Protocol::Mysql => "mysql",
            Protocol::Vnc => "vnc",
            Protocol::Dns => "dns",
            Protocol::Ntp => "ntp",
        }
    }

    /// Whether a client sends it, too.
    pub fn is_mutual(self) -> bool {
        matches!(self, Protocol::Ssh | Protocol::Vnc)
    }
}

/// What a server has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Banner {
    /// What it speaks.
    pub protocol: Protocol,
    /// What it says of itself: software and version, if that is in it.
    pub text: Text,
}

fn banner(protocol: Protocol, text: &[u8]) -> Option<Banner> {
    Some(Banner { protocol, text: Text::new(text) })
}

/// The first line, without its end.
fn line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    &bytes[..end]
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// What a TCP segment's payload, sent from `port`, says.
pub fn of_stream(port: u16, payload: &[u8]) -> Option<Banner> {
    let bytes = &payload[..payload.len().min(LOOKED_AT)];
    match *bytes.first()? {
        b'S' => {
            let rest = line(bytes).strip_prefix(b"SSH-")?;
            let software = rest.iter().position(|byte| *byte == b'-').and_then(|at| rest.get(at + 1..))?;
            banner(Protocol::Ssh, trim(software))
        }
        b'H' => http(bytes),
        b'2' => greeting_220(port, bytes),
        b'*' => {
            let rest = line(bytes).strip_prefix(b"* OK")?;
            if has(rest, b"imap") || port == 143 { banner(Protocol::Imap, trim(rest)) } else { None }
        }
        b'+' => {
            if bytes.starts_with(b"+PONG\r\n") {
                return banner(Protocol::Redis, b"");
            }
            let rest = line(bytes).strip_prefix(b"+OK")?;
            if has(rest, b"pop") || port == 110 { banner(Protocol::Pop3, trim(rest)) } else { None }
        }
        b'-' | b'$' => redis(bytes),
        b'V' => banner(Protocol::Memcached, trim(line(bytes).strip_prefix(b"VERSION ")?)),
        b'R' => {
            let version = line(bytes).strip_prefix(b"RFB ")?;
            if version.len() == 7 { banner(Protocol::Vnc, version) } else { None }
        }
        22 => tls::server_hello(bytes).map(|hello| Banner { protocol: Protocol::Tls, text: hello.text() }),
        _ => mysql(bytes),
    }
}

/// What a UDP datagram sent from `port` says.
pub fn of_datagram(port: u16, payload: &[u8]) -> Option<Banner> {
    match port {
        // An answer (QR) to a standard query, with a question.
        53 if payload.len() > 12 && payload[2] & 0xf8 == 0x80 && payload[4..6] == [0, 1] => {
            banner(Protocol::Dns, b"")
        }
        // Mode 4, server, of version 3 or 4, with a stratum that says that it is in step.
        123 if payload.len() >= 48
            && matches!(payload[0] & 0x3f, 0x1c | 0x24)
            && (1..16).contains(&payload[1]) =>
        {
            banner(Protocol::Ntp, if payload[0] & 0x38 == 0x20 { b"version 4" } else { b"version 3" })
        }
        // Behind memcached's frame header: a version, or a value.
        11211 if payload.len() > 8 => {
            let answer = &payload[8..];
            match answer.strip_prefix(b"VERSION ") {
                Some(version) => banner(Protocol::Memcached, trim(line(version))),
                None if answer.starts_with(b"VALUE ") || answer == b"END\r\n" => {
                    banner(Protocol::Memcached, b"")
                }
                None => None,
            }
        }
        _ => None,
    }
}

/// An answer, and its `Server` field.
fn http(bytes: &[u8]) -> Option<Banner> {
    let version = bytes.strip_prefix(b"HTTP/1.")?;
    if !matches!(version, [b'0' | b'1', b' ', b'1'..=b'5', ..]) {
        return None;
    }
    for field in bytes.split(|byte| *byte == b'\n').skip(1) {
        if trim(field).is_empty() {
            break;
        }
        if field.get(..7).is_some_and(|name| name.eq_ignore_ascii_case(b"server:")) {
            return banner(Protocol::Http, trim(&field[7..]));
        }
    }
    banner(Protocol::Http, b"")
}

/// SMTP and FTP greet alike.
fn greeting_220(port: u16, bytes: &[u8]) -> Option<Banner> {
    let rest = line(bytes).strip_prefix(b"220")?;
    let (b' ' | b'-') = *rest.first()? else { return None };
    let text = trim(&rest[1..]);
    if has(text, b"smtp") || matches!(port, 25 | 465 | 587) {
        banner(Protocol::Smtp, text)
    } else if has(text, b"ftp") || port == 21 {
        banner(Protocol::Ftp, text)
    } else {
        None
    }
}

/// Errors as Redis words them, and what `INFO` answers.
fn redis(bytes: &[u8]) -> Option<Banner> {
    let is_error = [b"-NOAUTH ".as_slice(), b"-WRONGTYPE ", b"-DENIED Redis"]
        .iter()
        .any(|start| bytes.starts_with(start));
    if is_error {
        return banner(Protocol::Redis, b"");
    }
    let key = b"redis_version:";
    let at = bytes.windows(key.len()).position(|window| window == key).filter(|_| bytes[0] == b'$')?;
    banner(Protocol::Redis, line(&bytes[at + key.len()..]))
}

/// The greeting: a packet of number 0 and version 10, then the server's version (MySQL's manual, "Protocol::HandshakeV10").
fn mysql(bytes: &[u8]) -> Option<Banner> {
    let (&[a, b, c, 0, 10], rest) = bytes.split_first_chunk()? else { return None };
    let length = u32::from_le_bytes([a, b, c, 0]) as usize;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let version = &rest[..end];
    let is_version = !version.is_empty() && version.iter().all(u8::is_ascii_graphic);
    if length == rest.len() + 1 && is_version { banner(Protocol::Mysql, version) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(port: u16, payload: &[u8]) -> Option<(Protocol, String)> {
        of_stream(port, payload).map(|banner| (banner.protocol, banner.text.to_string()))
    }

    #[test]
    fn greetings_are_known() {
        for (port, payload, protocol, text) in [
            (
                22,
                b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".as_slice(),
                Protocol::Ssh,
                "OpenSSH_9.2p1 Debian-2+deb12u3",
            ),
            (
                8080,
                b"HTTP/1.1 200 OK\r\nDate: x\r\nsErver:  nginx/1.22.1 \r\n\r\n",
                Protocol::Http,
                "nginx/1.22.1",
            ),
            (80, b"HTTP/1.0 404 Not found\r\n\r\nServer: no", Protocol::Http, ""),
            (25, b"220 mail.example ESMTP Postfix\r\n", Protocol::Smtp, "mail.example ESMTP Postfix"),
            (2121, b"220-ProFTPD Server\r\n220 ready\r\n", Protocol::Ftp, "ProFTPD Server"),
            (110, b"+OK ready\r\n", Protocol::Pop3, "ready"),
            (1143, b"* OK IMAP4rev1 here\r\n", Protocol::Imap, "IMAP4rev1 here"),
            (11211, b"VERSION 1.6.18\r\n", Protocol::Memcached, "1.6.18"),
            (6379, b"+PONG\r\n", Protocol::Redis, ""),
            (6379, b"$99\r\n# Server\r\nredis_version:7.0.15\r\n", Protocol::Redis, "7.0.15"),
            (6379, b"-NOAUTH Authentication required.\r\n", Protocol::Redis, ""),
            (3306, b"\x0c\0\0\0\x0a8.0.36\0abcd", Protocol::Mysql, "8.0.36"),
            (5900, b"RFB 003.008\n", Protocol::Vnc, "003.008"),
        ] {
            assert_eq!(said(port, payload), Some((protocol, text.into())), "{payload:?}");
        }
    }

    #[test]
    fn what_clients_say_and_anything_else_is_nothing() {
        for payload in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"",
            b"HTTP/2",
            b"HTTP/1.1 999",
            b"SSH-",
            b"SSH-2.0",
            b"220",
            b"220x smtp",
            b"220 hello",
            b"+OK\r\n",
            b"-ERR what\r\n",
            b"$5\r\nhello\r\n",
            b"VERSION",
            b"RFB",
            b"\x05\0\0\0\x0aabc",
            b"\x16\x03\x01\0\x05\x01",
        ] {
            assert_eq!(said(9999, payload), None, "{payload:?}");
        }
    }

    #[test]
    fn datagrams() {
        let mut dns = [0; 13];
        (dns[2], dns[5]) = (0x81, 1);
        let of = |port, payload: &[u8]| of_datagram(port, payload).map(|banner| banner.protocol);
        assert_eq!((of(53, &dns), of(54, &dns)), (Some(Protocol::Dns), None));
        dns[2] = 1;
        assert_eq!(of(53, &dns), None);
        let mut ntp = [0; 48];
        (ntp[0], ntp[1]) = (0x24, 2);
        assert_eq!(of(123, &ntp), Some(Protocol::Ntp));
        ntp[0] = 0x23;
        assert_eq!(of(123, &ntp), None);
        assert_eq!(of(11211, b"\0\x01\0\0\0\x01\0\0VALUE a 0 1\r\nx\r\nEND\r\n"), Some(Protocol::Memcached));
        assert_eq!(of(11211, b"\0\x01\0\0\0\x01\0\0get a\r\n"), None);
    }
}
