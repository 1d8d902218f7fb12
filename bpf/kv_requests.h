// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Reading requests, byte by byte, however they are cut: which slot does each command move?
//
//   first byte 0x80: binary, else ASCII                          unknown, malformed: lost (TCP: the connection is blind)
//   line -> tokens -> command: key's hash --act--> slot moved, before memcached has the last byte of the line
//     '-> value of a store: skipped by its length, CR LF
//
// Only what decides where the next command begins is strict: of a store, all of the line. Of others a mistake is memcached's to
// answer, in one line, and their key is moved for nothing.
//
// A datagram is read on behind what memcached surely refuses, as it does itself; all is void then (`wrong`).

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

	count(C_FLUSH);
	if (!conn) {
		void_all(p->state);
		return;
	}
	conn->overflow_upto = conn->asked + 1;
	add32(&conn->overflow_in, 1);
	add64(&p->state->hold, 1);
	add64(&p->state->epoch, 1);
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
	count(C_TCP_MUTATION);
	head = conn->head;
	if (head - conn->tail >= RING || conn->deaf) {
		count(C_TCP_OVERFLOW);
		// One that no answer may ever tell of keeps its own slot, and not all of them. First the time, then the word: whoever sees the new
		// word sees the time.
		if (quiet && !conn->deaf && not_before(slot, bpf_ktime_get_ns() + 2 * p->state->settle_ns + FAR_NS)) {
			conn->beyond_upto = conn->asked + 1;
			add32(&conn->beyond_in, 1);
			add64(&slot->word, SEQ_ONE);
			return;
		}
		conn->overflow_upto = conn->asked + 1;
		add32(&conn->overflow_in, 1);
		add64(&p->state->hold, 1);
		add64(&slot->word, SEQ_ONE);
		return;
	}
	pending = &conn->ring[head & (RING - 1)];
	pending->slot = index;
	pending->upto = conn->asked + 1;
	add64(&slot->word, SEQ_ONE + 1);
	add32(&conn->head, 1);
}

// An answer will come, or, of a quiet command, one only if something is wrong (meta: only of some kinds).
static __always_inline void asked(struct parse *p, int quiet, int meta)
{
	struct conn *conn = p->conn;

	if (!conn)
		return;
	if (!quiet) {
		__u32 number = conn->asked + 1;
		__u64 *word = &conn->kinds[number / 64 & (KINDS / 64 - 1)], bit = 1ull << (number & 63);

		*word = meta ? *word | bit : *word & ~bit;
		add32(&conn->asked, 1);
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

// ---- ASCII and meta.

static __always_inline void fresh_token(struct parse *p)
{
	struct stream *s = &p->w->s;

	s->word = s->number = s->length = 0;
	s->hash = p->state->seed;
	s->flags &= ~(F_OTHER | F_MINUS | F_ODD);
}

static __always_inline void letter(struct stream *s, __u8 c)
{
	if (!s->length)
		s->first = c;
	if (c >= '0' && c <= '9')
		s->number = s->number * 10 + c - '0';
	else if (c == '-' && !s->length)
		s->flags |= F_MINUS;
	else if (c == '+' || (c >= '\t' && c <= '\r'))
		s->flags |= F_OTHER | F_ODD;
	else
		s->flags |= F_OTHER;
	if (s->length < 60000)
		s->length++;
	s->word = s->word << 8 | c;
	s->hash = stirred(s->hash, c);
}

// What memcached makes of a number in a line that a value may follow; 0: it takes it as it is.
static __always_inline __u8 judged(const struct stream *s, __u64 most, int is_time)
{
	int minus = (s->flags & F_MINUS) != 0;

	if (s->flags & F_ODD)
		return L_ODD;
	if (s->flags & F_OTHER || s->length == minus) // a sign alone is no number
		return L_REFUSED;
	if (s->length > MAX_DIGITS)
		return L_ODD;
	// Far below 0 it may be taken for another one.
	if (minus && !is_time)
		return s->number && s->number <= 0x80000000 ? L_REFUSED : L_ODD;
	return s->number > most ? L_ODD : 0;
}

#define HAS(set, c) ((c) >= 64 && (c) < 128 && ((set) >> ((c)-64) & 1))
#define BIT(c) (1ull << ((c)-64))
// Flags of mg that change nothing; flags of ms that are known.
#define MG_READS                                                                                                       \
	(BIT('v') | BIT('f') | BIT('t') | BIT('c') | BIT('s') | BIT('k') | BIT('O') | BIT('q') | BIT('h') | BIT('l') | \
	 BIT('b'))
#define MS_KNOWN                                                                                                        \
	(BIT('b') | BIT('c') | BIT('C') | BIT('E') | BIT('F') | BIT('I') | BIT('k') | BIT('O') | BIT('q') | BIT('T') | \
	 BIT('M'))

static __noinline void meta_flag(struct parse *p)
{
	struct stream *s = &p->w->s;
	__u8 c = s->first;

	if (c < 64 || c > 127) {
		s->flags |= F_WRITES;
		if (s->command == K_MS)
			wrong(p, 0);
		return;
	}
	if (c == 'q')
		s->flags |= F_QUIET;
	if (c == 'b')
		s->flags |= F_BASE64;
	if (c == 'I')
		s->flags |= F_INVALID;
	if (s->command == K_MG && !HAS(MG_READS, c))
		s->flags |= F_WRITES;
	// Its value is skipped all the same.
	if (s->command == K_MS && (!HAS(MS_KNOWN, c) || s->seen & BIT(c)))
		wrong(p, 0);
	s->seen |= BIT(c);
}

// What `lru_crawler` answers by one line.
static __always_inline int crawls(__u64 word, __u32 length)
{
	return (length == 5 && (word == W5('c', 'r', 'a', 'w', 'l') || word == W5('s', 'l', 'e', 'e', 'p'))) ||
	       (length == 6 && word == W6('e', 'n', 'a', 'b', 'l', 'e')) ||
	       (length == 7 && (word == W7('d', 'i', 's', 'a', 'b', 'l', 'e') || word == W7('t', 'o', 'c', 'r', 'a', 'w', 'l')));
}

static __noinline void end_token(struct parse *p)
{
	struct stream *s = &p->w->s;
	__u32 which = s->token;
	int quiet = s->length == 7 && s->word == NOREPLY, is_cas = s->command == K_CAS;
	__u64 most;
	__u8 line = 0;

	if (which < 250)
		s->token = which + 1;
	if (which == 0) {
		__u32 known = command_of(s->word, s->length);

		s->command = known & 0xff;
		count_command(known >> 8, p->conn != 0, 0);
		// Its word stays, for whoever asks why.
		if (s->command == K_NONE) {
			wrong(p, 0);
			if (p->conn)
				return;
		}
		if (s->command <= K_QUIT)
			s->phase = P_REST;
		fresh_token(p);
		return;
	}
	// Whether "noreply" silences these depends on what memcached says to them. `lru_crawler metadump` and `mgdump` print keys.
	if (s->command == K_TUNE || s->command == K_CRAWLER) {
		if (quiet || (which == 1 && s->command == K_CRAWLER && !crawls(s->word, s->length)))
			wrong(p, 0);
		if (s->phase != P_LOST)
			fresh_token(p);
		return;
	}
	// These print keys as they are, and one that came by the binary protocol may have lines in it that look like answers: `cachedump`, `detail`;
	// and `me` of a key that is written in base64.
	if (which == 2 && (s->command == K_STATS || s->command == K_DEBUG)) {
		wrong(p, 0);
		if (p->conn)
			return;
	}
	if (which == 1 && s->command != K_GAT && s->command != K_FLUSH && s->command != K_VERBOSE) {
		s->key_hash = s->hash;
		if (s->length > MAX_KEY && (s->command == K_STORE || s->command == K_CAS || s->command == K_MS))
			wrong(p, L_REFUSED);
		fresh_token(p);
		return;
	}
	switch (s->command) {
	case K_STORE:
	case K_CAS:
		if (which < 5 || (which == 5 && is_cas)) {
			most = which == 2 ? 0xffffffff : which == 3 ? 0x7fffffff : which == 4 ? MAX_LENGTH : ~0ull;
			line = judged(s, most, which == 3);
			if (which == 4)
				s->value = s->number;
		} else if (which > (is_cas ? 6 : 5)) {
			line = L_REFUSED;
		} else if (quiet) {
			s->flags |= F_QUIET;
		}
		if (line)
			wrong(p, line);
		break;
	case K_ARITH:
	case K_DELETE:
	case K_VERBOSE:
		// Only the last token counts.
		s->flags = quiet ? s->flags | F_QUIET : s->flags & ~F_QUIET;
		break;
	case K_FLUSH:
		s->flags = quiet ? s->flags | F_QUIET : s->flags & ~F_QUIET;
		// memcached takes a sign and white space too, and what is behind that: the number is this one, or a smaller one.
		if (which == 1 && !quiet && !(s->flags & F_MINUS)) {
			s->value = s->length > 10 ? 2592000 : s->number;
			if (s->number)
				s->flags |= F_DELAY;
		}
		break;
	case K_GAT:
		if (which > 1)
			mutate(p, s->hash, 0);
		break;
	case K_MS:
		if (which == 2) {
			line = judged(s, MAX_LENGTH, 0);
			if (line)
				wrong(p, line);
			s->value = s->number;
			break;
		}
		// fall through
	case K_MG:
	case K_MD:
		meta_flag(p);
		// More than it reads: of `ms` a value may follow then, or not.
		if (which > 16 && s->command == K_MS)
			lost(p);
		else if (which > 16)
			wrong(p, 0);
		break;
	}
	fresh_token(p);
}

static __always_inline void start_line(struct parse *p)
{
	struct stream *s = &p->w->s;

	s->token = s->flags = s->command = s->line = 0;
	s->seen = s->value = 0;
	s->phase = P_LINE;
	fresh_token(p);
}

static __noinline void end_line(struct parse *p)
{
	struct stream *s = &p->w->s;
	int quiet, meta, value = 0, is_store;

	if (s->phase != P_REST && s->length)
		end_token(p);
	if (s->phase == P_LOST)
		return;
	s->phase = P_START;
	quiet = s->flags & F_QUIET;
	meta = s->command >= K_MG;
	if (s->command == K_MG && s->seen & BIT('b') && s->seen & BIT('k')) {
		// Its answer has the key as it is stored, and one that came by the binary protocol may have lines in it that look like answers.
		wrong(p, 0);
		return;
	}
	is_store = s->command == K_STORE || s->command == K_CAS;
	if ((is_store && s->token < (s->command == K_CAS ? 6 : 5)) || (s->command == K_MS && s->token < 3))
		wrong(p, L_REFUSED);
	// What it refuses it does, whatever else is odd in it.
	if ((is_store || s->command == K_MS) && s->line) {
		if (!(s->line & L_REFUSED))
			lost(p);
		return;
	}
	if (s->phase == P_LOST)
		return;
	// First this, then what it does: whoever sees a slot at rest sees this.
	if (s->flags & F_INVALID)
		p->state->invalid = 1;
	switch (s->command) {
	case K_QUIT:
		return;
	case K_STORE:
	case K_CAS:
		value = 1;
		mutate(p, s->key_hash, quiet);
		break;
	case K_ARITH:
	case K_DELETE:
		if (s->token > 1)
			mutate(p, s->key_hash, quiet);
		break;
	case K_FLUSH:
		if (s->flags & F_DELAY)
			delayed_flush(p, s->value);
		mutate_all(p, quiet);
		break;
	case K_MG:
		if (!(s->flags & F_WRITES) || s->token < 2)
			break;
		// fall through
	case K_MS:
	case K_MD:
		value = s->command == K_MS;
		if (s->flags & F_BASE64)
			mutate_all(p, quiet);
		else
			mutate(p, s->key_hash, quiet);
		break;
	}
	asked(p, quiet, meta);
	if (s->command == K_BARRIER)
		barrier_asked(p->conn);
	if (value) {
		s->skip = s->value;
		s->phase = s->value ? P_SKIP : P_CR;
		s->then = P_CR;
	}
}

// ---- Binary.

#define OP(n) (1ull << (n))
#define OP_LAST 0x24
#define OP_GETS (OP(0x00) | OP(0x09) | OP(0x0c) | OP(0x0d))
#define OP_SETS (OP(0x01) | OP(0x02) | OP(0x03) | OP(0x11) | OP(0x12) | OP(0x13))
#define OP_DELETES (OP(0x04) | OP(0x14))
#define OP_ARITHS (OP(0x05) | OP(0x06) | OP(0x15) | OP(0x16))
#define OP_APPENDS (OP(0x0e) | OP(0x0f) | OP(0x19) | OP(0x1a))
#define OP_TOUCHES (OP(0x1c) | OP(0x1d) | OP(0x1e) | OP(0x23) | OP(0x24))
#define OP_FLUSHES (OP(0x08) | OP(0x18))
#define OP_BARE (OP(0x0a) | OP(0x0b) | OP(0x07) | OP(0x17) | OP(0x20))
#define OP_STATS OP(0x10)
#define OP_SASL (OP(0x21) | OP(0x22))
#define OP_READS (OP_GETS | OP_BARE | OP_STATS | OP_SASL)
#define OP_QUIET                                                                                                     \
	(OP(0x09) | OP(0x0d) | OP(0x11) | OP(0x12) | OP(0x13) | OP(0x14) | OP(0x15) | OP(0x16) | OP(0x17) | OP(0x18) | \
	 OP(0x19) | OP(0x1a) | OP(0x1e) | OP(0x24))
#define OP_WRITES (OP_SETS | OP_DELETES | OP_ARITHS | OP_APPENDS | OP_TOUCHES)

static __always_inline int op_in(__u64 set, __u8 opcode)
{
	return opcode < 64 && set >> (opcode & 63) & 1;
}

// All that decides is known: the header, extras and the key.
static __noinline void binary(struct parse *p)
{
	struct stream *s = &p->w->s;
	__u8 opcode = s->command;
	int quiet = op_in(OP_QUIET, opcode);

	p->w->opcode = opcode;
	// Above those that are known all are one.
	count_command(N_BINARY + (opcode > OP_LAST ? OP_LAST + 1 : opcode), p->conn != 0, 0);
	if (op_in(OP_FLUSHES, opcode)) {
		if (s->first && s->number)
			delayed_flush(p, s->number);
		mutate_all(p, quiet);
	} else if (op_in(OP_WRITES, opcode)) {
		mutate(p, s->hash, quiet);
	} else if (!op_in(OP_READS, opcode)) {
		mutate_all(p, quiet);
	}
	asked(p, quiet, 0);
	s->skip = s->value;
	s->then = P_START;
	s->phase = s->skip ? P_SKIP : P_START;
}

static __always_inline void start_key(struct parse *p)
{
	struct stream *s = &p->w->s;

	s->hash = p->state->seed;
	s->phase = P_KEY;
	s->length = s->key_length;
	if (!s->length)
		binary(p);
}

// Whether a request has the parts that memcached wants of its opcode; of another it closes the connection, or skips what is not there.
static __noinline int is_of_its_form(struct stream *s)
{
	__u8 opcode = s->command, extras = s->first;
	__u32 key = s->key_length;
	int has_value = s->value != 0;

	if (op_in(OP_SETS, opcode))
		return key && extras == 8;
	if (op_in(OP_APPENDS | OP_SASL, opcode))
		return key && !extras;
	if (op_in(OP_GETS | OP_DELETES, opcode))
		return key && !extras && !has_value;
	if (op_in(OP_ARITHS, opcode))
		return key && extras == 20 && !has_value;
	if (op_in(OP_TOUCHES, opcode))
		return key && extras == 4 && !has_value;
	if (op_in(OP_FLUSHES, opcode))
		return !key && (extras == 0 || extras == 4) && !has_value;
	if (op_in(OP_STATS, opcode))
		return !extras && !has_value;
	// Of an unknown one a value is skipped as it should be.
	return !key && !extras && !(op_in(OP_BARE, opcode) && has_value);
}

// Whether memcached answers one that is not of its form by an error, and forgets what is behind it: not an unknown one, nor these two, of which it reads
// the value as requests.
static __noinline int is_refused(struct stream *s)
{
	__u8 opcode = s->command, extras = s->first;

	if (op_in(OP_STATS, opcode))
		return extras != 0;
	if (op_in(OP_TOUCHES, opcode))
		return extras != 4 || !s->key_length;
	return op_in(OP_READS | OP_WRITES | OP_FLUSHES, opcode);
}

static __noinline void head_byte(struct parse *p, __u8 c)
{
	struct stream *s = &p->w->s;
	__u32 at = s->token++;

	if (at == 1)
		s->command = c;
	else if (at == 2)
		s->key_length = c << 8;
	else if (at == 3)
		s->key_length |= c;
	else if (at == 4)
		s->first = c;
	else if (at >= 8 && at < 12)
		s->number = s->number << 8 | c;
	if (at < 23)
		return;
	if (s->key_length > MAX_KEY || s->number < s->key_length + s->first) {
		p->w->refused = 1;
		lost(p);
		return;
	}
	s->value = s->number - s->key_length - s->first;
	if (!is_of_its_form(s)) {
		p->w->refused = is_refused(s);
		lost(p);
		return;
	}
	s->number = 0;
	s->skip = s->first;
	s->phase = P_EXTRAS;
	if (!s->skip)
		start_key(p);
}

// ---- One byte, or as much of a value as is there.

static long request_byte(__u32 i, struct parse *p)
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
		if (!s->protocol)
			s->protocol = c == 0x80 ? BINARY : ASCII;
		if (s->protocol == BINARY) {
			if (c != 0x80) {
				w->refused = 1;
				lost(p);
				return 1;
			}
			s->token = 1;
			s->number = 0;
			s->phase = P_HEAD;
			return 0;
		}
		start_line(p);
	}
	// Before something else it ends no line: memcached takes it for a letter.
	if (s->phase == P_EOL && c != '\n' && !p->conn) {
		w->wrong = 1;
		letter(s, '\r');
		s->phase = P_LINE;
	}
	switch (s->phase) {
	case P_LINE:
		if (c == '\n') {
			end_line(p);
		} else if (c == '\r') {
			s->phase = P_EOL;
		} else if (c == ' ') {
			if (s->length)
				end_token(p);
		} else if (!c) {
			// To memcached the line's text ends here.
			wrong(p, 0);
			if (s->phase == P_LINE && s->length)
				end_token(p);
			if (s->phase == P_LINE)
				s->phase = P_REST;
		} else {
			letter(s, c);
		}
		break;
	case P_EOL:
		if (c == '\n')
			end_line(p);
		else
			lost(p);
		break;
	case P_REST:
		if (c == '\n')
			end_line(p);
		else if (!c)
			wrong(p, 0);
		break;
	// memcached reads these two whatever they are, and refuses the value if they are others.
	case P_CR:
		s->phase = P_LF;
		if (c != '\r')
			wrong(p, 0);
		break;
	case P_LF:
		s->phase = P_START;
		if (c != '\n')
			wrong(p, 0);
		break;
	case P_HEAD:
		head_byte(p, c);
		break;
	case P_EXTRAS:
		s->number = s->number << 8 | c;
		if (!--s->skip)
			start_key(p);
		break;
	case P_KEY:
		s->hash = stirred(s->hash, c);
		if (!--s->length)
			binary(p);
		break;
	}
	return 0;
}
