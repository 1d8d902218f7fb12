//! NAT held to the RFCs, to a model, and to bytes that are no packets.

mod packets;
mod requirements;
