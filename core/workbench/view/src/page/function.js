/* The pane of the selected function: its callers and callees, and its source lines. */

/** Rows of callers and of callees before the button that shows all. */
const NEIGHBOR_ROWS = 8;

/** The change of the state that selects a function; `file` and `line` distinguish functions of one name. */
const chosenBy = (name, file = "", line = 0) => ({ chosen: name, chosenFile: file, chosenLine: line ? String(line) : "" });
function isChosen({ function: name, file, line }) {
  return name === state.chosen && (!state.chosenFile || file === state.chosenFile) && (!state.chosenLine || String(line || "") === state.chosenLine);
}
const hasFunctionPane = (view = state.view) => Boolean(state.chosen) && view !== "compare" && (view !== "requests" || isOneRequest());

function functionQuery() {
  const query = shownFilter();
  query.set("name", state.chosen);
  if (state.chosenFile) query.set("file", state.chosenFile);
  if (state.chosenLine) query.set("line", state.chosenLine);
  return query;
}

class FunctionPane extends Component {
  render() {
    const { data } = responses.function || {};
    const attributes = { ...paneAttributes("function", "function"), "aria-label": "Function " + state.chosen };
    const close = h("button", { type: "button", class: "quiet", "aria-label": "Close the function", onClick: () => choose("") }, "×");
    if (!data) return h("section", attributes, h(FunctionHead, { name: state.chosen, close }), h(PaneStatus, { part: "function", loading: "Loading the function…" }));
    if (!data.matched) return h("section", attributes, h(FunctionHead, { name: state.chosen, close }), h("p", { class: "nothing" }, "No sample here has this function."));
    return h("section", attributes, h(FunctionHead, { name: data.function, close }),
      h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Callers, callees and source" },
        h("p", { class: "soft" }, [data.file && data.file + (data.line ? ":" + data.line : ""), Flamegraph.kindWords(data.frame_type)].filter(Boolean).join(" · ")),
        h("p", { id: "function-weight", class: "soft" }, h("b", {}, amount(data.cum, data.unit)), " total, " + share(data.cum, data.total) + " · ",
          h("b", {}, amount(data.flat, data.unit)), " self, " + share(data.flat, data.total), " " + nativeNote(data, data.total)),
        data.matched > 1 && h("p", { class: "soft" }, "The heaviest of " + data.matched + " functions of this name."),
        h(NeighborTable, { key: "callers" + data.function + data.file, id: "callers", title: "Callers", rows: data.callers, count: data.caller_count, data }),
        h(NeighborTable, { key: "callees" + data.function + data.file, id: "callees", title: "Callees", rows: data.callees, count: data.callee_count, data }),
        data.source && h(SourceLines, { data })));
  }
}

const FunctionHead = ({ name, close }) => h("div", { class: "function-head" }, h("h2", { title: name }, name || "(no name)"), close);

class NeighborTable extends Component {
  render({ id, title, rows, count, data }) {
    const shown = this.state.all ? rows : rows.slice(0, NEIGHBOR_ROWS);
    const isOutermost = (row) => row.function === "root" && !row.file && !row.line;
    const row = (neighbor) => h("tr", isOutermost(neighbor) ? { class: "fixed" } : pressable(() => choose(neighbor.function, neighbor.file, neighbor.line)),
      h(NumberCell, { value: neighbor.weight, total: data.cum, unit: data.unit }),
      isOutermost(neighbor) ? h("td", { class: "name" }, h("div", {}, "(outermost function of the stack)"))
        : h(NameCell, { name: neighbor.function, file: neighbor.file, line: neighbor.line }));
    return [h("h3", {}, title, h("small", {}, " " + count.toLocaleString("en"))),
      rows.length ? h(RowTable, { id, rows: shown.map(row) }) : h("p", { class: "soft" }, "None."),
      shown.length < rows.length && h("button", { type: "button", class: "link", onClick: () => this.setState({ all: true }) },
        "All " + (rows.length < count ? rows.length + " heaviest" : rows.length)),
    ];
  }
}

/** The lines of the file, shaded by their self weight. Without the file, the lines that have a weight. */
function SourceLines({ data }) {
  const { source } = data;
  const highest = Math.max(1, ...source.lines.map((line) => line.flat));
  const address = (line) => source.link?.replaceAll("{line}", line || data.line || 1);
  const cell = (value) => h("td", { class: "number" }, value ? amount(value, data.unit) : "");
  const rows = source.lines.map((line) => h("tr", { style: { "--heat": Math.round((100 * line.flat) / highest) + "%" } },
    cell(line.flat), cell(line.cum), h("td", { class: "line" }, line.line || "?"), h("td", { class: "text" }, line.text ?? "")));
  const weighted = source.lines.find((line) => line.flat === highest) || source.lines[0];
  return [h("h3", {}, "Source", source.path && h("small", {}, " " + source.path),
    source.link && [" ", h("a", { id: "source-link", href: address(weighted?.line), target: "_blank", rel: "noopener noreferrer" }, "Open in the repository")]),
    source.note && h("p", { id: "source-note", class: "soft" }, source.note),
    h("div", { class: "source", tabIndex: 0, role: "region", "aria-label": "Source lines" },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "number", scope: "col" }, "Self"), h("th", { class: "number", scope: "col" }, "Total"),
        h("th", { class: "line", scope: "col" }, "Line"), h("th", { class: "text", scope: "col" }, "Text"))), h("tbody", { id: "source-lines" }, rows)))];
}
