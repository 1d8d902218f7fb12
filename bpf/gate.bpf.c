// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Drops, on interfaces in front of a Gatekeeper, packets of flows that are declined; forwards those that it does not judge: from behind it, and from the front to where
// the policy says route.
//
//   frame -> in front: to our MAC address -> tags -> IPv4, IPv6 -> source and destination -> a rule that holds --> drop
//     |                      |                |         |                                        |
//     '-- behind ------------'----------------'---------'-- all else ----------------------------'--> forward.h --> redirected
//                                                                                                         |
//                            next[port], an AF_XDP port's program, or else the kernel <-- all else -------'
//
// User space decides; here some of its refusals are repeated, those of flows that send much (crates/gatekeeper/src/offload). A rule holds until its end, and as
// long as its stamp is what two numbers in `words` add up to: one of them changes with anything that may undo many refusals, the other with a decision about one of the flows that
// share it. So user space ends rules by adding to a word, and has no need to find them. What is forwarded hangs on a third number in the same way, which changes with policies and
// interfaces.
//
// Linux 5.11. Made into gate.bpf.o by `cargo xtask bpf`.

#include "forward.h"
#include "tags.h"

// Where things lie in `words`; as in crates/gatekeeper/src/offload/mod.rs. A door is a port all of whose interfaces are in front: its MAC address, and a bit above.
enum { ALL = 0, DOORS = 1, WAYS = 300, SHARDS = 512, WORDS = SHARDS + 4096 };
#define DOOR (1ull << 48)

// The label of destinations whose packets pass without being judged; as in crates/router/src/offload/layout.rs.
#define PASSES 1

struct flow4 {
	__be32 source, destination;
};

struct flow6 {
	__be32 source[4], destination[4];
};

struct rule {
	__u64 expires_ns, stamp, shard;
	__u64 packets; // kept away
};

// The coarse clock is behind by a tick or so; this is behind by more than that.
#define LAG_NS 100000000ull

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WORDS);
	__type(key, __u32);
	__type(value, __u64);
} words SEC(".maps");

// Memory is taken for the rules that there are, not for those that there may be.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow4);
	__type(value, struct rule);
} rules4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct flow6);
	__type(value, struct rule);
} rules6 SEC(".maps");

struct dropped {
	__u64 packets, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dropped);
} dropped SEC(".maps");

static __always_inline __u64 word(__u32 at)
{
	volatile __u64 *word = bpf_map_lookup_elem(&words, &at);

	return word ? *word : 0;
}

// Whether a rule holds; then it counts the packet. Of the two numbers none ever falls, so their sum is that of the stamp only if neither has changed.
static __always_inline int holds(struct rule *rule)
{
	__u64 all, end;

	if (!rule)
		return 0;
	all = word(ALL);
	end = rule->expires_ns;
	if (rule->stamp != all + word(rule->shard))
		return 0;
	// The exact clock, which costs, only where it matters: a packet that comes when its flow may ask again is user space's.
	if (end <= bpf_ktime_get_coarse_ns() + LAG_NS && end <= bpf_ktime_get_ns())
		return 0;
	__sync_fetch_and_add(&rule->packets, 1);
	return 1;
}

static __always_inline int declined4(struct reader frame)
{
	struct iphdr *ip = TAKE(&frame, struct iphdr);
	struct flow4 flow = {};

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return 0;
	flow.source = ip->saddr;
	flow.destination = ip->daddr;
	return holds(bpf_map_lookup_elem(&rules4, &flow));
}

static __always_inline int declined6(struct reader frame)
{
	struct ipv6hdr *ip = TAKE(&frame, struct ipv6hdr);
	struct flow6 flow = {};

	if (!ip || ip->version != 6)
		return 0;
	__builtin_memcpy(flow.source, &ip->saddr, 16);
	__builtin_memcpy(flow.destination, &ip->daddr, 16);
	return holds(bpf_map_lookup_elem(&rules6, &flow));
}

static __always_inline int declined(struct xdp_md *context, __u32 port)
{
	struct reader frame = { (void *)(long)context->data, (void *)(long)context->data_end };
	__u64 door, mac = 0;
	struct ethhdr *ethernet = TAKE(&frame, struct ethhdr);
	__be16 type;

	if (!ethernet)
		return 0;
	door = word(DOORS + (port & 255));
	__builtin_memcpy(&mac, ethernet->h_dest, ETH_ALEN);
	if (door != (mac | DOOR))
		return 0;
	// Whatever the tags are, those that a driver has taken off unseen included: no interface of a door's port is at the back.
	type = below(&frame, ethernet);
	if (type == bpf_htons(ETH_P_IP))
		return declined4(frame);
	if (type == bpf_htons(ETH_P_IPV6))
		return declined6(frame);
	return 0;
}

// What is forwarded goes by policies and interfaces that nobody has changed since.
static __always_inline int is_current(const struct input *input)
{
	return input->stamp == word(WAYS);
}

static __always_inline int is_judged(const struct input *input, __u64 high, __u64 low, const int is_six)
{
	if (!(input->flags & JUDGED))
		return 0;
	if (!input->passes)
		return 1;
	return route(input->passes + (is_six ? SIX : 0), high, low, is_six ? 14 : 2) != PASSES;
}

SEC("xdp")
int tidemill_gate(struct xdp_md *context)
{
	__u32 zero = 0, device = context->ingress_ifindex, place, *port;
	__u64 bytes = (void *)(long)context->data_end - (void *)(long)context->data;
	struct dropped *counted;

	port = bpf_map_lookup_elem(&ports, &device);
	if (!port)
		return XDP_PASS;
	place = *port;
	if (declined(context, place)) {
		counted = bpf_map_lookup_elem(&dropped, &zero);
		if (counted) {
			counted->packets++;
			counted->bytes += bytes;
		}
		return XDP_DROP;
	}
	if (forwarded(context))
		return XDP_REDIRECT;
	bpf_tail_call(context, &next, place);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
