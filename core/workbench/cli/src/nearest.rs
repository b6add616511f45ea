//! The name nearest to a mistyped one. Called by the verbs and by the configuration of `scrape`.

/// Similarity from which a name is proposed: a typo, or a missing letter.
const MIN_SIMILARITY: f64 = 0.8;

/// The candidate that is most similar to `name` without case, if it is similar enough.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let similarity = |candidate: &str| strsim::jaro_winkler(&name, &candidate.to_lowercase());
    let scored = candidates.into_iter().map(|candidate| (similarity(candidate), candidate));
    let (score, candidate) = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (score > MIN_SIMILARITY).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_name_is_proposed() {
        let services = ["checkout", "cart", "search"];
        assert_eq!(nearest("chekout", services), Some("checkout"));
        assert_eq!(nearest("Cart", services), Some("cart"));
        assert_eq!(nearest("billing", services), None);
        assert_eq!(nearest("cart", []), None);
    }
}
