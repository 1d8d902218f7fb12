//! What is known of a flow, and what its packets and decisions do to it.
