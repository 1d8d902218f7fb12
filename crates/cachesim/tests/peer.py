"""Runs an oracleGeneral log through libCacheSim: `peer.py LOG REQUESTS CAPACITY...` prints `policy capacity hits` lines."""

import sys

import libcachesim
from libcachesim import TraceReader, TraceType

log, requests, capacities = sys.argv[1], int(sys.argv[2]), [int(word) for word in sys.argv[3:]]
NAMES = {"fifo": "FIFO", "lru": "LRU", "clock": "Clock", "sieve": "Sieve", "s3fifo": "S3FIFO"}
for name, class_name in NAMES.items():
    for capacity in capacities:
        reader = TraceReader(trace=log, trace_type=TraceType.ORACLE_GENERAL_TRACE)
        misses, _ = getattr(libcachesim, class_name)(capacity).process_trace(reader)
        print(name, capacity, round((1 - misses) * requests))
