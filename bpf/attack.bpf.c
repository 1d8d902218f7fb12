// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// An attack for `tidemill scenario`: makes each frame of a `BPF_PROG_TEST_RUN` with live frames a packet of the next source, and sends it out of the
// interface that the run names, at a rate. The frame is Ethernet, IPv4 without options or IPv6, and UDP or TCP, as the caller has written it for the
// source whose varying bits are zero. What a source adds to a checksum is taken away again elsewhere, so that all checksums stay right: in
// the IPv4 identification, and in the first bytes of UDP's payload or TCP's sequence and acknowledgement numbers, which begin as ones.
// While it is too early for a packet, frames are dropped: that takes time, and is how it waits.
// Made into attack.bpf.o by `cargo xtask bpf`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct attack {
	__u64 gap; // between two packets, in 1/1024 ns
	__u64 late; // by which it may be behind its time and make up for it, ns
	__u64 until; // the time (CLOCK_MONOTONIC) at which it is over
	__u64 varies; // the varying bits of the source's last 8 bytes, or of its 4, host order
	__u64 sources; // how many there are, a power of two, less one
	__u64 due; // when the next packet is due, in 1/1024 ns
	__u64 serial;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct attack);
} attack SEC(".maps");

// Numbers in no order (splitmix64).
static __always_inline __u64 scatter(__u64 number)
{
	number += 0x9e3779b97f4a7c15ull;
	number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9ull;
	number = (number ^ (number >> 27)) * 0x94d049bb133111ebull;
	return number ^ (number >> 31);
}

SEC("xdp")
int tidemill_attack(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	__u32 zero = 0, sum;
	struct attack *state = bpf_map_lookup_elem(&attack, &zero);
	__u64 now, varying;

	if (!state || (void *)(ethernet + 1) > end)
		return XDP_ABORTED;
	now = bpf_ktime_get_ns();
	if (now >= state->until || now << 10 < state->due)
		return XDP_DROP;
	if (state->due + (state->late << 10) < now << 10)
		state->due = (now - state->late) << 10;
	state->due += state->gap;
	varying = scatter(state->serial++ & state->sources) & state->varies;

	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);
		__u32 low = varying, *filler;

		if ((void *)(ip + 1) + 16 > end)
			return XDP_ABORTED;
		filler = (void *)(ip + 1) + (ip->protocol == IPPROTO_TCP ? 4 : sizeof(struct udphdr));
		if (!state->varies)
			return XDP_TX;
		ip->saddr = (ip->saddr & ~bpf_htonl(state->varies)) | bpf_htonl(low);
		sum = (low & 0xffff) + (low >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		ip->id = bpf_htons(~sum);
		*filler = bpf_htonl(~low);
	} else {
		struct ipv6hdr *ip = (void *)(ethernet + 1);
		__u64 *source, *filler;

		if ((void *)(ip + 1) + 16 > end)
			return XDP_ABORTED;
		if (!state->varies)
			return XDP_TX;
		source = (void *)&ip->saddr + 8;
		filler = (void *)(ip + 1) + (ip->nexthdr == IPPROTO_TCP ? 4 : sizeof(struct udphdr));
		*source = (*source & ~bpf_cpu_to_be64(state->varies)) | bpf_cpu_to_be64(varying);
		*filler = bpf_cpu_to_be64(~varying);
	}
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
