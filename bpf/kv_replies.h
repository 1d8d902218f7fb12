// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Reading replies, byte by byte: how many commands have been answered, and so certainly been executed?
//
// A command that is not quiet gets one unit: the lines up to END or the last VA's value, or one line; of STAT, ITEM, PREFIX and
// VALUE the next line goes on. A unit that may be a quiet command's is not counted while one may be unanswered, and so `answered` may be behind the truth, and
// never ahead of it: an error; HD and VA of a quiet `mg`, which is silent where it misses; NS, EX and NF of a quiet `ms`, `md` or `ma`, which are silent where they
// do what was asked. A reply that no meta command has makes up for them, as it is to the first command that is not meta; and MN does, which is to `mn` and to nothing else.

#pragma once

#include "kv_requests.h"

// Of meta: what a command that is silent then could not say; what one that only reads could not; EN, which no quiet one says.
enum { U_PLAIN, U_ERROR, U_DONE, U_NOT, U_MISS };

static __always_inline void deaf(struct parse *p)
{
	p->w->s.phase = P_LOST;
	p->w->lost = 1;
}

// Goes on to the first command that is not meta.
static long past_meta(__u32 i, struct parse *p)
{
	struct conn *conn = p->conn;
	__u32 next = p->w->next;

	if (!(conn->kinds[next / 64 & (KINDS / 64 - 1)] >> (next & 63) & 1))
		return 1;
	p->w->next = next + 1;
	return 0;
}

static __noinline void unit(struct parse *p, int kind)
{
	struct conn *conn = p->conn;
	__u32 next = conn->answered + 1;
	int quiet = (__s32)(conn->quiet_upto - next) >= 0 && conn->quiet_upto;
	int writes = (__s32)(conn->meta_quiet_upto - next) >= 0 && conn->meta_quiet_upto;
	int reads = (__s32)(conn->mg_quiet_upto - next) >= 0 && conn->mg_quiet_upto;

	if ((kind == U_ERROR && (quiet || writes || reads)) || (kind == U_DONE && reads) || (kind == U_NOT && writes))
		return;
	// A plain reply is to a command that is not meta: what was asked before it has been executed, whether it was counted or not.
	if (kind == U_PLAIN && conn->in.protocol == ASCII && conn->asked - next < KINDS - 64) {
		p->w->next = next;
		bpf_loop(KINDS, past_meta, p, 0);
		next = p->w->next;
	}
	if ((__s32)(conn->asked - next) < 0)
		deaf(p); // an answer to nothing
	else
		conn->answered = next;
}

static __always_inline void barrier_answered(struct parse *p)
{
	struct conn *conn = p->conn;
	__u32 number = conn->mn_answered, upto;

	if (conn->mn_off || (__s32)(conn->mn_asked - number) <= 0) {
		unit(p, U_PLAIN);
		return;
	}
	upto = conn->mn_upto[number & (BARRIERS - 1)];
	conn->mn_answered = number + 1;
	if ((__s32)(upto - conn->answered) <= 0)
		deaf(p); // counted before it was there
	else
		conn->answered = upto;
}

static __always_inline void reply_line(struct parse *p)
{
	struct stream *s = &p->w->s;
	int kind = U_PLAIN;
	__u64 skip = 0;

	s->phase = P_START;
	// What has been gathered is the first token's, and `value` is the length if it has one.
	if (s->first == 2) {
		if (s->word == W2('M', 'N')) {
			barrier_answered(p);
			return;
		}
		if (s->word == W2('V', 'A'))
			skip = s->value + 2;
		if (s->word == W2('V', 'A') || s->word == W2('H', 'D') || s->word == W2('O', 'K')) // before 1.6.10 what HD is now
			kind = U_DONE;
		else if (s->word == W2('N', 'F') || s->word == W2('N', 'S') || s->word == W2('E', 'X'))
			kind = U_NOT;
		else if (s->word == W2('E', 'N'))
			kind = U_MISS;
	} else if (s->first == 4 && (s->word == W4('S', 'T', 'A', 'T') || s->word == W4('I', 'T', 'E', 'M'))) {
		return;
	} else if (s->first == 5 && s->word == W5('V', 'A', 'L', 'U', 'E')) {
		s->skip = s->value + 2;
		s->then = P_START;
		s->phase = P_SKIP;
		return;
	} else if (s->first == 5 && s->word == W5('E', 'R', 'R', 'O', 'R')) {
		kind = U_ERROR;
	} else if (s->first == 6 && s->word == W6('P', 'R', 'E', 'F', 'I', 'X')) {
		return;
	} else if (s->first == 12 && (s->word & 0xffffffffffff) == W6('_', 'E', 'R', 'R', 'O', 'R')) {
		kind = U_ERROR;
	}
	unit(p, kind);
	if (skip) {
		s->skip = skip;
		s->then = P_START;
		if (s->phase != P_LOST)
			s->phase = P_SKIP;
	}
}

static __always_inline void reply_head(struct parse *p, __u8 c)
{
	struct stream *s = &p->w->s;
	__u32 at = s->token++;

	if (at == 0 && c != 0x81)
		deaf(p);
	else if (at == 1)
		s->command = c;
	else if (at == 2 || at == 3)
		s->key_length = s->key_length << 8 | c;
	else if (at >= 8 && at < 12)
		s->number = s->number << 8 | c;
	if (at < 23)
		return;
	s->phase = P_START;
	s->skip = s->number;
	s->then = P_START;
	if (s->skip)
		s->phase = P_SKIP;
	if (!op_in(OP_QUIET, s->command) && !(s->command == 0x10 && s->key_length))
		unit(p, U_PLAIN);
}

// One of a line's bytes that end nothing.
static __always_inline void reply_letter(struct stream *s, __u8 c)
{
	if (!s->token) {
		s->word = s->word << 8 | c;
		if (s->first < 100)
			s->first++;
	}
	if (c >= '0' && c <= '9')
		s->number = s->number * 10 + c - '0';
}

// As many of them as come next. Not static, and by itself: as `letters`.
__noinline int reply_letters(struct work *w)
{
	__u32 at, i;
	__u8 c;

	if (!w)
		return 0;
	at = w->at;
	for (i = 0; i < 64; i++) {
		if (at >= w->end)
			break;
		c = w->bytes[at & (CHUNK - 1)];
		if (c == '\n' || c == ' ' || c == '\r')
			break;
		reply_letter(&w->s, c);
		at++;
	}
	w->at = at;
	return 0;
}

static long reply_byte(__u32 i, struct parse *p)
{
	struct work *w = p->w;
	struct stream *s = &w->s;
	__u32 at = w->at, left;
	__u8 c;

	if (at >= w->end || s->phase == P_LOST)
		return 1;
	if (s->phase == P_SKIP) {
		left = w->end - at;
		if (left > s->skip)
			left = s->skip;
		s->skip -= left;
		w->at = at + left;
		if (!s->skip)
			s->phase = s->then;
		return 0;
	}
	c = w->bytes[at & (CHUNK - 1)];
	w->at = at + 1;
	if (s->phase == P_START) {
		s->token = s->first = 0;
		s->word = s->number = s->value = s->length = s->key_length = 0;
		s->phase = p->conn->in.protocol == BINARY ? P_HEAD : P_LINE;
	}
	if (s->phase == P_HEAD) {
		reply_head(p, c);
		return 0;
	}
	if (c == '\n') {
		reply_line(p);
	} else if (c == ' ' || c == '\r') {
		// The length is the second token of VA, the fourth of VALUE.
		if ((s->token == 1 && s->first == 2) || (s->token == 3 && s->first == 5))
			s->value = s->number;
		// memcached takes a CR within a key: it ends no token.
		if (c == ' ') {
			if (s->token < 100)
				s->token++;
			s->number = 0;
		}
	} else {
		reply_letter(s, c);
		reply_letters(w);
	}
	return 0;
}

// What the answers release.
static long release(__u32 i, struct parse *p)
{
	struct conn *conn = p->conn;
	struct pending *pending;
	struct slot *slot;
	__u32 index;

	if (conn->tail == conn->head)
		return 1;
	pending = &conn->ring[conn->tail & (RING - 1)];
	if ((__s32)(conn->answered - pending->upto) < 0)
		return 1;
	index = pending->slot;
	slot = bpf_map_lookup_elem(&kv_slots, &index);
	if (slot)
		add64(&slot->word, -1ull);
	add32(&conn->tail, 1);
	count(C_TCP_RELEASED);
	return 0;
}

static __always_inline void release_all(struct parse *p)
{
	struct conn *conn = p->conn;
	__u32 in;

	bpf_loop(RING, release, p, 0);
	// First their number, and then what they wait for: that is not older.
	in = __sync_fetch_and_add(&conn->overflow_in, 0);
	if (in != conn->overflow_out && (__s32)(conn->answered - conn->overflow_upto) >= 0) {
		add64(&p->state->hold, -(__u64)(in - conn->overflow_out));
		conn->overflow_out = in;
	}
	in = __sync_fetch_and_add(&conn->beyond_in, 0);
	if (in != conn->beyond_out && (__s32)(conn->answered - conn->beyond_upto) >= 0)
		conn->beyond_out = in;
}

// What the daemon has seen memcached read, of a connection that nobody answers on: so much of each.
struct seen {
	struct tuple tuple;
	__u64 opened_ns;
	__u32 head, overflow, beyond, zero;
};

struct releasing {
	struct conn *conn;
	__u32 upto;
};

static long release_read(__u32 i, struct releasing *r)
{
	struct conn *conn = r->conn;
	struct slot *slot;
	__u32 index;

	if ((__s32)(r->upto - conn->tail) <= 0)
		return 1;
	index = conn->ring[conn->tail & (RING - 1)].slot;
	slot = bpf_map_lookup_elem(&kv_slots, &index);
	if (slot)
		add64(&slot->word, -1ull);
	add32(&conn->tail, 1);
	count(C_TCP_READ);
	return 0;
}
