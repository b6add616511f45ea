//! The page of `spanprof serve` in a browser: the tests of `xtask/live/page`, which send profiles of known weights and use the
//! page with mouse and keyboard.

use crate::arguments::LiveArguments;
use crate::languages::node;
use crate::scratch;
use crate::step::StepResult;
use crate::tally::Tally;

pub fn run(_: &LiveArguments) -> StepResult {
    let screenshots = scratch::empty("live-serve")?.join("screenshots");
    node::suite::page(&screenshots, &mut Tally::default())
}
