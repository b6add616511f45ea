/* The page: its panes and the figures above them. Last of the scripts, since it loads the page. */

/** Attributes of a pane whose content is the response of a request: busy while another one is due. */
function paneAttributes(id, part, name = "pane") {
  return { id, "aria-busy": String(pending.has(part)), class: paneClass(part, name) };
}
const paneClass = (part, name) => name + (pending.has(part) && responses[part]?.data ? " stale" : "");
/** What a pane shows without a response: the error, or what is loading. */
function PaneStatus({ part, loading }) {
  const { data, error } = responses[part] || {};
  if (data) return null;
  return error ? h(PaneError, { error }) : pending.has(part) ? h("p", { class: "nothing", role: "status" }, loading) : null;
}
function PaneError({ id, error }) {
  return h("p", { id, class: "problem", role: "alert" }, error + " ", h("button", { type: "button", onClick: () => load() }, "Retry"));
}

function Figures() {
  const { top } = responses;
  const figure = (value, words, kind) => h("span", {}, h("b", { class: kind }, value), " " + words);
  if (state.view === "compare") {
    const compared = responses.compare?.data;
    return h("div", { id: "figures", class: paneClass("compare", "figures") },
      compared && figure(amount(compared.comparison_total, compared.unit), typeWords(compared.type) + " in the comparison", "total"));
  }
  if (!top?.data) return h("div", { id: "figures", class: "figures" });
  const { data } = top;
  // The figures are of the response that is on the screen, also while another one is due.
  return h("div", { id: "figures", class: paneClass("top", "figures") },
    figure(amount(data.total, data.unit), typeWords(data.type), "total"),
    data.beside && figure(amount(data.beside.total, data.beside.unit), typeWords(data.beside.type)),
    !data.gauge && (data.samples === null ? figure(data.stacks.toLocaleString("en"), data.stacks === 1 ? "stack" : "stacks")
      : figure(data.samples.toLocaleString("en"), data.samples === 1 ? "sample" : "samples")),
    !embedded && (data.gauge ? h("span", {}, "in the newest of ", h("b", {}, counted(data.windows, "window")))
      : figure(data.windows.toLocaleString("en"), data.windows === 1 ? "window" : "windows")),
    data.indexing && h("span", { class: "warn" }, "still reading the profiles of earlier runs"));
}
/** What a partial result lacks. The server completes table and flame graph in the background; the others need a shorter range. */
function Partial() {
  const lacking = Object.entries(responses).find(([, response]) => response.data?.windows_left_out > 0);
  if (!lacking) return null;
  const [name, { data }] = lacking;
  const range = data.left_out_from_ms ? " (" + clock(data.left_out_from_ms, true) + " – " + clock(data.left_out_to_ms, true) + ")" : "";
  return h("p", { id: "partial", class: "note warn", role: "status" }, counted(data.windows_left_out, "older window") + " not included" + range +
    (isCompleted(name) && !data.too_large ? " yet: the server is reading." : ": narrow the range."));
}

function Downloads() {
  const formats = [["pprof", "pprof (.pb.gz)", "pb.gz"], ["otlp", "OTLP (.otlp.pb)", "otlp.pb"], ["folded", "Folded stacks (.txt)", "txt"], ["flamegraph", "This page (.html)", "html"]];
  const service = state.service && state.service !== "*" ? state.service : "profiles";
  const name = service.replace(/[^\w.-]+/g, "_") + "-" + state.type;
  return h("details", { class: "menu" }, h("summary", {}, "Download"), h("div", { id: "downloads" }, formats.map(([format, words, suffix]) =>
    h("a", { href: "/api/profile?" + filterOf(format === "flamegraph" ? { ...state, type: null } : state, now) + "&format=" + format, download: name + "." + suffix }, words))));
}
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(".menu")) if (!menu.contains(event.target)) menu.open = false;
});

const invert = () => change({ inverted: !state.inverted, callers: "", zoom: "" }, { loads: ["flame"] });
/** How the flame graph draws the stacks. */
function StackOptions() {
  const collapse = () => change({ recursion: state.recursion === "keep" ? "collapse" : "keep", zoom: "" }, { loads: ["flame"] });
  const check = (id, checked, onChange, words) => h("label", {}, h("input", { id, type: "checkbox", checked, onChange }), " " + words);
  return h("details", { class: "menu" }, h("summary", {}, "Stacks"), h("div", {},
    check("inverted", state.inverted, invert, "Inverted: callers below (i)"), check("collapse", state.recursion === "collapse", collapse, "Collapse recursion")));
}

function Panes() {
  const { view } = state;
  if (view === null) return null;
  const hasBeside = Boolean(responses.top?.data?.beside);
  const isOne = isRequestView();
  return h("div", { id: "panes", "data-view": isOne ? "request" : view, class: [hasBeside && "beside", hasFunctionPane() && "with-function"].filter(Boolean).join(" ") },
    (view === "both" || view === "top") && h(TopTable), (view === "both" || view === "flame") && h(FlamePane),
    view === "requests" && h(Requests), view === "compare" && h(Compare), hasFunctionPane() && h(FunctionPane));
}

function Page() {
  document.title = embedded ? embedded.title : (state.service === "*" ? "all services" : state.service || "(no service.name)") + " · spanprof";
  const failure = problem || responses.services?.error || responses.types?.error;
  return [
    h(Header),
    h("main", {},
      failure && h(PaneError, { id: "problem", error: failure }),
      isEmpty() ? h(Waiting) : responses.services?.data && [
        !embedded?.isComparison && h(Filters), !embedded && [h(LabelExplorer), h(Timeline), h(RangeNote), h(HoursNote), h(Partial)],
        h("section", { id: "content" },
          h("div", { class: "bar summary" }, h(Figures), h("div", { class: "actions" },
            hasFunctions() && h("input", { id: "search", type: "search", placeholder: "Search functions", spellcheck: false, "aria-label": "Search functions", value: state.search,
              onInput: (event) => search(event.target.value) }),
            h(LibrariesButton),
            !embedded?.isComparison && h(Radios, { id: "views", label: "View", options: Object.entries(VIEWS).filter(([view]) => !embedded || embedded.views.includes(view)), value: state.view, onChange: (view) => change({ view }) }),
            hasFlameGraph() && h(StackOptions), embedded ? embedded.about.length > 0 && h(About) : h(Downloads))),
          h(NothingPasses), h(Panes)), h(KeySheet),
      ]),
  ];
}

/** Whether the view has functions, which a search finds: the lists of requests have none. */
const hasFunctions = () => state.view !== "requests" || isOneRequest();
const hasFlameGraph = () => state.view === "both" || state.view === "flame" || isRequestView();

/** Renders at once: a response is on the screen before the next step of a load. */
function show() { render(h(Page), root.querySelector("#page")); }

applyTheme();
load();
