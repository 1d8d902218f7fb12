// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// A load for measurements: makes each frame of a `BPF_PROG_TEST_RUN` with live frames an answer of another amplifier, and sends it
// out of the interface that the run names. The frame is Ethernet, IPv4 without options, UDP, with a source address and a
// checksum of zero; the rest is as the caller has written it. Or it sends whole frames of the caller's in turn: the kernel uses a page
// again as it comes back, so that what a receiver has written into it is still there; with other sources in them, if the caller says so. Or it sends one whole frame, with a number
// drawn at random in it, by a law that the caller has put into a table. Beside it, what drops without a look, as a
// ceiling, and counts.
// Made into flood.bpf.o by `cargo xtask bpf`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct load {
	__u32 mask; // amplifiers, or sources that are put into `frames`, a power of two, less one; 0 beside `frames`: they are sent as they are
	__u32 source; // the first one's address, host order
	__u32 sum; // of the header's 16-bit words without the source, as they lie in memory
	__u32 serial;
	__u32 frames; // how many of `frames` are sent in turn; 0: none of them
	__u32 length; // of each, as of the run's own
	__u32 draws; // entries of `ranks`, a power of two, if the first of `frames` is sent with a number in it; else 0
	__u32 digits; // where in the frame its DIGITS decimal digits are
	__u64 random; // xorshift's state, not 0
};

#define FRAME 256 // bytes at most
#define DIGITS 7
#define DRAWS (1 << 20) // entries at most

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load);
} load SEC(".maps");

struct frame {
	__u8 bytes[FRAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

// The law: number at share (i / draws) of all; one more than `draws`.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DRAWS + 1);
	__type(key, __u32);
	__type(value, __u32);
} ranks SEC(".maps");

#define CHECK (sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, check))
#define SOURCE (sizeof(struct ethhdr) + __builtin_offsetof(struct iphdr, saddr))

// The source of a number. An odd factor visits all of them, in no order that a cache would know.
static __always_inline __u32 source_of(const struct load *state, __u32 serial)
{
	return bpf_htonl(state->source + (serial * 2654435761u & state->mask));
}

// The header's checksum with a source.
static __always_inline __u16 check_of(const struct load *state, __u32 source)
{
	__u32 sum = state->sum + (source & 0xffff) + (source >> 16);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// The first of the caller's frames, with a number that is drawn.
static __always_inline int drawn(struct xdp_md *context, struct load *state)
{
	__u32 zero = 0, at, number, length = state->length, place = state->digits;
	struct frame *frame = bpf_map_lookup_elem(&frames, &zero);
	__u32 *low, *high;
	__u8 digits[DIGITS];
	__u64 x = state->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	state->random = x;
	at = x & (state->draws - 1);
	low = bpf_map_lookup_elem(&ranks, &at);
	at++;
	high = bpf_map_lookup_elem(&ranks, &at);
	if (!frame || !low || !high || length < 1 || length > FRAME)
		return XDP_ABORTED;
	// Where many numbers share an entry, each of them.
	number = *low;
	if (*high > *low)
		number += (__u32)(x >> 32) % (*high - *low);
	for (int i = DIGITS - 1; i >= 0; i--) {
		digits[i] = '0' + number % 10;
		number /= 10;
	}
	if (bpf_xdp_store_bytes(context, 0, frame->bytes, length) || bpf_xdp_store_bytes(context, place, digits, DIGITS))
		return XDP_ABORTED;
	return XDP_TX;
}

// The next of the caller's frames.
static __always_inline int whole(struct xdp_md *context, struct load *state)
{
	__u32 serial = state->serial++, at = serial % state->frames, length = state->length, source;
	struct frame *frame = bpf_map_lookup_elem(&frames, &at);
	__u16 check;

	if (!frame || length < 1 || length > FRAME || bpf_xdp_store_bytes(context, 0, frame->bytes, length))
		return XDP_ABORTED;
	if (!state->mask)
		return XDP_TX;
	source = source_of(state, serial);
	check = check_of(state, source);
	if (bpf_xdp_store_bytes(context, SOURCE, &source, sizeof(source)) ||
	    bpf_xdp_store_bytes(context, CHECK, &check, sizeof(check)))
		return XDP_ABORTED;
	return XDP_TX;
}

SEC("xdp")
int tidemill_flood(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);
	__u32 zero = 0;
	struct load *state = bpf_map_lookup_elem(&load, &zero);

	if (!state)
		return XDP_ABORTED;
	if (state->draws)
		return drawn(context, state);
	if (state->frames)
		return whole(context, state);
	if ((void *)(ip + 1) > end)
		return XDP_ABORTED;
	ip->saddr = source_of(state, state->serial++);
	ip->check = check_of(state, ip->saddr);
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
