//! Commands over TCP, however they are cut: at every byte, in pieces, in crowds, out of order, twice, and among segments that are
//! none of the connection's.

use crate::contract::lab::turn;
use crate::cuts;

#[test]
fn commands_cut_at_every_byte() {
    let Some(_turn) = turn("commands_cut_at_every_byte") else { return };
    cuts::cut_anywhere(&crate::front::cached());
}

#[test]
fn commands_of_one_byte_a_segment() {
    let Some(_turn) = turn("commands_of_one_byte_a_segment") else { return };
    cuts::byte_by_byte(&crate::front::cached());
}

#[test]
fn commands_in_crowds() {
    let Some(_turn) = turn("commands_in_crowds") else { return };
    cuts::crowds(&crate::front::cached());
}

#[test]
fn a_last_word_without_a_reply() {
    let Some(_turn) = turn("a_last_word_without_a_reply") else { return };
    cuts::last_words(&crate::front::cached());
}

#[test]
fn datagrams_in_fragments() {
    let Some(_turn) = turn("datagrams_in_fragments") else { return };
    cuts::fragments(&crate::front::cached());
}

#[test]
fn segments_out_of_order_twice_and_overlapping() {
    let Some(_turn) = turn("segments_out_of_order_twice_and_overlapping") else { return };
    cuts::out_of_order(&crate::front::cached());
}

#[test]
fn segments_that_are_not_the_connections() {
    let Some(_turn) = turn("segments_that_are_not_the_connections") else { return };
    cuts::strangers(&crate::front::cached());
}

#[test]
fn a_port_that_is_used_again() {
    let Some(_turn) = turn("a_port_that_is_used_again") else { return };
    cuts::used_again(&crate::front::cached());
}

#[test]
fn a_port_that_is_used_again_by_cookie() {
    let Some(_turn) = turn("a_port_that_is_used_again_by_cookie") else { return };
    cuts::used_again_by_cookie(&crate::front::cached());
}
