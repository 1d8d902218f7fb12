// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Answers a get: finds all of its keys, then turns the frame round.
//
//   "get " key SP key CR LF -> each key: set of four entries -> hash, key, epoch, slot's word, end: all as they must be?
//      any other form: the parser of requests looks at it    one is missing: passed, and told to the daemon
//   all there -> sums and lengths -> room made -> blobs copied -> versions as before? -> headers -> XDP_TX
//                                                                     no: all bytes put back, passed

#pragma once

#include "kv_packet.h"

// Eight bytes of the key that is looked for, and of the entry's.
static long key_word(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	__u32 at = i * 8, left;
	__u64 differ;

	if (at >= w->length || at >= MAX_KEY || !p->entry)
		return 1;
	differ = load64(&w->bytes[(w->start + at) & (CHUNK - 1)]) ^ load64(&p->entry->blob[6 + at]);
	left = w->length - at;
	if (left < 8)
		differ <<= 64 - 8 * left;
	w->differ |= differ;
	return differ != 0;
}

// One way of the set: whether it has the key, and may be served now. Then its number is in `number`.
static long way(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	__u32 number = w->way + i, index = w->hash & p->state->slot_mask;
	struct entry *entry = bpf_map_lookup_elem(&kv_values, &number);
	struct slot *slot;
	__u64 version;

	if (!entry)
		return 1;
	version = *(volatile __u64 *)&entry->version;
	if (entry->hash != w->hash || version & 1 || entry->key_length != w->length || entry->epoch != w->epoch)
		return 0;
	p->entry = entry;
	w->differ = 0;
	bpf_loop((MAX_KEY + 7) / 8, key_word, p, 0);
	if (w->differ)
		return 0;
	slot = bpf_map_lookup_elem(&kv_slots, &index);
	if (!slot || (*(volatile __u64 *)&slot->word ^ entry->word) & ~PENDING || entry->expires_ns <= w->now_ns)
		return 1;
	// Torn reads end here: it is the same entry still.
	if (*(volatile __u64 *)&entry->version != version)
		return 1;
	w->number = number;
	w->version = version;
	return 1;
}

// A key that is not here: told to the daemon when it is missed for the second time, and not too often.
static __always_inline void missed(struct parse *p, __u32 start, __u32 length, __u64 hash)
{
	__u32 index = hash >> 16 & 0xffff, tag = hash >> 32 | 1, *seen = bpf_map_lookup_elem(&kv_seen, &index);
	struct work *w = p->w;
	__u64 now;

	if (!seen)
		return;
	if (*seen != tag) {
		*seen = tag;
		return;
	}
	now = bpf_ktime_get_coarse_ns() / 1000000;
	if (w->window_ms != now) {
		w->window_ms = now;
		w->events = 0;
	}
	if (w->events >= p->state->events_per_ms * 4ull) {
		count(C_EVENT_LOST);
		return;
	}
	w->events++;
	*seen = 0;
	if (length == 0 || length > MAX_KEY)
		return;
	w->event.length = length;
	start &= CHUNK - 1;
	for (__u32 i = 0; i < (MAX_KEY + 7) / 8 - 1; i++)
		((__u64 *)w->event.key)[i] = load64(&w->bytes[start + i * 8]);
	((__u64 *)w->event.key)[31] = load64(&w->bytes[start + 248]);
	count(bpf_ringbuf_output(&kv_events, &w->event, sizeof(w->event), 0) ? C_EVENT_LOST : C_EVENT);
}

// One byte of "get key key CR LF", behind "get ".
static long get_byte(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	__u32 at = w->at, length;
	__u8 c;

	if (at >= w->end)
		return 1;
	c = w->bytes[at & (CHUNK - 1)];
	w->at = at + 1;
	if (c > ' ' && c < 0x7f) {
		w->s.hash = stirred(w->s.hash, c);
		return 0;
	}
	length = at - w->start;
	if ((c != ' ' && c != '\r') || !length || length > MAX_KEY || w->keys >= MAX_GETS)
		return 1;
	if (c == '\r') {
		if (at + 2 != w->end || w->bytes[(at + 1) & (CHUNK - 1)] != '\n')
			return 1;
		w->done = 1;
	}
	if (!w->lost) {
		w->hash = mixed(w->s.hash);
		w->length = length;
		w->number = NONE;
		w->way = (w->hash >> 32 & p->state->set_mask) * WAYS;
		bpf_loop(WAYS, way, p, 0);
		if (w->number == NONE) {
			missed(p, w->start, length, w->hash);
			w->lost = 1;
		}
		w->found[w->keys & (MAX_GETS - 1)] = w->number;
		w->versions[w->keys & (MAX_GETS - 1)] = w->version;
	}
	w->keys++;
	w->s.hash = p->state->seed;
	w->start = at + 1;
	return c == '\r';
}

// Sizes and sums of what was found.
static long get_total(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	__u32 number;
	struct entry *entry;
	__u64 sum;

	if (i >= w->keys)
		return 1;
	number = w->found[i & (MAX_GETS - 1)];
	entry = bpf_map_lookup_elem(&kv_values, &number);
	if (!entry)
		return 1;
	sum = entry->sum;
	// Behind an odd number of bytes they lie the other way round.
	if (w->total & 1)
		sum = (sum << 8 | sum >> 8) & 0xffff;
	w->sum += sum;
	w->total += entry->length;
	return 0;
}

static long get_copy(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	__u32 number, length;
	struct entry *entry;

	if (i >= w->keys)
		return 1;
	number = w->found[i & (MAX_GETS - 1)];
	entry = bpf_map_lookup_elem(&kv_values, &number);
	if (!entry) {
		w->lost = 1;
		return 1;
	}
	length = entry->length;
	asm volatile("" : "+r"(length));
	if (length == 0 || length > MAX_BLOB || length > p->left ||
	    bpf_xdp_store_bytes(p->context, p->offset, entry->blob, length) ||
	    *(volatile __u64 *)&entry->version != w->versions[i & (MAX_GETS - 1)]) {
		w->lost = 1;
		return 1;
	}
	entry->hits++;
	p->offset += length;
	p->left -= length;
	return 0;
}

// Whether the source may be answered.
static __always_inline int may_answer(struct parse *p, const struct where *where)
{
	struct allowed allowed = { .bits = 128 };
	struct bucket *bucket, fresh = {};
	__u64 now;

	__builtin_memcpy(allowed.address, where->src, 16);
	if (!bpf_map_lookup_elem(&kv_local, where->dst) || !bpf_map_lookup_elem(&kv_allow, &allowed)) {
		count(C_GET_DENIED);
		return 0;
	}
	if (!p->state->rate)
		return 1;
	now = bpf_ktime_get_coarse_ns();
	bucket = bpf_map_lookup_elem(&kv_sources, where->src);
	if (!bucket) {
		fresh.at_ns = now;
		bpf_map_update_elem(&kv_sources, where->src, &fresh, BPF_ANY);
		return 1;
	}
	if (now - bucket->at_ns >= 1000000000) {
		bucket->at_ns = now;
		bucket->spent = 0;
	}
	if (bucket->spent >= p->state->rate) {
		count(C_GET_LIMITED);
		return 0;
	}
	bucket->spent++;
	return 1;
}

struct udp {
	__be16 source, destination, length;
	__sum16 check;
};

// Turns the packet round: addresses, ports, lengths, sums. What is written lies on the stack first.
static __always_inline int turn(struct xdp_md *context, struct work *w, const struct where *where, struct udp *udp,
				__u32 payload, __u64 sum)
{
	__u8 ethernet[24]; // and tags
	__u32 length = sizeof(*udp) + payload, l3 = where->l3;
	struct where back = { .proto = IPPROTO_UDP };
	__be16 port = udp->source;

	for (int i = 0; i < 24; i++)
		ethernet[i] = w->bytes[i < 6 ? i + 6 : i < 12 ? i - 6 : i];
	__builtin_memcpy(back.src, where->dst, 16);
	__builtin_memcpy(back.dst, where->src, 16);
	udp->source = udp->destination;
	udp->destination = port;
	udp->length = bpf_htons(length);
	udp->check = 0;
	sum += pseudo(&back, length) + udp->source + udp->destination + udp->length;
	udp->check = ~folded(sum);
	if (!udp->check)
		udp->check = 0xffff;
	if (l3 < 14 || l3 > 22 || bpf_xdp_store_bytes(context, 0, ethernet, l3) ||
	    bpf_xdp_store_bytes(context, where->l4, udp, sizeof(*udp)))
		return 0;
	if (where->family == 4) {
		struct iphdr ip = {
			.version = 4,
			.ihl = 5,
			.tot_len = bpf_htons(length + sizeof(ip)),
			.frag_off = bpf_htons(0x4000),
			.ttl = 64,
			.protocol = IPPROTO_UDP,
			.saddr = where->dst[3],
			.daddr = where->src[3],
		};
		__u64 words = bpf_htons(0x4500) + ip.tot_len + ip.frag_off + bpf_htons(64 << 8 | IPPROTO_UDP);

		words += (__u64)ip.saddr + ip.daddr;
		ip.check = ~folded(words);
		return !bpf_xdp_store_bytes(context, l3, &ip, sizeof(ip));
	} else {
		struct ipv6hdr ip = {
			.version = 6,
			.payload_len = bpf_htons(length),
			.nexthdr = IPPROTO_UDP,
			.hop_limit = 64,
		};

		__builtin_memcpy(&ip.saddr, where->dst, 16);
		__builtin_memcpy(&ip.daddr, where->src, 16);
		return !bpf_xdp_store_bytes(context, l3, &ip, sizeof(ip));
	}
}

// Without it a wrong address would get an answer, where there is no UDP checksum.
static __always_inline int is_header_right(struct xdp_md *context, __u32 at)
{
	__u32 words[5];
	__u64 sum = 0;

	if (bpf_xdp_load_bytes(context, at, words, sizeof(words)))
		return 0;
	for (int i = 0; i < 5; i++)
		sum += words[i];
	return folded(sum) == 0xffff;
}

#define END_SUM (W2('N', 'E') + W2('\r', 'D') + W1('\n'))

// A datagram that is a get and nothing else, its bytes in `bytes`: XDP_TX, or XDP_PASS with not a byte changed.
static __always_inline int get(struct xdp_md *context, struct parse *p, struct where *where, struct udp *udp)
{
	struct work *w = p->w;
	struct state *state = p->state;
	__u32 frame = bpf_xdp_get_buff_len(context), payload = where->l4 + sizeof(*udp), size;
	__u64 sum, epoch = *(volatile __u64 *)&state->epoch, now = bpf_ktime_get_ns();
	__u16 id = *(__u16 *)w->bytes;
	int delta, head = 0;

	if (!state->serving || state->lease_ns <= now || state->blind || state->flush_until_ns > now) {
		count(C_GET_PARKED);
		return XDP_PASS;
	}
	// First the epoch: whoever goes blind, or is blind no more, moves it in between.
	w->epoch = epoch;
	w->now_ns = now;
	w->at = w->start = 12;
	w->s.hash = state->seed;
	w->keys = w->done = w->lost = 0;
	bpf_loop(CHUNK, get_byte, p, 0);
	if (!w->done || w->lost) {
		count(w->lost ? C_GET_MISS : C_GET_OTHER);
		return XDP_PASS;
	}
	if (where->family == 4 && !is_header_right(context, where->l3)) {
		count(C_BAD_CHECKSUM);
		return XDP_PASS;
	}
	if (!may_answer(p, where))
		return XDP_PASS;
	// The header of the datagram: id, 0, 1, 0.
	w->total = 8;
	w->sum = (__u64)id + bpf_htons(1);
	bpf_loop(MAX_GETS, get_total, p, 0);
	size = w->total + 5;
	if (size > MAX_REPLY) {
		count(C_GET_OTHER);
		return XDP_PASS;
	}
	sum = END_SUM;
	if (w->total & 1)
		sum = ((__u64)'E' << 8) + W2('D', 'N') + W2('\n', '\r');
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "sums are written for little-endian machines"
#endif
	sum += w->sum;
	// All of the frame is kept: it may have to be put back.
	asm volatile("" : "+r"(frame));
	if (frame == 0 || frame > CHUNK || bpf_xdp_load_bytes(context, 0, w->bytes, frame))
		return XDP_PASS;
	delta = (int)(payload + size) - (int)frame;
	// Everything is written anew, so room in front is as good as room behind: of a packet from a socket there is often no other.
	if (bpf_xdp_adjust_tail(context, delta)) {
		if (delta <= 0 || delta > MAX_HEAD || bpf_xdp_adjust_head(context, -delta)) {
			count(C_NO_ROOM);
			return XDP_PASS;
		}
		head = delta;
	}
	p->offset = payload + 8;
	p->left = MAX_REPLY;
	bpf_loop(MAX_GETS, get_copy, p, 0);
	if (!w->lost) {
		static const char end[8] = "END\r\n";
		char tail[8];
		__be16 frame_head[4] = { id, 0, bpf_htons(1), 0 };

		__builtin_memcpy(tail, end, 8);
		if (p->offset + 5 == payload + size && !bpf_xdp_store_bytes(context, p->offset, tail, 5) &&
		    !bpf_xdp_store_bytes(context, payload, frame_head, 8) && turn(context, w, where, udp, size, sum)) {
			count(C_GET_HIT);
			count_more(C_KEYS_HIT, w->keys);
			return XDP_TX;
		}
	}
	// An entry was written meanwhile. Everything goes back to where it was.
	count(C_RACED);
	if (head ? bpf_xdp_adjust_head(context, head) : bpf_xdp_adjust_tail(context, -delta))
		return XDP_DROP;
	frame &= 0xfff;
	if (frame > 0 && frame <= CHUNK && !bpf_xdp_store_bytes(context, 0, w->bytes, frame))
		return XDP_PASS;
	return XDP_DROP;
}
