/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The frame of a C++ runner for exact-match tables: reads keys, fills a table, then answers timed passes. The protocol, the
 * cases and the checksum are defined in bench/README.md. A table is a class template over the width of its keys:
 *
 *   T(slots)                          an empty table for so many entries
 *   clear()                           takes every key out; never timed
 *   fill(keys, n)                     key i gets the value i+1; all are new. Returns how many were refused
 *   find_or_insert(keys, n)           the same, in batches that are looked up first
 *   lookup_batch(keys, n, out)        n values, 0 for a key that is not there
 *   lookup(key)                       one value
 *   capacity(), bytes(), params()     what it has room for and occupies (0: unknown), and more for `params`
 */
#ifndef TIDEMILL_FLOW_RUNNER_HPP
#define TIDEMILL_FLOW_RUNNER_HPP

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

constexpr size_t BATCH = 32;    /* keys handed over at once */
constexpr size_t BLOCK = 4096;  /* lookups between two looks at the clock */

template <size_t B> struct Key {
	uint8_t byte[B];
	bool operator==(const Key &other) const { return memcmp(byte, other.byte, B) == 0; }
};

struct Options {
	const char *structure = nullptr, *keys = nullptr;
	size_t present = 0, slots = 0, key_bytes = 0, queries = 0;
	uint64_t seed = 1;
};

[[noreturn]] inline void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "runner: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
}

/* SplitMix64, as xtask has it. */
class SplitMix {
	uint64_t state;

public:
	explicit SplitMix(uint64_t seed) : state(seed) {}
	uint64_t next()
	{
		state += 0x9e3779b97f4a7c15;
		uint64_t z = state;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
		return z ^ (z >> 31);
	}
	size_t below(size_t bound) { return (size_t)(((unsigned __int128)next() * bound) >> 64); }
};

/* FNV-1a over values as eight little-endian bytes each. */
class Checksum {
	uint64_t hash = 0xcbf29ce484222325;

public:
	void add(uint64_t value)
	{
		for (int i = 0; i < 8; i++)
			hash = (hash ^ ((value >> (8 * i)) & 0xff)) * 0x100000001b3;
	}
	uint64_t value() const { return hash; }
};

class Clock {
	std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

public:
	double seconds() const
	{
		return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
	}
};

template <size_t B> std::vector<Key<B>> read_keys(const Options &options)
{
	FILE *file = fopen(options.keys, "rb");
	if (file == nullptr || fseek(file, 0, SEEK_END) != 0)
		fail("%s: %s", options.keys, strerror(errno));
	size_t bytes = (size_t)ftell(file);
	rewind(file);
	if (bytes % B != 0 || bytes / B <= options.present || options.present == 0)
		fail("%s: %zu bytes are not %zu keys of %zu bytes and some more", options.keys, bytes, options.present, B);
	std::vector<Key<B>> keys(bytes / B);
	if (fread(keys.data(), B, keys.size(), file) != keys.size())
		fail("%s: cannot be read whole", options.keys);
	fclose(file);
	return keys;
}

/* The queries of a case, as they lie in memory. In `hit-dependent` the first eight bytes of each are XORed with the right answer
 * to the one before: who XORs it with the answer that he got has the key again. */
template <size_t B>
std::vector<Key<B>> lay_out(const Options &options, const std::vector<Key<B>> &keys, const std::string &name)
{
	SplitMix random(options.seed);
	size_t present = options.present, absent = keys.size() - present;
	std::vector<Key<B>> queries(options.queries);
	uint64_t previous = 0;
	for (Key<B> &query : queries) {
		bool missing = name == "miss" || (name == "mixed" && (random.next() & 1) != 0);
		size_t at = missing ? present + random.below(absent) : random.below(present);
		query = keys[at];
		if (name == "hit-dependent") {
			uint64_t word;
			memcpy(&word, query.byte, 8);
			word ^= previous;
			memcpy(query.byte, &word, 8);
			previous = at + 1;
		}
	}
	return queries;
}

struct Pass {
	double seconds = 0;
	Checksum checksum;
};

/* Lookups, block by block: EACH answers one block. */
template <class Each, size_t B> Pass blocks(const std::vector<Key<B>> &queries, Each each)
{
	static uint64_t results[BLOCK];
	Pass pass;
	for (size_t block = 0; block < queries.size(); block += BLOCK) {
		/* The keys of packets that have just been parsed are in the cache. */
		for (size_t i = block; i < block + BLOCK; i++)
			asm volatile("" : : "r"(queries[i].byte[0]), "r"(queries[i].byte[B - 1]));
		Clock clock;
		each(&queries[block], results);
		pass.seconds += clock.seconds();
		for (uint64_t result : results)
			pass.checksum.add(result);
	}
	return pass;
}

template <class T, size_t B> Pass lookups(const T &table, const std::vector<Key<B>> &queries, const std::string &name)
{
	if (name == "hit-single")
		return blocks(queries, [&](const Key<B> *keys, uint64_t *out) {
			for (size_t i = 0; i < BLOCK; i++)
				out[i] = table.lookup(keys[i]);
		});
	if (name == "hit-dependent") {
		uint64_t previous = 0;
		return blocks(queries, [&](const Key<B> *keys, uint64_t *out) {
			for (size_t i = 0; i < BLOCK; i++) {
				Key<B> key = keys[i];
				uint64_t word;
				memcpy(&word, key.byte, 8);
				word ^= previous;
				memcpy(key.byte, &word, 8);
				out[i] = previous = table.lookup(key);
			}
		});
	}
	return blocks(queries, [&](const Key<B> *keys, uint64_t *out) {
		for (size_t i = 0; i < BLOCK; i += BATCH)
			table.lookup_batch(keys + i, BATCH, out + i);
	});
}

/* Fills the emptied table; the checksum is over the values of all keys, asked for afterwards. */
template <class T, size_t B> Pass fills(T &table, const std::vector<Key<B>> &keys, const Options &options, bool find)
{
	Pass pass;
	table.clear();
	Clock clock;
	if (find)
		table.find_or_insert(keys.data(), options.present);
	else
		table.fill(keys.data(), options.present);
	pass.seconds = clock.seconds();
	for (size_t i = 0; i < options.present; i++)
		pass.checksum.add(table.lookup(keys[i]));
	return pass;
}

template <template <size_t> class T, size_t B> int serve(const Options &options)
{
	std::vector<Key<B>> keys = read_keys<B>(options);
	T<B> table(options.slots);
	Clock clock;
	size_t refused = table.fill(keys.data(), options.present);
	double seconds = clock.seconds();
	printf("{\"v\":1,\"ready\":true,\"subject\":\"peer:%s\",\"entries\":%zu,\"rejected\":%zu,\"build_seconds\":%.6f,"
	       "\"bytes\":%zu,\"params\":{\"batch\":%zu,\"capacity\":%zu%s}}\n",
	       options.structure, options.present - refused, refused, seconds, table.bytes(), BATCH, table.capacity(),
	       table.params().c_str());
	fflush(stdout);

	std::vector<Key<B>> queries;
	std::string laid_out;
	char line[64], word[32];
	while (fgets(line, sizeof(line), stdin) != nullptr && strcmp(line, "quit\n") != 0) {
		std::string name = sscanf(line, "run %31s", word) == 1 ? word : "";
		Pass pass;
		size_t count = options.present;
		if (name == "insert" || name == "find-or-insert") {
			pass = fills(table, keys, options, name == "find-or-insert");
		} else if (name == "hit" || name == "miss" || name == "mixed" || name == "hit-single" || name == "hit-dependent") {
			if (laid_out != name)
				queries = lay_out(options, keys, name);
			laid_out = name;
			pass = lookups(table, queries, name);
			count = queries.size();
		} else {
			printf("{\"v\":1,\"error\":\"unknown command\"}\n");
			fflush(stdout);
			continue;
		}
		printf("{\"v\":1,\"bench\":\"flow\",\"subject\":\"peer:%s\",\"case\":\"%s\",\"lookups\":%zu,\"seconds\":%.9f,"
		       "\"checksum\":\"%016lx\"}\n",
		       options.structure, name.c_str(), count, pass.seconds, pass.checksum.value());
		fflush(stdout);
	}
	return 0;
}

inline Options parse(int argc, char **argv)
{
	Options options;
	size_t batch = BATCH;
	for (int i = 1; i + 1 < argc; i += 2) {
		std::string name = argv[i];
		const char *value = argv[i + 1];
		if (name == "--structure")
			options.structure = value;
		else if (name == "--keys")
			options.keys = value;
		else if (name == "--present")
			options.present = strtoull(value, nullptr, 10);
		else if (name == "--slots")
			options.slots = strtoull(value, nullptr, 10);
		else if (name == "--key-bytes")
			options.key_bytes = strtoull(value, nullptr, 10);
		else if (name == "--queries")
			options.queries = strtoull(value, nullptr, 10);
		else if (name == "--seed")
			options.seed = strtoull(value, nullptr, 10);
		else if (name == "--batch")
			batch = strtoull(value, nullptr, 10);
		else
			fail("unknown option %s", argv[i]);
	}
	if (options.structure == nullptr || options.keys == nullptr || options.present == 0 || options.slots == 0 ||
	    options.key_bytes == 0 || options.queries == 0)
		fail("usage: runner --structure NAME --keys FILE --present N --slots S --key-bytes B --queries Q --batch 32 --seed K");
	if (options.queries % BLOCK != 0)
		fail("--queries: a multiple of %zu", BLOCK);
	if (batch != BATCH)
		fail("--batch: compiled for %zu", BATCH);
	return options;
}

/* The table for the width of the keys. */
template <template <size_t> class T> int serve(const Options &options)
{
	switch (options.key_bytes) {
	case 8:
		return serve<T, 8>(options);
	case 16:
		return serve<T, 16>(options);
	case 36:
		return serve<T, 36>(options);
	case 40:
		return serve<T, 40>(options);
	}
	fail("--key-bytes: 8, 16, 36 or 40");
}

#endif
