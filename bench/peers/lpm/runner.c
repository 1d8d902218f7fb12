/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The frame of the lookup runners: builds one structure of a table, then answers timed passes. The protocol is in
 * bench/README.md.
 */
#include "runner.h"

#include <rte_eal.h>
#include <rte_malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct structure *find_structure(const char *name)
{
	const struct structure *families[] = {fib_structures, lpm_structures, fib6_structures, lpm6_structures};
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		for (const struct structure *s = families[i]; s->name != NULL; s++)
			if (strcmp(s->name, name) == 0)
				return s;
	fail("no structure %s", name);
	return NULL;
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

/* One timed pass, and its line. */
static void timed_pass(const struct structure *structure, const struct keys *keys, const char *pattern)
{
	struct pass pass;
	if (strcmp(pattern, "rnd") == 0)
		pass = structure->bulk(keys->random, keys->count);
	else if (strcmp(pattern, "rep") == 0)
		pass = structure->bulk(keys->repeated, keys->count);
	else if (strcmp(pattern, "seq") == 0)
		pass = structure->dependent(keys->random, keys->count);
	else {
		printf("{\"v\":1,\"error\":\"no such pattern\"}\n");
		return;
	}
	printf("{\"v\":1,\"bench\":\"lpm\",\"subject\":\"peer:%s\",\"case\":\"%s\",\"lookups\":%zu,\"seconds\":%.9f,"
	       "\"checksum\":\"%016lx\"}\n",
	       structure->name, pattern, keys->count, pass.seconds, pass.checksum);
}

int main(int argc, char **argv)
{
	const char *table = NULL, *keyfile = NULL, *name = NULL;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--table") == 0)
			table = argv[i + 1];
		else if (strcmp(argv[i], "--keys") == 0)
			keyfile = argv[i + 1];
		else if (strcmp(argv[i], "--structure") == 0)
			name = argv[i + 1];
		else
			fail("unknown option %s", argv[i]);
	}
	if (table == NULL || keyfile == NULL || name == NULL)
		fail("usage: runner --structure NAME --table FILE --keys FILE");
	const struct structure *structure = find_structure(name);
	struct routes routes = read_table(table, structure->family);
	struct keys keys = read_keys(keyfile, structure->family == 4 ? sizeof(uint32_t) : sizeof(addr6));
	const char *none[] = {NULL};
	bool huge = start_dpdk(argv[0], none);
	size_t before = heap_bytes();
	double start = now_seconds();
	long refused = structure->build(&routes);
	if (refused < 0)
		return 1;
	printf("{\"v\":1,\"ready\":true,\"subject\":\"peer:%s\",\"routes\":%zu,\"rejected\":%ld,\"build_seconds\":%.6f,"
	       "\"bytes\":%zu,\"params\":{\"pages\":\"%s\",\"key_pages\":\"%s\"}}\n",
	       structure->name, routes.count - (size_t)refused, refused, now_seconds() - start, heap_bytes() - before,
	       huge ? "2 MB" : "4 KB", keys.huge ? "2 MB" : "4 KB");
	fflush(stdout);

	char line[64], pattern[16];
	while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "quit\n") != 0) {
		if (sscanf(line, "run %15s", pattern) == 1)
			timed_pass(structure, &keys, pattern);
		else
			printf("{\"v\":1,\"error\":\"unknown command\"}\n");
		fflush(stdout);
	}
	rte_eal_cleanup();
	return 0;
}
