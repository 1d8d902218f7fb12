//! Time: no answer past a value's, whether it was given as seconds, as a date, by `touch`, or to all by `flush_all`.

use crate::contract::lab::turn;
use crate::ends;

#[test]
fn no_answer_past_its_time() {
    let Some(_turn) = turn("no_answer_past_its_time") else { return };
    ends::past(&crate::front::cached());
}

#[test]
fn touch_and_gat_change_the_time() {
    let Some(_turn) = turn("touch_and_gat_change_the_time") else { return };
    ends::touched(&crate::front::cached());
}

#[test]
fn flush_all_now_and_later() {
    let Some(_turn) = turn("flush_all_now_and_later") else { return };
    ends::flushed(&crate::front::cached());
}
