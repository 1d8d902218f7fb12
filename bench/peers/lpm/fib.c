/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_fib (IPv4, DIR24_8), with next hops of 1, 2 or 4 bytes, by any of its lookups: AVX-512, or
 * one of three scalar ones.
 */
#include "runner.h"

#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_memory.h>
#include <stdio.h>

static struct rte_fib *fib;

static inline void bulk(const uint32_t *keys, uint64_t *out, unsigned int n)
{
	rte_fib_lookup_bulk(fib, (uint32_t *)keys, out, (int)n);
}

static inline uint32_t one(uint32_t key)
{
	uint64_t label;
	rte_fib_lookup_bulk(fib, &key, &label, 1);
	return (uint32_t)label;
}

#define LABEL(result) ((uint32_t)(result))
DEFINE_PASSES(fib, uint32_t, uint64_t, bulk, one, LABEL, xor_key4)

/* More groups of 256 for routes longer than /24 than any table needs, or as many as the width of a next hop can name. */
static long build(const struct routes *routes, enum rte_fib_dir24_8_nh_sz size, enum rte_fib_lookup_type lookup)
{
	static const uint64_t greatest[] = {127, 32767, 1u << 31};
	static const uint32_t groups[] = {127, 32767, 65535};
	if (routes->greatest_label > greatest[size]) {
		fprintf(stderr, "a label of %u does not fit: the greatest is %lu\n", routes->greatest_label, greatest[size]);
		return -1;
	}
	struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8, .default_nh = 0, .max_routes = (int)routes->count + 1024};
	conf.dir24_8.nh_sz = size;
	conf.dir24_8.num_tbl8 = groups[size];
	fib = rte_fib_create("fib", SOCKET_ID_ANY, &conf);
	if (fib == NULL) {
		fprintf(stderr, "rte_fib_create: %s\n", rte_strerror(rte_errno));
		return -1;
	}
	if (rte_fib_select_lookup(fib, lookup) != 0) {
		fprintf(stderr, "rte_fib_select_lookup: this CPU or build does not have it\n");
		return -1;
	}
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++) {
		const struct route *route = &routes->list[i];
		refused += rte_fib_add(fib, route->v4, route->length, route->label) != 0;
	}
	return refused;
}

#define STRUCTURE(NAME, SIZE, LOOKUP)                                                                           \
	static long build_##NAME(const struct routes *routes)                                                   \
	{                                                                                                       \
		return build(routes, RTE_FIB_DIR24_8_##SIZE, RTE_FIB_LOOKUP_DIR24_8_##LOOKUP);                  \
	}
#define STRUCTURES(WIDTH, SIZE)                                                                                 \
	STRUCTURE(WIDTH##_avx512, SIZE, VECTOR_AVX512)                                                          \
	STRUCTURE(WIDTH##_scalar, SIZE, SCALAR_MACRO)                                                           \
	STRUCTURE(WIDTH##_inline, SIZE, SCALAR_INLINE)                                                          \
	STRUCTURE(WIDTH##_uni, SIZE, SCALAR_UNI)
STRUCTURES(1b, 1B)
STRUCTURES(2b, 2B)
STRUCTURES(4b, 4B)

#define LISTED(NAME, BUILD) {"rte_fib-" NAME, 4, build_##BUILD, fib_bulk, fib_dependent}
const struct structure fib_structures[] = {
	LISTED("1b-avx512", 1b_avx512), LISTED("1b-scalar", 1b_scalar), LISTED("1b-inline", 1b_inline),
	LISTED("1b-uni", 1b_uni),	LISTED("2b-avx512", 2b_avx512), LISTED("2b-scalar", 2b_scalar),
	LISTED("2b-inline", 2b_inline), LISTED("2b-uni", 2b_uni),	LISTED("4b-avx512", 4b_avx512),
	LISTED("4b-scalar", 4b_scalar), LISTED("4b-inline", 4b_inline), LISTED("4b-uni", 4b_uni),
	{NULL, 0, NULL, NULL, NULL},
};
