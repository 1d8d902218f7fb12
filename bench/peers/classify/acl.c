/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_acl on a rule set in ClassBench's format and its header trace: answers timed passes. The protocol is in
 * bench/README.md.
 */
#include "../dpdk/input.h"

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 5
#define BURST 256
#define REBUILDS 2 /* changes in an update pass: a rule goes, and comes back */

RTE_ACL_RULE_DEF(acl_rule, FIELDS);

/* What a header is looked up by: in network order, as in a packet. */
struct header {
	uint8_t protocol, unused[3];
	uint8_t source[4], destination[4];
	uint8_t source_port[2], destination_port[2];
};

static struct rte_acl_field_def fields[FIELDS] = {
	{RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, offsetof(struct header, protocol)},
	{RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, offsetof(struct header, source)},
	{RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, offsetof(struct header, destination)},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, offsetof(struct header, source_port)},
	{RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, offsetof(struct header, destination_port)},
};

static const struct {
	const char *name;
	enum rte_acl_classify_alg algorithm;
} algorithms[] = {
	{"rte_acl-scalar", RTE_ACL_CLASSIFY_SCALAR},
	{"rte_acl-sse", RTE_ACL_CLASSIFY_SSE},
	{"rte_acl-avx2", RTE_ACL_CLASSIFY_AVX2},
	{"rte_acl-avx512x16", RTE_ACL_CLASSIFY_AVX512X16},
	{"rte_acl-avx512x32", RTE_ACL_CLASSIFY_AVX512X32},
};

static struct acl_rule *rules;
static size_t rule_count;
static struct header *headers;
static const uint8_t **pointers;
static size_t header_count;
static bool huge_headers; /* they and their pointers on 2 MB pages */
static struct rte_acl_ctx *acl;
static size_t most_bytes; /* what a build may take; 0: what it likes */

static void *grown(void *list, size_t count, size_t size)
{
	if ((count & (count - 1)) != 0)
		return list;
	list = realloc(list, (count == 0 ? 1 : 2 * count) * size);
	if (list == NULL)
		fail("no memory");
	return list;
}

static FILE *opened(const char *path)
{
	FILE *file = fopen(path, "r");
	if (file == NULL)
		fail("%s: cannot be opened", path);
	return file;
}

static uint32_t address(const unsigned int *part)
{
	return part[0] << 24 | part[1] << 16 | part[2] << 8 | part[3];
}

static void read_rules(const char *path)
{
	FILE *file = opened(path);
	char line[512];
	while (fgets(line, sizeof(line), file) != NULL) {
		unsigned int s[5], d[5], sp[2], dp[2], protocol, mask;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (sscanf(line, "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u %x/%x", &s[0], &s[1], &s[2], &s[3], &s[4],
			   &d[0], &d[1], &d[2], &d[3], &d[4], &sp[0], &sp[1], &dp[0], &dp[1], &protocol, &mask) != 16)
			fail("%s: line %zu is no rule", path, rule_count + 1);
		rules = grown(rules, rule_count, sizeof(*rules));
		struct acl_rule *rule = &rules[rule_count];
		memset(rule, 0, sizeof(*rule));
		/* The first line wins; 0 is no match. */
		rule->data.priority = (int32_t)(RTE_ACL_MAX_PRIORITY - rule_count);
		rule->data.category_mask = 1;
		rule->data.userdata = (uint32_t)rule_count + 1;
		rule->field[0].value.u8 = (uint8_t)protocol;
		rule->field[0].mask_range.u8 = (uint8_t)mask;
		rule->field[1].value.u32 = address(s);
		rule->field[1].mask_range.u32 = s[4];
		rule->field[2].value.u32 = address(d);
		rule->field[2].mask_range.u32 = d[4];
		rule->field[3].value.u16 = (uint16_t)sp[0];
		rule->field[3].mask_range.u16 = (uint16_t)sp[1];
		rule->field[4].value.u16 = (uint16_t)dp[0];
		rule->field[4].mask_range.u16 = (uint16_t)dp[1];
		rule_count++;
	}
	fclose(file);
}

static void put(uint8_t *bytes, unsigned int size, unsigned long value)
{
	while (size-- > 0) {
		bytes[size] = (uint8_t)value;
		value >>= 8;
	}
}

static void read_trace(const char *path)
{
	FILE *file = opened(path);
	char line[512];
	while (fgets(line, sizeof(line), file) != NULL) {
		unsigned long s, d, sp, dp, protocol;
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (sscanf(line, "%lu %lu %lu %lu %lu", &s, &d, &sp, &dp, &protocol) != 5)
			fail("%s: line %zu is no header of numbers", path, header_count + 1);
		headers = grown(headers, header_count, sizeof(*headers));
		struct header *header = &headers[header_count++];
		memset(header, 0, sizeof(*header));
		header->protocol = (uint8_t)protocol;
		put(header->source, 4, s);
		put(header->destination, 4, d);
		put(header->source_port, 2, sp);
		put(header->destination_port, 2, dp);
	}
	fclose(file);
	size_t bytes = header_count * sizeof(*headers), pointer_bytes = header_count * sizeof(*pointers);
	struct header *read = headers;
	headers = room_for(bytes);
	pointers = room_for(pointer_bytes);
	for (size_t i = 0; i < header_count; i++) {
		headers[i] = read[i];
		pointers[i] = (const uint8_t *)&headers[i];
	}
	free(read);
	huge_headers = on_huge_pages(headers, bytes) && on_huge_pages(pointers, pointer_bytes);
}

/* Builds the tries of all rules but one (`rule_count`: of all). */
static int build(size_t without)
{
	struct rte_acl_config config = {.num_categories = 1, .num_fields = FIELDS, .max_size = most_bytes};
	memcpy(config.defs, fields, sizeof(fields));
	rte_acl_reset(acl);
	if (without > 0 && rte_acl_add_rules(acl, (const struct rte_acl_rule *)rules, (uint32_t)without) != 0)
		fail("rte_acl_add_rules");
	if (without + 1 < rule_count &&
	    rte_acl_add_rules(acl, (const struct rte_acl_rule *)&rules[without + 1], (uint32_t)(rule_count - without - 1)) != 0)
		fail("rte_acl_add_rules");
	return rte_acl_build(acl, &config);
}

static size_t heap_bytes(void)
{
	size_t bytes = 0;
	for (int socket = 0; socket < 8; socket++) {
		struct rte_malloc_socket_stats stats;
		if (rte_malloc_get_socket_stats(socket, &stats) == 0)
			bytes += stats.heap_allocsz_bytes;
	}
	return bytes;
}

static double lookups(uint64_t *checksum)
{
	static uint32_t found[BLOCK];
	double seconds = 0;
	*checksum = FNV_OFFSET;
	for (size_t block = 0; block < header_count; block += BLOCK) {
		size_t count = header_count - block < BLOCK ? header_count - block : BLOCK;
		double start = now_seconds();
		for (size_t i = 0; i < count; i += BURST) {
			size_t n = count - i < BURST ? count - i : BURST;
			rte_acl_classify(acl, &pointers[block + i], &found[i], (uint32_t)n, 1);
		}
		seconds += now_seconds() - start;
		for (size_t i = 0; i < count; i++)
			*checksum = checksum_add(*checksum, found[i]);
	}
	return seconds;
}

int main(int argc, char **argv)
{
	const char *set = NULL, *trace = NULL, *name = NULL;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rules") == 0)
			set = argv[i + 1];
		else if (strcmp(argv[i], "--trace") == 0)
			trace = argv[i + 1];
		else if (strcmp(argv[i], "--structure") == 0)
			name = argv[i + 1];
		else
			fail("unknown option %s", argv[i]);
	}
	if (set == NULL || trace == NULL || name == NULL)
		fail("usage: runner --structure NAME --rules FILE --trace FILE");
	size_t chosen = 0;
	while (chosen < RTE_DIM(algorithms) && strcmp(algorithms[chosen].name, name) != 0)
		chosen++;
	if (chosen == RTE_DIM(algorithms))
		fail("no structure %s", name);
	read_rules(set);
	read_trace(trace);
	const char *none[] = {NULL};
	bool huge = start_dpdk(argv[0], none);
	struct rte_acl_param parameters = {.name = "rules", .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(FIELDS),
					   .max_rule_num = (uint32_t)rule_count};
	acl = rte_acl_create(&parameters);
	if (acl == NULL)
		fail("rte_acl_create");
	size_t before = heap_bytes();
	double start = now_seconds(), built = 0;
	/* As it likes; where memory does not do, within bounds. */
	static const size_t bounds[] = {0, (size_t)256 << 20, (size_t)64 << 20, (size_t)16 << 20};
	int failed = -1;
	for (size_t i = 0; i < RTE_DIM(bounds) && failed != 0; i++) {
		most_bytes = bounds[i];
		start = now_seconds();
		failed = build(rule_count);
		built = now_seconds() - start;
	}
	if (failed != 0) {
		printf("{\"v\":1,\"error\":\"rte_acl_build: %d: no room for these rules\"}\n", failed);
		return 1;
	}
	if (rte_acl_set_ctx_classify(acl, algorithms[chosen].algorithm) != 0) {
		printf("{\"v\":1,\"error\":\"this CPU has no %s\"}\n", name);
		return 1;
	}
	printf("{\"v\":1,\"ready\":true,\"subject\":\"peer:%s\",\"entries\":%zu,\"rejected\":0,\"build_seconds\":%.6f,"
	       "\"bytes\":%zu,\"params\":{\"pages\":\"%s\",\"key_pages\":\"%s\",\"max_size\":%zu}}\n",
	       name, rule_count, built, heap_bytes() - before, huge ? "2 MB" : "4 KB",
	       huge_headers ? "2 MB" : "4 KB", most_bytes);
	fflush(stdout);

	char line[64], asked[16];
	while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "quit\n") != 0) {
		uint64_t checksum;
		if (sscanf(line, "run %15s", asked) != 1 || (strcmp(asked, "lookup") != 0 && strcmp(asked, "update") != 0)) {
			printf("{\"v\":1,\"error\":\"unknown command: use run lookup|update or quit\"}\n");
		} else if (strcmp(asked, "update") == 0) {
			start = now_seconds();
			if (build(rule_count / 2) != 0 || build(rule_count) != 0)
				fail("rte_acl_build");
			double seconds = now_seconds() - start;
			rte_acl_set_ctx_classify(acl, algorithms[chosen].algorithm);
			lookups(&checksum);
			printf("{\"v\":1,\"bench\":\"classify\",\"subject\":\"peer:%s\",\"case\":\"update\",\"lookups\":%d,"
			       "\"seconds\":%.9f,\"checksum\":\"%016lx\"}\n",
			       name, REBUILDS, seconds, checksum);
		} else {
			double seconds = lookups(&checksum);
			printf("{\"v\":1,\"bench\":\"classify\",\"subject\":\"peer:%s\",\"case\":\"lookup\",\"lookups\":%zu,"
			       "\"seconds\":%.9f,\"checksum\":\"%016lx\"}\n",
			       name, header_count, seconds, checksum);
		}
		fflush(stdout);
	}
	rte_acl_free(acl);
	rte_eal_cleanup();
	return 0;
}
