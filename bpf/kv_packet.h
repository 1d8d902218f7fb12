// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Where a packet's parts are, its sums, and its bytes piece by piece.

#pragma once

#include "kv_replies.h"

// What headers take at most: two tags, 60 bytes of IPv4, ports.
#define HEADS 128

#define V4_MAPPED bpf_htonl(0xffff)
// Headers before an IPv6 packet's transport that are read.
#define EXTENSIONS 6

// A header at `at`, of the `n` bytes that there are.
#define HEADER(type, at)                              \
	({                                            \
		if ((at) + sizeof(type) > n)          \
			return 0;                     \
		(type *)&w->bytes[(at) & (HEADS - 1)]; \
	})

struct ports {
	__be16 source, destination;
};

struct tag {
	__be16 tci, type;
};

// What IPv6 puts before the header of a transport; of a fragment `offset` is its place, in its upper 13 bits.
struct extension {
	__u8 next, length;
	__be16 offset;
};

// Finds ports in the first `n` bytes of a packet; 0: there are none, and none that are memcached's can be behind. Not static: the verifier looks at it once, and by itself.
__noinline int locate(struct work *w, struct where *where, __u32 n)
{
	__u32 at = sizeof(struct ethhdr);
	struct ports *ports;
	__be16 type;

	if (!w || !where)
		return 0;
	type = HEADER(struct ethhdr, 0)->h_proto;
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		type = HEADER(struct tag, at)->type;
		at += sizeof(struct tag);
	}
	where->l3 = at;
	where->part = WHOLE;
	where->cut = 0;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = HEADER(struct iphdr, at);
		__u32 header = ip->ihl * 4, total = bpf_ntohs(ip->tot_len);

		// A length of 0: more than 65,535 bytes, put together by the kernel.
		if (ip->version != 4 || header < 20 || (total && total < header))
			return 0;
		where->family = 4;
		where->proto = ip->protocol;
		where->src[0] = where->src[1] = where->dst[0] = where->dst[1] = 0;
		where->src[2] = where->dst[2] = V4_MAPPED;
		where->src[3] = ip->saddr;
		where->dst[3] = ip->daddr;
		where->cut = (ip->frag_off & bpf_htons(0x3fff)) != 0;
		if (ip->frag_off & bpf_htons(0x1fff))
			where->part = LATER;
		else if (!total || where->cut)
			where->part = FIRST;
		where->l4 = at + header;
		where->end = at + total;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = HEADER(struct ipv6hdr, at);

		if (ip->version != 6)
			return 0;
		where->family = 6;
		where->proto = ip->nexthdr;
		__builtin_memcpy(where->src, &ip->saddr, 16);
		__builtin_memcpy(where->dst, &ip->daddr, 16);
		where->l4 = at + sizeof(*ip);
		where->end = where->l4 + bpf_ntohs(ip->payload_len);
		// Nobody has such a source: the kernel drops it. Here it would be one of IPv4.
		if (!where->src[0] && !where->src[1] && where->src[2] == V4_MAPPED)
			return 0;
		// Behind headers of these kinds there may be a transport's, also to a group: a socket that is bound to no address gets that too. Behind
		// others (ICMP, tunnels) there is nothing for a socket of memcached's.
		for (int i = 0; i < EXTENSIONS; i++) {
			struct extension *extension;
			__u32 next = where->proto, l4 = where->l4, length;

			if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_AH &&
			    next != IPPROTO_FRAGMENT)
				break;
			if (l4 + sizeof(*extension) > n) {
				where->part = OPAQUE;
				return 1;
			}
			extension = (struct extension *)&w->bytes[l4 & (HEADS - 1)];
			length = extension->length;
			where->proto = extension->next;
			where->part = FIRST;
			if (next == IPPROTO_FRAGMENT) {
				where->cut = 1;
				if (extension->offset & bpf_htons(0xfff8)) {
					where->part = LATER;
					break;
				}
				length = 0;
			}
			where->l4 = l4 + (next == IPPROTO_AH ? length * 4 + 8 : length * 8 + 8);
		}
		if (where->part != WHOLE && where->proto != IPPROTO_UDP && where->proto != IPPROTO_TCP) {
			if (where->proto != IPPROTO_HOPOPTS && where->proto != IPPROTO_ROUTING && where->proto != IPPROTO_DSTOPTS &&
			    where->proto != IPPROTO_AH && where->proto != IPPROTO_FRAGMENT)
				return 0;
			if (where->part != LATER)
				where->part = OPAQUE;
			return 1;
		}
		if (where->part != WHOLE && where->l4 + sizeof(struct ports) > n)
			where->part = where->part == LATER ? LATER : OPAQUE;
	} else {
		return 0;
	}
	if (where->proto != IPPROTO_UDP && where->proto != IPPROTO_TCP)
		return 0;
	if (where->part > FIRST)
		return 1;
	ports = HEADER(struct ports, where->l4);
	where->sport = ports->source;
	where->dport = ports->destination;
	return 1;
}

static __always_inline int is_link_local(const __be32 *address)
{
	return (address[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

// By what two connections with the same ends differ, that are not the same: of addresses that are a link's alone the link, of others the VRF.
static __always_inline __u32 scope_of(struct state *state, __u32 interface, const __be32 *client, const __be32 *server)
{
	int is_local = is_link_local(client) || is_link_local(server);
	struct scope *scope;

	if (!state->scoped)
		return is_local ? interface : 0;
	scope = bpf_map_lookup_elem(&kv_scopes, &interface);
	if (!scope)
		return is_local ? interface : 0;
	return is_local ? scope->link : scope->domain;
}

// The ports of a packet that is plain: no tags, no options, no extension headers, no fragment, UDP or TCP, which begins at `l4` and has so many bytes by the IP header;
// 0: it is not, or not to be seen here.
static __always_inline struct ports *plain(void *data, void *end, __u8 *proto, __u32 *l4, __u32 *length)
{
	struct ethhdr *ethernet = data;

	if (data + sizeof(*ethernet) + sizeof(struct iphdr) + sizeof(struct ports) > end)
		return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + sizeof(*ethernet);

		*proto = ip->protocol;
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff) || !ip->tot_len || (*proto != IPPROTO_UDP && *proto != IPPROTO_TCP))
			return 0;
		*l4 = sizeof(*ethernet) + sizeof(*ip);
		*length = bpf_ntohs(ip->tot_len) - sizeof(*ip);
		return (void *)(ip + 1);
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + sizeof(*ethernet);

		if ((void *)(ip + 1) + sizeof(struct ports) > end || ip->version != 6)
			return 0;
		*proto = ip->nexthdr;
		if (*proto != IPPROTO_UDP && *proto != IPPROTO_TCP)
			return 0;
		*l4 = sizeof(*ethernet) + sizeof(*ip);
		*length = bpf_ntohs(ip->payload_len);
		return (void *)(ip + 1);
	}
	return 0;
}

// ---- Sums.

static __always_inline __u32 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u64 pseudo(const struct where *where, __u32 length)
{
	__u64 sum = bpf_htons(where->proto);

	// Of a mapped IPv4 address its ffff counts as nothing.
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)where->src[i] + where->dst[i];
	return sum + bpf_htons(length);
}

// What is from `at` to `end`, as the Internet checksum sums it. A straight loop, in a function that the verifier looks at once and by itself (hence not static): the
// return from a bpf_loop() callback costs more on many machines than what a byte needs.
__noinline int sum_of(struct work *w, __u32 at, __u32 end)
{
	__u64 sum = 0, word;

	if (!w)
		return 0;
	for (__u32 i = 0; i < CHUNK / 8; i++) {
		if (at + 8 > end)
			break;
		word = load64(&w->bytes[at & (CHUNK - 1)]);
		sum += (word & 0xffffffff) + (word >> 32);
		at += 8;
	}
	if (at < end) {
		word = load64(&w->bytes[at & (CHUNK - 1)]) & ~0ull >> (64 - 8 * (end - at) & 63);
		sum += (word & 0xffffffff) + (word >> 32);
	}
	return folded(sum);
}

// Whether this is from 1 to `most`, in a form that the verifiers of kernels before 6.8 or so understand as well: these learn nothing from
// a comparison with 0, nor from one range test of both ends, which clang makes of two comparisons that it sees side by side.
static __always_inline int fits(__u32 *n, __s64 most)
{
	__s64 signed_n = *n;

	asm volatile("" : "+r"(signed_n));
	if (signed_n < 1)
		return 0;
	asm volatile("" : "+r"(signed_n));
	if (signed_n > most)
		return 0;
	*n = signed_n;
	return 1;
}

// The next bytes of the packet, into `bytes`, with zeros behind them.
static __always_inline int take(struct parse *p, int xdp)
{
	struct work *w = p->w;
	__u32 n = p->left;

	if (n > CHUNK)
		n = CHUNK;
	if (!fits(&n, CHUNK) || (xdp ? bpf_xdp_load_bytes(p->context, p->offset, w->bytes, n) :
		       bpf_skb_load_bytes(p->context, p->offset, w->bytes, n)))
		return 0;
	*(__u64 *)&w->bytes[n] = 0;
	w->at = 0;
	w->end = n;
	p->offset += n;
	p->left -= n;
	return 1;
}

static long sum_chunk(__u32 i, struct parse *p)
{
	if (!take(p, 1))
		return 1;
	p->w->sum += (__u32)sum_of(p->w, 0, p->w->end);
	return 0;
}

static long request_chunk(__u32 i, struct parse *p)
{
	if (!take(p, 1))
		return 1;
	bpf_loop(p->w->end, request_byte, p, 0);
	return p->w->lost != 0;
}

static long reply_chunk(__u32 i, struct parse *p)
{
	if (!take(p, 0))
		return 1;
	bpf_loop(p->w->end, reply_byte, p, 0);
	return p->w->lost != 0;
}

// Whether the kernel will take the packet's checksum for right. A packet that never was on a wire has only its pseudo header's.
static __always_inline int is_right(struct parse *p, const struct where *where, __sum16 check)
{
	__u64 sum = pseudo(where, where->end - where->l4);

	if (check == folded(sum))
		return 1;
	if (where->end <= p->w->loaded)
		return folded(sum + (__u32)sum_of(p->w, where->l4, where->end)) == 0xffff;
	p->offset = where->l4;
	p->left = where->end - where->l4;
	p->w->sum = sum;
	bpf_loop(64, sum_chunk, p, 0);
	return !p->left && folded(p->w->sum) == 0xffff;
}
