// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// A load for measurements: makes each frame of a `BPF_PROG_TEST_RUN` with live frames an answer of another amplifier, and sends it
// out of the interface that the run names. The frame is Ethernet, IPv4 without options, UDP, with a source address and a
// checksum of zero; the rest is as the caller has written it. Beside it, what drops without a look, as a ceiling.
// Made into flood.bpf.o by `cargo xtask bpf`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct load {
	__u32 mask; // amplifiers, a power of two, less one
	__u32 source; // the first one's address, host order
	__u32 sum; // of the header's 16-bit words without the source, as they lie in memory
	__u32 serial;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load);
} load SEC(".maps");

SEC("xdp")
int tidemill_flood(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 zero = 0, sum;
	struct load *state = bpf_map_lookup_elem(&load, &zero);

	if (!state || (void *)(ip + 1) > end)
		return XDP_ABORTED;
	// An odd factor visits all of them, in no order that a cache would know.
	ip->saddr = bpf_htonl(state->source + (state->serial++ * 2654435761u & state->mask));
	sum = state->sum + (ip->saddr & 0xffff) + (ip->saddr >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	return XDP_TX;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

SEC("xdp")
int tidemill_drop(struct xdp_md *context)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&dropped, &zero);

	if (count)
		(*count)++;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
