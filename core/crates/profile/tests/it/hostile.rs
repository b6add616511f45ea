//! Hostile input ends in an error, not in a panic, a hang or a full memory (R26, R27). Sizes, not times, are tested: what
//! bounds the time is that nothing is allocated beyond the limits.
