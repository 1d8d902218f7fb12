// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Forwards, in the driver, what a router would forward without a second look; all else is the router's. Part of the router's program and of the Gatekeeper's.
//
//   frame -> to our MAC address -> nobody judges it -> a plain IPv4 or IPv6 header, TTL left -> route -> next hop that is ready -> redirected
//                |                      |                         |                       |           |
//                '----------------------'-------------------------'-- counted by why -----'-----------'--> the program goes on
//
// The tables are an image in `lines` that user space writes (crates/router/src/offload). There are two generations of it: `root` names the first line of
// the one in force, and the other one is nobody's until it is named. So a packet meets one state of ports, routes and next hops. 0: none is in force.
//
//   generation: ports it comes in by | addresses to leave alone | next hops | routes of 16 bits, IPv4 and IPv6 | nodes
//
// A route is found by 16 bits at first and by 8 at each node then. A node has a bit for each of its 256 places that differs from the one before, how many there are in
// the words before each word, and that many entries: labels of next hops, or further nodes.
//
// What a program judges (`is_judged`) is its own matter: a port that packets come in by says where in `lines` it finds out, in routes of the same form.

#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reader.h"

// Where things lie in a generation, in lines; as in crates/router/src/offload/layout.rs.
enum {
	INPUTS = 0,
	SUSPECTS4 = 128,
	SUSPECTS6 = 129,
	HOPS4 = 130,
	HOPS6 = HOPS4 + 16384,
	DIRECT4 = HOPS6 + 16384,
	DIRECT6 = DIRECT4 + 4096,
};

// Where routes of IPv6 begin behind those of IPv4.
#define SIX (DIRECT6 - DIRECT4)

// Next hops of a family that there is room for.
#define HOPS 32768
// An entry that is no label: the line of a node.
#define NODE 0x80000000u
// Where the entries of a node begin, in words of 32 bits.
#define ENTRIES 10

// Indices of `counts`, for each port that packets come in by: what was forwarded, and why something was not.
enum {
	FORWARDED,
	BYTES,
	NOT_IP,
	NOT_OURS,
	MALFORMED,
	OPTIONS,
	TTL,
	SPECIAL,
	UNFINISHED,
	NO_ROUTE,
	NEXT_HOP,
	TOO_BIG,
	NO_DEVICE,
	GATE,
	COUNTS = 16,
};

// Flags of a port that packets come in by: the program runs in its driver; somebody judges what comes in by it; what passes keeps its code point all the same.
enum { NATIVE = 1, JUDGED = 2, KEEPS_DSCP = 4 };

// Flags of a next hop: it is ready; its device takes what other drivers redirect.
enum { READY = 1, TAKES = 2 };

struct line {
	__u64 word[8];
};

// A port that packets come in by, at the low 8 bits of its device's number.
struct input {
	__u32 device, port;
	__u8 mac[6];
	__u16 flags;
	// Where somebody judges: what this generation goes by, and the first line of the addresses that pass.
	__u64 stamp;
	__u32 passes, spare;
};

struct hop {
	__u8 header[ETH_HLEN];
	__u16 mtu;
	__u32 port, flags;
	__u64 spare;
};

struct counts {
	__u64 of[COUNTS];
};

// What left by a port.
struct sent {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct line);
} lines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} root SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct sent);
} sent SEC(".maps");

// The port of a device that the program is on.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} next SEC(".maps");

static __always_inline struct line *line_at(__u32 number)
{
	return bpf_map_lookup_elem(&lines, &number);
}

static __always_inline __u32 ones(__u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return bits * 0x0101010101010101ull >> 56;
}

// The label of an address's route, its bits from the left in `high` and `low`; 0 if there is none.
static __always_inline __u32 route(__u32 direct, __u64 high, __u64 low, const int levels)
{
	__u32 place = high >> 48, entry;
	struct line *line = line_at(direct + (place >> 4));

	if (!line)
		return 0;
	entry = ((__u32 *)line)[place & 15];
	high = high << 16 | low >> 48;
	low <<= 16;
	for (int i = 0; i < levels; i++) {
		__u32 node = entry & ~NODE, byte = high >> 56, word = byte >> 6;

		if (!(entry & NODE))
			return entry;
		line = line_at(node);
		if (!line)
			return 0;
		place = ones(line->word[word & 3] & ~0ull >> (63 - (byte & 63)));
		place += (line->word[4] >> (16 * word & 63) & 0xffff) + ENTRIES - 1;
		line = line_at(node + (place >> 4));
		if (!line)
			return 0;
		entry = ((__u32 *)line)[place & 15];
		high = high << 8 | low >> 56;
		low <<= 8;
	}
	return entry;
}

// Each program's own: whether a port's entry holds still, and whether a packet to an address, its bits from the left, is for somebody to judge.
static __always_inline int is_current(const struct input *input);
static __always_inline int is_judged(const struct input *input, __u64 high, __u64 low, const int is_six);

// Whether an address by its first byte may be one that is not routed as others are.
static __always_inline int suspicious(__u32 number, __u8 source, __u8 destination)
{
	struct line *line = line_at(number);

	return !line || line->word[source >> 6 & 3] >> (source & 63) & 1 ||
	       line->word[4 + (destination >> 6 & 3)] >> (destination & 63) & 1;
}

static __always_inline __u32 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

// Whether a frame is as long as its packet says, but for what Ethernet pads it to.
static __always_inline int fits(__u32 frame, __u32 packet)
{
	__u32 wanted = ETH_HLEN + packet;

	return frame == wanted || (frame > wanted && frame <= ETH_ZLEN);
}

// Whether a sender on this machine left the checksum to its card, which a virtual cable has none of: the field has the sum of the pseudo header alone
// (crates/port/src/xdp/partial.rs). What is redirected would leave so.
static __always_inline int unfinished(struct reader *rest, __u8 protocol, __u64 addresses, __u32 length)
{
	__u8 *segment = rest->at;
	__u16 field;

	if (protocol == IPPROTO_TCP) {
		if ((void *)segment + 20 > rest->end)
			return 0;
		field = *(__u16 *)(segment + 16);
	} else if (protocol == IPPROTO_UDP) {
		if ((void *)segment + 8 > rest->end)
			return 0;
		field = *(__u16 *)(segment + 6);
	} else {
		return 0;
	}
	return field == folded(addresses + bpf_htons(length) + bpf_htons(protocol));
}

// What the next hop of a label makes of a frame of this length: FORWARDED if it goes there, and then the next hop.
static __always_inline __u32 ready(const struct input *input, __u32 hops, __u32 label, __u32 length,
				   const struct hop **found)
{
	const struct hop *hop;
	struct line *line;

	if (!label)
		return NO_ROUTE;
	if (label >= HOPS)
		return NEXT_HOP;
	line = line_at(hops + (label >> 1));
	if (!line)
		return NEXT_HOP;
	hop = (struct hop *)line + (label & 1);
	*found = hop;
	if (!(hop->flags & READY))
		return NEXT_HOP;
	if (length > ETH_HLEN + hop->mtu)
		return TOO_BIG;
	if (input->flags & NATIVE && !(hop->flags & TAKES))
		return NO_DEVICE;
	// Nothing is changed before it is sure that the frame leaves.
	return bpf_redirect_map(&devices, hop->port, 0) == XDP_REDIRECT ? FORWARDED : NO_DEVICE;
}

// Code points behind a gate are its own: what passes loses the one that it came with, as in crates/gatekeeper/src/family.rs.
static __always_inline int is_cleared(const struct input *input)
{
	return (input->flags & (JUDGED | KEEPS_DSCP)) == JUDGED;
}

static __always_inline void clear4(struct iphdr *ip)
{
	__u16 before = *(__u16 *)ip;

	if (!(ip->tos & 0xfc))
		return;
	ip->tos &= 3;
	// RFC 1624, equation 3.
	ip->check = ~folded((__u64)(__u16)~ip->check + (__u16)~before + *(__u16 *)ip);
}

static __always_inline void leave(struct ethhdr *ethernet, const struct hop *hop, __u32 length)
{
	__u32 port = hop->port;
	struct sent *out = bpf_map_lookup_elem(&sent, &port);

	__builtin_memcpy(ethernet, hop->header, ETH_HLEN);
	if (out) {
		out->packets++;
		out->bytes += length;
	}
}

static __always_inline __u32 forward4(struct reader frame, const struct input *input, __u32 start, __u32 length)
{
	struct ethhdr *ethernet = frame.at - ETH_HLEN;
	struct iphdr *ip = TAKE(&frame, struct iphdr);
	__u32 total, label, result, check;
	const struct hop *hop = 0;
	__u64 sum = 0;

	if (!ip)
		return MALFORMED;
	if (is_judged(input, (__u64)bpf_ntohl(ip->daddr) << 32, 0, 0))
		return GATE;
	if (*(__u8 *)ip != 0x45)
		return OPTIONS;
	total = bpf_ntohs(ip->tot_len);
	if (total < sizeof(*ip) || !fits(length, total))
		return MALFORMED;
#pragma unroll
	for (int i = 0; i < 5; i++)
		sum += ((__u32 *)ip)[i];
	if (folded(sum) != 0xffff)
		return MALFORMED;
	if (suspicious(start + SUSPECTS4, ((__u8 *)&ip->saddr)[0], ((__u8 *)&ip->daddr)[0]))
		return SPECIAL;
	if (ip->ttl <= 1)
		return TTL;
	if (input->flags & NATIVE && !(ip->frag_off & bpf_htons(0x3fff)) &&
	    unfinished(&frame, ip->protocol, (__u64)ip->saddr + ip->daddr, total - sizeof(*ip)))
		return UNFINISHED;
	label = route(start + DIRECT4, (__u64)bpf_ntohl(ip->daddr) << 32, 0, 2);
	result = ready(input, start + HOPS4, label, length, &hop);
	if (result != FORWARDED)
		return result;
	if (is_cleared(input))
		clear4(ip);
	// RFC 1624: the checksum grows by what the word with the TTL loses.
	check = ip->check + bpf_htons(0x0100);
	ip->check = check + (check >= 0xffff);
	ip->ttl--;
	leave(ethernet, hop, length);
	return FORWARDED;
}

static __always_inline __u32 forward6(struct reader frame, const struct input *input, __u32 start, __u32 length)
{
	struct ethhdr *ethernet = frame.at - ETH_HLEN;
	struct ipv6hdr *ip = TAKE(&frame, struct ipv6hdr);
	const struct hop *hop = 0;
	__u64 sum = 0, high, low;
	__u32 label, result;
	__be32 *to;

	if (!ip)
		return MALFORMED;
	to = (__be32 *)&ip->daddr;
	high = (__u64)bpf_ntohl(to[0]) << 32 | bpf_ntohl(to[1]);
	low = (__u64)bpf_ntohl(to[2]) << 32 | bpf_ntohl(to[3]);
	if (is_judged(input, high, low, 1))
		return GATE;
	if (ip->version != 6 || !fits(length, sizeof(*ip) + bpf_ntohs(ip->payload_len)))
		return MALFORMED;
	if (suspicious(start + SUSPECTS6, ((__u8 *)&ip->saddr)[0], ((__u8 *)&ip->daddr)[0]))
		return SPECIAL;
	// It may be neighbor discovery, which never crosses a router.
	if (ip->nexthdr == IPPROTO_ICMPV6 && ip->hop_limit == 255)
		return SPECIAL;
	if (ip->hop_limit <= 1)
		return TTL;
	if (input->flags & NATIVE) {
#pragma unroll
		for (int i = 2; i < 10; i++)
			sum += ((__u32 *)ip)[i];
		if (unfinished(&frame, ip->nexthdr, sum, bpf_ntohs(ip->payload_len)))
			return UNFINISHED;
	}
	label = route(start + DIRECT6, high, low, 14);
	result = ready(input, start + HOPS6, label, length, &hop);
	if (result != FORWARDED)
		return result;
	if (is_cleared(input)) {
		((__u8 *)ip)[0] &= 0xf0;
		((__u8 *)ip)[1] &= 0x3f;
	}
	ip->hop_limit--;
	leave(ethernet, hop, length);
	return FORWARDED;
}

static __always_inline __u32 forward(struct reader frame, const struct input *input, __u32 start, __u32 length)
{
	struct ethhdr *ethernet = TAKE(&frame, struct ethhdr);

	if (!ethernet)
		return MALFORMED;
	if (*(__u32 *)ethernet->h_dest != *(__u32 *)input->mac ||
	    *(__u16 *)(ethernet->h_dest + 4) != *(__u16 *)(input->mac + 4))
		return NOT_OURS;
	if (ethernet->h_source[0] & 1)
		return MALFORMED;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		return forward4(frame, input, start, length);
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		return forward6(frame, input, start, length);
	return NOT_IP;
}

// True if the frame leaves.
static __always_inline int forwarded(struct xdp_md *context)
{
	struct reader frame = { (void *)(long)context->data, (void *)(long)context->data_end };
	__u32 zero = 0, device = context->ingress_ifindex, length = frame.end - frame.at, port, result, start;
	volatile __u64 *current = bpf_map_lookup_elem(&root, &zero);
	const struct input *input;
	struct counts *counted;
	struct line *line;

	if (!current)
		return 0;
	start = *current;
	if (!start)
		return 0;
	line = line_at(start + INPUTS + (device >> 1 & 127));
	if (!line)
		return 0;
	input = (struct input *)line + (device & 1);
	if (input->device != device)
		return 0;
	port = input->port;
	counted = bpf_map_lookup_elem(&counts, &port);
	if (!counted)
		return 0;
	result = is_current(input) ? forward(frame, input, start, length) : GATE;
	counted->of[result & (COUNTS - 1)]++;
	if (result != FORWARDED)
		return 0;
	counted->of[BYTES] += length;
	return 1;
}
