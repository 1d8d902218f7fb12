/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_lpm (IPv4). Its build takes minutes for a full table: adding a rule walks the rules of its length.
 */
#include "runner.h"

#include <rte_errno.h>
#include <rte_lpm.h>
#include <rte_memory.h>
#include <stdio.h>

#define GROUPS 65536
#define GREATEST_LABEL ((1u << 24) - 1)

static struct rte_lpm *lpm;

static inline void bulk(const uint32_t *keys, uint32_t *out, unsigned int n)
{
	rte_lpm_lookup_bulk(lpm, keys, out, n);
}

static inline uint32_t one(uint32_t key)
{
	uint32_t label;
	return rte_lpm_lookup(lpm, key, &label) == 0 ? label : 0;
}

#define LABEL(result) (((result) & RTE_LPM_LOOKUP_SUCCESS) ? (result) & GREATEST_LABEL : 0)
DEFINE_PASSES(lpm, uint32_t, uint32_t, bulk, one, LABEL, xor_key4)

static long build(const struct routes *routes)
{
	if (routes->greatest_label > GREATEST_LABEL) {
		fprintf(stderr, "a label of %u does not fit in 24 bits\n", routes->greatest_label);
		return -1;
	}
	struct rte_lpm_config conf = {.max_rules = (uint32_t)routes->count + 1024, .number_tbl8s = GROUPS};
	lpm = rte_lpm_create("lpm", SOCKET_ID_ANY, &conf);
	if (lpm == NULL) {
		fprintf(stderr, "rte_lpm_create: %s\n", rte_strerror(rte_errno));
		return -1;
	}
	long refused = 0;
	for (size_t i = 0; i < routes->count; i++) {
		const struct route *route = &routes->list[i];
		refused += rte_lpm_add(lpm, route->v4, route->length, route->label) != 0;
	}
	return refused;
}

const struct structure lpm_structures[] = {
	{"rte_lpm", 4, build, lpm_bulk, lpm_dependent},
	{NULL, 0, NULL, NULL, NULL},
};
