//! Sockets of a port, as the kernel lists them: by its diagnosis socket (`sock_diag`, which `ss` asks too), that looks through its table once for each family
//! and says nothing of other ports; where it has none, by `/proc`, which looks through all of it several times and writes all of it as text.

use super::diag::{Diag, LISTEN, Line, Transport};
use std::{fs, io};

/// The sockets of a port: over TCP those that wait, are being opened, or can still be read from.
pub(super) fn of_port(transport: Transport, port: u16) -> Vec<Line> {
    let names = if transport == Transport::Tcp { ["tcp", "tcp6"] } else { ["udp", "udp6"] };
    listed(transport, port).unwrap_or_else(|_| of_proc(names, Some(port)))
}

/// The sockets of a port that wait for connections: where there is a diagnosis socket this is quick, however many connections the kernel has room for.
pub(super) fn waiting(port: u16) -> Vec<Line> {
    let listed = Diag::open().and_then(|diag| diag.waiting(port));
    listed.unwrap_or_else(|_| {
        let mut lines = of_proc(["tcp", "tcp6"], Some(port));
        lines.retain(|line| line.state == LISTEN);
        lines
    })
}

fn listed(transport: Transport, port: u16) -> io::Result<Vec<Line>> {
    Diag::open()?.of_port(transport, port)
}

/// What /proc/net says in two of its files.
pub(super) fn of_proc(names: [&str; 2], port: Option<u16>) -> Vec<Line> {
    let of = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let text = names.map(of).concat();
    text.lines().filter_map(line).filter(|line| port.is_none_or(|port| line.local.1 == port)).collect()
}

fn end(text: &str) -> Option<([u32; 4], u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    // Words as they lie in memory, printed as this machine's numbers.
    let words = match address.len() {
        8 => [0, 0, 0xffff_u32.to_be(), word(0)?],
        32 => [word(0)?, word(8)?, word(16)?, word(24)?],
        _ => return None,
    };
    Some((words, u16::from_str_radix(port, 16).ok()?))
}

fn line(text: &str) -> Option<Line> {
    let mut words = text.split_whitespace();
    let (local, remote) = (end(words.nth(1)?)?, end(words.next()?)?);
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let unread = u32::from_str_radix(words.next()?.split_once(':')?.1, 16).ok()?;
    Some(Line { local, remote, state, inode: words.nth(4)?.parse().ok()?, interface: None, unread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::diag::ESTABLISHED;
    use crate::kernel::machine::words;
    use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};

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
            let mut asked = match listed(transport, port) {
                Ok(lines) => lines,
                Err(error) => {
                    println!("skipped: what_is_diagnosed_is_what_proc_says (no sock_diag here: {error})");
                    return;
                }
            };
            let mut read = of_proc(names, Some(port));
            for lines in [&mut asked, &mut read] {
                lines.sort_by_key(|line| (line.local, line.remote, line.state, line.inode));
            }
            // Which interface one is bound to only the one of them says.
            asked.iter_mut().for_each(|line| assert_eq!(line.interface.take(), Some(0)));
            assert_eq!(asked, read);
            assert!(asked.len() >= least, "{asked:?}");
        }
        let waiting = waiting(port);
        assert!(
            waiting.len() == 1
                && waiting[0].state == LISTEN
                && waiting[0].local.1 == port
                && waiting[0].unread == 1,
            "{waiting:?}"
        );
        drop((clients, udp));
        assert_eq!(listed(Transport::Udp, port).unwrap(), []);
    }

    #[test]
    fn lines_of_sockets_are_read() {
        let text = "   1: 0100007F:2BCB 0200000A:D431 01 00000000:00000011 00:00000000 00000000     0        0 7311 1 0000 20";
        let read = line(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(read.local, (words(IpAddr::from([127, 0, 0, 1])), 11211));
        assert_eq!(read.remote, (words(IpAddr::from([10, 0, 0, 2])), 0xd431));
        assert_eq!((read.state, read.inode, read.unread), (ESTABLISHED, 7311, 17));
        let text = "   0: 0000000000000000FFFF00000200000A:2BCB 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9 1";
        let read = line(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(read.local.0, words(IpAddr::from([10, 0, 0, 2])), "mapped");
        assert!(line("  sl  local_address rem_address   st").is_none());
    }
}
