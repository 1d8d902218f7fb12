//! The choice of a queue by addresses alone: a classic BPF program that the kernel runs for each packet of a fanout group.
//!
//! ```text
//! EtherType --IPv6--> the header's bytes 8 to 40 --\
//!           --IPv4--> its bytes 12 to 20 -----------+--> sum of secret * half-word --> mixed --> modulo the queues (the kernel)
//!           --else, or cut short------------------------> queue 0
//! ```
//! The sum is Multilinear (Lemire and Kaser, "Strongly universal string hashing is fast", 2014; halves of 16 bits, numbers of 32): whoever does not know
//! the secrets cannot choose addresses that fall together. The finalizer of MurmurHash3 (Appleby), behind it, has neighbours spread whatever the secrets are.
//!
//! The kernel has taken a VLAN tag off when it comes here, and the EtherType is that behind it; a second tag is not looked behind. Offsets
//! count from the network header, where a received packet begins at this point. `SKF_NET_OFF`, which says so in words, will not do: before Linux 6.16
//! it reads what lies in a packet's first piece only, and a driver may have left the headers in another. A read behind the packet's end ends
//! the program, with queue 0.

use crate::rng::mix;
use libc::sock_filter;
use std::ops::Range;

// Operations of linux/bpf_common.h, by what they do to the accumulator A and the index X.
/// A = the two bytes at k.
const LOAD: u16 = 0x28;
/// X = k.
const SET_X: u16 = 0x01;
/// Leaves k operations out.
const SKIP: u16 = 0x05;
/// Leaves `jf` operations out unless A = k.
const UNLESS: u16 = 0x15;
/// A *= k.
const MULTIPLY: u16 = 0x24;
/// A >>= k.
const SHIFT: u16 = 0x74;
/// A += X.
const ADD_X: u16 = 0x0c;
/// A ^= X.
const XOR_X: u16 = 0xac;
/// X = A.
const TO_X: u16 = 0x07;
/// A = X.
const FROM_X: u16 = 0x87;
/// Returns k.
const RETURN: u16 = 0x06;
/// Returns A.
const RETURN_A: u16 = 0x16;

/// Where [`LOAD`] finds the EtherType (SKF_AD_OFF + SKF_AD_PROTOCOL).
const ETHERTYPE: u32 = 0xFFFF_F000;

fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn unless(k: u32, skip: usize) -> sock_filter {
    sock_filter { code: UNLESS, jt: 0, jf: skip as u8, k }
}

/// The program, with secrets drawn from this one.
pub(super) fn by_addresses(secret: u64) -> Vec<sock_filter> {
    let drawn = |i: u64| mix(secret.wrapping_add(i)) as u32;
    let sum = |bytes: Range<u32>| -> Vec<sock_filter> {
        let halves = bytes.step_by(2).zip(1..);
        halves.flat_map(|(at, i)| [op(LOAD, at), op(MULTIPLY, drawn(i)), op(ADD_X, 0), op(TO_X, 0)]).collect()
    };
    let (v4, v6) = (sum(12..20), sum(8..40));
    let fold = |bits| [op(TO_X, 0), op(SHIFT, bits), op(XOR_X, 0)];
    let mut last = vec![op(FROM_X, 0)];
    last.extend(fold(16));
    last.push(op(MULTIPLY, 0x85EB_CA6B));
    last.extend(fold(13));
    last.push(op(MULTIPLY, 0xC2B2_AE35));
    last.extend(fold(16));
    last.push(op(RETURN_A, 0));

    let mut program = vec![op(LOAD, ETHERTYPE), op(SET_X, drawn(0)), unless(0x86DD, v6.len() + 1)];
    program.extend(v6);
    program.push(op(SKIP, 1 + v4.len() as u32));
    program.push(unless(0x0800, v4.len() + last.len()));
    program.extend(v4);
    program.extend(last);
    program.push(op(RETURN, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program makes of a packet behind this EtherType, as the kernel would.
    fn run(program: &[sock_filter], ethertype: u16, packet: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0, 0);
        loop {
            let sock_filter { code, jf, k, .. } = program[at];
            at += 1;
            match code {
                LOAD if k == ETHERTYPE => a = ethertype.into(),
                LOAD => match packet.get(k as usize..k as usize + 2) {
                    Some(half) => a = u16::from_be_bytes([half[0], half[1]]).into(),
                    None => return 0,
                },
                SET_X => x = k,
                SKIP => at += k as usize,
                UNLESS => at += if a == k { 0 } else { usize::from(jf) },
                MULTIPLY => a = a.wrapping_mul(k),
                SHIFT => a >>= k,
                ADD_X => a = a.wrapping_add(x),
                XOR_X => a ^= x,
                TO_X => x = a,
                FROM_X => a = x,
                RETURN => return k,
                RETURN_A => return a,
                other => panic!("{other:#x}"),
            }
        }
    }

    const FAMILIES: [(u16, Range<usize>); 2] = [(0x0800, 12..20), (0x86DD, 8..40)];

    #[test]
    fn addresses_decide_and_nothing_else() {
        for secret in 0..50 {
            let program = by_addresses(secret);
            for (ethertype, addresses) in FAMILIES {
                let packet: Vec<u8> = (0..64).collect();
                let hash = run(&program, ethertype, &packet);
                assert_ne!(hash, run(&by_addresses(secret + 50), ethertype, &packet), "secrets count");
                for at in 0..packet.len() {
                    for bit in 0..8 {
                        let mut other = packet.clone();
                        other[at] ^= 1 << bit;
                        let same = run(&program, ethertype, &other) == hash;
                        assert_eq!(same, !addresses.contains(&at), "{ethertype:x}: byte {at}");
                    }
                    let cut = run(&program, ethertype, &packet[..at]);
                    assert_eq!(cut == hash, at >= addresses.end, "{at} bytes");
                    assert!(at >= addresses.end || cut == 0, "{at} bytes");
                }
            }
            for ethertype in [0x0806, 0x8100, 0x88A8, 0x0004, 0] {
                assert_eq!(run(&program, ethertype, &[9; 64]), 0);
            }
        }
    }

    #[test]
    fn neighbours_spread_evenly_whatever_the_secrets() {
        for secret in 0..10 {
            let program = by_addresses(secret);
            for (ethertype, addresses) in FAMILIES {
                // Of the source, and of both ends.
                for ends in [&[addresses.len() / 2][..], &[addresses.len() / 2, addresses.len()]] {
                    for queues in [2, 3, 4, 8] {
                        let mut counts = vec![0usize; queues as usize];
                        for n in 0..4096u16 {
                            let mut packet = [7; 64];
                            for end in ends {
                                let at = addresses.start + end;
                                packet[at - 2..at].copy_from_slice(&n.to_be_bytes());
                            }
                            counts[(run(&program, ethertype, &packet) % queues) as usize] += 1;
                        }
                        // Six standard deviations, and more: there are thousands of such counts.
                        let share = 4096 / queues as usize;
                        let good = |n: &usize| n.abs_diff(share) < 7 * share.isqrt();
                        assert!(counts.iter().all(good), "{ethertype:x}: {counts:?}");
                    }
                }
            }
        }
    }
}
