//! The laws of the window: sums, periods, times, caps and the unseen.
