//! Golden frames: written from the wire facts with another program's arithmetic, not with ours.
//!
//! Everything goes from 192.0.2.1 (2001:db8:1::1) to a Grantor at 10.20.30.40 (fd00:20::40); the flow is 198.51.100.7 to
//! 203.0.113.80 (2001:db8:a::7 to 2001:db8:b::80).

/// A packet before and after, from the IP header on, in hexadecimal; spaces are for the eye.
pub struct Golden {
    pub name: &'static str,
    pub dscp: u8,
    pub before: &'static str,
    pub after: &'static str,
}

pub const SOURCE4: &str = "192.0.2.1";
pub const GRANTOR4: &str = "10.20.30.40";
pub const SOURCE6: &str = "2001:db8:1::1";
pub const GRANTOR6: &str = "fd00:20::40";

pub const V4: [Golden; 5] = [
    Golden {
        name: "a new flow asks: 41",
        dscp: 41,
        before: "45000020 12344000 4011c20d c6336407 cb007150  9c400050 000c6153 47455421",
        after: "45a40034 00004000 40044fe5 c0000201 0a141e28 \
                45000020 12344000 3f11c30d c6336407 cb007150  9c400050 000c6153 47455421",
    },
    Golden {
        name: "granted: options, DSCP 46 that is not copied, ECT(0) that is, no DF, the last TTL that passes",
        dscp: 1,
        before: "47ba0028 12350000 0211a745 c6336407 cb007150 94040000 01010100  9c400050 000c6153 47455421",
        after: "4506003c 00004000 4004507b c0000201 0a141e28 \
                47ba0028 12350000 0111a845 c6336407 cb007150 94040000 01010100  9c400050 000c6153 47455421",
    },
    Golden {
        name: "a first fragment, no DF",
        dscp: 3,
        before: "45000024 12362000 4011e207 c6336407 cb007150  9c409c41 00153692 00010203 04050607",
        after: "450c0038 00004000 40045079 c0000201 0a141e28 \
                45000024 12362000 3f11e307 c6336407 cb007150  9c409c41 00153692 00010203 04050607",
    },
    Golden {
        name: "to be renewed: the last fragment, 5 bytes, ECT(1), TTL 255",
        dscp: 2,
        before: "45010019 12360002 ff11430f c6336407 cb007150  08090a0b 0c",
        after: "4509002d 00004000 40045087 c0000201 0a141e28 \
                45010019 12360002 fe11440f c6336407 cb007150  08090a0b 0c",
    },
    Golden {
        name: "the highest priority, congestion experienced",
        dscp: 63,
        before: "45030020 12344000 4011c20a c6336407 cb007150  9c400050 000c6153 47455421",
        after: "45ff0034 00004000 40044f8a c0000201 0a141e28 \
                45030020 12344000 3f11c30a c6336407 cb007150  9c400050 000c6153 47455421",
    },
];

/// The first of [`V4`] with every code point and every ECN: DSCP, ECN, the inner checksum before, the outer TOS byte and
/// checksum, the inner checksum after.
pub const FIELDS4: [(u8, u8, u16, u8, u16, u16); 20] = [
    (1, 0, 0xc20d, 0x04, 0x5085, 0xc30d),
    (1, 1, 0xc20c, 0x05, 0x5084, 0xc30c),
    (1, 2, 0xc20b, 0x06, 0x5083, 0xc30b),
    (1, 3, 0xc20a, 0x07, 0x5082, 0xc30a),
    (2, 0, 0xc20d, 0x08, 0x5081, 0xc30d),
    (2, 1, 0xc20c, 0x09, 0x5080, 0xc30c),
    (2, 2, 0xc20b, 0x0a, 0x507f, 0xc30b),
    (2, 3, 0xc20a, 0x0b, 0x507e, 0xc30a),
    (3, 0, 0xc20d, 0x0c, 0x507d, 0xc30d),
    (3, 1, 0xc20c, 0x0d, 0x507c, 0xc30c),
    (3, 2, 0xc20b, 0x0e, 0x507b, 0xc30b),
    (3, 3, 0xc20a, 0x0f, 0x507a, 0xc30a),
    (41, 0, 0xc20d, 0xa4, 0x4fe5, 0xc30d),
    (41, 1, 0xc20c, 0xa5, 0x4fe4, 0xc30c),
    (41, 2, 0xc20b, 0xa6, 0x4fe3, 0xc30b),
    (41, 3, 0xc20a, 0xa7, 0x4fe2, 0xc30a),
    (63, 0, 0xc20d, 0xfc, 0x4f8d, 0xc30d),
    (63, 1, 0xc20c, 0xfd, 0x4f8c, 0xc30c),
    (63, 2, 0xc20b, 0xfe, 0x4f8b, 0xc30b),
    (63, 3, 0xc20a, 0xff, 0x4f8a, 0xc30a),
];

/// The flow's label is 0x967f8.
pub const V6: [Golden; 3] = [
    Golden {
        name: "a new flow asks: 41",
        dscp: 41,
        before: "60000000 000c1140 20010db8 000a0000 00000000 00000007 20010db8 000b0000 00000000 00000080 \
                 9c400050 000c6bd1 47455421",
        after: "6a4967f8 003429ff 20010db8 00010000 00000000 00000001 fd000020 00000000 00000000 00000040 \
                60000000 000c113f 20010db8 000a0000 00000000 00000007 20010db8 000b0000 00000000 00000080 \
                9c400050 000c6bd1 47455421",
    },
    Golden {
        name: "granted: DSCP 46 and a flow label that are not copied, ECT(1) that is, the last hop limit that passes",
        dscp: 1,
        before: "6b9abcde 000c1102 20010db8 000a0000 00000000 00000007 20010db8 000b0000 00000000 00000080 \
                 9c400050 000c6bd1 47455421",
        after: "605967f8 003429ff 20010db8 00010000 00000000 00000001 fd000020 00000000 00000000 00000040 \
                6b9abcde 000c1101 20010db8 000a0000 00000000 00000007 20010db8 000b0000 00000000 00000080 \
                9c400050 000c6bd1 47455421",
    },
    Golden {
        name: "to be renewed: a first fragment, hop limit 255",
        dscp: 2,
        before: "60000000 00182cff 20010db8 000a0000 00000000 00000007 20010db8 000b0000 00000000 00000080 \
                 11000001 12345678 9c409c41 00154110 00010203 04050607",
        after: "608967f8 004029ff 20010db8 00010000 00000000 00000001 fd000020 00000000 00000000 00000040 \
                60000000 00182cfe 20010db8 000a0000 00000000 00000007 20010db8 000b0000 00000000 00000080 \
                11000001 12345678 9c409c41 00154110 00010203 04050607",
    },
];

/// The first of [`V6`] with every code point and every ECN: DSCP, ECN, the first two bytes of the outer header.
pub const FIELDS6: [(u8, u8, u16); 20] = [
    (1, 0, 0x6049),
    (1, 1, 0x6059),
    (1, 2, 0x6069),
    (1, 3, 0x6079),
    (2, 0, 0x6089),
    (2, 1, 0x6099),
    (2, 2, 0x60a9),
    (2, 3, 0x60b9),
    (3, 0, 0x60c9),
    (3, 1, 0x60d9),
    (3, 2, 0x60e9),
    (3, 3, 0x60f9),
    (41, 0, 0x6a49),
    (41, 1, 0x6a59),
    (41, 2, 0x6a69),
    (41, 3, 0x6a79),
    (63, 0, 0x6fc9),
    (63, 1, 0x6fd9),
    (63, 2, 0x6fe9),
    (63, 3, 0x6ff9),
];

/// Bytes from hexadecimal.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Code point, IP packet before, after.
pub type Whole = (u8, Vec<u8>, Vec<u8>);

/// All goldens of IPv4, then all of IPv6, and the table of each.
pub fn all() -> (Vec<Whole>, Vec<Whole>) {
    let whole = |golden: &Golden| (golden.dscp, bytes(golden.before), bytes(golden.after));
    let mut v4: Vec<_> = V4.iter().map(whole).collect();
    for (dscp, ecn, check, tos, outer_check, inner_check) in FIELDS4 {
        let (_, mut before, mut after) = whole(&V4[0]);
        before[1] = ecn;
        before[10..12].copy_from_slice(&check.to_be_bytes());
        (after[1], after[21]) = (tos, ecn);
        after[10..12].copy_from_slice(&outer_check.to_be_bytes());
        after[30..32].copy_from_slice(&inner_check.to_be_bytes());
        v4.push((dscp, before, after));
    }
    let mut v6: Vec<_> = V6.iter().map(whole).collect();
    for (dscp, ecn, first) in FIELDS6 {
        let (_, mut before, mut after) = whole(&V6[0]);
        before[1] = ecn << 4;
        after[..2].copy_from_slice(&first.to_be_bytes());
        after[41] = ecn << 4;
        v6.push((dscp, before, after));
    }
    (v4, v6)
}
