// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// What commands are, and what each does to slots and to a connection's counts; kv_requests.h reads them.

#pragma once

#include "kv.h"

enum { P_START, P_LINE, P_EOL, P_REST, P_SKIP, P_CR, P_LF, P_HEAD, P_EXTRAS, P_KEY, P_LOST };
enum { ASCII = 1, BINARY = 2 };
// Flags of a line, and of a token of it.
enum { F_QUIET = 1, F_BASE64 = 2, F_INVALID = 4, F_WRITES = 8, F_DELAY = 16, F_OTHER = 32, F_MINUS = 64, F_ODD = 128 };
// Of a line that a value may follow: memcached refuses it, and the next line is a command; or it does the one or the other, by its version.
enum { L_REFUSED = 1, L_ODD = 2 };
// The longest value that memcached takes a line for, its line end not counted; and the longest number that is read for sure.
#define MAX_LENGTH 0x7ffffffd
#define MAX_DIGITS 18
enum {
	K_NONE,
	K_READ, // answered in one unit; the rest of the line is of no interest
	K_BARRIER, // the same, by a line of its own kind: what was before it is executed
	K_QUIT,
	K_STORE,
	K_CAS,
	K_ARITH,
	K_DELETE,
	K_GAT,
	K_FLUSH,
	K_VERBOSE,
	K_TUNE, // what changes no value, and is answered by one line
	K_CRAWLER, // the same, unless it prints
	K_STATS,
	K_DEBUG, // me
	K_MG,
	K_MS,
	K_MD,
};

struct parse {
	struct work *w;
	struct state *state;
	struct conn *conn; // none: a datagram
	void *context;
	struct entry *entry; // that is compared
	__u32 offset, left;
};

#define W1(a) ((__u64)(a))
#define W2(a, b) (W1(a) << 8 | (b))
#define W3(a, b, c) (W2(a, b) << 8 | (c))
#define W4(a, b, c, d) (W3(a, b, c) << 8 | (d))
#define W5(a, b, c, d, e) (W4(a, b, c, d) << 8 | (e))
#define W6(a, b, c, d, e, f) (W5(a, b, c, d, e) << 8 | (f))
#define W7(a, b, c, d, e, f, g) (W6(a, b, c, d, e, f) << 8 | (g))
#define W8(a, b, c, d, e, f, g, h) (W7(a, b, c, d, e, f, g) << 8 | (h))

#define NOREPLY W7('n', 'o', 'r', 'e', 'p', 'l', 'y')

// What a word is, and under which name it is counted.
#define KNOWN(n, chars, kind, name)       \
	if (word == W##n chars) \
		return (kind) | (name) << 8

static __always_inline __u16 command_of(__u64 word, __u32 length)
{
	switch (length) {
	case 2:
		KNOWN(2, ('m', 'g'), K_MG, N_MG);
		KNOWN(2, ('m', 's'), K_MS, N_MS);
		KNOWN(2, ('m', 'd'), K_MD, N_MD);
		KNOWN(2, ('m', 'a'), K_MD, N_MA);
		KNOWN(2, ('m', 'n'), K_BARRIER, N_MN);
		KNOWN(2, ('m', 'e'), K_DEBUG, N_ME);
		break;
	case 3:
		KNOWN(3, ('g', 'e', 't'), K_READ, N_GET);
		KNOWN(3, ('s', 'e', 't'), K_STORE, N_SET);
		KNOWN(3, ('a', 'd', 'd'), K_STORE, N_ADD);
		KNOWN(3, ('c', 'a', 's'), K_CAS, N_CAS);
		KNOWN(3, ('g', 'a', 't'), K_GAT, N_GAT);
		KNOWN(3, ('l', 'r', 'u'), K_TUNE, N_LRU);
		break;
	case 4:
		KNOWN(4, ('g', 'e', 't', 's'), K_READ, N_GETS);
		KNOWN(4, ('b', 'g', 'e', 't'), K_READ, N_GET);
		KNOWN(4, ('g', 'a', 't', 's'), K_GAT, N_GATS);
		KNOWN(4, ('i', 'n', 'c', 'r'), K_ARITH, N_INCR);
		KNOWN(4, ('d', 'e', 'c', 'r'), K_ARITH, N_DECR);
		KNOWN(4, ('q', 'u', 'i', 't'), K_QUIT, N_QUIT);
		break;
	case 5:
		KNOWN(5, ('t', 'o', 'u', 'c', 'h'), K_ARITH, N_TOUCH);
		KNOWN(5, ('s', 't', 'a', 't', 's'), K_STATS, N_STATS);
		KNOWN(5, ('s', 'l', 'a', 'b', 's'), K_TUNE, N_SLABS);
		break;
	case 6:
		KNOWN(6, ('a', 'p', 'p', 'e', 'n', 'd'), K_STORE, N_APPEND);
		KNOWN(6, ('d', 'e', 'l', 'e', 't', 'e'), K_DELETE, N_DELETE);
		break;
	case 7:
		KNOWN(7, ('r', 'e', 'p', 'l', 'a', 'c', 'e'), K_STORE, N_REPLACE);
		KNOWN(7, ('p', 'r', 'e', 'p', 'e', 'n', 'd'), K_STORE, N_PREPEND);
		KNOWN(7, ('v', 'e', 'r', 's', 'i', 'o', 'n'), K_READ, N_VERSION);
		break;
	case 8:
		KNOWN(8, ('s', 'h', 'u', 't', 'd', 'o', 'w', 'n'), K_TUNE, N_SHUTDOWN);
		KNOWN(8, ('e', 'x', 't', 's', 't', 'o', 'r', 'e'), K_TUNE, N_EXTSTORE);
		break;
	case 9: // their last eight letters
		KNOWN(8, ('l', 'u', 's', 'h', '_', 'a', 'l', 'l'), K_FLUSH, N_FLUSH);
		KNOWN(8, ('e', 'r', 'b', 'o', 's', 'i', 't', 'y'), K_VERBOSE, N_VERBOSITY);
		break;
	case 11: // their last eight letters
		KNOWN(8, ('_', 'c', 'r', 'a', 'w', 'l', 'e', 'r'), K_CRAWLER, N_CRAWLER);
		break;
	case 14: // their last eight letters
		KNOWN(8, ('m', 'e', 'm', 'l', 'i', 'm', 'i', 't'), K_TUNE, N_MEMLIMIT);
		break;
	}
	return K_NONE;
}

// ---- What a command does to slots.

static __noinline void later(struct state *state, struct slot *slot)
{
	if (!not_before(slot, bpf_ktime_get_ns() + state->settle_ns))
		void_all(state);
	add64(&slot->word, SEQ_ONE);
}

// A mutation of everything: nothing is admitted until its answer.
static __noinline void mutate_all(struct parse *p, int quiet)
{
	struct conn *conn = p->conn;

	if (!conn) {
		count(C_FLUSH);
		void_all(p->state);
		return;
	}
	conn->overflow_upto = conn->asked + 1;
	add32(&conn->overflow_in, 1);
	add64(&p->state->hold, 1);
	add64(&p->state->epoch, 1);
	// Behind what it does: who sees that it was counted sees what it has left.
	count(C_FLUSH);
}

// A mutation of one key. Its answer is the next that the connection gets: callers ask afterwards.
static __noinline void mutate(struct parse *p, __u64 hash, int quiet)
{
	struct conn *conn = p->conn;
	__u32 index = mixed(hash) & p->state->slot_mask, head;
	struct slot *slot = bpf_map_lookup_elem(&kv_slots, &index);
	struct pending *pending;

	if (!slot) {
		mutate_all(p, quiet);
		return;
	}
	if (!conn) {
		// The first one that is answered is the caller's: its answer says when it is executed.
		if (!quiet && !p->w->mutations)
			p->w->first_slot = index;
		else
			later(p->state, slot);
		p->w->mutations++;
		p->w->quiet |= quiet;
		return;
	}
	head = conn->head;
	if (head - conn->tail < RING && !conn->deaf) {
		pending = &conn->ring[head & (RING - 1)];
		pending->slot = index;
		pending->upto = conn->asked + 1;
		add64(&slot->word, SEQ_ONE + 1);
		add32(&conn->head, 1);
	} else {
		count(C_TCP_OVERFLOW);
		// One that no answer may ever tell of keeps its own slot, and not all of them. First the time, then the word: whoever sees the new
		// word sees the time.
		if (quiet && !conn->deaf && not_before(slot, bpf_ktime_get_ns() + 2 * p->state->settle_ns + FAR_NS)) {
			conn->beyond_upto = conn->asked + 1;
			add32(&conn->beyond_in, 1);
		} else {
			conn->overflow_upto = conn->asked + 1;
			add32(&conn->overflow_in, 1);
			add64(&p->state->hold, 1);
		}
		add64(&slot->word, SEQ_ONE);
	}
	// Last: the daemon looks for what is left where this has changed since its last look, and a look that saw it has seen the rest.
	count(C_TCP_MUTATION);
}

// An answer will come, or, of a quiet command, one only if something is wrong (meta: only of some kinds, which are others where it is `mg`).
static __always_inline void asked(struct parse *p, int quiet, int meta, int reads)
{
	struct conn *conn = p->conn;

	if (!conn)
		return;
	if (!quiet) {
		__u32 number = conn->asked + 1;
		__u64 *word = &conn->kinds[number / 64 & (KINDS / 64 - 1)], bit = 1ull << (number & 63);

		*word = meta ? *word | bit : *word & ~bit;
		add32(&conn->asked, 1);
	} else if (reads) {
		conn->mg_quiet_upto = conn->asked + 1;
	} else if (meta) {
		conn->meta_quiet_upto = conn->asked + 1;
	} else {
		conn->quiet_upto = conn->asked + 1;
	}
}

// A barrier has been asked for. What is written is there before its number counts.
static __always_inline void barrier_asked(struct conn *conn)
{
	__u32 number;

	if (!conn)
		return;
	number = conn->mn_asked;
	if (number - conn->mn_answered >= BARRIERS)
		conn->mn_off = 1;
	if (conn->mn_off)
		return;
	conn->mn_upto[number & (BARRIERS - 1)] = conn->asked;
	add32(&conn->mn_asked, 1);
}

static __always_inline void lost(struct parse *p)
{
	p->w->s.phase = P_LOST;
	p->w->lost = 1;
}

// Something in a line is not as it should be. Of a connection nothing is followed from here on; a datagram is read on, and all is void.
static __always_inline void wrong(struct parse *p, __u8 line)
{
	if (p->conn) {
		lost(p);
		return;
	}
	p->w->wrong = 1;
	p->w->s.line |= line;
}

static __noinline void delayed_flush(struct parse *p, __u64 seconds)
{
	__u64 until;

	// Beyond 30 days it is a date, which is not known here.
	if (seconds > 2592000)
		seconds = 2592000;
	// It may begin to wait only when it is executed.
	until = bpf_ktime_get_ns() + p->state->settle_ns + (seconds + 2) * 1000000000ull;
	for (int i = 0; i < 8; i++) {
		__u64 old = p->state->flush_until_ns;

		if (old >= until || __sync_val_compare_and_swap(&p->state->flush_until_ns, old, until) == old)
			return;
	}
	// Eight others at once: nothing is served any more until somebody looks.
	add64(&p->state->blind, 1);
}
