/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_lpm6.
 */
#include "runner.h"

#include <rte_errno.h>
#include <rte_lpm6.h>
#include <rte_memory.h>
#include <stdio.h>

#define GROUPS (1u << 19)
#define GREATEST_LABEL ((1u << 21) - 1)

static struct rte_lpm6 *lpm;

static inline void bulk(const addr6 *keys, int32_t *out, unsigned int n)
{
	rte_lpm6_lookup_bulk_func(lpm, (uint8_t(*)[16])(uintptr_t)keys, out, n);
}

static inline uint32_t one(addr6 key)
{
	uint32_t label;
	return rte_lpm6_lookup(lpm, key.byte, &label) == 0 ? label : 0;
}

#define LABEL(result) ((result) < 0 ? 0u : (uint32_t)(result))
DEFINE_PASSES(lpm6, addr6, int32_t, bulk, one, LABEL, xor_key6)

static long build(const struct routes *routes)
{
	if (routes->greatest_label > GREATEST_LABEL) {
		fprintf(stderr, "a label of %u does not fit in 21 bits\n", routes->greatest_label);
		return -1;
	}
	struct rte_lpm6_config conf = {.max_rules = (uint32_t)routes->count + 1024, .number_tbl8s = GROUPS};
	lpm = rte_lpm6_create("lpm6", SOCKET_ID_ANY, &conf);
	if (lpm == NULL) {
		fprintf(stderr, "rte_lpm6_create: %s\n", rte_strerror(rte_errno));
		return -1;
	}
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++) {
		const struct route *route = &routes->list[i];
		refused += rte_lpm6_add(lpm, route->v6.byte, route->length, route->label) != 0;
	}
	return refused;
}

const struct structure lpm6_structures[] = {
	{"rte_lpm6", 6, build, lpm6_bulk, lpm6_dependent},
	{NULL, 0, NULL, NULL, NULL},
};
