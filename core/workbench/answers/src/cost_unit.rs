//! The flags `--per` and `--requests` of `diff`.

use crate::failure::Failure;

/// The unit of a cost, as `--per` names it.
#[derive(Clone, Copy)]
pub enum CostUnit<'g> {
    Run,
    /// With the number of requests on each side.
    Request([f64; 2]),
    /// A run, with a row for each value of this label.
    Label(&'g str),
}

impl<'g> CostUnit<'g> {
    /// Parses the values of `--per` and `--requests`.
    pub fn of(per: Option<&'g str>, requests: Option<[f64; 2]>) -> Result<Option<Self>, Failure> {
        Ok(match (per, requests) {
            (Some("request"), Some(requests)) => Some(Self::Request(requests)),
            (Some("request"), None) => {
                return Err(Failure::usage("--per request needs the number of requests on each side")
                    .hint("--requests BASELINE,COMPARISON, such as --requests 50000,50000"))
            }
            (_, Some(_)) => return Err(Failure::usage("--requests is for --per request")),
            (Some("run"), None) => Some(Self::Run),
            (Some(label), None) => Some(Self::Label(label)),
            (None, None) => None,
        })
    }

    /// `run` or `request`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Run | Self::Label(_) => "run",
        }
    }
}
