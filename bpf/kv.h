// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// What kv.bpf.c and the daemon share (crates/kv/src/kernel/layout.rs has the same in Rust), and the maps.

#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "reader.h"

// A slot's word: mutations seen above, those among them that may yet be executed below. 2^24 of these are more than all
// rings and `kv_udp` hold together.
#define SEQ_ONE (1ull << 24)
#define PENDING (SEQ_ONE - 1)
// Slots by another name: all of them, and none.
#define ALL 0xffffffffu
#define NONE 0xfffffffeu

#define MAX_KEY 250
// "VALUE ", key, flags, length, a value of 1,024 bytes, line ends.
#define MAX_BLOB 1304
#define WAYS 4
// Mutations of one connection that are told apart until they are answered.
#define RING 128
// Barriers (`mn`) of one connection that are told apart until they are answered.
#define BARRIERS 16
// Commands of one connection that are known to be of the meta protocol or not, until they are answered.
#define KINDS 1024
#define CHUNK 2048
// A slot that a quiet mutation beyond the ring has moved waits so long, and twice the time that memcached is given. The daemon counts on a second less.
#define FAR_NS 3000000000ull
// For so long the daemon lets values be served at each of its rounds.
#define LEASE_NS 1000000000ull
// Keys of one get that is answered here, and the payload of one datagram of memcached's.
#define MAX_GETS 16
#define MAX_REPLY 1400
// A packet that every way takes: of IPv6 as a whole, of IPv4 perhaps in fragments that a router makes.
#define SURE_MTU_V4 576
#define SURE_MTU_V6 1280
// Room in front of a frame: XDP_PACKET_HEADROOM, less what the kernel keeps there.
#define MAX_HEAD 192

enum {
	C_GET_HIT, // datagrams answered here
	C_KEYS_HIT,
	C_GET_MISS, // passed: a key is not here
	C_GET_PARKED, // passed: nothing is answered now (no lease, a blind connection, a delayed flush)
	C_GET_DENIED, // passed: the source is on no list, the destination no address of ours, or one of the frame's addresses a group's
	C_GET_LIMITED, // passed: the source asks too much
	C_GET_OTHER, // passed: not of a form that is answered here
	C_RACED, // passed: the entry was written meanwhile
	C_BAD_CHECKSUM, // passed, or for TCP dropped: the kernel would drop it too
	C_UDP_MUTATION,
	C_UDP_NOREPLY,
	C_UDP_RELEASED,
	C_TCP_MUTATION,
	C_TCP_RELEASED,
	C_TCP_OVERFLOW, // more unanswered mutations than a ring holds
	C_FLUSH,
	C_TCP_OPENED,
	C_TCP_HOLE, // dropped: a segment before it is missing; TCP sends it again
	C_TCP_BUSY, // dropped: another processor is reading this connection
	C_TCP_OLD,
	C_TCP_BLIND, // connections whose requests cannot be followed (any more)
	C_TCP_DEAF, // connections whose replies cannot be followed any more
	C_VOID, // everything was made void: a fragment, an unknown command, a full map
	C_EVENT, // keys told to the daemon
	C_EVENT_LOST,
	C_NO_ROOM, // passed: the answer does not fit into the frame's memory
	C_UDP_HALF, // dropped: half a command
	C_TOO_LONG, // passed: the answer is longer than what every way takes
	C_GET_TOTAL, // passed: all sources together ask too much
	C_TCP_READ, // mutations over TCP that nobody answers, and that memcached has read
	COUNTS,
};

// Commands that are counted, each by the way it comes: the words of the text protocols, and opcodes of the binary one.
enum {
	N_OTHER,
	N_GET,
	N_GETS,
	N_GAT,
	N_GATS,
	N_SET,
	N_ADD,
	N_REPLACE,
	N_APPEND,
	N_PREPEND,
	N_CAS,
	N_INCR,
	N_DECR,
	N_TOUCH,
	N_DELETE,
	N_FLUSH,
	N_MG,
	N_MS,
	N_MD,
	N_MA,
	N_ME,
	N_MN,
	N_STATS,
	N_VERSION,
	N_VERBOSITY,
	N_QUIT,
	N_LRU,
	N_CRAWLER,
	N_SLABS,
	N_MEMLIMIT,
	N_SHUTDOWN,
	N_EXTSTORE,
	N_BINARY, // and the opcode, to 0x24; then all others
	COMMANDS = N_BINARY + 64,
};

// Why a connection is blind.
enum {
	B_BEFORE = 1, // it was not seen from its start
	B_REQUEST, // a request that is not understood, or whose answers could not be
	B_ODD, // urgent data, IP options, a segment in parts
	B_HOLE, // a segment, or what was acknowledged, has come another way
	B_COOKIE, // opened by a cookie
	B_AGAIN, // one with the same ends was not taken leave of
	B_PART, // it may be one of several that bring one stream (Multipath TCP)
	B_EARLY, // its first bytes came with the SYN (TCP Fast Open)
};

// What the daemon and the programs tell each other. Mapped into the daemon.
struct state {
	__u64 epoch;
	__u64 lease_ns; // until then the daemon answers for what is served
	__u64 not_before_ns; // nothing is admitted until then
	__u64 flush_until_ns; // nothing is served or admitted until then: a delayed flush
	__u64 blind; // connections
	__u64 hold; // mutations of everything, not yet known to be executed
	__u64 seed;
	__u64 settle_ns;
	__u64 rate; // answered datagrams a second for one source; 0: no limit
	__u32 slot_mask, set_mask;
	__be16 port;
	__u16 serving; // 0: only watch
	__u32 events; // missed keys that are told, on each processor in 2^22 ns
	__u64 kept_epoch; // the newest that a value was stored under: with another `epoch` no value is true
	__u64 invalid; // somebody has made an item stale by meta commands: asking by `mg` could take what its client is to win
	__u64 scoped; // 0: `kv_scopes` is empty
	__u64 rate_total; // answered datagrams a second for all sources; 0: no limit
	__u64 fragments_until_ns; // later pieces of packets may be memcached's until then
	// A line of its own: all processors write it.
	__u64 total; // a second, in its upper half, and what was answered in it
	__u64 of_the_daemon[6]; // what it has done, and why it does not serve
	__u64 udp_mutation_ns; // the last one that waits for its answer came then
	__u64 sure_until_ns; // the daemon's own word: until then the slots of mutations beyond a ring wait, where they may not be executed
	__u64 server; // which memcached: the daemon's own word
	__u64 broken; // the daemon is just taking counts back: one that is killed then leaves them wrong
};

struct slot {
	__u64 word;
	__u64 not_before_ns; // nothing is admitted until then
};

// A value. Written by the daemon only, who makes `version` odd first and even again last.
struct entry {
	__u64 version;
	__u64 hash;
	__u64 word; // the slot's, without what is pending
	__u64 epoch;
	__u64 expires_ns;
	__u64 hits;
	__u16 key_length, length, value_length;
	__u16 sum; // of the blob, as the Internet checksum sums it
	__u32 flags;
	__u32 zero;
	__u8 blob[MAX_BLOB]; // VALUE key flags length CR LF value CR LF
};

struct tuple {
	__be32 client[4], server[4];
	__be16 port, zero;
	__u32 scope; // where these addresses are known: `scope_of`
};

// How far a stream of requests or of replies is read.
struct stream {
	__u64 word; // last 8 bytes of the token
	__u64 hash; // of the token
	__u64 number; // its digits
	__u64 key_hash;
	__u64 value; // number of the token that says a length
	__u64 seen; // flags of a meta command, a bit for each letter
	__u32 next; // sequence number
	__u32 skip;
	__u16 length; // of the token
	__u8 phase, then, token, command, protocol, flags;
	__u16 key_length;
	__u8 first; // byte of the token
	__u8 line; // what is wrong with a line that a value may follow
};

struct pending {
	__u32 slot;
	__u32 upto; // it is executed once so many commands have been answered
};

struct conn {
	struct stream in, out;
	__u32 busy_in, busy_out;
	__u32 blind, deaf;
	__u32 asked; // commands that get an answer
	__u32 answered;
	__u32 head, tail; // of the ring
	__u32 quiet_upto, meta_quiet_upto; // after the last quiet command that is not meta; that is, and writes; and `mg_quiet_upto`: that reads
	__u32 overflow_in, overflow_out, overflow_upto;
	__u32 first; // sequence number of the client's first byte
	// Quiet mutations that the ring had no room for: their slots wait (`FAR_NS`), and the daemon or an answer says when they are executed.
	__u32 beyond_in, beyond_out, beyond_upto;
	__u32 mg_quiet_upto;
	__u32 interface; // that memcached's socket is bound to
	__u32 part; // it may be one of several that bring one stream (Multipath TCP)
	__u64 hole_since_ns;
	__u64 opened_ns;
	struct pending ring[RING];
	__u32 mn_asked, mn_answered, mn_off;
	__u32 fin; // the server has sent its last byte, and a FIN, which has a number too
	__u32 mn_upto[BARRIERS]; // `asked` after each
	__u64 kinds[KINDS / 64]; // by `asked` after the command: 1 is meta
};

// As layout.rs has them.
_Static_assert(sizeof(struct state) == 27 * 8, "words of the state");
_Static_assert(__builtin_offsetof(struct state, kept_epoch) == 11 * 8 && __builtin_offsetof(struct state, server) == 25 * 8, "places of the state");
_Static_assert(__builtin_offsetof(struct conn, interface) == 54 * 4 && __builtin_offsetof(struct conn, ring) == 60 * 4, "places of a connection");

struct udp_key {
	__be32 client[4];
	__be16 port, id;
};

struct udp_pending {
	__u64 at_ns;
	__u32 slot;
	__u16 opcode; // of a binary request, or 0x100: ASCII; 0xffff: which reply is its own cannot be known
	__u16 zero;
};

struct event {
	__u64 length;
	__u8 key[256];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} kv_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct slot);
} kv_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct entry);
} kv_values SEC(".maps");

// Of each set of entries 16 bits of their hashes, the first's lowest. Written by the daemon only, when the entry is there.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} kv_tags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct tuple);
	__type(value, struct conn);
} kv_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct udp_key);
	__type(value, struct udp_pending);
} kv_udp SEC(".maps");

struct local {
	__be32 address[4];
	__u32 interface; // of loopback and link-local ones; else 0: this machine takes them by any
};

// Addresses of this machine: only what is sent to them is answered.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct local);
	__type(value, __u32);
} kv_local SEC(".maps");

// Sources that may be answered, by interface and family.
struct allowed {
	__u32 bits;
	__u32 interface, family;
	__be32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct allowed);
	__type(value, __u32);
} kv_allow SEC(".maps");

// What an interface's addresses are known by: those that are a link's alone, and all others.
struct scope {
	__u32 link, domain;
};

// Of interfaces for which these are not their own number and 0: a bond's members, and those of a VRF.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct scope);
} kv_scopes SEC(".maps");

struct bucket {
	__u64 at_ns;
	__u64 spent; // in this second
};

// By IPv4 address, and by the first half of an IPv6 address: whoever has one has the others with that.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __be32[4]);
	__type(value, struct bucket);
} kv_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} kv_counts SEC(".maps");

struct answered {
	__u64 hits, passes;
};

// By command, and whether it came over TCP.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COMMANDS * 2);
	__type(key, __u32);
	__type(value, struct answered);
} kv_commands SEC(".maps");

// How many missed keys were told in this part of the time, and gets that were passed for a key that is not here, and is not told either.
struct told {
	__u64 window, events, passed;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct told);
} kv_told SEC(".maps");

// Keys that were missed once.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} kv_seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} kv_events SEC(".maps");

// What a program works on, too large for its stack: one for XDP and one for TC.
// Where the parts of a packet are, and whose it is.
struct where {
	__u32 l3, l4, end; // end: of the packet, by the IP header
	__u8 proto, family, part, cut; // part: see below; cut: into fragments
	__be32 src[4], dst[4];
	__be16 sport, dport;
};

// What of a packet is here.
enum {
	WHOLE,
	FIRST, // its ports, and not all, or not without headers that no program here reads
	LATER, // a later fragment
	OPAQUE, // ports that were not found
};

struct work {
	struct stream s;
	struct conn fresh;
	struct event event;
	// Of a packet; here and not on the stack, of which functions have 512 bytes in all.
	struct udp_key udp;
	struct udp_pending pending;
	struct where where;
	struct tuple tuple; // `zero` stays so
	struct local local;
	struct allowed allowed;
	__be32 source[4];
	__u64 sum;
	__u64 credit, credit_s; // answers of this second that are counted already
	__u64 epoch, now_ns, version, hash; // of a get, and of its key
	__u32 length; // of that
	__u32 at, end, keys, done, total;
	__u32 mutations, first_slot, quiet, lost, refused, wrong, opcode;
	__u32 next;
	__u32 loaded; // bytes of the frame that are in `bytes`, from its beginning on
	__u32 found[MAX_GETS];
	__u64 versions[MAX_GETS];
	__u8 bytes[CHUNK + 512];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct work);
} kv_work SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&kv_counts, &which);

	if (counter)
		*counter += 1;
}

static __always_inline void count_more(__u32 which, __u64 more)
{
	__u64 *counter = bpf_map_lookup_elem(&kv_counts, &which);

	if (counter)
		*counter += more;
}

static __always_inline void count_command(__u32 command, int tcp, int hit)
{
	__u32 at = command * 2 + (tcp != 0);
	struct answered *answered = bpf_map_lookup_elem(&kv_commands, &at);

	if (!answered)
		return;
	if (hit)
		answered->hits += 1;
	else
		answered->passes += 1;
}

// A word of eight bytes that are all this.
#define EACH(byte) ((byte) * 0x0101010101010101ull)

static __always_inline __u64 load64(const void *at)
{
	__u64 word;

	asm volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(word) : "r"(at));
	return word;
}

// Atomic, and in order with what is before and behind it, on every architecture: hence the form that gives the old value.
static __always_inline void add64(__u64 *at, __u64 more)
{
	__u64 old = __sync_fetch_and_add(at, more);

	asm volatile("" ::"r"(old));
}

static __always_inline void add32(__u32 *at, __u32 more)
{
	__u32 old = __sync_fetch_and_add(at, more);

	asm volatile("" ::"r"(old));
}

// Everything is void, and nothing is admitted before memcached has settled. First the time, then the epoch: whoever sees
// the new epoch sees the time.
static __always_inline void void_all(struct state *state)
{
	state->not_before_ns = bpf_ktime_get_ns() + state->settle_ns;
	add64(&state->epoch, 1);
	count(C_VOID);
}

// Nothing of a slot is admitted before this. 0: others write there all the time.
static __always_inline int not_before(struct slot *slot, __u64 until)
{
	for (int i = 0; i < 4; i++) {
		__u64 old = *(volatile __u64 *)&slot->not_before_ns;

		if (old >= until || __sync_val_compare_and_swap(&slot->not_before_ns, old, until) == old)
			return 1;
	}
	return 0;
}

static __always_inline __u64 mixed(__u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdull;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ull;
	return h ^ h >> 33;
}

static __always_inline __u64 stirred(__u64 h, __u8 byte)
{
	return (h ^ byte) * 0x100000001b3ull;
}
