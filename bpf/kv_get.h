// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Answers a get: finds all of its keys, then turns the frame round.
//
//   frame -> bytes -> "get " key SP key CR LF -> each key: set of four entries -> hash, key, epoch, slot's word, end: all as they must be?
//      any other form: the parser of requests looks at it    one is missing: passed, and told to the daemon
//   all there -> sums and lengths -> room made -> blobs copied -> versions as before? -> headers -> XDP_TX
//                                                                     no: all bytes put back, passed

#pragma once

#include "kv_packet.h"

// Straight loops, in functions that the verifier looks at once and by themselves (hence not static): the return from a bpf_loop() callback
// costs more on many machines than what a byte needs.

// The key that begins at `at`: its length and its hash, and the byte behind it.
__noinline int read_key(struct work *w, __u64 seed)
{
	__u64 hash = seed;
	__u32 at, n;
	__u8 c = 0;

	if (!w)
		return 0;
	at = w->at;
	for (n = 0; n <= MAX_KEY; n++) {
		c = 0;
		if (at + n >= w->end)
			break;
		c = w->bytes[(at + n) & (CHUNK - 1)];
		if (c <= ' ' || c >= 0x7f)
			break;
		hash = stirred(hash, c);
	}
	w->length = n;
	w->hash = mixed(hash);
	return c;
}

// Whether an entry's key is the one that begins at `at`.
__noinline int has_key(struct work *w, struct entry *entry)
{
	__u32 start, length, at = 0;
	__u64 differ;

	if (!w || !entry)
		return 0;
	start = w->at;
	length = w->length;
	for (__u32 i = 0; i < MAX_KEY / 8; i++) {
		if (at + 8 > length)
			break;
		if (load64(&w->bytes[(start + at) & (CHUNK - 1)]) != load64(&entry->blob[6 + at]))
			return 0;
		at += 8;
	}
	if (at >= length || at > MAX_KEY)
		return 1;
	differ = load64(&w->bytes[(start + at) & (CHUNK - 1)]) ^ load64(&entry->blob[6 + at]);
	return differ << (64 - 8 * (length - at) & 63) == 0;
}

// The number of the entry that has the key and may be served now, or NONE. Its length and sum are added up.
static __always_inline __u32 find(struct parse *p, __u32 length, __u64 hash)
{
	struct work *w = p->w;
	__u32 set = hash >> 32 & p->state->set_mask, index = hash & p->state->slot_mask;
	__u64 *tags = bpf_map_lookup_elem(&kv_tags, &set), differ;

	if (!tags)
		return NONE;
	// Most of what is not here ends with this word, and no entry's memory is looked at.
	differ = *(volatile __u64 *)tags ^ (hash >> 16 & 0xffff) * 0x0001000100010001ull;
#pragma unroll
	for (__u32 i = 0; i < WAYS; i++) {
		__u32 number = set * WAYS + i, bytes;
		struct entry *entry;
		struct slot *slot;
		__u64 version, sum;

		if (differ >> (16 * i) & 0xffff)
			continue;
		entry = bpf_map_lookup_elem(&kv_values, &number);
		if (!entry)
			return NONE;
		version = *(volatile __u64 *)&entry->version;
		if (entry->hash != hash || version & 1 || entry->key_length != length || entry->epoch != w->epoch)
			continue;
		if (!has_key(w, entry))
			continue;
		slot = bpf_map_lookup_elem(&kv_slots, &index);
		if (!slot || (*(volatile __u64 *)&slot->word ^ entry->word) & ~PENDING || entry->expires_ns <= w->now_ns)
			return NONE;
		sum = entry->sum;
		bytes = entry->length;
		// Torn reads end here: it is the same entry still.
		if (*(volatile __u64 *)&entry->version != version)
			return NONE;
		// Behind an odd number of bytes they lie the other way round.
		if (w->total & 1)
			sum = (sum << 8 | sum >> 8) & 0xffff;
		w->sum += sum;
		w->total += bytes;
		w->version = version;
		return number;
	}
	return NONE;
}

// The part of the time in which so many keys are told (`events`). By the daemon's last round: no clock has to be read, and one that does not work is told nothing.
static __always_inline __u64 window_of(struct state *state)
{
	return *(volatile __u64 *)&state->lease_ns >> 22;
}

// A key that is not here: told to the daemon when it is missed for the second time, and not too often. Where enough were told nothing is remembered.
static __always_inline void missed(struct parse *p, __u32 start, __u32 length, __u64 hash)
{
	__u32 index = hash >> 16 & 0xffff, tag = hash >> 32 | 1, zero = 0, *seen;
	struct told *told = bpf_map_lookup_elem(&kv_told, &zero);
	__u64 window = window_of(p->state);
	struct work *w = p->w;

	if (!told)
		return;
	if (told->window != window) {
		told->window = window;
		told->events = 0;
	}
	if (told->events >= p->state->events) {
		count(C_EVENT_LOST);
		return;
	}
	seen = bpf_map_lookup_elem(&kv_seen, &index);
	if (!seen)
		return;
	if (*seen != tag) {
		*seen = tag;
		return;
	}
	told->events++;
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

// One key of "get key key CR LF", and what is behind it.
static long get_key(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	int c = read_key(w, p->state->seed);
	__u32 start = w->at, length = w->length;

	if (length == 0 || length > MAX_KEY || (c != ' ' && c != '\r'))
		return 1;
	if (c == '\r') {
		if (start + length + 2 != w->end || w->bytes[(start + length + 1) & (CHUNK - 1)] != '\n')
			return 1;
		w->done = 1;
	}
	if (!w->lost) {
		__u32 number = find(p, length, w->hash);

		if (number == NONE) {
			missed(p, start, length, w->hash);
			w->lost = 1;
		}
		w->found[i & (MAX_GETS - 1)] = number;
		w->versions[i & (MAX_GETS - 1)] = w->version;
	}
	w->at = start + length + 1;
	w->keys = i + 1;
	return c == '\r';
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
	if (!fits(&length, MAX_BLOB) || length > p->left ||
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

// In every network namespace.
#define LOOPBACK 1

static __always_inline int is_loopback(const __be32 *address)
{
	if (address[0] || address[1])
		return 0;
	return (address[2] == V4_MAPPED && (address[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000)) ||
	       (!address[2] && address[3] == bpf_htonl(1));
}

// Whether all sources together have not asked too much. Processors take answers from the second's in blocks, where it has many.
static __always_inline int is_within_total(struct parse *p, __u64 now)
{
	struct state *state = p->state;
	struct work *w = p->w;
	__u64 second = (now / 1000000000) & 0xffffffff, word, block = state->rate_total < 65536 ? 1 : 64;

	if (!state->rate_total)
		return 1;
	if (w->credit && w->credit_s == second) {
		w->credit--;
		return 1;
	}
	word = *(volatile __u64 *)&state->total;
	if (word >> 32 != second) {
		// Where another was first, its number is as good.
		__sync_val_compare_and_swap(&state->total, word, second << 32);
		word = *(volatile __u64 *)&state->total;
	}
	if ((word & 0xffffffff) >= state->rate_total) {
		count(C_GET_TOTAL);
		return 0;
	}
	add64(&state->total, block);
	w->credit = block - 1;
	w->credit_s = second;
	return 1;
}

// Whether a frame is of one card's address to another's. What came from a group's address switches and hosts drop, and what goes to one everybody gets.
static __always_inline int is_between_cards(const struct work *w)
{
	return !((w->bytes[0] | w->bytes[6]) & 1);
}

// Whether the source may be answered, by this address, where it came in.
static __always_inline int may_answer(struct xdp_md *context, struct parse *p, const struct where *where)
{
	__u32 interface = context->ingress_ifindex;
	struct bucket *bucket, fresh = { .spent = 1 };
	struct work *w = p->w;
	__u64 now;

	__builtin_memcpy(w->local.address, where->dst, 16);
	w->local.interface = 0;
	if (is_loopback(where->dst) || is_link_local(where->dst))
		w->local.interface = interface;
	w->allowed.bits = sizeof(w->allowed) * 8 - 32;
	w->allowed.interface = interface;
	w->allowed.family = where->family;
	__builtin_memcpy(w->allowed.address, where->src, 16);
	// By any other interface the kernel takes none from loopback addresses.
	if (!is_between_cards(w) || (is_loopback(where->src) && interface != LOOPBACK) ||
	    !bpf_map_lookup_elem(&kv_local, &w->local) || !bpf_map_lookup_elem(&kv_allow, &w->allowed)) {
		count(C_GET_DENIED);
		return 0;
	}
	now = bpf_ktime_get_coarse_ns();
	if (!p->state->rate)
		return is_within_total(p, now);
	__builtin_memcpy(w->source, where->src, 16);
	if (where->family == 6)
		w->source[2] = w->source[3] = 0;
	bucket = bpf_map_lookup_elem(&kv_sources, w->source);
	if (!bucket) {
		fresh.at_ns = now;
		// No room for it: it is not answered unbounded.
		if (bpf_map_update_elem(&kv_sources, w->source, &fresh, BPF_ANY)) {
			count(C_GET_LIMITED);
			return 0;
		}
		return is_within_total(p, now);
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
	return is_within_total(p, now);
}

struct udp {
	__be16 source, destination, length;
	__sum16 check;
};

// Turns the packet round: addresses, ports, lengths, sums. All of it is written, as it may lie elsewhere now. `payload`: bytes, of this sum.
__noinline int turn(struct xdp_md *context, struct work *w, struct where *where, __u32 payload, __u64 sum)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end, *ip;
	__u32 length = sizeof(struct udp) + payload, l3, id = 0;
	struct {
		struct udp udp;
		__be16 frame[4];
	} rest = { .udp = { .length = bpf_htons(length) }, .frame = { 0, 0, bpf_htons(1), 0 } };

	if (!w || !where)
		return 0;
	l3 = where->l3;
	rest.udp.source = where->dport;
	rest.udp.destination = where->sport;
	rest.frame[0] = *(__u16 *)&w->bytes[(where->l4 + sizeof(struct udp)) & (HEADS - 1)];
	sum += pseudo(where, length) + rest.udp.source + rest.udp.destination + rest.udp.length;
	rest.udp.check = ~folded(sum);
	if (!rest.udp.check)
		rest.udp.check = 0xffff;
	asm volatile("" : "+r"(l3));
	if (l3 < 14 || l3 > 22 || data + 22 > end)
		return 0;
	__builtin_memcpy(data, &w->bytes[6], 6);
	__builtin_memcpy(data + 6, &w->bytes[0], 6);
	__builtin_memcpy(data + 12, &w->bytes[12], 2);
	if (l3 >= 18)
		__builtin_memcpy(data + 14, &w->bytes[14], 4);
	if (l3 >= 22)
		__builtin_memcpy(data + 18, &w->bytes[18], 4);
	ip = data + l3;
	if (where->family == 4) {
		struct iphdr header = {
			.version = 4,
			.ihl = 5,
			.tot_len = bpf_htons(length + sizeof(header)),
			.ttl = 64,
			.protocol = IPPROTO_UDP,
			.saddr = where->dst[3],
			.daddr = where->src[3],
		};
		__u64 words = bpf_htons(0x4500) + header.tot_len + bpf_htons(64 << 8 | IPPROTO_UDP);

		// A long one may be cut on its way, and has a number that its pieces are known by.
		if (length + sizeof(header) > SURE_MTU_V4)
			id = bpf_get_prandom_u32() & 0xffff;
		else
			header.frag_off = bpf_htons(0x4000);
		header.id = id;
		words += header.frag_off + id;
		words += (__u64)header.saddr + header.daddr;
		header.check = ~folded(words);
		if (ip + sizeof(header) + sizeof(rest) > end)
			return 0;
		__builtin_memcpy(ip, &header, sizeof(header));
		__builtin_memcpy(ip + sizeof(header), &rest, sizeof(rest));
	} else {
		struct ipv6hdr header = {
			.version = 6,
			.payload_len = bpf_htons(length),
			.nexthdr = IPPROTO_UDP,
			.hop_limit = 64,
		};

		__builtin_memcpy(&header.saddr, where->dst, 16);
		__builtin_memcpy(&header.daddr, where->src, 16);
		if (ip + sizeof(header) + sizeof(rest) > end)
			return 0;
		__builtin_memcpy(ip, &header, sizeof(header));
		__builtin_memcpy(ip + sizeof(header), &rest, sizeof(rest));
	}
	return 1;
}

// Without it a wrong address would get an answer, where there is no UDP checksum.
static __always_inline int is_header_right(const struct work *w, __u32 at)
{
	const __u8 *bytes = &w->bytes[at & (CHUNK - 1)];
	__u64 sum = *(__u32 *)(bytes + 16);

	sum += (load64(bytes) & 0xffffffff) + (load64(bytes) >> 32);
	sum += (load64(bytes + 8) & 0xffffffff) + (load64(bytes + 8) >> 32);
	return folded(sum) == 0xffff;
}

#define END_SUM (W2('N', 'E') + W2('\r', 'D') + W1('\n'))

// Whether an answer of so many bytes, by the IP header, comes through: memcached's own would be cut to what the way takes.
static __always_inline int comes_through(struct xdp_md *context, const struct where *where, __u32 length)
{
	__u32 mtu = length;

	if (where->family == 6)
		return length <= SURE_MTU_V6;
	return length <= SURE_MTU_V4 || !bpf_check_mtu(context, 0, &mtu, 0, 0);
}

// A datagram that begins with "get ", all of its frame in `bytes`: XDP_TX, or XDP_PASS with not a byte changed. Where `done` is 0 then, it is
// no get of this form.
static __always_inline int get(struct xdp_md *context, struct parse *p, struct where *where, __u32 frame)
{
	struct work *w = p->w;
	struct state *state = p->state;
	__u32 payload = where->l4 + sizeof(struct udp), size;
	// The clock of the last tick: what ends does so 20 ms early, and a lease may be that much late.
	__u64 sum, epoch = *(volatile __u64 *)&state->epoch, now = bpf_ktime_get_coarse_ns();
	__u16 id = *(__u16 *)&w->bytes[payload & (CHUNK - 1)];
	int delta, head = 0;

	w->done = w->lost = 0;
	if (!state->serving || state->lease_ns <= now || state->blind || state->flush_until_ns > now) {
		count(C_GET_PARKED);
		return XDP_PASS;
	}
	// First the epoch: whoever goes blind, or is blind no more, moves it in between.
	w->epoch = epoch;
	w->now_ns = now;
	w->at = payload + 12;
	w->end = where->end;
	w->keys = 0;
	// The header of the datagram: id, 0, 1, 0.
	w->total = 8;
	w->sum = (__u64)id + bpf_htons(1);
	bpf_loop(MAX_GETS, get_key, p, 0);
	if (!w->done || w->lost) {
		count(w->lost ? C_GET_MISS : C_GET_OTHER);
		return XDP_PASS;
	}
	if (where->family == 4 && !is_header_right(w, where->l3)) {
		count(C_BAD_CHECKSUM);
		return XDP_PASS;
	}
	if (!may_answer(context, p, where))
		return XDP_PASS;
	size = w->total + 5;
	if (size > MAX_REPLY) {
		count(C_GET_OTHER);
		return XDP_PASS;
	}
	if (!comes_through(context, where, where->l4 - where->l3 + sizeof(struct udp) + size)) {
		count(C_TOO_LONG);
		return XDP_PASS;
	}
	sum = END_SUM;
	if (w->total & 1)
		sum = ((__u64)'E' << 8) + W2('D', 'N') + W2('\n', '\r');
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "sums are written for little-endian machines"
#endif
	sum += w->sum;
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
	bpf_loop(w->keys, get_copy, p, 0);
	if (!w->lost) {
		static const char end[8] = "END\r\n";
		char tail[8];

		__builtin_memcpy(tail, end, 8);
		if (p->offset + 5 == payload + size && !bpf_xdp_store_bytes(context, p->offset, tail, 5) &&
		    turn(context, w, where, size, sum)) {
			count(C_GET_HIT);
			count_command(N_GET, 0, 1);
			count_more(C_KEYS_HIT, w->keys);
			return XDP_TX;
		}
	}
	// An entry was written meanwhile. Everything goes back to where it was.
	count(C_RACED);
	if (head ? bpf_xdp_adjust_head(context, head) : bpf_xdp_adjust_tail(context, -delta))
		return XDP_DROP;
	if (fits(&frame, CHUNK) && !bpf_xdp_store_bytes(context, 0, w->bytes, frame))
		return XDP_PASS;
	return XDP_DROP;
}
