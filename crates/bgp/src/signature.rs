//! Signed segments: TCP MD5 (RFC 2385) and TCP-AO (RFC 5925), which are socket options that no safe library has.
//! One of the named homes of `unsafe`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// The longest secret, in bytes.
pub(crate) const SECRET_MAX: usize = 80;

/// How the segments of a peer's connections are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// TCP MD5, with a password of 1 to 80 bytes.
    Md5(String),
    /// TCP-AO.
    Ao(AoKey),
}

/// A master key of TCP-AO (RFC 5925, 3.1). Both sides have the same, with their identifiers the other way round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AoKey {
    /// By what keys and signatures are made.
    pub algorithm: AoAlgorithm,
    /// The identifier in segments that we send.
    pub send_id: u8,
    /// The identifier in segments that the peer sends.
    pub receive_id: u8,
    /// 1 to 80 bytes.
    pub secret: String,
}

/// Algorithms of TCP-AO (RFC 5926).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AoAlgorithm {
    /// KDF_HMAC_SHA1 and HMAC-SHA-1-96.
    #[default]
    #[serde(rename = "hmac-sha-1-96")]
    HmacSha1,
    /// KDF_AES_128_CMAC and AES-128-CMAC-96.
    #[serde(rename = "aes-128-cmac-96")]
    AesCmac,
}

/// `TCP_MD5SIG` of linux/tcp.h.
const TCP_MD5SIG: libc::c_int = 14;
/// `struct tcp_md5sig`: a socket address (128 bytes), flags, prefix length, key length, interface, key.
const MD5_BYTES: usize = 128 + 1 + 1 + 2 + 4 + SECRET_MAX;
const MD5_LENGTH: usize = 130;
const MD5_KEY: usize = 136;

/// `TCP_AO_ADD_KEY` and `TCP_AO_DEL_KEY` of linux/tcp.h, from Linux 6.7 on.
const TCP_AO_ADD_KEY: libc::c_int = 38;
const TCP_AO_DEL_KEY: libc::c_int = 39;
/// `struct tcp_ao_add`: a socket address (128 bytes), the algorithm's name (64), interface, bits, reserved (2), then these, then the key.
const ADD_BYTES: usize = 208 + SECRET_MAX;
const ADD_ALGORITHM: usize = 128;
const ADD_PREFIX: usize = 202;
const ADD_KEY: usize = 208;
/// `struct tcp_ao_del`: a socket address (128 bytes), interface, bits, reserved (2), then prefix length and identifiers.
const DEL_BYTES: usize = 144;
const DEL_PREFIX: usize = 138;
/// Bytes of a signature in each segment (RFC 5926, 2.1).
const AO_MAC_BYTES: u8 = 12;

/// Has segments to and from `peer` signed, on a socket of its family. A listening socket may have a signature for each peer.
pub(crate) fn set(socket: impl AsFd, peer: IpAddr, signature: &Signature) -> io::Result<()> {
    match signature {
        Signature::Md5(password) => md5(socket, peer, checked(password)?),
        Signature::Ao(key) => {
            // The kernel has one key by these identifiers; it may be there with another secret.
            drop(forget_ao(&socket, peer, key));
            add_ao(&socket, peer, key)
        }
    }
}

/// Has them signed no longer. What was not is no error.
pub(crate) fn unset(socket: impl AsFd, peer: IpAddr, signature: &Signature) -> io::Result<()> {
    let result = match signature {
        Signature::Md5(_) => md5(socket, peer, &[]),
        Signature::Ao(key) => forget_ao(&socket, peer, key),
    };
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn checked(secret: &str) -> io::Result<&[u8]> {
    match secret.len() {
        1..=SECRET_MAX => Ok(secret.as_bytes()),
        other => {
            let what = format!("a secret of {other} bytes: give 1 to {SECRET_MAX}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
    }
}

/// No key is none any more.
fn md5(socket: impl AsFd, peer: IpAddr, key: &[u8]) -> io::Result<()> {
    let mut option = [0; MD5_BYTES];
    put_address(&mut option, peer);
    option[MD5_LENGTH..MD5_LENGTH + 2].copy_from_slice(&(key.len() as u16).to_ne_bytes());
    option[MD5_KEY..MD5_KEY + key.len()].copy_from_slice(key);
    set_option(socket, TCP_MD5SIG, &option)
}

fn add_ao(socket: impl AsFd, peer: IpAddr, key: &AoKey) -> io::Result<()> {
    let secret = checked(&key.secret)?;
    let algorithm: &[u8] = match key.algorithm {
        AoAlgorithm::HmacSha1 => b"hmac(sha1)",
        AoAlgorithm::AesCmac => b"cmac(aes128)",
    };
    let mut option = [0; ADD_BYTES];
    put_address(&mut option, peer);
    option[ADD_ALGORITHM..ADD_ALGORITHM + algorithm.len()].copy_from_slice(algorithm);
    // Prefix length, identifiers, bytes of a signature, flags (TCP options are signed, too), bytes of the key.
    let rest = [host_bits(peer), key.send_id, key.receive_id, AO_MAC_BYTES, 0, secret.len() as u8];
    option[ADD_PREFIX..ADD_KEY].copy_from_slice(&rest);
    option[ADD_KEY..ADD_KEY + secret.len()].copy_from_slice(secret);
    set_option(socket, TCP_AO_ADD_KEY, &option).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no TCP-AO: it takes Linux 6.7 or newer, built with CONFIG_TCP_AO",
        ),
        _ => error,
    })
}

fn forget_ao(socket: impl AsFd, peer: IpAddr, key: &AoKey) -> io::Result<()> {
    let mut option = [0; DEL_BYTES];
    put_address(&mut option, peer);
    option[DEL_PREFIX..DEL_PREFIX + 3].copy_from_slice(&[host_bits(peer), key.send_id, key.receive_id]);
    set_option(socket, TCP_AO_DEL_KEY, &option)
}

fn host_bits(peer: IpAddr) -> u8 {
    if peer.is_ipv4() { 32 } else { 128 }
}

/// A `sockaddr_storage`, at the beginning of all these options.
fn put_address(option: &mut [u8], peer: IpAddr) {
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
}

fn set_option(socket: impl AsFd, name: libc::c_int, option: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads as many bytes as it is told, which `option`
    // has, and keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            option.as_ptr().cast(),
            option.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// As linux/tcp.h has them: the places that bytes are put at are the fields'.
    #[repr(C, align(8))]
    struct Add {
        addr: [u8; 128],
        alg_name: [u8; 64],
        ifindex: i32,
        bits: u32,
        reserved2: u16,
        prefix: u8,
        sndid: u8,
        rcvid: u8,
        maclen: u8,
        keyflags: u8,
        keylen: u8,
        key: [u8; 80],
    }

    #[repr(C, align(8))]
    struct Del {
        addr: [u8; 128],
        ifindex: i32,
        bits: u32,
        reserved2: u16,
        prefix: u8,
        sndid: u8,
        rcvid: u8,
        current_key: u8,
        rnext: u8,
        keyflags: u8,
    }

    #[test]
    fn options_are_laid_out_as_the_kernel_has_them() {
        assert_eq!(size_of::<Add>(), ADD_BYTES);
        assert_eq!(offset_of!(Add, alg_name), ADD_ALGORITHM);
        assert_eq!((offset_of!(Add, prefix), offset_of!(Add, keylen)), (ADD_PREFIX, ADD_PREFIX + 5));
        assert_eq!(offset_of!(Add, key), ADD_KEY);
        assert_eq!(size_of::<Del>(), DEL_BYTES);
        assert_eq!((offset_of!(Del, prefix), offset_of!(Del, rcvid)), (DEL_PREFIX, DEL_PREFIX + 2));
    }

    #[test]
    fn secrets_have_a_length() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let long = "x".repeat(SECRET_MAX + 1);
        for secret in ["", &long] {
            let key =
                AoKey { algorithm: AoAlgorithm::HmacSha1, send_id: 1, receive_id: 1, secret: secret.into() };
            for signature in [Signature::Md5(secret.into()), Signature::Ao(key)] {
                let error = set(&socket, "127.0.0.1".parse().unwrap(), &signature).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            }
        }
    }
}
