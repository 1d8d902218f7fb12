/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The frame of a C runner: reads a table and keys, starts DPDK, builds one structure, then answers timed passes. The
 * protocol is in bench/README.md.
 */
#include "runner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 2 MB pages that must be free before we ask DPDK to use them; without them 4 KB pages, reserved in one piece. */
#define PAGES_WANTED 640
#define SMALL_PAGES_MB "2048"

static void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "runner: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
}

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

/* `address/length TAB label`; the line is changed. */
static void parse_route(char *line, size_t number, int family, struct route *route)
{
	char *slash = strchr(line, '/'), *tab = strchr(line, '\t');
	if (slash == NULL || tab == NULL || slash > tab)
		fail("table line %zu: not `prefix TAB label`", number);
	*slash = *tab = '\0';
	char *end;
	route->length = (uint8_t)strtoul(slash + 1, NULL, 10);
	errno = 0;
	route->label = (uint32_t)strtoul(tab + 1, &end, 10);
	if (errno != 0 || end == tab + 1 || route->label == 0)
		fail("table line %zu: the label is no number from 1 up", number);
	struct in_addr v4;
	if (family == 4 && inet_pton(AF_INET, line, &v4) == 1)
		route->v4 = ntohl(v4.s_addr);
	else if (family != 6 || inet_pton(AF_INET6, line, route->v6.byte) != 1)
		fail("table line %zu: %s is not an IPv%d address", number, line, family);
}

static struct routes read_table(const char *path, int family)
{
	struct routes routes = {.family = family};
	size_t room = 0, line_room = 0;
	char *line = NULL;
	FILE *file = fopen(path, "r");
	if (file == NULL)
		fail("%s: %s", path, strerror(errno));
	while (getline(&line, &line_room, file) > 0) {
		if (routes.count == room) {
			room = room ? room * 2 : 1024;
			routes.list = realloc(routes.list, room * sizeof(*routes.list));
			if (routes.list == NULL)
				fail("no memory for the table");
		}
		struct route *route = &routes.list[routes.count];
		memset(route, 0, sizeof(*route));
		parse_route(line, routes.count + 1, family, route);
		if (route->label > routes.greatest_label)
			routes.greatest_label = route->label;
		routes.count++;
	}
	free(line);
	fclose(file);
	return routes;
}

static struct keys read_keys(const char *path, size_t size)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL || fseek(file, 0, SEEK_END) != 0)
		fail("%s: %s", path, strerror(errno));
	size_t bytes = (size_t)ftell(file);
	rewind(file);
	struct keys keys = {.count = bytes / size};
	if (keys.count == 0 || bytes % size != 0 || keys.count % BLOCK != 0)
		fail("%s: %zu bytes are no multiple of %d keys", path, bytes, BLOCK);
	uint8_t *random = aligned_alloc(64, bytes), *repeated = aligned_alloc(64, bytes);
	if (random == NULL || repeated == NULL || fread(random, 1, bytes, file) != bytes)
		fail("%s: cannot be read whole", path);
	for (size_t j = 0; j < keys.count; j++)
		memcpy(repeated + j * size, random + (j / 8 + j % 8) * size, size);
	fclose(file);
	keys.random = random;
	keys.repeated = repeated;
	return keys;
}

static long free_huge_pages(void)
{
	long count = 0;
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	if (file != NULL) {
		if (fscanf(file, "%ld", &count) != 1)
			count = 0;
		fclose(file);
	}
	return count;
}

/* Starts DPDK without devices; true if on 2 MB pages. The vector lookups want 512 bits allowed explicitly. */
static bool start_dpdk(char *program)
{
	bool huge = free_huge_pages() >= PAGES_WANTED;
	/* --in-memory and --no-huge exclude each other. */
	char *arguments[] = {program, "--no-pci", "--no-telemetry", "--log-level=error", "--force-max-simd-bitwidth=512",
			     huge ? "--in-memory" : "--no-huge", "--no-shconf", "-m", SMALL_PAGES_MB, NULL};
	if (rte_eal_init(huge ? 6 : 9, arguments) < 0)
		fail("rte_eal_init: %s", rte_strerror(rte_errno));
	return huge;
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
	bool huge = start_dpdk(argv[0]);
	size_t before = heap_bytes();
	double start = now_seconds();
	long refused = structure->build(&routes);
	if (refused < 0)
		return 1;
	printf("{\"v\":1,\"ready\":true,\"subject\":\"peer:%s\",\"routes\":%zu,\"rejected\":%ld,\"build_seconds\":%.6f,"
	       "\"bytes\":%zu,\"params\":{\"pages\":\"%s\"}}\n",
	       structure->name, routes.count - (size_t)refused, refused, now_seconds() - start, heap_bytes() - before,
	       huge ? "2 MB" : "4 KB");
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
