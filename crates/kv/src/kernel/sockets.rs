//! Sockets of a port, as the kernel lists them: by its diagnosis socket (`sock_diag`, which `ss` asks too), that looks through its table once for each family
//! and says nothing of other ports; where it has none, by `/proc`, which looks through all of it several times and writes all of it as text.

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::time::Duration;

/// A transport, by its number in the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp = 6,
    Udp = 17,
}

/// A socket of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Address, IPv4 mapped into IPv6, and port.
    pub(super) local: ([u32; 4], u16),
    pub(super) remote: ([u32; 4], u16),
    /// The number of TCP's state (`tcp_states.h`).
    pub(super) state: u8,
    /// 0: nobody has accepted it yet.
    pub(super) inode: u64,
}

pub(super) const ESTABLISHED: u8 = 1;
pub(super) const SYN_RECV: u8 = 3;
pub(super) const CLOSE_WAIT: u8 = 8;
pub(super) const LISTEN: u8 = 10;
/// What the kernel calls one of which it has only the SYN; it is told as [`SYN_RECV`].
const NEW_SYN_RECV: u8 = 12;
/// The states that somebody here wants to know of.
const WANTED: u32 = 1 << ESTABLISHED | 1 << SYN_RECV | 1 << CLOSE_WAIT | 1 << LISTEN | 1 << NEW_SYN_RECV;

pub(super) const HEADER: usize = 16;
/// `struct inet_diag_req_v2`, and `struct inet_diag_msg`.
pub(super) const QUESTION: usize = 56;
pub(super) const ANSWER: usize = 72;
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// A request, with all that match as the answer.
const REQUEST_DUMP: u16 = 0x301;
/// The dump was changed while it was read: something may be missing.
const INTERRUPTED: u16 = 0x10;

/// The sockets of a port over TCP (those that wait, are being opened, or can still be read from), or over UDP.
///
/// # Errors
/// The kernel has no such socket, or does not list this transport.
pub(super) fn of_port(transport: Transport, port: u16) -> io::Result<Vec<Line>> {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(1)))?;
    let states = if transport == Transport::Tcp { WANTED } else { u32::MAX };
    let mut lines = Vec::new();
    let mut buffer = vec![0; 32768];
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        // A dump that was interrupted is read again.
        for attempt in 0.. {
            let before = lines.len();
            let mut asked = question(transport, family, states, REQUEST_DUMP);
            asked[HEADER + 8..HEADER + 10].copy_from_slice(&port.to_be_bytes());
            rustix::net::sendto(&socket, &asked, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
            let whole = loop {
                let (length, _) = match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
                    Err(Errno::INTR) => continue,
                    got => got?,
                };
                if let Some(whole) = read(&buffer[..length.min(buffer.len())], &mut lines)? {
                    break whole;
                }
            };
            if whole {
                break;
            }
            lines.truncate(before);
            if attempt == 3 {
                return Err(io::Error::other("the list of sockets changes all the time"));
            }
        }
    }
    Ok(lines)
}

/// A question, of any port: its header, the family, the transport, and the states that are wanted.
pub(super) fn question(
    transport: Transport,
    family: AddressFamily,
    states: u32,
    flags: u16,
) -> [u8; HEADER + QUESTION] {
    let mut bytes = [0; HEADER + QUESTION];
    bytes[..4].copy_from_slice(&((HEADER + QUESTION) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[HEADER] = family.as_raw() as u8;
    bytes[HEADER + 1] = transport as u8;
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// Reads what came. `Some`: that was the last of it; false where the list changed meanwhile.
fn read(mut bytes: &[u8], lines: &mut Vec<Line>) -> io::Result<Option<bool>> {
    let odd =
        || io::Error::new(io::ErrorKind::InvalidData, "the kernel's list of sockets ends within a message");
    let mut whole = true;
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (kind, flags) =
            (u16::from_ne_bytes([header[4], header[5]]), u16::from_ne_bytes([header[6], header[7]]));
        let body = bytes.get(HEADER..length).ok_or_else(odd)?;
        whole &= flags & INTERRUPTED == 0;
        match kind {
            ERROR | DONE => {
                let code = body.first_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
                return if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(Some(whole)) };
            }
            SOCK_DIAG_BY_FAMILY => lines.push(line(body).ok_or_else(odd)?),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    // The rest of an interrupted dump comes all the same; its last message says so again.
    Ok(None)
}

fn line(body: &[u8]) -> Option<Line> {
    let body = body.first_chunk::<ANSWER>()?;
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let word = |at: usize| u32::from_ne_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let address = |at: usize| match AddressFamily::from_raw(body[0].into()) {
        AddressFamily::INET => [0, 0, 0xffff_u32.to_be(), word(at)],
        _ => [word(at), word(at + 4), word(at + 8), word(at + 12)],
    };
    Some(Line {
        local: (address(8), port(4)),
        remote: (address(24), port(6)),
        state: body[1],
        inode: word(68).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::machine;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    /// Both ways of asking say the same, of sockets of both families.
    #[test]
    fn what_is_diagnosed_is_what_proc_says() {
        // A number that is free for both.
        let both = (0..100).find_map(|_| {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            let listener = TcpListener::bind(("::", udp.local_addr().unwrap().port()));
            listener.ok().map(|listener| (listener, udp))
        });
        let (listener, udp) = both.unwrap();
        let port = listener.local_addr().unwrap().port();
        let clients =
            [TcpStream::connect(("127.0.0.1", port)), TcpStream::connect(("::1", port))].map(Result::unwrap);
        // One is accepted, and one waits for that.
        let _accepted = listener.accept().unwrap();
        for (transport, names, least) in
            [(Transport::Tcp, ["tcp", "tcp6"], 3), (Transport::Udp, ["udp", "udp6"], 1)]
        {
            let mut asked = match of_port(transport, port) {
                Ok(lines) => lines,
                Err(error) => {
                    println!("skipped: what_is_diagnosed_is_what_proc_says (no sock_diag here: {error})");
                    return;
                }
            };
            let mut read = machine::lines_of_proc(names, Some(port));
            for lines in [&mut asked, &mut read] {
                lines.sort_by_key(|line| (line.local, line.remote, line.state, line.inode));
            }
            assert_eq!(asked, read);
            assert!(asked.len() >= least, "{asked:?}");
        }
        drop((clients, udp));
        assert_eq!(of_port(Transport::Udp, port).unwrap(), []);
    }

    #[test]
    fn a_list_that_is_cut_or_refused_is_an_error() {
        let message = |kind: u16, flags: u16, body: &[u8]| {
            let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend([0; 8]);
            bytes.extend(body);
            bytes
        };
        let mut lines = Vec::new();
        let one = message(SOCK_DIAG_BY_FAMILY, 2, &[0; ANSWER]);
        assert_eq!(read(&one, &mut lines).unwrap(), None);
        assert_eq!(lines.len(), 1);
        assert!(read(&one[..50], &mut lines).is_err());
        assert!(read(&message(SOCK_DIAG_BY_FAMILY, 2, &[0; ANSWER - 4]), &mut lines).is_err());
        assert!(read(&message(ERROR, 0, &(-2_i32).to_ne_bytes()), &mut lines).is_err());
        assert_eq!(read(&message(DONE, 2, &[0; 4]), &mut lines).unwrap(), Some(true));
        let both = [one, message(DONE, 2 | INTERRUPTED, &[0; 4])].concat();
        assert_eq!(read(&both, &mut lines).unwrap(), Some(false));
        // A length of nothing would be read for ever.
        assert!(read(&[0; HEADER], &mut lines).is_err());
    }
}
