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

#include "kv_commands.h"

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

// As many letters of a token as come next. A straight loop, in a function that the verifier looks at by itself (hence not static): the return from a bpf_loop()
// callback costs more on many machines than what a byte needs.
__noinline int letters(struct work *w)
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
		if (!c || c == '\n' || c == '\r' || c == ' ')
			break;
		letter(&w->s, c);
		at++;
	}
	w->at = at;
	return 0;
}

// The same of what is of no interest before a line's end.
__noinline int rest_of_line(struct work *w)
{
	__u32 at, i;
	__u8 c;

	if (!w)
		return 0;
	at = w->at;
	for (i = 0; i < 256; i++) {
		if (at >= w->end)
			break;
		c = w->bytes[at & (CHUNK - 1)];
		if (!c || c == '\n')
			break;
		at++;
	}
	w->at = at;
	return 0;
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
		// First that it is under way, then for how long: who sees the time sees that it may not be executed yet.
		mutate_all(p, quiet);
		if (s->flags & F_DELAY)
			delayed_flush(p, s->value);
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
	asked(p, quiet, meta, s->command == K_MG);
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

	// Above those that are known all are one.
	count_command(N_BINARY + (opcode > OP_LAST ? OP_LAST + 1 : opcode), p->conn != 0, 0);
	if (op_in(OP_FLUSHES, opcode)) {
		mutate_all(p, quiet);
		if (s->first && s->number)
			delayed_flush(p, s->number);
	} else if (op_in(OP_WRITES, opcode)) {
		// Of a datagram with one mutation it is this one's answer that is waited for.
		p->w->opcode = opcode;
		mutate(p, s->hash, quiet);
	} else if (!op_in(OP_READS, opcode)) {
		mutate_all(p, quiet);
	}
	asked(p, quiet, 0, 0);
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
			letters(w);
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
		else
			rest_of_line(w);
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
