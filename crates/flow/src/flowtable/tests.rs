//! Tests of the flow table beyond the family's suite.
