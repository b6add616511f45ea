//! The page of `spanprof serve` in a real browser: services, types, time range, the filters by label, trace and span, the
//! flame graph and the table must show what was sent, and what a filter leaves out must be gone.

use std::path::PathBuf;

use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Step};
use crate::verbs::demo::{self, Server};
use crate::{pythons, scratch, venv, verbs};

const SERVICE: &str = "live-page";

/// What the address bar asks for, and which of the program's two functions the page must then show: the one inside the span
/// and the one outside.
const VIEWS: [(&str, bool, bool); 6] = [
    ("", true, true),
    ("type=wall", true, true),
    ("label=endpoint%3D%2Fcart", true, false),
    ("trace_id=0af7651916cd43dd8448eb211c80319c", true, false),
    ("span_id=b7ad6b7169203331", true, false),
    ("from=1000000000&to=1000000060", false, false),
];
const FUNCTIONS: [&str; 2] = ["burn_with_span", "burn_alone"];

pub fn run(_: &Arguments) -> Outcome {
    let browser = browser()?;
    let folder = scratch::empty("live-serve")?;
    let python = pythons::preferred()?;
    let venv = venv::Venv::with("live", &python, &[])?;
    venv.install_wheel(&verbs::wheel::build_for_tests()?)?;
    let server = Server::start(&super::command_line()?, &folder, &demo::Ports::free()?)?;
    let endpoint = format!("http://127.0.0.1:{}", server.http_port);
    Step::new("a Python program to look at", venv.python())
        .arg("xtask/live/pprof/program.py")
        .args([endpoint.as_str(), SERVICE])
        .run()?;
    let browser = Browser { program: browser, folder };
    browser.picture(&endpoint)?;
    let page = browser.page(&endpoint)?;
    let types = [("types", ">cpu</button>"), ("types", ">wall</button>")];
    for (part, wanted) in [("service", SERVICE), ("range", "Last hour"), ("timeline", "<rect")].into_iter().chain(types)
    {
        if !part_of(&page, part).is_some_and(|part| part.contains(wanted)) {
            return Err(browser.wrong(&format!("`{wanted}` is not in `{part}`")));
        }
    }
    for (asked, within, outside) in VIEWS {
        for (function, is_wanted) in FUNCTIONS.into_iter().zip([within, outside]) {
            // The search marks the function in the flame graph, and leaves every row of the table when there is one.
            let page = browser.page(&format!("{endpoint}/?{asked}&search={function}"))?;
            let in_table = part_of(&page, "top-rows").is_some_and(|rows| rows.contains(&format!(">{function}</div>")));
            let in_graph = marked_weight(&page).is_some_and(|weight| weight > 0);
            if !page.contains("data-ready=\"true\"") || in_table != is_wanted || in_graph != is_wanted {
                let what = format!("`?{asked}`: {function} in the table: {in_table}, in the flame graph: {in_graph}");
                return Err(browser.wrong(&format!("{what}; expected {is_wanted}")));
            }
        }
    }
    println!("the page shows what was sent, filtered too; picture: {}", browser.folder.join("page.png").display());
    Ok(())
}

/// What lies in the element of this id, up to the end of its kind of element.
fn part_of<'a>(page: &'a str, id: &str) -> Option<&'a str> {
    let (before, after) = page.split_once(&format!("id=\"{id}\""))?;
    let kind = before.rsplit_once('<')?.1.split_whitespace().next()?;
    Some(after.split_once(&format!("</{kind}>"))?.0)
}

/// The weight that the flame graph marks for the search.
fn marked_weight(page: &str) -> Option<u64> {
    page.split_once("data-matched=\"")?.1.split_once('"')?.0.parse().ok()
}

fn browser() -> Outcome<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    let found =
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file());
    found.ok_or_else(|| Failure::new("find Chromium", "no chromium on PATH").with_way_out("apt-get install chromium"))
}

struct Browser {
    program: PathBuf,
    folder: PathBuf,
}

impl Browser {
    fn step(&self, name: &str) -> Step {
        let quiet = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,900",
            "--virtual-time-budget=8000",
        ];
        let own = format!("--user-data-dir={}", self.folder.join("browser").display());
        Step::new(name, &self.program).args(quiet).arg(own)
    }

    fn picture(&self, address: &str) -> Outcome {
        let picture = format!("--screenshot={}", self.folder.join("page.png").display());
        self.step("picture of the page").arg(picture).arg(address).capture_any().map(drop)
    }

    /// The page as the browser has it after its scripts ran.
    fn page(&self, address: &str) -> Outcome<String> {
        // Its standard error speaks of the desktop that is not there; what counts is the page.
        let (status, page) =
            self.step("page in Chromium").args(["--log-level=3", "--dump-dom", address]).capture_any()?;
        if !status.success() {
            return Err(Failure::new("page in Chromium", format!("ended with {status}: {page}")));
        }
        scratch::write(&self.folder.join("page.html"), &page)?;
        Ok(page)
    }

    fn wrong(&self, what: &str) -> Failure {
        let kept = self.folder.join("page.html");
        Failure::new("page in Chromium", format!("{what}; the page is kept in {}", kept.display()))
    }
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
