//! Bucketised cuckoo hashing: two buckets per key.

pub(crate) mod moves;
