/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the C runners on DPDK share.
 */
#include "input.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_PAGE ((size_t)2 << 20)
/* 2 MB pages that must be free before we ask DPDK to use them; without them 4 KB pages, reserved in one piece. */
#define PAGES_WANTED 640
#define SMALL_PAGES_MB "2048"

void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "runner: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
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

struct routes read_table(const char *path, int family)
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

/* Whole pages of 2 MB that hold so many bytes. */
static size_t in_huge_pages(size_t bytes)
{
	return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *room_for(size_t bytes)
{
	void *room = aligned_alloc(HUGE_PAGE, in_huge_pages(bytes));
	if (room == NULL)
		fail("no memory for %zu bytes", bytes);
	return room;
}

bool on_huge_pages(void *room, size_t bytes)
{
	return madvise(room, in_huge_pages(bytes), MADV_COLLAPSE) == 0;
}

struct keys read_keys(const char *path, size_t size)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL || fseek(file, 0, SEEK_END) != 0)
		fail("%s: %s", path, strerror(errno));
	size_t bytes = (size_t)ftell(file);
	rewind(file);
	struct keys keys = {.count = bytes / size};
	if (keys.count == 0 || bytes % size != 0 || keys.count % BLOCK != 0)
		fail("%s: %zu bytes are no multiple of %d keys", path, bytes, BLOCK);
	uint8_t *random = room_for(bytes), *repeated = room_for(bytes);
	if (fread(random, 1, bytes, file) != bytes)
		fail("%s: cannot be read whole", path);
	for (size_t j = 0; j < keys.count; j++)
		memcpy(repeated + j * size, random + (j / 8 + j % 8) * size, size);
	fclose(file);
	keys.random = random;
	keys.repeated = repeated;
	keys.huge = on_huge_pages(random, bytes) && on_huge_pages(repeated, bytes);
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

bool start_dpdk(char *program, const char *const *devices)
{
	bool huge = free_huge_pages() >= PAGES_WANTED;
	/* The vector lookups want 512 bits allowed explicitly; --in-memory and --no-huge exclude each other. */
	char *arguments[32] = {program, "--no-pci", "--no-telemetry", "--log-level=error", "--force-max-simd-bitwidth=512",
			       huge ? "--in-memory" : "--no-huge"};
	int count = 6;
	if (!huge) {
		arguments[count++] = "--no-shconf";
		arguments[count++] = "-m";
		arguments[count++] = SMALL_PAGES_MB;
	}
	for (; *devices != NULL && count + 2 < 32; devices++) {
		arguments[count++] = "--vdev";
		arguments[count++] = (char *)*devices;
	}
	if (rte_eal_init(count, arguments) < 0)
		fail("rte_eal_init: %s", rte_strerror(rte_errno));
	return huge;
}
