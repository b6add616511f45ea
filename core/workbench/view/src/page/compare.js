/* The view Compare: the selection of the page against a baseline, as a table and a flame graph of significant changes. */

const SHIFTS_MS = { hour: 3600e3, day: 86400e3, week: 7 * 86400e3 };

/** The range that is compared: that of the selected windows. */
function comparedRange() {
  return shownWindows() || [state.from ? milliseconds(state.from, now) : now - 3600e3, state.to ? milliseconds(state.to, now) : now];
}
/** The chosen baseline, else the time before where it has samples, else the first half of the range. */
function baseline() {
  if (state.base) return state.base;
  if (state.baseLabels) return "same";
  const before = responses.before?.data;
  // A partial response may lack the samples that exist.
  const isEmpty = before && !before.windows_left_out && !hasSamples(before);
  return hasProfilesBefore() && !isEmpty ? "previous" : "half";
}
/** Whether the profiles of the service begin before the middle of the time before. Which types and labels they have is not known. */
function hasProfilesBefore() {
  const [from, to] = comparedRange();
  const services = (responses.services?.data?.services || []).filter((service) => state.service === "*" || service.name === state.service);
  return Math.min(...services.map((service) => service.from_ms)) <= from - (to - from) / 2;
}
/** The samples of the time before, which decide about the baseline; null where no request is necessary. */
function beforeQuery() {
  if (embedded || state.base || state.baseLabels || !hasProfilesBefore()) return null;
  const query = stackFilter();
  const [from, to] = comparedRange();
  query.set("from", String(from - (to - from)));
  query.set("to", String(from));
  query.set("limit", "1");
  return query;
}
function comparisonQuery() {
  const query = stackFilter();
  query.set("limit", "500");
  if (state.baseLabels) query.set("baseline", "{" + state.baseLabels + "}");
  if (!state.absolute) query.set("normalize", "1");
  const base = baseline();
  if (base === "same") return query;
  const [from, to] = comparedRange();
  const middle = Math.round((from + to) / 2);
  const third = Math.round((to - from) / 3);
  const shift = base === "previous" ? to - from : SHIFTS_MS[base];
  // Windows that overlap a border would be on both sides; their ends are rounded to milliseconds.
  const ranges = base === "half" ? { from: middle, to, baseline_from: from, baseline_to: middle }
    : base === "thirds" ? { from: to - third, to, baseline_from: from, baseline_to: from + third }
    : { from: from + 1, to, baseline_from: from - shift, baseline_to: to - shift };
  for (const [name, value] of Object.entries(ranges)) query.set(name, String(value));
  return query;
}

function Compare() {
  return h("section", { ...paneAttributes("compare", "compare", "") }, h(CompareForm), h(ChangeTable), h(DiffFlamePane));
}

function CompareForm() {
  const { data } = responses.compare || {};
  const submit = (event) => {
    event.preventDefault();
    change({ baseLabels: event.currentTarget.elements["base-labels"].value.trim() });
  };
  const check = (id, name, words) => h("label", { class: "field" },
    h("input", { id, type: "checkbox", checked: name === "absolute" ? !state.absolute : state[name],
      onChange: () => change({ [name]: !state[name] }, name === "absolute" ? {} : { loads: [] }) }), h("span", {}, words));
  return h("form", { id: "compare-form", class: "compare-form", onSubmit: submit },
    !embedded && [h("label", { class: "field" }, h("span", {}, "Baseline"), h("select", { id: "base", value: baseline(), onChange: (event) => change({ base: event.target.value }) },
      Object.entries(BASELINES).map(([value, words]) => h("option", { value }, words)))),
    h("label", { class: "field" }, h("span", {}, "with"), h("input", { id: "base-labels", name: "base-labels", list: "suggestions", autocomplete: "off",
      spellcheck: false, defaultValue: state.baseLabels, placeholder: "service.version=1.2", "aria-label": "Labels of the baseline, separated by commas" })),
    check("shares", "absolute", "Compare shares")], check("all-changes", "allChanges", "All changes"), check("vanished", "vanished", "Vanished"),
    data && h("p", { id: "compare-basis" }, h("b", {}, amount(data.baseline_total, data.unit) + " → " + amount(data.comparison_total, data.unit)), "; " + data.basis + "."));
}

/** Values of a comparison of shares, back in the amounts of their side. */
function comparedAmounts(data) {
  const isScaled = !state.absolute && data.comparison_total > 0 && data.baseline_total > 0;
  const scale = isScaled ? data.comparison_total / data.baseline_total : 1;
  return { before: (value) => amount(value, data.unit), after: (value) => amount(value * scale, data.unit) };
}

function ChangeTable() {
  const { data } = responses.compare || {};
  if (!data) return h("div", { class: "pane" }, h(PaneStatus, { part: "compare", loading: "Loading the comparison…" }));
  const showsAll = state.allChanges || data.tested === 0;
  const { before, after } = comparedAmounts(data);
  // The end of an interval is absent where it is infinite.
  const end = (value) => (value === null ? "∞" : value >= 100 ? ">9,999%" : signed(value));
  const interval = (growth) => (growth ? end(growth.low) + " … " + end(growth.high) : "–");
  const functions = data.rows.filter((row) => row.significant || showsAll).slice(0, 300).map((row) => {
    const { baseline: old, comparison: current } = row;
    const change = current.flat === old.flat ? "–" : old.cum === 0 ? "new" : current.cum === 0 ? "gone"
      : old.flat === 0 ? "from 0" : current.flat === 0 ? "to 0" : signed(current.flat / old.flat - 1);
    return h("tr", { class: (row.significant ? (current.flat > old.flat ? "grew" : "shrank") : "") + (isChosen(row) ? " chosen" : ""), ...pressable(() => choose(row.function, row.file)) },
      h("td", { class: "number" }, before(old.flat)), h("td", { class: "number" }, after(current.flat)),
      h("td", { class: "number change" }, change), h("td", { class: "number interval" }, interval(row.growth)),
      h(NameCell, { name: row.function, file: row.file, line: row.line }));
  });
  const paths = [["new", data.new_paths], ["vanished", data.vanished_paths]].flatMap(([kind, paths]) =>
    paths.filter((path) => path.significant || showsAll).slice(0, 50).map((path) => {
      const name = path.functions[path.functions.length - 1];
      return h("tr", { class: (kind === "new" ? "grew" : "shrank") + (name === state.chosen ? " chosen" : ""), ...pressable(() => choose(name)) },
        h("td", { class: "number" }, kind === "new" ? "0" : before(path.cum)), h("td", { class: "number" }, kind === "new" ? after(path.cum) : "0"),
        h("td", { class: "number change" }, kind), h("td", { class: "number interval" }, path.samples === null ? "–" : counted(path.samples, "sample")),
        h("td", { class: "name", title: path.functions.join("\n") }, h("div", {}, "… > " + path.functions.slice(-3).join(" > ")), h("small", {}, "call path")));
    }));
  const hidden = data.rows.length ? " " + counted(data.rows.length, "difference") + " may be chance." : "";
  const empty = data.comparison_total === 0 ? "The comparison has no samples."
    : data.baseline_total === 0 ? "The baseline has no samples: choose another one above." : "No significant change." + hidden;
  const heads = [["Baseline", "number"], ["Comparison", "number"], [state.absolute ? "Change" : "Change of the share", "number"], ["95 % interval", "number interval"], ["Function", ""]];
  return h("div", { class: "pane" }, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Changes" },
    h(RowTable, { id: "compare-rows", heads: heads.map(([words, kind]) => h("th", { class: kind, scope: "col" }, words)), rows: [functions, paths] }),
    !functions.length && !paths.length && h("p", { class: "nothing" }, empty)));
}
