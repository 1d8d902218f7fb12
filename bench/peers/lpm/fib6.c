/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_fib6 (TRIE), with next hops of 2 or 4 bytes, by its AVX-512 or its scalar lookup.
 */
#include "runner.h"

#include <rte_errno.h>
#include <rte_fib6.h>
#include <rte_memory.h>
#include <stdio.h>

/* Groups of 256 entries: begun with, and not exceeded. */
#define FEWEST_GROUPS 32767
#define MOST_GROUPS (1u << 19)

static struct rte_fib6 *fib;

static inline void bulk(const addr6 *keys, uint64_t *out, unsigned int n)
{
	rte_fib6_lookup_bulk(fib, (uint8_t(*)[16])(uintptr_t)keys, out, (int)n);
}

static inline uint32_t one(addr6 key)
{
	uint64_t label;
	rte_fib6_lookup_bulk(fib, &key.byte, &label, 1);
	return (uint32_t)label;
}

#define LABEL(result) ((uint32_t)(result))
DEFINE_PASSES(fib6, addr6, uint64_t, bulk, one, LABEL, xor_key6)

/* Builds with so many groups; -1 with a message if that cannot be. */
static long attempt(const struct routes *routes, enum rte_fib_trie_nh_sz size, enum rte_fib6_lookup_type lookup,
		    uint32_t groups)
{
	struct rte_fib6_conf conf = {.type = RTE_FIB6_TRIE, .default_nh = 0, .max_routes = (int)routes->count + 1024};
	conf.trie.nh_sz = size;
	conf.trie.num_tbl8 = groups;
	fib = rte_fib6_create("fib6", SOCKET_ID_ANY, &conf);
	if (fib == NULL) {
		fprintf(stderr, "rte_fib6_create with %u groups: %s\n", groups, rte_strerror(rte_errno));
		return -1;
	}
	if (rte_fib6_select_lookup(fib, lookup) != 0) {
		fprintf(stderr, "rte_fib6_select_lookup: this CPU or build does not have it\n");
		return -1;
	}
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++) {
		const struct route *route = &routes->list[i];
		refused += rte_fib6_add(fib, route->v6.byte, route->length, route->label) != 0;
	}
	return refused;
}

static long build(const struct routes *routes, enum rte_fib_trie_nh_sz size, enum rte_fib6_lookup_type lookup)
{
	if (size == RTE_FIB6_TRIE_2B && routes->greatest_label > 32767) {
		fprintf(stderr, "a label of %u does not fit: the greatest is 32767\n", routes->greatest_label);
		return -1;
	}
	if (size == RTE_FIB6_TRIE_2B || routes->count < 10000)
		return attempt(routes, size, lookup, FEWEST_GROUPS);
	return attempt(routes, size, lookup, MOST_GROUPS);
}

#define STRUCTURE(NAME, SIZE, LOOKUP)                                                                           \
	static long build_##NAME(const struct routes *routes)                                                   \
	{                                                                                                       \
		return build(routes, RTE_FIB6_TRIE_##SIZE, RTE_FIB6_LOOKUP_TRIE_##LOOKUP);                      \
	}
STRUCTURE(2b_avx512, 2B, VECTOR_AVX512)
STRUCTURE(4b_avx512, 4B, VECTOR_AVX512)
STRUCTURE(2b_scalar, 2B, SCALAR)
STRUCTURE(4b_scalar, 4B, SCALAR)

const struct structure fib6_structures[] = {
	{"rte_fib6-2b-avx512", 6, build_2b_avx512, fib6_bulk, fib6_dependent},
	{"rte_fib6-4b-avx512", 6, build_4b_avx512, fib6_bulk, fib6_dependent},
	{"rte_fib6-2b-scalar", 6, build_2b_scalar, fib6_bulk, fib6_dependent},
	{"rte_fib6-4b-scalar", 6, build_4b_scalar, fib6_bulk, fib6_dependent},
	{NULL, 0, NULL, NULL, NULL},
};
