// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Takes from a network interface what is ours, into AF_XDP sockets, and leaves the rest to the kernel.
//
//                    not told yet ------------------------------------------> kernel
//   frame -> tags -> the kernel's link: not IP, or to nobody in particular -> kernel
//                    to an address of the kernel's ------------------------> kernel
//                    to an address of ours, or to a group: `leave` has it --> kernel
//                    an ICMP error to an address of ours about that --------> kernel
//                    all else, and all that is malformed ------------------> socket of the queue
//
// The rule lies in maps, which crates/port/src/xdp/program.rs fills and changes while packets flow. Transit is never left,
// whatever its ports: only what is addressed to this host is. Made into xsk.bpf.o by `cargo xtask bpf`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reader.h"

// Indices of `counts`.
enum { LEFT, UNBOUND, COUNTS };

// Values of `hosts`.
enum { KERNELS = 1, OURS = 2 };

// Bits of `protocols`.
enum { LEAVE_ALL = 1, LEAVE_PORTS = 2 };

// Flags of `settings`.
enum {
	TOLD = 1, // there is a rule
	KERNEL = 2, // the kernel owns the addresses of the untagged link
	LEAVES = 4, // there is something in `protocols`
};

// An address; IPv4 as ::ffff:a.b.c.d.
struct host {
	__u32 word[4];
};

// One bit for each hash of an address in `hosts`: most packets are to others, and cost no search.
struct filter {
	__u64 bits[128];
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter);
} filter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct host);
	__type(value, __u32);
} hosts SEC(".maps");

// By VLAN id: 1 where we have an interface.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} vlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} protocols SEC(".maps");

// Protocol in the upper half, port in the lower.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&counts, &which);

	if (counter)
		(*counter)++;
}

// What is known of an address: 0, KERNELS, or OURS.
static __always_inline __u32 who(const struct host *host)
{
	__u32 zero = 0, mixed = host->word[0] ^ host->word[1] ^ host->word[2] ^ host->word[3];
	struct filter *bits = bpf_map_lookup_elem(&filter, &zero);
	__u32 hash = (mixed * 2654435761u) >> 19;
	__u32 *value;

	if (!bits || !(bits->bits[(hash >> 6) & 127] >> (hash & 63) & 1))
		return 0;
	value = bpf_map_lookup_elem(&hosts, host);
	return value ? *value : 0;
}

// Whether `leave` has a packet of this protocol; `ports` reads on behind the IP header, unless that is a later fragment's.
static __always_inline int leaves(__u32 protocol, struct reader *rest, int first)
{
	__u32 *rules = bpf_map_lookup_elem(&protocols, &protocol);
	__be16 *source, *destination;
	__u32 key;

	if (!rules || !*rules)
		return 0;
	if (*rules & LEAVE_ALL)
		return 1;
	if (!first)
		return 0;
	source = TAKE(rest, __be16);
	destination = TAKE(rest, __be16);
	if (!source || !destination)
		return 0;
	key = protocol << 16 | bpf_ntohs(*destination);
	if (bpf_map_lookup_elem(&ports, &key))
		return 1;
	key = protocol << 16 | bpf_ntohs(*source);
	return bpf_map_lookup_elem(&ports, &key) != 0;
}

// What ICMP and ICMPv6 begin with.
struct icmp {
	__u8 type, code;
	__be16 check;
	__be32 rest;
};

// Whether this is an ICMP error about a packet that `leave` has: the kernel has sent that, and has to hear of it (a path's MTU).
static __always_inline int about_left_ipv4(struct reader message)
{
	struct icmp *icmp = TAKE(&message, struct icmp);
	struct iphdr *ip;

	// Unreachable, time exceeded, parameter problem.
	if (!icmp || (icmp->type != 3 && icmp->type != 11 && icmp->type != 12))
		return 0;
	ip = TAKE(&message, struct iphdr);
	if (!ip || ip->ihl < 5)
		return 0;
	message.at = (void *)ip + ip->ihl * 4;
	return leaves(ip->protocol, &message, !(ip->frag_off & bpf_htons(0x1fff)));
}

static __always_inline int about_left_ipv6(struct reader message)
{
	struct icmp *icmp = TAKE(&message, struct icmp);
	struct ipv6hdr *ip;

	// Unreachable, too big, time exceeded, parameter problem.
	if (!icmp || icmp->type < 1 || icmp->type > 4)
		return 0;
	ip = TAKE(&message, struct ipv6hdr);
	return ip && leaves(ip->nexthdr, &message, 1);
}

// Whether this is an answer of DHCP's and `leave` has those: on a link of the kernel's, to an address that nobody has yet.
static __always_inline int is_offer(struct reader message)
{
	__be16 *source = TAKE(&message, __be16), *destination = TAKE(&message, __be16);
	__u32 key = IPPROTO_UDP << 16 | 68;

	if (!source || !destination || *source != bpf_htons(67) || *destination != bpf_htons(68))
		return 0;
	return bpf_map_lookup_elem(&ports, &key) != 0;
}

static __always_inline int leave_ipv4(struct reader frame, __u32 flags, int kernels_link)
{
	struct iphdr *ip = TAKE(&frame, struct iphdr);
	struct host host = {};
	__u32 to, whose;
	int group, first;

	if (!ip || ip->ihl < 5)
		return 0;
	to = bpf_ntohl(ip->daddr);
	// Multicast, broadcast, link-local.
	group = to >> 28 == 14 || to == 0xffffffff || to >> 16 == 0xa9fe;
	if (group && kernels_link)
		return 1;
	host.word[2] = bpf_htonl(0xffff);
	host.word[3] = ip->daddr;
	whose = who(&host);
	if (whose == KERNELS)
		return 1;
	if (!(flags & LEAVES))
		return 0;
	frame.at = (void *)ip + ip->ihl * 4;
	first = !(ip->frag_off & bpf_htons(0x1fff));
	if (!group && whose != OURS)
		return kernels_link && first && ip->protocol == IPPROTO_UDP && is_offer(frame);
	if (ip->protocol == IPPROTO_ICMP && first && !group && about_left_ipv4(frame))
		return 1;
	return leaves(ip->protocol, &frame, first);
}

static __always_inline int leave_ipv6(struct reader frame, __u32 flags, int kernels_link, int tagged)
{
	struct ipv6hdr *ip = TAKE(&frame, struct ipv6hdr);
	struct host host;
	__u32 to, whose;
	__u8 *type;
	int group;

	if (!ip)
		return 0;
	__builtin_memcpy(&host, &ip->daddr, sizeof(host));
	to = bpf_ntohl(host.word[0]);
	// Multicast, link-local.
	group = to >> 24 == 0xff || to >> 22 == 0xfe80 >> 6;
	if (group && kernels_link)
		return 1;
	whose = who(&host);
	if (whose == KERNELS)
		return 1;
	if (!(flags & LEAVES))
		return 0;
	if (ip->nexthdr == IPPROTO_ICMPV6 && !tagged) {
		struct reader message = frame;

		type = TAKE(&message, __u8);
		// A neighbor's answer is for whoever asked: the kernel has those that it talks to, too. We hear it as well.
		if (type && *type == 136)
			return 1;
	}
	if (!group && whose != OURS)
		return 0;
	if (ip->nexthdr == IPPROTO_ICMPV6 && !group && about_left_ipv6(frame))
		return 1;
	return leaves(ip->nexthdr, &frame, 1);
}

// Whether an ARP packet is an answer.
static __always_inline int arp_reply(struct reader frame)
{
	struct arp {
		__be16 hardware, protocol;
		__u8 lengths[2];
		__be16 operation;
	} *arp = TAKE(&frame, struct arp);

	return arp && arp->operation == bpf_htons(2);
}

static __always_inline int leave(struct xdp_md *context)
{
	struct reader frame = { (void *)(long)context->data, (void *)(long)context->data_end };
	__u32 zero = 0, id, *flags = bpf_map_lookup_elem(&settings, &zero), *known;
	int tags = 0, foreign = 0, kernels_link;
	struct ethhdr *ethernet;
	__be16 type;

	if (!flags || !(*flags & TOLD))
		return 1;
	ethernet = TAKE(&frame, struct ethhdr);
	if (!ethernet)
		return 0;
	type = ethernet->h_proto;
#pragma unroll
	for (int i = 0; i < 2; i++) {
		struct tag {
			__be16 tci, type;
		} *tag;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		tag = TAKE(&frame, struct tag);
		if (!tag)
			return 0;
		type = tag->type;
		id = bpf_ntohs(tag->tci) & 0xfff;
		// VLAN 0 is none: a priority.
		if (id) {
			tags++;
			known = bpf_map_lookup_elem(&vlans, &id);
			foreign |= !known || !*known;
		}
	}
	// What the router has no interface for may be a VLAN of the kernel's.
	if (tags && (foreign || tags > 1) && *flags & KERNEL)
		return 1;
	kernels_link = !tags && *flags & KERNEL;
	if (type == bpf_htons(ETH_P_IP))
		return leave_ipv4(frame, *flags, kernels_link);
	if (type == bpf_htons(ETH_P_IPV6))
		return leave_ipv6(frame, *flags, kernels_link, tags);
	if (kernels_link)
		return 1;
	return type == bpf_htons(ETH_P_ARP) && !tags && *flags & LEAVES && arp_reply(frame);
}

SEC("xdp")
int tidemill_xsk(struct xdp_md *context)
{
	int action;

	if (leave(context)) {
		count(LEFT);
		return XDP_PASS;
	}
	action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
	if (action != XDP_REDIRECT)
		count(UNBOUND);
	return action;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
