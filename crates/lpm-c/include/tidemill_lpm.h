/* SPDX-License-Identifier: MIT OR Apache-2.0. Made by `cargo xtask header` from 21360031bf28e139: do not edit. */
/*
 * Longest-prefix matching, IPv4 and IPv6: tables that one thread changes while others look addresses up, without locks.
 *
 * A table is built from an array of routes, each a prefix and a label. Labels are numbers of yours, next hops say; 0 is "no route".
 * Every thread that looks up has a reader of its own, and calls `tm_lpm*_quiescent` between bursts: that is how a table learns
 * what nobody looks at any more. A reader that will not come by for a while goes offline before. Lookups never wait, for nobody.
 *
 * Who has many tables makes them in a domain (`tm_lpm_domain_create`, `tm_lpm4_create_in`): every thread then has one worker for all of
 * them (`tm_lpm_worker_create`, `tm_lpm4_lookup_by`), and says once that it is between bursts. Tables of the structure "shared" store
 * what is alike in them once, as the tables of VRFs mostly are.
 *
 * Contract of every function: pointers are valid for what their type says, for the time of the call; handles come from
 * `tm_lpm*_create*` and `tm_lpm*_reader_create` and are freed once, when no thread uses them. A table and a domain may be used by several threads at
 * a time, a reader or a worker by one. Readers may outlive their table: they go on with its last state. A domain may be freed before what was
 * made in it. Arrays may be NULL if they are empty.
 * A function that fails returns a code other than `TM_LPM_OK`, changes nothing, and says why in `tm_lpm_last_error`.
 *
 */

#ifndef TIDEMILL_LPM_H
#define TIDEMILL_LPM_H

#include <stddef.h>
#include <stdint.h>

/*
 All went well.
 */
#define TM_LPM_OK 0

/*
 A pointer is NULL that must not be.
 */
#define TM_LPM_NULL 1

/*
 A pointer is not aligned, an array longer than memory, a string not UTF-8, or keys and labels overlap.
 */
#define TM_LPM_POINTER 2

/*
 A prefix is too long, or has host bits set.
 */
#define TM_LPM_PREFIX 3

/*
 No lookup structure of this family has this name.
 */
#define TM_LPM_ALGORITHM 4

/*
 The structure cannot hold the table, or there is no memory.
 */
#define TM_LPM_BUILD 5

/*
 The reader, or the worker, is offline.
 */
#define TM_LPM_OFFLINE 6

/*
 An error of ours. The table that it happened to cannot be changed any more; its readers go on.
 */
#define TM_LPM_PANIC 7

/*
 The table and the worker are of different domains.
 */
#define TM_LPM_DOMAIN 8

/*
 Tables of both families that one worker of each thread looks into.
 */
typedef struct tm_lpm_domain tm_lpm_domain;

/*
 One thread's way to look into a table of IPv4.
 */
typedef struct tm_lpm4_reader tm_lpm4_reader;

/*
 One thread's way to look into a table of IPv6.
 */
typedef struct tm_lpm6_reader tm_lpm6_reader;

/*
 A table of IPv4.
 */
typedef struct tm_lpm4 tm_lpm4;

/*
 A table of IPv6.
 */
typedef struct tm_lpm6 tm_lpm6;

/*
 One thread's way to look into all tables of a domain.
 */
typedef struct tm_lpm_worker tm_lpm_worker;

/*
 A route of IPv4.
 */
typedef struct {
    /*
     Address as a number: 10.0.0.1 is 0x0a000001.
     */
    uint32_t addr;
    /*
     Length of the prefix, 0 to 32.
     */
    uint8_t len;
    /*
     Label.
     */
    uint32_t label;
} tm_route4;

/*
 A route of IPv6.
 */
typedef struct {
    /*
     Address in network order.
     */
    uint8_t addr[16];
    /*
     Length of the prefix, 0 to 128.
     */
    uint8_t len;
    /*
     Label.
     */
    uint32_t label;
} tm_route6;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What the last function that failed in this thread had to say; valid until the next one fails. Never NULL.
 */
const char *tm_lpm_last_error(void);

/*
 Makes a domain. It goes to `*domain`.
 */
int32_t tm_lpm_domain_create(tm_lpm_domain **domain);

/*
 Frees a domain; its tables and workers go on. NULL is allowed.
 */
void tm_lpm_domain_free(tm_lpm_domain *domain);

/*
 Makes a worker, online, for one thread. It goes to `*worker`.
 */
int32_t tm_lpm_worker_create(const tm_lpm_domain *domain, tm_lpm_worker **worker);

/*
 Frees a worker. NULL is allowed.
 */
void tm_lpm_worker_free(tm_lpm_worker *worker);

/*
 Says that the thread is between two bursts. Call it often: what tables have replaced is kept until all workers have.
 */
int32_t tm_lpm_worker_quiescent(tm_lpm_worker *worker);

/*
 Says that the thread will not look up for a while: nobody waits for it until `tm_lpm_worker_online`.
 */
int32_t tm_lpm_worker_offline(tm_lpm_worker *worker);

/*
 Says that the thread will look up again.
 */
int32_t tm_lpm_worker_online(tm_lpm_worker *worker);

/*
 Makes a table of `count` routes; of several with one prefix the last counts. `algorithm` names the lookup structure; NULL is
 "auto", which chooses. The table goes to `*table`.
 */
int32_t tm_lpm4_create(const char *algorithm,
                       const tm_route4 *routes,
                       size_t count,
                       tm_lpm4 **table);

/*
 The same in a domain, where `algorithm` may also be "shared": what such tables of the domain have in common is stored once.
 */
int32_t tm_lpm4_create_in(const tm_lpm_domain *domain,
                          const char *algorithm,
                          const tm_route4 *routes,
                          size_t count,
                          tm_lpm4 **table);

/*
 Frees a table. NULL is allowed.
 */
void tm_lpm4_free(tm_lpm4 *table);

/*
 Notes that a route is to be added, or to have another label. Nobody sees it before `tm_lpm4_commit`.
 */
int32_t tm_lpm4_add(const tm_lpm4 *table,
                    uint32_t addr,
                    uint8_t len,
                    uint32_t label);

/*
 Notes that a route is to be removed; one that is not there will do no harm. Nobody sees it before `tm_lpm4_commit`.
 */
int32_t tm_lpm4_withdraw(const tm_lpm4 *table,
                         uint32_t addr,
                         uint8_t len);

/*
 Applies what was noted, in its order, while readers go on: each of their answers is the old one or the new one. The number of prefixes
 that are different now goes to `*changed` if that is not NULL. If the table cannot hold the changes, they are dropped.
 */
int32_t tm_lpm4_commit(const tm_lpm4 *table,
                       size_t *changed);

/*
 What the table is: its prefixes, the bytes that lookups can touch, and the name of its structure, cut to `room` bytes with a NUL at the
 end. Pointers that are NULL get nothing.
 */
int32_t tm_lpm4_describe(const tm_lpm4 *table,
                         size_t *prefixes,
                         size_t *bytes,
                         char *name,
                         size_t room);

/*
 Makes a reader, online, for one thread. It goes to `*reader`.
 */
int32_t tm_lpm4_reader_create(const tm_lpm4 *table, tm_lpm4_reader **reader);

/*
 Frees a reader. NULL is allowed.
 */
void tm_lpm4_reader_free(tm_lpm4_reader *reader);

/*
 The labels of `count` addresses (as numbers): `labels[i]` answers `keys[i]`. Bursts of 64 to 256 are quickest.
 */
int32_t tm_lpm4_lookup(const tm_lpm4_reader *reader,
                       const uint32_t *keys,
                       uint32_t *labels,
                       size_t count);

/*
 The same by a worker of the table's domain. The table must not be freed meanwhile.
 */
int32_t tm_lpm4_lookup_by(const tm_lpm4 *table,
                          const tm_lpm_worker *worker,
                          const uint32_t *keys,
                          uint32_t *labels,
                          size_t count);

/*
 Says that the thread is between two bursts. Call it often: what a table has replaced is kept until all its readers have.
 */
int32_t tm_lpm4_quiescent(tm_lpm4_reader *reader);

/*
 Says that the thread will not look up for a while: nobody waits for it until `tm_lpm4_online`.
 */
int32_t tm_lpm4_offline(tm_lpm4_reader *reader);

/*
 Says that the thread will look up again.
 */
int32_t tm_lpm4_online(tm_lpm4_reader *reader);

/*
 Makes a table of `count` routes; of several with one prefix the last counts. `algorithm` names the lookup structure; NULL is
 "auto", which chooses. The table goes to `*table`.
 */
int32_t tm_lpm6_create(const char *algorithm,
                       const tm_route6 *routes,
                       size_t count,
                       tm_lpm6 **table);

/*
 The same in a domain, where `algorithm` may also be "shared": what such tables of the domain have in common is stored once.
 */
int32_t tm_lpm6_create_in(const tm_lpm_domain *domain,
                          const char *algorithm,
                          const tm_route6 *routes,
                          size_t count,
                          tm_lpm6 **table);

/*
 Frees a table. NULL is allowed.
 */
void tm_lpm6_free(tm_lpm6 *table);

/*
 Notes that a route is to be added, or to have another label. Nobody sees it before `tm_lpm6_commit`.
 */
int32_t tm_lpm6_add(const tm_lpm6 *table,
                    const uint8_t (*addr)[16],
                    uint8_t len,
                    uint32_t label);

/*
 Notes that a route is to be removed; one that is not there will do no harm. Nobody sees it before `tm_lpm6_commit`.
 */
int32_t tm_lpm6_withdraw(const tm_lpm6 *table,
                         const uint8_t (*addr)[16],
                         uint8_t len);

/*
 Applies what was noted, in its order, while readers go on: each of their answers is the old one or the new one. The number of prefixes
 that are different now goes to `*changed` if that is not NULL. If the table cannot hold the changes, they are dropped.
 */
int32_t tm_lpm6_commit(const tm_lpm6 *table,
                       size_t *changed);

/*
 What the table is: its prefixes, the bytes that lookups can touch, and the name of its structure, cut to `room` bytes with a NUL at the
 end. Pointers that are NULL get nothing.
 */
int32_t tm_lpm6_describe(const tm_lpm6 *table,
                         size_t *prefixes,
                         size_t *bytes,
                         char *name,
                         size_t room);

/*
 Makes a reader, online, for one thread. It goes to `*reader`.
 */
int32_t tm_lpm6_reader_create(const tm_lpm6 *table, tm_lpm6_reader **reader);

/*
 Frees a reader. NULL is allowed.
 */
void tm_lpm6_reader_free(tm_lpm6_reader *reader);

/*
 The labels of `count` addresses (in network order): `labels[i]` answers `keys[i]`. Bursts of 64 to 256 are quickest.
 */
int32_t tm_lpm6_lookup(const tm_lpm6_reader *reader,
                       const uint8_t (*keys)[16],
                       uint32_t *labels,
                       size_t count);

/*
 The same by a worker of the table's domain. The table must not be freed meanwhile.
 */
int32_t tm_lpm6_lookup_by(const tm_lpm6 *table,
                          const tm_lpm_worker *worker,
                          const uint8_t (*keys)[16],
                          uint32_t *labels,
                          size_t count);

/*
 Says that the thread is between two bursts. Call it often: what a table has replaced is kept until all its readers have.
 */
int32_t tm_lpm6_quiescent(tm_lpm6_reader *reader);

/*
 Says that the thread will not look up for a while: nobody waits for it until `tm_lpm6_online`.
 */
int32_t tm_lpm6_offline(tm_lpm6_reader *reader);

/*
 Says that the thread will look up again.
 */
int32_t tm_lpm6_online(tm_lpm6_reader *reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TIDEMILL_LPM_H */
