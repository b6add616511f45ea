/* The view Compare: the selection of the page against a baseline, as a table and a flame graph of significant changes. */

const BASELINES = { previous: "Same length before", hour: "One hour before", day: "One day before", week: "One week before", same: "Same time" };
const SHIFTS_MS = { hour: 3600e3, day: 86400e3, week: 7 * 86400e3 };
let diffFlamegraph = null;

function readComparison(query) {
  state.base = Object.hasOwn(BASELINES, query.get("base")) ? query.get("base") : "previous";
  state.baseLabels = query.get("baseline") || "";
  state.absolute = query.get("absolute") === "1";
}
function writeComparison(query) {
  if (state.base !== "previous") query.set("base", state.base);
  if (state.baseLabels) query.set("baseline", state.baseLabels);
  if (state.absolute) query.set("absolute", "1");
}

/** The query of /api/diff. Ranges have ends, so that a baseline of the same length exists. */
function comparisonQuery() {
  const query = selection(false);
  if (state.baseLabels) query.set("baseline", "{" + state.baseLabels + "}");
  if (!state.absolute) query.set("normalize", "1");
  if (state.base === "same") return query;
  const from = Math.floor(state.from ? milliseconds(state.from) : shownRange[0]);
  const to = Math.ceil(state.to ? milliseconds(state.to) : Math.max(now, shownRange[1]));
  const shift = state.base === "previous" ? to - from : SHIFTS_MS[state.base];
  for (const [name, value] of [["from", from], ["to", to], ["baseline_from", from - shift], ["baseline_to", to - shift]]) query.set(name, String(value));
  return query;
}

async function compare(mine) {
  showComparisonForm();
  const found = await request("diff", comparisonQuery() + "&limit=500");
  if (mine !== round) return;
  showComparison(found);
}

function showComparisonForm() {
  byId("base").replaceChildren(...Object.entries(BASELINES).map(([value, words]) => element("option", { value }, words)));
  byId("base").value = state.base;
  if (document.activeElement !== byId("base-labels")) byId("base-labels").value = state.baseLabels;
  byId("shares").checked = !state.absolute;
}
byId("base").addEventListener("change", (event) => { state.base = event.target.value; load(); });
byId("shares").addEventListener("change", (event) => { state.absolute = !event.target.checked; load(); });
byId("all-changes").addEventListener("change", () => { if (lastComparison) showComparison(lastComparison); });
byId("compare-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.baseLabels = byId("base-labels").value.trim();
  load();
});

let lastComparison = null;
function showComparison(found) {
  lastComparison = found;
  const signed = (value) => (value > 0 ? "+" : "") + amount(value, found.unit);
  const percent = (fraction) => (fraction > 0 ? "+" : "") + (100 * fraction).toFixed(1) + "%";
  const leftOut = found.windows_left_out ? " " + found.windows_left_out + " older windows left out: narrow the range." : "";
  byId("compare-basis").textContent = amount(found.baseline_total, found.unit) + " → " + amount(found.comparison_total, found.unit) + "; " + found.basis + "." + leftOut;
  const showsAll = byId("all-changes").checked || found.tested === 0;
  const rows = found.rows.filter((row) => row.significant || showsAll);
  const lines = rows.slice(0, 300).map((row) => {
    const [before, after] = [row.baseline.flat, row.comparison.flat];
    const change = before === after ? "–" : before === 0 ? "new" : after === 0 ? "gone" : percent(after / before - 1);
    // The end of an interval is absent where it is infinite.
    const end = (value) => (value === null ? "∞" : percent(value));
    const interval = row.growth ? end(row.growth.low) + " … " + end(row.growth.high) : "–";
    return element("tr", { class: row.significant ? (after > before ? "grew" : "shrank") : null },
      element("td", { class: "number" }, amount(before, found.unit)), element("td", { class: "number" }, amount(after, found.unit)),
      element("td", { class: "number change" }, change, element("small", {}, signed(after - before))), element("td", { class: "number" }, interval),
      element("td", { class: "name", title: row.function + "\n" + row.file }, element("div", {}, row.function || "(no name)"), element("small", {}, "\u200e" + row.file)));
  });
  const paths = [["new", found.new_paths], ["vanished", found.vanished_paths]].flatMap(([kind, paths]) =>
    paths.filter((path) => path.significant || showsAll).slice(0, 50).map((path) => element("tr", { class: kind === "new" ? "grew" : "shrank" },
      element("td", { class: "number" }, kind === "new" ? "0" : amount(path.cum, found.unit)),
      element("td", { class: "number" }, kind === "new" ? amount(path.cum, found.unit) : "0"),
      element("td", { class: "number change" }, kind), element("td", { class: "number" }, path.samples === null ? "–" : path.samples + " samples"),
      element("td", { class: "name", title: path.functions.join("\n") }, element("div", {}, "… > " + path.functions.slice(-3).join(" > ")), element("small", {}, "call path")))));
  lines.push(...paths);
  if (!lines.length) {
    const hidden = found.rows.length ? " " + found.rows.length + " differences may be chance." : "";
    lines.push(element("tr", {}, element("td", { colspan: 5, class: "name" }, "No significant change." + hidden)));
  }
  byId("compare-rows").replaceChildren(...lines);
  if (!diffFlamegraph) diffFlamegraph = new DiffFlamegraph(byId("compare-flame"));
  diffFlamegraph.show(found.tree);
  diffFlamegraph.search(state.search);
}
