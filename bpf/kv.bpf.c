// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// A cache in front of an unchanged memcached: GETs over UDP are answered from maps, and every mutation that anybody sends makes
// void what it may change, before memcached has it.
//
//            .------------------------- kv_values <--(value, seq, epoch, end)--- the daemon <--mg-- memcached
//            v                                                                      ^
//  UDP get -> all keys here, and still true? --yes--> answered (XDP_TX)             | kv_events: keys missed twice
//            '--no--> memcached ----------------------------------------------------'
//  UDP, else -> requests -> slot: seq + 1, pending + 1 -> memcached -> reply (TC): pending - 1
//  TCP       -> in order? -> requests, as they come, however they are cut -> the same; replies (TC) -> counted -> pending - 1
//
// **One number per slot.** A key's hash names its slot, and the slot's word counts mutations (`seq`, upper 40 bits) and those among
// them that may yet be executed (`pending`). A value is stored with the `seq` and the `epoch` that were read before memcached was
// asked for it, with nothing pending, and is served only while both are what they were. Two keys on one slot cost a hit, and no truth.
//
// **TCP.** SYN-ACKs (TC) open connections and say both sequence numbers. A segment before which one is missing is dropped, and TCP sends
// it again; bytes that were seen are not looked at twice; so the parser has each byte once. Checksums are looked at first: what the
// kernel drops must not be believed. What cannot be followed is `blind`: nothing is served until it ends.
//
// **What is not here**: values larger than 1,024 bytes, gets with more than 16 keys or replies beyond one datagram, IPv4 options and IPv6
// extension headers (they pass; fragments and extension headers before memcached's port make everything void, as they may carry mutations, and a TCP
// connection that they are of is blind).
//
// Costs, the argument why nothing stale is served, and what it rests on: crates/kv/KERNEL.md. Made into kv.bpf.o by `cargo xtask bpf`.
// Linux 5.18 (bpf_xdp_load_bytes; bpf_loop is 5.17's); 6.1's verifier takes them (`cargo xtask kernels`), with less than 512 bytes of stack
// in any chain of calls, each of them counted as 32 bytes at least.

#include "kv_get.h"

// ---- UDP.

// Where a program works, found again in functions that the verifier looks at by themselves; 0: it cannot be.
static __always_inline int found(struct parse *p, __u32 which)
{
	__u32 zero = 0;

	p->state = bpf_map_lookup_elem(&kv_state, &zero);
	p->w = bpf_map_lookup_elem(&kv_work, &which);
	return p->state && p->w;
}

// A datagram of any requests, whole, with more than a frame header.
__noinline int udp_requests(struct xdp_md *context, struct where *where)
{
	struct parse p = { .context = context };
	struct work *w;
	__u32 index;
	__be16 key_total;
	int half;
	struct slot *slot;
	struct udp_pending *there;

	if (!where || !found(&p, 0))
		return XDP_PASS;
	w = p.w;
	p.offset = where->l4 + sizeof(struct udp);
	p.left = where->end - p.offset;
	if (!take(&p, 1))
		return XDP_PASS;
	w->udp.port = where->sport;
	w->udp.id = *(__u16 *)w->bytes;
	key_total = *(__u16 *)&w->bytes[4];
	__builtin_memcpy(w->udp.client, where->src, 16);
	__builtin_memset(&w->s, 0, sizeof(w->s));
	w->at = 8;
	w->lost = w->refused = w->wrong = w->mutations = w->quiet = 0;
	w->opcode = 0x100;
	w->first_slot = NONE;
	p.conn = 0;
	bpf_loop(CHUNK, request_byte, &p, 0);
	if (!w->lost && p.left)
		bpf_loop(32, request_chunk, &p, 0);
	// For the rest of a value memcached takes the next datagram that the same thread reads, whosever that is: no datagram could be understood any
	// more. So one that ends within a value is dropped, and one of which that cannot be known. Half a line, half a header or key it forgets.
	half = w->lost ? !w->refused : p.left || w->s.phase == P_SKIP || w->s.phase == P_CR || w->s.phase == P_LF;
	if (half && key_total == bpf_htons(1)) {
		count(C_UDP_HALF);
		void_all(p.state);
		return XDP_DROP;
	}
	if (w->lost || w->s.phase != P_START)
		w->wrong = 1;
	if (w->wrong)
		void_all(p.state);
	if (!w->mutations)
		return XDP_PASS;
	count(C_UDP_MUTATION);
	if (w->quiet)
		count(C_UDP_NOREPLY);
	index = w->first_slot;
	if (index == NONE)
		return XDP_PASS;
	slot = bpf_map_lookup_elem(&kv_slots, &index);
	if (!slot)
		return XDP_PASS;
	w->pending.at_ns = bpf_ktime_get_ns();
	w->pending.slot = index;
	w->pending.opcode = w->mutations == 1 && !w->wrong ? w->opcode : 0xffff;
	// First what is pending, then the entry that takes it back; and before its answer can come, when to look for it.
	*(volatile __u64 *)&p.state->udp_mutation_ns = w->pending.at_ns;
	add64(&slot->word, SEQ_ONE + 1);
	if (bpf_map_update_elem(&kv_udp, &w->udp, &w->pending, BPF_NOEXIST)) {
		there = bpf_map_lookup_elem(&kv_udp, &w->udp);
		if (there)
			there->opcode = 0xffff;
		if (!not_before(slot, bpf_ktime_get_ns() + p.state->settle_ns))
			void_all(p.state);
		add64(&slot->word, SEQ_ONE - 1);
	}
	return XDP_PASS;
}

static __always_inline int udp_in(struct xdp_md *context, struct parse *p, struct where *where, __u32 frame)
{
	struct work *w = p->w;
	struct udp udp;
	__u32 length, whole = where->end <= frame, *begin;

	if (where->l4 + sizeof(udp) > frame)
		return XDP_PASS;
	udp = *(struct udp *)&w->bytes[where->l4 & (HEADS - 1)];
	length = bpf_ntohs(udp.length);
	if (!length && where->family == 6) {
		// To the end of the packet; no get of this form is answered.
		length = where->end - where->l4;
		whole = 0;
	}
	if (length < sizeof(udp) || where->l4 + length > where->end)
		return XDP_PASS; // the kernel drops it
	// By its own length; what is behind is nobody's.
	where->end = where->l4 + length;
	if (length < sizeof(udp) + 8 + 1)
		return XDP_PASS;
	// Sequence 0, total 1, reserved 0, "get ", and no IP options.
	begin = (__u32 *)&w->bytes[(where->l4 + sizeof(udp)) & (HEADS - 1)];
	if (whole && frame <= CHUNK && length > sizeof(udp) + 12 && !(begin[0] >> 16) && begin[1] == bpf_htons(1) &&
	    begin[2] == bpf_htonl(W4('g', 'e', 't', ' ')) && (where->family == 6 || where->l4 == where->l3 + 20)) {
		int verdict;

		if (frame > HEADS && fits(&frame, CHUNK) && bpf_xdp_load_bytes(context, 0, w->bytes, frame))
			return XDP_PASS;
		if ((udp.check || where->family == 6) && udp.check != folded(pseudo(where, length)) &&
		    folded(pseudo(where, length) + sum_of(w, where->l4, where->end)) != 0xffff) {
			count(C_BAD_CHECKSUM);
			return XDP_PASS;
		}
		verdict = get(context, p, where, frame);
		if (verdict == XDP_PASS && w->done)
			count_command(N_GET, 0, 0);
		// Of another form: it may be anything.
		if (w->done || verdict != XDP_PASS)
			return verdict;
	}
	return udp_requests(context, where);
}

// ---- TCP.

static __always_inline void blind(struct state *state, struct conn *conn, __u32 why)
{
	// It is counted once, whoever else finds it so at the same moment.
	if (conn->blind || __sync_val_compare_and_swap(&conn->blind, 0, why))
		return;
	add64(&state->blind, 1);
	add64(&state->epoch, 1);
	count(C_TCP_BLIND);
}

// Data of a connection that we do not know: if there is one, it is blind.
static __noinline void unknown(struct xdp_md *context, struct parse *p, const struct where *where, const struct tuple *tuple)
{
	struct bpf_sock_tuple ends = {};
	struct bpf_sock *sock;
	__u32 size = sizeof(ends.ipv4), state;

	if (where->family == 4) {
		ends.ipv4.saddr = where->src[3];
		ends.ipv4.daddr = where->dst[3];
		ends.ipv4.sport = where->sport;
		ends.ipv4.dport = where->dport;
		sock = bpf_skc_lookup_tcp(context, &ends, size, BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(ends.ipv6.saddr, where->src, 16);
		__builtin_memcpy(ends.ipv6.daddr, where->dst, 16);
		ends.ipv6.sport = where->sport;
		ends.ipv6.dport = where->dport;
		sock = bpf_skc_lookup_tcp(context, &ends, sizeof(ends.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sock)
		return;
	state = sock->state;
	p->w->fresh.interface = sock->bound_dev_if;
	bpf_sk_release(sock);
	if (state == BPF_TCP_LISTEN) {
		// Nobody's, or the end of a handshake by cookie that has taken too long.
		void_all(p->state);
		return;
	}
	if (state != BPF_TCP_ESTABLISHED && state != BPF_TCP_CLOSE_WAIT && state != BPF_TCP_SYN_RECV && state != BPF_TCP_NEW_SYN_RECV)
		return;
	p->w->fresh.blind = B_BEFORE;
	p->w->fresh.opened_ns = bpf_ktime_get_ns();
	add64(&p->state->blind, 1);
	add64(&p->state->epoch, 1);
	if (bpf_map_update_elem(&kv_conns, tuple, &p->w->fresh, BPF_NOEXIST)) {
		void_all(p->state);
		add64(&p->state->blind, -1ull);
	} else {
		count(C_TCP_BLIND);
	}
}

// A window is never larger (RFC 7323).
#define MAX_WINDOW (1 << 30)

__noinline int tcp_in(struct xdp_md *context, struct where *where)
{
	struct parse p = { .context = context };
	struct work *w;
	struct tcphdr tcp;
	struct conn *conn;
	__u32 header, length, sequence;
	__u64 now;
	__s32 ahead, beyond;
	int has_options;

	if (!where || !found(&p, 0))
		return XDP_PASS;
	w = p.w;
	has_options = where->family == 4 && where->l4 != where->l3 + sizeof(struct iphdr);
	if (where->l4 + sizeof(tcp) <= w->loaded)
		tcp = *(struct tcphdr *)&w->bytes[where->l4 & (HEADS - 1)];
	else if (bpf_xdp_load_bytes(context, where->l4, &tcp, sizeof(tcp)))
		return XDP_PASS;
	header = tcp.doff * 4;
	// No data that memcached gets, or such as came with a SYN (`opened`). One without any may say where urgent data will be.
	if (header < sizeof(tcp) || where->l4 + header + !tcp.urg > where->end || tcp.syn || tcp.rst || !tcp.ack)
		return XDP_PASS;
	length = where->end - where->l4 - header;
	sequence = bpf_ntohl(tcp.seq);
	__builtin_memcpy(w->tuple.client, where->src, 16);
	__builtin_memcpy(w->tuple.server, where->dst, 16);
	w->tuple.port = where->sport;
	w->tuple.scope = scope_of(p.state, context->ingress_ifindex, where->src, where->dst);
	conn = bpf_map_lookup_elem(&kv_conns, &w->tuple);
	if (!conn) {
		if (length)
			unknown(context, &p, where, &w->tuple);
		return XDP_PASS;
	}
	if (conn->blind)
		return XDP_PASS;
	// The kernel drops it, and not a byte of it may count.
	if (!has_options && where->family == 4 && !is_header_right(w, where->l3)) {
		count(C_BAD_CHECKSUM);
		return XDP_PASS;
	}
	if (__sync_lock_test_and_set(&conn->busy_in, 1)) {
		count(C_TCP_BUSY);
		return XDP_DROP;
	}
	// Its FIN is acknowledged, and nobody reads any more.
	beyond = bpf_ntohl(tcp.ack_seq) - *(volatile __u32 *)&conn->out.next;
	if (beyond == 1 && *(volatile __u32 *)&conn->fin)
		goto pass;
	// What was never sent is acknowledged: the kernel takes none of it.
	ahead = sequence - conn->in.next;
	// Nothing in it is new. An urgent pointer would count all the same, if it were not the one that was seen.
	if (ahead <= 0 && beyond <= 0 && ahead + (__s32)length <= 0 && (ahead || !tcp.urg)) {
		count(tcp.urg ? C_TCP_HOLE : C_TCP_OLD);
		if (tcp.urg)
			goto drop;
		goto pass;
	}
	// Whoever does not know a connection's numbers cannot end that it is followed: what the kernel takes none of is no reason.
	if (ahead > MAX_WINDOW || beyond > MAX_WINDOW) {
		count(C_TCP_HOLE);
		goto drop;
	}
	if (!is_right(&p, where, tcp.check)) {
		count(C_BAD_CHECKSUM);
		goto drop;
	}
	if (ahead > 0 || beyond > 0) {
		now = bpf_ktime_get_coarse_ns();
		if (!conn->hole_since_ns)
			conn->hole_since_ns = now;
		if (now - conn->hole_since_ns > 3000000000ull) {
			// It, or the answer, has come another way.
			blind(p.state, conn, B_HOLE);
			goto pass;
		}
		count(C_TCP_HOLE);
		goto drop;
	}
	if (tcp.urg || has_options || conn->part) {
		// A byte of it is not in the stream that memcached reads; of options the kernel takes some, and drops others with what is behind them; what is next to
		// each other in a stream of several connections comes by one or another.
		blind(p.state, conn, conn->part ? B_PART : B_ODD);
		goto pass;
	}
	conn->hole_since_ns = 0;
	p.conn = conn;
	p.offset = where->l4 + header - ahead;
	p.left = length + ahead;
	w->s = conn->in;
	w->lost = 0;
	if (where->end <= w->loaded) {
		// Short, as most are: it is here already.
		w->at = p.offset;
		w->end = where->end;
		p.left = 0;
		bpf_loop(HEADS, request_byte, &p, 0);
	} else {
		bpf_loop(64, request_chunk, &p, 0);
	}
	w->s.next = sequence + length;
	conn->in = w->s;
	if (w->lost || p.left)
		blind(p.state, conn, B_REQUEST);
pass:
	__sync_lock_test_and_set(&conn->busy_in, 0);
	return XDP_PASS;
drop:
	__sync_lock_test_and_set(&conn->busy_in, 0);
	return XDP_DROP;
}

// How long the kernel may keep pieces of a packet at most (ipfrag_time and ip6frag_time are less).
#define REASSEMBLY_NS 600000000000ull

// A segment that is not read as a whole. What is in it memcached executes as late as its client reads answers, and not within a time, as a datagram: its connection is
// not followed any more. Not for a number that cannot be its own; what begins before it may end behind it.
static __noinline void segment_in_part(struct xdp_md *context, struct parse *p, const struct where *where)
{
	struct work *w = p->w;
	struct {
		struct ports ports;
		__be32 sequence;
	} head;
	struct conn *conn;
	__s32 ahead;

	if (bpf_xdp_load_bytes(context, where->l4, &head, sizeof(head)))
		return;
	__builtin_memcpy(w->tuple.client, where->src, 16);
	__builtin_memcpy(w->tuple.server, where->dst, 16);
	w->tuple.port = where->sport;
	w->tuple.scope = scope_of(p->state, context->ingress_ifindex, where->src, where->dst);
	conn = bpf_map_lookup_elem(&kv_conns, &w->tuple);
	if (!conn)
		return;
	ahead = bpf_ntohl(head.sequence) - conn->in.next;
	if (ahead > -65536 && ahead <= MAX_WINDOW)
		blind(p->state, conn, B_ODD);
}

// A packet that is not read as a whole: where it may carry a mutation all is void. Of fragments the first says for which port they are; what the last to come
// completes is executed then, so a later one counts as long as a first one for memcached may wait for it. Were pieces to overlap, the kernel takes none of them.
static __always_inline void in_part(struct xdp_md *context, struct parse *p, const struct where *where)
{
	__u64 now = bpf_ktime_get_ns();

	if (where->part == FIRST && where->dport != p->state->port)
		return;
	if (where->part == LATER && p->state->fragments_until_ns <= now)
		return;
	if (where->cut)
		p->state->fragments_until_ns = now + REASSEMBLY_NS;
	if (where->part == FIRST && where->proto == IPPROTO_TCP)
		segment_in_part(context, p, where);
	void_all(p->state);
}

// Whether this datagram is one get of one key that is surely not here, and no key is to be told now: it passes, and nothing else of it is looked at. Its bytes are
// those that memcached gets, by the UDP length, whatever else is wrong with it. What a miss costs is mostly code that the processor does not have at hand, so this is
// short, and by itself.
static __always_inline int is_missed(struct state *state, struct ports *ports, void *end)
{
	struct udp *udp = (void *)ports;
	__u8 *key = (__u8 *)(udp + 1) + 12, c = 0;
	__u64 hash = state->seed, *tags, differ, word;
	__u32 *begin = (__u32 *)(udp + 1), set, n = 0, zero = 0;
	struct told *told;
	int is_empty;

	if ((void *)key > end || begin[0] >> 16 || begin[1] != bpf_htons(1) || begin[2] != bpf_htonl(W4('g', 'e', 't', ' ')))
		return 0;
	// A lease that is over, or a flush that waits, in the daemon's time, which is not ahead of ours: to pass is right in any case, and the rest is how it is counted.
	if (!state->serving || state->blind || state->flush_until_ns + LEASE_NS > state->lease_ns)
		return 0;
	told = bpf_map_lookup_elem(&kv_told, &zero);
	if (!told || told->window != window_of(state) || told->events < state->events)
		return 0;
	is_empty = *(volatile __u64 *)&state->kept_epoch != *(volatile __u64 *)&state->epoch;
	if (is_empty) {
		// No value is true: which key it is does not matter, only where it ends.
		for (__u32 i = 0; i < MAX_KEY / 8; i++) {
			if ((void *)(key + n + 8) > end)
				break;
			word = load64(key + n);
			// Has it a byte up to ' ', or from 0x7f on?
			if (((word | (word + EACH(0x01)) | ~(word + EACH(0x5f))) & EACH(0x80)))
				break;
			n += 8;
		}
		for (__u32 i = 0; i < 8; i++) {
			if ((void *)(key + n + 2) > end)
				return 0;
			c = key[n];
			if (c <= ' ' || c >= 0x7f)
				break;
			n++;
		}
	} else {
		for (; n <= MAX_KEY; n++) {
			if ((void *)(key + n + 2) > end)
				return 0;
			c = key[n];
			if (c <= ' ' || c >= 0x7f)
				break;
			hash = stirred(hash, c);
		}
	}
	if (!n || n > MAX_KEY || c != '\r' || (void *)(key + n + 2) > end || key[n + 1] != '\n' ||
	    udp->length != bpf_htons(sizeof(*udp) + 12 + n + 2))
		return 0;
	if (!is_empty) {
		hash = mixed(hash);
		set = hash >> 32 & state->set_mask;
		tags = bpf_map_lookup_elem(&kv_tags, &set);
		if (!tags)
			return 0;
		// Has it a lane of zeros?
		differ = *(volatile __u64 *)tags ^ (hash >> 16 & 0xffff) * 0x0001000100010001ull;
		if ((differ - 0x0001000100010001ull) & ~differ & 0x8000800080008000ull)
			return 0;
	}
	// As three counters, each added to by who reads them.
	told->passed++;
	return 1;
}

// Whether a segment that comes has no data, nor anything else that is looked at: most of those that acknowledge answers. `length`: of it.
static __always_inline int is_bare(struct ports *ports, void *end, __u32 length)
{
	struct tcphdr *tcp = (void *)ports;

	if ((void *)(tcp + 1) > end || length > tcp->doff * 4)
		return 0;
	return !tcp->urg;
}

// Whether a packet is surely nothing to look at: for another port, an acknowledgment, or such a get. By itself: its stack counts in no chain of calls.
__noinline int passes(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	__u32 zero = 0, l4, length;
	struct state *state = bpf_map_lookup_elem(&kv_state, &zero);
	struct ports *ports;
	__u8 proto;

	if (!state || !state->port)
		return 1;
	ports = plain((void *)(long)context->data, end, &proto, &l4, &length);
	if (!ports)
		return 0;
	if (ports->destination != state->port)
		return 1;
	return proto == IPPROTO_UDP ? is_missed(state, ports, end) : is_bare(ports, end, length);
}

SEC("xdp")
int tidemill_kv(struct xdp_md *context)
{
	struct parse p = { .context = context };
	struct where *where;
	__u32 frame, n;

	if (passes(context) || !found(&p, 0))
		return XDP_PASS;
	frame = n = bpf_xdp_get_buff_len(context);
	if (n > HEADS)
		n = HEADS;
	if (!fits(&n, HEADS) || bpf_xdp_load_bytes(context, 0, p.w->bytes, n))
		return XDP_PASS;
	p.w->loaded = n;
	where = &p.w->where;
	__builtin_memset(where, 0, sizeof(*where));
	if (!locate(p.w, where, n))
		return XDP_PASS;
	if (where->part != WHOLE) {
		in_part(context, &p, where);
		return XDP_PASS;
	}
	if (where->dport != p.state->port)
		return XDP_PASS;
	if (where->proto == IPPROTO_UDP)
		return udp_in(context, &p, where, frame);
	return tcp_in(context, where);
}

// ---- Replies.

enum { GO_ON = -1, SHOT = 2 };

// Whether an ASCII reply is one that only a mutation has.
static __always_inline int of_mutation(const __u8 *reply)
{
	__u32 word = bpf_ntohl(*(__u32 *)reply);

	return (reply[0] >= '0' && reply[0] <= '9') || word == W4('S', 'T', 'O', 'R') || word == W4('N', 'O', 'T', '_') ||
	       word == W4('E', 'X', 'I', 'S') || word == W4('D', 'E', 'L', 'E') || word == W4('T', 'O', 'U', 'C');
}

// An answer later than this may release nothing; then the daemon does.
#define UDP_WAITS_NS 1000000000ull

// Whether an answer may release a mutation: of gets alone none is looked at. In the daemon's time, which is not ahead of ours: without a daemon all are.
static __always_inline int waits(struct state *state)
{
	return *(volatile __u64 *)&state->lease_ns < *(volatile __u64 *)&state->udp_mutation_ns + LEASE_NS + UDP_WAITS_NS;
}

static __always_inline int udp_out(struct __sk_buff *context, const struct where *where)
{
	struct udp_key key = { .port = where->dport };
	struct udp_pending *pending;
	struct slot *slot;
	__u8 reply[16];
	__u32 index;

	if (bpf_skb_load_bytes(context, where->l4 + 8, reply, 13))
		return GO_ON;
	__builtin_memcpy(key.client, where->dst, 16);
	key.id = *(__u16 *)reply;
	if (reply[2] || reply[3])
		return GO_ON; // within a long answer
	pending = bpf_map_lookup_elem(&kv_udp, &key);
	if (!pending)
		return GO_ON;
	if (!(pending->opcode < 0x100 ? reply[8] == 0x81 && reply[9] == pending->opcode :
					pending->opcode == 0x100 && of_mutation(reply + 8)))
		return GO_ON;
	index = pending->slot;
	// Whoever removes the entry takes its mutation back: this, or the daemon.
	if (bpf_map_delete_elem(&kv_udp, &key))
		return GO_ON;
	slot = bpf_map_lookup_elem(&kv_slots, &index);
	if (slot)
		add64(&slot->word, -1ull);
	count(C_UDP_RELEASED);
	return GO_ON;
}

// What options of TCP take at most, and the kind of Multipath TCP's (RFC 8684, 3).
#define MOST_OPTIONS 40
#define MULTIPATH 30

// Whether there is one of these among so many bytes of options; of such as cannot be read it is not known that there is none. By itself: the verifier looks at it once.
__noinline int is_multipath(struct work *w, __u32 length)
{
	__u32 at = 0, bytes;
	__u8 kind;

	if (!w)
		return 1;
	for (int i = 0; i < MOST_OPTIONS; i++) {
		if (at >= length)
			return 0;
		kind = w->bytes[at];
		if (!kind)
			return 0;
		if (kind == MULTIPATH)
			return 1;
		bytes = 1;
		// Of all others but this one the length is told.
		if (kind != 1) {
			bytes = w->bytes[at + 1];
			if (bytes < 2)
				return 1;
		}
		if (bytes > length - at)
			return 1;
		at = (at + bytes) & 63;
	}
	return 0;
}

// Whether the connection that a SYN-ACK opens may be one of several that bring one stream. It is blind with its first byte, and not before: nobody turns the cache off
// by SYNs alone.
static __always_inline int is_part(struct __sk_buff *context, struct work *w, const struct where *where, __u32 header)
{
	__u32 length = header - sizeof(struct tcphdr);

	if (!length)
		return 0;
	// Where headers were, which nobody looks at any more.
	if (!fits(&length, MOST_OPTIONS) || bpf_skb_load_bytes(context, where->l4 + sizeof(struct tcphdr), w->bytes, length))
		return 1;
	return is_multipath(w, length);
}

// `is_early`: what came with the SYN, which nobody has read, memcached gets behind this.
static __always_inline int opened(struct parse *p, const struct tuple *tuple, const struct tcphdr *tcp, __u32 interface, int part, int is_early)
{
	struct conn *conn = bpf_map_lookup_elem(&kv_conns, tuple), *fresh = &p->w->fresh;
	__u32 in = bpf_ntohl(tcp->ack_seq), out = bpf_ntohl(tcp->seq) + 1;

	fresh->opened_ns = bpf_ktime_get_ns();
	fresh->interface = interface;
	if (conn && (conn->blind == B_EARLY || (conn->in.next == in && conn->out.next == out && !conn->blind)))
		return GO_ON; // sent again
	// The one before with these ends: what it sent may not be executed yet. The daemon sees to it; TCP tries again. Where there is none, nothing
	// is served, and the next one asks what became of it.
	if (conn && (is_early || p->state->lease_ns + p->state->settle_ns < fresh->opened_ns)) {
		blind(p->state, conn, is_early ? B_EARLY : B_AGAIN);
		return GO_ON;
	}
	if (conn && (conn->blind || conn->deaf || conn->head != conn->tail || conn->overflow_in != conn->overflow_out ||
		     conn->beyond_in != conn->beyond_out)) {
		count(C_TCP_BUSY);
		return SHOT;
	}
	// The rest of it is never written, and stays 0.
	fresh->in.next = fresh->first = in;
	fresh->out.next = out;
	fresh->part = part;
	if (!bpf_map_update_elem(&kv_conns, tuple, fresh, BPF_ANY))
		count(C_TCP_OPENED);
	if (!is_early)
		return GO_ON;
	conn = bpf_map_lookup_elem(&kv_conns, tuple);
	if (conn)
		blind(p->state, conn, B_EARLY);
	else
		void_all(p->state); // by the time that this is over the daemon knows it
	return GO_ON;
}

static __always_inline int tcp_out(struct __sk_buff *context, struct parse *p, const struct where *where)
{
	struct work *w = p->w;
	struct tuple tuple = {};
	struct tcphdr tcp;
	struct conn *conn;
	struct bpf_sock *sock;
	__u32 header, length, sequence;
	__s32 ahead, beyond;

	if (bpf_skb_load_bytes(context, where->l4, &tcp, sizeof(tcp)))
		return GO_ON;
	__builtin_memcpy(tuple.client, where->dst, 16);
	__builtin_memcpy(tuple.server, where->src, 16);
	tuple.port = where->dport;
	tuple.scope = scope_of(p->state, context->ifindex, where->dst, where->src);
	if (tcp.syn) {
		if (!tcp.ack)
			return GO_ON;
		// That of a cookie has no socket, or that which listens. Whether it opens one is not known, nor with which of several numbers, and
		// what was known of the one before says nothing of it.
		sock = context->sk;
		if (sock && sock->state != BPF_TCP_LISTEN)
			// Of others there is no connection yet (NEW_SYN_RECV).
			return opened(p, &tuple, &tcp, sock->bound_dev_if, is_part(context, w, where, tcp.doff * 4),
				      sock->state == BPF_TCP_SYN_RECV);
		conn = bpf_map_lookup_elem(&kv_conns, &tuple);
		if (conn)
			blind(p->state, conn, B_COOKIE);
		return GO_ON;
	}
	header = tcp.doff * 4;
	if (header < sizeof(tcp) || where->l4 + header > context->len)
		return GO_ON;
	length = context->len - where->l4 - header;
	conn = bpf_map_lookup_elem(&kv_conns, &tuple);
	if (!conn || conn->blind)
		return GO_ON;
	// Bytes are acknowledged that were not read (a FIN has a number, too): they have come another way. What resets may have numbers of another connection.
	beyond = bpf_ntohl(tcp.ack_seq) - *(volatile __u32 *)&conn->in.next;
	if (tcp.ack && !tcp.rst && beyond > 1) {
		blind(p->state, conn, B_HOLE);
		return GO_ON;
	}
	if (!length && !tcp.fin)
		return GO_ON;
	// First this: an acknowledgment of it that comes at once finds it so.
	if (tcp.fin)
		conn->fin = 1;
	if (__sync_lock_test_and_set(&conn->busy_out, 1)) {
		count(C_TCP_BUSY);
		return SHOT;
	}
	sequence = bpf_ntohl(tcp.seq);
	ahead = sequence - conn->out.next;
	w->lost = 0;
	if (ahead + (__s32)length <= 0)
		goto out;
	if (conn->deaf || ahead > 0) {
		conn->out.next = sequence + length;
		w->lost = !conn->deaf;
	} else {
		p->conn = conn;
		p->offset = where->l4 + header - ahead;
		p->left = length + ahead;
		w->s = conn->out;
		bpf_loop(64, reply_chunk, p, 0);
		w->s.next = sequence + length;
		conn->out = w->s;
		release_all(p);
		w->lost |= p->left != 0;
	}
	if (w->lost) {
		// It may be the answer to what came another way. Its client does not have it yet, and nothing from before is served any more.
		add64(&p->state->hold, 1);
		add64(&p->state->epoch, 1);
		conn->deaf = 1;
		count(C_TCP_DEAF);
	}
out:
	__sync_lock_test_and_set(&conn->busy_out, 0);
	return GO_ON;
}

SEC("classifier")
int tidemill_kv_out(struct __sk_buff *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct where where = {};
	struct parse p = { .context = context };
	struct ports *ports;
	__u32 n = context->len, zero = 0, l4, length;
	struct state *state = bpf_map_lookup_elem(&kv_state, &zero);
	__u8 proto;

	if (!state || !state->port)
		return GO_ON;
	ports = plain(data, end, &proto, &l4, &length);
	if (ports && (ports->source != state->port || (proto == IPPROTO_UDP && !waits(state))))
		return GO_ON;
	if (!found(&p, 1))
		return GO_ON;
	if (n > HEADS)
		n = HEADS;
	if (!fits(&n, HEADS) || bpf_skb_load_bytes(context, 0, p.w->bytes, n) ||
	    !locate(p.w, &where, n) || where.part != WHOLE || where.sport != p.state->port)
		return GO_ON;
	return where.proto == IPPROTO_UDP ? udp_out(context, &where) : tcp_out(context, &p, &where);
}

// Not on any interface: the daemon runs it on a frame that says what memcached has read (`struct seen`, behind an Ethernet header). 1: it is released.
SEC("classifier")
int tidemill_kv_read(struct __sk_buff *context)
{
	struct releasing releasing;
	struct parse p = {};
	struct seen seen;
	struct conn *conn;
	__s32 more;

	if (!found(&p, 1) || bpf_skb_load_bytes(context, sizeof(struct ethhdr), &seen, sizeof(seen)))
		return 0;
	conn = bpf_map_lookup_elem(&kv_conns, &seen.tuple);
	if (!conn || conn->opened_ns != seen.opened_ns || conn->blind || conn->deaf)
		return 0;
	// Whoever reads its answers releases as well.
	if (__sync_lock_test_and_set(&conn->busy_out, 1))
		return 0;
	releasing.conn = conn;
	releasing.upto = seen.head;
	bpf_loop(RING, release_read, &releasing, 0);
	more = seen.overflow - conn->overflow_out;
	if (more > 0) {
		add64(&p.state->hold, -(__u64)more);
		conn->overflow_out = seen.overflow;
		count_more(C_TCP_READ, more);
	}
	more = seen.beyond - conn->beyond_out;
	if (more > 0) {
		conn->beyond_out = seen.beyond;
		count_more(C_TCP_READ, more);
	}
	__sync_lock_test_and_set(&conn->busy_out, 0);
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
