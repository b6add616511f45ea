//! The page of `spanprof serve` in a browser: services, types, time range, filters by label, trace and span, flame graph and
//! table must show the sent profiles, without samples that a filter excludes. Then the tests of `xtask/live/page`, which use the
//! page with mouse and keyboard.

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::browser::Browser;
use crate::languages::{node, python};
use crate::scratch;
use crate::step::{ProcessStep, StepResult};
use crate::tally::Tally;
use crate::verbs::demo::{self, DemoServer};

const SERVICE: &str = "live-page";
/// Query of the address bar, and whether the page must show the program's function inside the span and the one outside.
const VIEWS: [(&str, bool, bool); 6] = [
    ("", true, true),
    ("type=wall", true, true),
    ("label=endpoint%3D%2Fcart", true, false),
    ("trace_id=0af7651916cd43dd8448eb211c80319c", true, false),
    ("span_id=b7ad6b7169203331", true, false),
    ("from=1000000000&to=1000000060", false, false),
];
const FUNCTIONS: [&str; 2] = ["burn_with_span", "burn_alone"];

pub fn run(_: &LiveArguments) -> StepResult {
    let directory = scratch::empty("live-serve")?;
    let browser = Browser::find(directory.clone())?;
    let python = python::runtimes::preferred()?;
    let venv = python::Venv::with("live", &python, &[])?;
    venv.install_wheel(&python::package::build_for_tests()?)?;
    let server = DemoServer::start(&artifact::command_line()?, &directory, &demo::Ports::free()?)?;
    let endpoint = format!("http://127.0.0.1:{}", server.http_port);
    ProcessStep::new("a Python program that sends profiles", venv.python())
        .arg("xtask/live/pprof/program.py")
        .args([endpoint.as_str(), SERVICE])
        .run()?;
    browser.screenshot(&endpoint, &browser.directory.join("page.png"), 900)?;
    let page = browser.page(&endpoint)?;
    let types = [("types", ">cpu</button>"), ("types", ">wall</button>"), ("types", ">inuse_space</button>")];
    for (part, expected) in
        [("service", SERVICE), ("range", "Last hour"), ("timeline", "<rect")].into_iter().chain(types)
    {
        if !part_of(&page, part).is_some_and(|part| part.contains(expected)) {
            return Err(browser.wrong(&format!("`{expected}` is not in `{part}`")));
        }
    }
    for (query, within, outside) in VIEWS {
        for (function, is_expected) in FUNCTIONS.into_iter().zip([within, outside]) {
            // The search highlights the function in the flame graph and filters the table.
            let page = browser.page(&format!("{endpoint}/?{query}&search={function}"))?;
            let in_table = part_of(&page, "top-rows").is_some_and(|rows| rows.contains(&format!(">{function}</div>")));
            let in_graph = marked_weight(&page).is_some_and(|weight| weight > 0);
            if !page.contains("data-ready=\"true\"") || in_table != is_expected || in_graph != is_expected {
                let found = format!("`?{query}`: {function} in the table: {in_table}, in the flame graph: {in_graph}");
                return Err(browser.wrong(&format!("{found}; expected {is_expected}")));
            }
        }
    }
    nothing_passes(&browser, &endpoint)?;
    beside_each_other(&browser, &endpoint)?;
    compared_with_itself(&browser, &endpoint)?;
    println!(
        "the page shows the sent profiles, also filtered; screenshot: {}",
        browser.directory.join("page.png").display()
    );
    node::suite::page(&browser.directory.join("screenshots"), &mut Tally::default())
}

/// Where no sample passes, the page names the filter that excludes all of them.
fn nothing_passes(browser: &Browser, endpoint: &str) -> StepResult {
    for filter in ["color=blue", "trace_id=00000000000000000000000000000001"] {
        let query = format!("type=cpu&label=endpoint%3D%2Fcart&label={}", filter.replace('=', "%3D"));
        let page = browser.page(&format!("{endpoint}/?{query}"))?;
        let text = part_of(&page, "nothing").unwrap_or_default();
        if !text.contains(&format!("Without {filter}, some would.")) {
            return Err(browser.wrong(&format!("`?{query}`: `{text}` does not name `{filter}`")));
        }
    }
    Ok(())
}

/// The table of objects in use has columns of the allocated ones, with the amounts of the program.
fn beside_each_other(browser: &Browser, endpoint: &str) -> StepResult {
    let page = browser.page(&format!("{endpoint}/?type=inuse_space&view=top&search=main"))?;
    let head = part_of(&page, "top-head").unwrap_or_default();
    let rows = part_of(&page, "top-rows").unwrap_or_default();
    // 20 MB, sampled every 16 KiB.
    let amounts = rows.matches("\u{a0}MiB").count() + rows.matches("&nbsp;MiB").count();
    match head.contains("In use, self") && head.contains("Allocated, total") && amounts >= 2 {
        true => Ok(()),
        false => Err(browser.wrong(&format!("in use and allocated are not side by side: `{head}`, `{rows}`"))),
    }
}

/// The same samples as baseline and comparison have no change, in the table and in the flame graph.
fn compared_with_itself(browser: &Browser, endpoint: &str) -> StepResult {
    let page = browser.page(&format!("{endpoint}/?type=cpu&view=compare&base=same"))?;
    let rows = part_of(&page, "compare-rows").unwrap_or_default();
    let is_drawn = page.contains("data-ready=\"true\"") && page.contains(", unchanged</span>");
    match page.contains("No significant change.") && is_drawn {
        true => Ok(()),
        false => Err(browser.wrong(&format!("the comparison of equal sides: `{rows}`, drawn: {is_drawn}"))),
    }
}

/// Content of the element with this id, up to the next closing tag of its kind.
fn part_of<'a>(page: &'a str, id: &str) -> Option<&'a str> {
    let (before, after) = page.split_once(&format!("id=\"{id}\""))?;
    let kind = before.rsplit_once('<')?.1.split_whitespace().next()?;
    Some(after.split_once(&format!("</{kind}>"))?.0)
}

/// Weight of the flame graph's search results.
fn marked_weight(page: &str) -> Option<u64> {
    page.split_once("data-matched=\"")?.1.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_marks_are_read_from_a_page() {
        let page = r#"<script>"top-rows"</script><tbody class="x" id="top-rows"><tr><td>burn</td></tr></tbody>
                      <div class="flamegraph" data-matched="30"></div>"#;
        assert_eq!(part_of(page, "top-rows"), Some("><tr><td>burn</td></tr>"));
        assert_eq!(part_of(page, "types"), None);
        assert_eq!(marked_weight(page), Some(30));
    }
}
