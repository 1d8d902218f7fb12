//! memcached's three protocols: requests and replies, whole in a slice or as a stream in pieces.
