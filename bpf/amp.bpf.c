// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Drops, on the outside interface of a mitigator, what its rules filter: reflected answers that nobody asked for.
//
//   frame -> tags -> IPv4, IPv6 -> UDP from a port in `config` -> tuple -> a rule that has not ended --> drop
//               |         |                                        |             ^      (dry run: count, go on)
//               |         '--- later fragment -------> `pieces`: whose was the first one?
//               '----------- all else: next[0], that is an AF_XDP port's program, or else the kernel
//
// User space learns and decides; here its rules are only repeated. It writes `config`, `rules4` and `rules6`, and reads back
// what rules have kept away (crates/amp/src/offload/xdp). Parsing is that of crates/wire, and tests hold the two together.
// Times are those of bpf_ktime_get_coarse_ns: Linux 5.11. Made into amp.bpf.o by `cargo xtask bpf`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reader.h"
#include "tags.h"

// As in crates/wire: ipv6_ext::MAX_HEADERS.
#define MAX_HEADERS 16
// How long later fragments of a dropped one are known.
#define PIECES_NS 3000000000ull

// Indices of `counts`.
enum { DROPPED, DROPPED_BYTES, WOULD, WOULD_BYTES, COUNTS };

// Flags of `config`.
enum { DRY_RUN = 1 };

struct config {
	__u32 tuple; // how many parts a tuple has, 4 to 1; 0: not told yet
	__u32 flags;
	__u64 ports[1024]; // a bit for each UDP port that answers come from
};

// Tuples; what the tuple mode leaves out is 0.
struct tuple4 {
	__be32 source, destination;
	__be16 source_port, destination_port;
};

struct tuple6 {
	__be32 source[4], destination[4];
	__be16 source_port, destination_port;
};

struct rule {
	__u64 expires_ns;
	__u64 packets, bytes; // kept away
};

// What the fragments of one packet have in common; IPv4 addresses in the last words.
struct packet {
	__be32 source[4], destination[4];
	__be32 id;
	__u32 family;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} config SEC(".maps");

// Memory is taken for the rules that there are, not for those that there may be.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct tuple4);
	__type(value, struct rule);
} rules4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct tuple6);
	__type(value, struct rule);
} rules6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct packet);
	__type(value, __u64); // until when its later fragments go
} pieces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} next SEC(".maps");

struct udp {
	__be16 source, destination, length, checksum;
};

static __always_inline void add(__u32 which, __u64 more)
{
	__u64 *counter = bpf_map_lookup_elem(&counts, &which);

	if (counter)
		*counter += more;
}

static __always_inline void count(const struct config *config, __u64 bytes)
{
	if (config->flags & DRY_RUN) {
		add(WOULD, 1);
		add(WOULD_BYTES, bytes);
	} else {
		add(DROPPED, 1);
		add(DROPPED_BYTES, bytes);
	}
}

static __always_inline int from_amplifier(const struct config *config, __be16 port)
{
	__u32 number = bpf_ntohs(port);

	return config->ports[(number >> 6) & 1023] >> (number & 63) & 1;
}

// Whether a rule is in force. It counts if it is; of the first fragment of a packet, `pieces` hears either way.
static __always_inline int judge(struct rule *rule, const struct packet *fragment, const struct config *config,
				 __u64 bytes)
{
	__u64 now, until;

	if (!rule && !fragment)
		return 0;
	now = bpf_ktime_get_coarse_ns();
	if (!rule || rule->expires_ns <= now) {
		// A new packet with an identification that was used before.
		if (fragment)
			bpf_map_delete_elem(&pieces, fragment);
		return 0;
	}
	// In a dry run user space sees the packet too, and counts it in its own rule.
	if (!(config->flags & DRY_RUN)) {
		__sync_fetch_and_add(&rule->packets, 1);
		__sync_fetch_and_add(&rule->bytes, bytes);
	}
	count(config, bytes);
	until = now + PIECES_NS;
	if (fragment)
		bpf_map_update_elem(&pieces, fragment, &until, BPF_ANY);
	return 1;
}

// A fragment that has no ports: whether it goes with the first one.
static __always_inline int later(const struct packet *packet, const struct config *config, __u64 bytes)
{
	__u64 *until = bpf_map_lookup_elem(&pieces, packet);

	if (!until || *until <= bpf_ktime_get_coarse_ns())
		return 0;
	count(config, bytes);
	return 1;
}

static __always_inline int filtered4(struct reader frame, const struct config *config, __u64 bytes)
{
	struct iphdr *ip = TAKE(&frame, struct iphdr);
	struct packet packet = { .family = 4 };
	struct tuple4 tuple = {};
	struct udp *udp;
	__u32 header, total;
	int fragment;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return 0;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if ((void *)ip + header > frame.end || total < header || ip->protocol != IPPROTO_UDP)
		return 0;
	fragment = ip->frag_off & bpf_htons(0x3fff);
	if (fragment) {
		packet.source[3] = ip->saddr;
		packet.destination[3] = ip->daddr;
		packet.id = ip->id;
		if (ip->frag_off & bpf_htons(0x1fff))
			return later(&packet, config, bytes);
	}
	frame.at = (void *)ip + header;
	udp = TAKE(&frame, struct udp);
	if (!udp || total - header < sizeof(*udp) || !from_amplifier(config, udp->source))
		return 0;
	tuple.source = ip->saddr;
	if (config->tuple > 1)
		tuple.destination = ip->daddr;
	if (config->tuple > 2)
		tuple.source_port = udp->source;
	if (config->tuple > 3)
		tuple.destination_port = udp->destination;
	return judge(bpf_map_lookup_elem(&rules4, &tuple), fragment ? &packet : 0, config, bytes);
}

// What an IPv6 header is, by its number: its length is the one that it names itself (if `named`), times `unit`, and `base`.
// Tables, because the kernel's verifier follows each way through tags and headers for itself, unless it knows nothing of the
// numbers that come out: hence the zero that it cannot know.
static const struct header {
	__u8 extension, named, unit, base;
	__u32 zero;
} headers[256] = {
	[IPPROTO_HOPOPTS] = { 1, 0xff, 8, 8 },
	[IPPROTO_ROUTING] = { 1, 0xff, 8, 8 },
	[IPPROTO_FRAGMENT] = { 1, 0, 0, 8 },
	[IPPROTO_AH] = { 1, 0xff, 4, 8 },
	[IPPROTO_DSTOPTS] = { 1, 0xff, 8, 8 },
};

static __always_inline int filtered6(struct reader frame, const struct config *config, __u64 bytes)
{
	struct ipv6hdr *ip = TAKE(&frame, struct ipv6hdr);
	struct packet packet = { .family = 6 };
	struct tuple6 tuple = {};
	__u32 left, at = sizeof(*ip);
	int fragment = 0;
	struct udp *udp;
	__u8 upper;

	if (!ip || ip->version != 6)
		return 0;
	left = bpf_ntohs(ip->payload_len);
	upper = ip->nexthdr;
	__builtin_memcpy(packet.source, &ip->saddr, 16);
	__builtin_memcpy(packet.destination, &ip->daddr, 16);
	for (int i = 0; i < MAX_HEADERS; i++) {
		const struct header *header = &headers[upper];
		struct extension {
			__u8 next, named;
			__be16 offset;
			__be32 id;
		} *extension;
		__u32 length;
		int is_later;

		if (!header->extension)
			break;
		if (upper == IPPROTO_HOPOPTS && i > 0)
			return 0;
		frame.at = (void *)ip + at;
		extension = TAKE(&frame, struct extension);
		if (!extension)
			return 0;
		length = ((extension->named & header->named) * header->unit + header->base) & 0xfff;
		if (length > left || (upper == IPPROTO_AH && length < 12))
			return 0;
		left -= length;
		at = (at + length + header->zero) & 0x7fff;
		is_later = upper == IPPROTO_FRAGMENT && extension->offset & bpf_htons(0xfff8);
		// The first that says that there are others counts, or else the last.
		if (upper == IPPROTO_FRAGMENT && !fragment) {
			packet.id = extension->id;
			fragment = extension->offset & bpf_htons(0xfff9);
			if (is_later)
				return later(&packet, config, bytes);
		}
		upper = extension->next;
		if (is_later)
			break;
	}
	if (upper != IPPROTO_UDP)
		return 0;
	frame.at = (void *)ip + at;
	udp = TAKE(&frame, struct udp);
	if (!udp || left < sizeof(*udp) || !from_amplifier(config, udp->source))
		return 0;
	__builtin_memcpy(tuple.source, packet.source, 16);
	if (config->tuple > 1)
		__builtin_memcpy(tuple.destination, packet.destination, 16);
	if (config->tuple > 2)
		tuple.source_port = udp->source;
	if (config->tuple > 3)
		tuple.destination_port = udp->destination;
	return judge(bpf_map_lookup_elem(&rules6, &tuple), fragment ? &packet : 0, config, bytes);
}

static __always_inline int filtered(struct xdp_md *context, const struct config *config)
{
	struct reader frame = { (void *)(long)context->data, (void *)(long)context->data_end };
	__u64 bytes = frame.end - frame.at;
	struct ethhdr *ethernet = TAKE(&frame, struct ethhdr);
	__be16 type;

	if (!ethernet)
		return 0;
	type = below(&frame, ethernet);
	if (type == bpf_htons(ETH_P_IP))
		return filtered4(frame, config, bytes);
	if (type == bpf_htons(ETH_P_IPV6))
		return filtered6(frame, config, bytes);
	return 0;
}

SEC("xdp")
int tidemill_amp(struct xdp_md *context)
{
	struct config *settings;
	__u32 zero = 0;

	settings = bpf_map_lookup_elem(&config, &zero);
	if (settings && settings->tuple && filtered(context, settings) && !(settings->flags & DRY_RUN))
		return XDP_DROP;
	bpf_tail_call(context, &next, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
