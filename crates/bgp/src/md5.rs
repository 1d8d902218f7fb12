//! TCP MD5 signatures (RFC 2385): a socket option that no safe library has. One of the named homes of `unsafe`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// `TCP_MD5SIG` of linux/tcp.h.
const TCP_MD5SIG: libc::c_int = 14;
/// The longest password.
pub(crate) const PASSWORD_MAX: usize = 80;
/// `struct tcp_md5sig`: a socket address (128 bytes), flags, prefix length, key length, interface, key.
const BYTES: usize = 128 + 1 + 1 + 2 + 4 + PASSWORD_MAX;
const KEY_LENGTH: usize = 130;
const KEY: usize = 136;

/// Has segments to and from `peer` signed, on a socket of its family. A listening socket may have a password for each peer;
/// an empty one is none any more.
pub(crate) fn set(socket: impl AsFd, peer: IpAddr, password: &str) -> io::Result<()> {
    let key = password.as_bytes();
    if key.len() > PASSWORD_MAX {
        let what = format!("a password of {} bytes: give 1 to {PASSWORD_MAX}", key.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut option = [0u8; BYTES];
    match peer {
        IpAddr::V4(v4) => {
            option[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            option[4..8].copy_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            option[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            option[8..24].copy_from_slice(&v6.octets());
        }
    }
    option[KEY_LENGTH..KEY_LENGTH + 2].copy_from_slice(&(key.len() as u16).to_ne_bytes());
    option[KEY..KEY + key.len()].copy_from_slice(key);
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads `BYTES` bytes, which `option` has, and
    // keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_MD5SIG,
            option.as_ptr().cast(),
            BYTES as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
