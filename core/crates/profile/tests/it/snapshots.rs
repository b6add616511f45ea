//! Text forms of a small profile, written out.
