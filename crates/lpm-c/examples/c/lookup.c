/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Builds a table, looks addresses up in one thread while another changes routes, and prints what it sees.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemill_lpm.h"

#define BURST 64
#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* Ends the program when a call fails. */
static void must(int32_t status, const char *what)
{
	if (status != TM_LPM_OK) {
		fprintf(stderr, "%s: %d: %s\n", what, status, tm_lpm_last_error());
		exit(1);
	}
}

static atomic_bool stop;

/* A worker: bursts of lookups, and a word between two of them. */
static void *worker(void *argument)
{
	tm_lpm4_reader *reader = argument;
	uint32_t keys[BURST], labels[BURST];
	unsigned long seen[3] = {0, 0, 0}, wrong = 0;

	for (int i = 0; i < BURST; i++)
		keys[i] = IP(10, 1, i, 1);
	while (!atomic_load(&stop)) {
		must(tm_lpm4_lookup(reader, keys, labels, BURST), "lookup");
		for (int i = 0; i < BURST; i++) {
			if (labels[i] == 1 || labels[i] == 2)
				seen[labels[i]]++;
			else
				wrong++;
		}
		must(tm_lpm4_quiescent(reader), "quiescent");
	}
	printf("worker: every label was 1 or 2: %s\n", wrong == 0 && seen[1] + seen[2] > 0 ? "yes" : "no");
	return wrong == 0 ? NULL : argument;
}

static void ipv4(void)
{
	const tm_route4 routes[] = {
		{IP(10, 0, 0, 0), 8, 1},
		{IP(10, 1, 0, 0), 16, 2},
	};
	tm_lpm4 *table;
	tm_lpm4_reader *reader;
	pthread_t thread;
	void *failed;
	size_t prefixes, bytes;
	char name[32];

	must(tm_lpm4_create(NULL, routes, 2, &table), "create");
	must(tm_lpm4_describe(table, &prefixes, &bytes, name, sizeof(name)), "describe");
	printf("IPv4: %zu prefixes in %s\n", prefixes, name);

	must(tm_lpm4_reader_create(table, &reader), "reader");
	if (pthread_create(&thread, NULL, worker, reader) != 0)
		exit(1);
	for (int i = 0; i < 1000; i++) {
		must(tm_lpm4_withdraw(table, IP(10, 1, 0, 0), 16), "withdraw");
		must(tm_lpm4_commit(table, NULL), "commit");
		must(tm_lpm4_add(table, IP(10, 1, 0, 0), 16, 2), "add");
		must(tm_lpm4_commit(table, NULL), "commit");
	}
	atomic_store(&stop, 1);
	pthread_join(thread, &failed);
	tm_lpm4_reader_free(reader);
	tm_lpm4_free(table);
	if (failed != NULL)
		exit(1);
}

static void ipv6(void)
{
	const tm_route6 routes[] = {
		{{0x20, 0x01, 0x0d, 0xb8}, 32, 7},
	};
	const uint8_t keys[2][16] = {{0x20, 0x01, 0x0d, 0xb8, [15] = 1}, {0x20, 0x02}};
	uint32_t labels[2];
	tm_lpm6 *table;
	tm_lpm6_reader *reader;

	must(tm_lpm6_create("auto", routes, 1, &table), "create");
	must(tm_lpm6_reader_create(table, &reader), "reader");
	must(tm_lpm6_lookup(reader, keys, labels, 2), "lookup");
	printf("IPv6: 2001:db8::1 leads to %u, 2002:: to %u\n", labels[0], labels[1]);
	tm_lpm6_reader_free(reader);
	tm_lpm6_free(table);
}

#define VRFS 300

/* Many tables that are alike, and one worker for all of them: a router with VRFs. */
static void vrfs(void)
{
	static tm_route4 routes[4096];
	static tm_lpm4 *tables[VRFS];
	tm_lpm_domain *domain;
	tm_lpm_worker *worker;
	const uint32_t key = IP(10, 1, 2, 3);
	unsigned wrong = 0;
	uint32_t label;

	for (uint32_t i = 0; i < 4096; i++)
		routes[i] = (tm_route4){IP(10, 0, 0, 0) + (i << 8), 24, 1 + i % 7};
	must(tm_lpm_domain_create(&domain), "domain");
	must(tm_lpm_worker_create(domain, &worker), "worker");
	for (uint32_t i = 0; i < VRFS; i++) {
		must(tm_lpm4_create_in(domain, "shared", routes, 4096, &tables[i]), "create");
		must(tm_lpm4_add(tables[i], key, 32, 1000 + i), "add");
		must(tm_lpm4_commit(tables[i], NULL), "commit");
	}
	for (uint32_t i = 0; i < VRFS; i++) {
		must(tm_lpm4_lookup_by(tables[i], worker, &key, &label, 1), "lookup");
		wrong += label != 1000 + i;
	}
	must(tm_lpm_worker_quiescent(worker), "quiescent");
	printf("%d VRFs: each has its own route: %s\n", VRFS, wrong == 0 ? "yes" : "no");
	for (uint32_t i = 0; i < VRFS; i++)
		tm_lpm4_free(tables[i]);
	tm_lpm_worker_free(worker);
	tm_lpm_domain_free(domain);
}

int main(void)
{
	ipv4();
	ipv6();
	vrfs();
	/* Errors say what is wrong. */
	tm_lpm4 *table;
	const tm_route4 bad = {IP(10, 0, 0, 1), 8, 1};
	if (tm_lpm4_create(NULL, &bad, 1, &table) == TM_LPM_OK)
		return 1;
	printf("refused: %s\n", tm_lpm_last_error());
	return 0;
}
