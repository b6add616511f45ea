/* The table of functions. The server sorts, searches and counts, over all functions. */

/** Sorted by another column, the table begins at its start again. */
function sortBy(sort) {
  tableLimit = TABLE_ROWS;
  change({ sort }, { loads: ["top"] });
}
function search(text) {
  tableLimit = TABLE_ROWS;
  change({ search: text, ...chosenBy("") }, { isStep: false, loads: partsOfSearch(["top"]) });
}
/** A second click on the same row clears the selection. */
function choose(name, file, line) {
  const isSame = Boolean(state.chosen) && isChosen({ function: name, file, line });
  change(isSame ? chosenBy("") : chosenBy(name, file, line), { isStep: false, loads: partsOfSearch(isSame || !name ? [] : ["function"]) });
}
/** Attributes of a row of a [`RowTable`] that is used like a button. */
const pressable = (onClick) => ({ tabIndex: -1, onClick });
/** A table with rows that are used like buttons. It is one Tab stop, as a grid of WAI-ARIA: arrow keys move to other rows, and to the button of a row. */
class RowTable extends Component {
  rows() { return [...this.base.querySelectorAll("tbody > tr[tabindex]")]; }
  componentDidMount() { this.componentDidUpdate(); }
  componentDidUpdate() {
    const rows = this.rows();
    if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
  }
  focused({ target }) {
    const rows = this.rows(), row = target.closest("tr");
    if (rows.includes(row)) for (const other of rows) other.tabIndex = other === row ? 0 : -1;
  }
  move(event) {
    const rows = this.rows(), row = event.target.closest("tr"), at = rows.indexOf(row);
    if (at < 0) return;
    const next = { ArrowUp: rows[at - 1], ArrowDown: rows[at + 1], Home: rows[0], End: rows.at(-1), ArrowLeft: row, ArrowRight: row.querySelector("button") }[event.key];
    if (event.key === "Enter" && event.target === row) row.click();
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
  render({ id, kind, heads, headId, rows }) {
    return h("table", { class: kind, role: "grid", onFocusIn: (event) => this.focused(event), onKeyDown: (event) => this.move(event) },
      heads && h("thead", { id: headId }, h("tr", {}, heads)), h("tbody", { id }, rows));
  }
}

/** A cell with a bar relative to the total of its column. */
function NumberCell({ value, total, unit, name = "" }) {
  return h("td", { class: "number " + name, style: { "--share": Math.max(0, Math.min(100, total ? (100 * value) / total : 0)) + "%" } },
    amount(value, unit), h("small", {}, share(value, total)));
}
/** A qualified name, which may continue on the next line after each of its parts. */
const withBreaks = (name) => name.split(/(?<=[.:$])(?=\w)/).flatMap((part, at) => (at ? [h("wbr"), part] : part));
function NameCell({ name, file, line, note }) {
  const place = file + (file && line ? ":" + line : "");
  return h("td", { class: "name", title: name + "\n" + place }, h("div", {}, withBreaks(name || "(no name)")), h("small", {}, "\u200e" + place),
    note && h("small", {}, "\u200e" + note));
}
/** The native code that a function called, beside its self weight. */
const nativeNote = (row, total) => (row.with_native > row.flat ? "+ " + share(row.with_native - row.flat, total) + " in native code" : "");

const BESIDE_WORDS = {
  alloc_space: "Allocated", inuse_space: "In use", alloc_objects: "Allocated", inuse_objects: "In use", contentions: "Waits", delay: "Delay",
};
const OWN_TITLE = "Samples in which this is the innermost function of own code: with the libraries and the runtime that it calls";
function TopTable() {
  const { data } = responses.top || {};
  const attributes = paneAttributes("top", "top");
  if (!data) return h("section", attributes, h(PaneStatus, { part: "top", loading: "Loading the functions…" }));
  const { beside } = data;
  const word = (type, text) => (beside ? BESIDE_WORDS[type] + ", " + text.toLowerCase() : text);
  const columns = [["flat", word(data.type, "Self")], ["own", word(data.type, "Own"), OWN_TITLE], ["cum", word(data.type, "Total")]];
  if (beside) columns.push(["beside_flat", word(beside.type, "Self")], ["beside_cum", word(beside.type, "Total")]);
  columns.push(["function", "Function"]);
  const heads = columns.map(([name, words, title]) => {
    const direction = name === "function" ? "ascending" : "descending";
    const isSorted = state.sort === name;
    return h("th", { class: name === "function" ? "" : "number", "data-sort": name, "aria-sort": isSorted ? direction : null, scope: "col" },
      h("button", { type: "button", title, onClick: () => sortBy(name) }, words, isSorted && (name === "function" ? " ↑" : " ↓")));
  });
  const rows = data.rows.map((row) => h("tr", { class: isChosen(row) ? "chosen" : "", ...pressable(() => choose(row.function, row.file, row.line)) },
    ["flat", "own", "cum"].map((name) => h(NumberCell, { value: row[name], total: data.total, unit: data.unit, name })),
    beside && [h(NumberCell, { value: row.beside_flat, total: beside.total, unit: beside.unit }),
      h(NumberCell, { value: row.beside_cum, total: beside.total, unit: beside.unit })],
    h(NameCell, { name: row.function, file: row.file, line: row.line, note: nativeNote(row, data.total) })));
  const matching = data.matching ?? data.functions;
  return h("section", attributes, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Functions" },
    h(RowTable, { id: "top-rows", headId: "top-head", heads, rows }),
    state.search && !matching && data.functions > 0 && h("p", { class: "nothing" }, "None of " + counted(data.functions, "function") + " has “" + state.search + "” in its name or file. ",
      h("button", { type: "button", class: "remove-filter", onClick: () => search("") }, "Remove the search")),
    matching > data.rows.length && h("p", { class: "more" }, data.rows.length.toLocaleString("en") + " of " + matching.toLocaleString("en") + " functions. ",
      h("button", { type: "button", id: "more", onClick: () => { tableLimit += 4 * TABLE_ROWS; load(["top"]); } }, "Show more"))));
}
