//! NAT held to the RFCs, to a model, and to bytes that are no packets.

mod model;
mod packets;
mod requirements;
mod workers;
