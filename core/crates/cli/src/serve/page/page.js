/* The page: state, requests, filters and views. Last of the scripts, since it loads the page. */
// ---- state of the view, stored in the address bar -----------------------------------------------------------------

const state = { service: null, type: null, labels: [], trace: "", span: "", from: null, to: "", view: "both", search: "", sort: "flat", live: false, native: false, base: "previous", baseLabels: "", absolute: false };

function readAddress() {
  const query = new URLSearchParams(location.search);
  state.service = query.get("service");
  state.type = query.get("type");
  state.labels = query.getAll("label");
  state.trace = query.get("trace_id") || "";
  state.span = query.get("span_id") || "";
  state.from = query.get("from");
  state.to = query.get("to") || "";
  state.view = ["both", "flame", "top", "traces", "compare"].includes(query.get("view")) ? query.get("view") : "both";
  state.search = query.get("search") || "";
  state.sort = ["flat", "cum", "besideFlat", "besideCum", "function"].includes(query.get("sort")) ? query.get("sort") : "flat";
  state.live = query.get("live") === "1";
  state.native = query.get("native") === "1";
  readComparison(query);
}
/** With `asStep` the browser's Back button returns to this state. */
function writeAddress(asStep) {
  const query = selection(true);
  if (state.view !== "both") query.set("view", state.view);
  if (state.search) query.set("search", state.search);
  if (state.sort !== "flat") query.set("sort", state.sort);
  if (state.live) query.set("live", "1");
  if (state.native) query.set("native", "1");
  if (state.view === "compare") writeComparison(query);
  const address = "?" + query;
  if (asStep && address !== location.search) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
/** The filters as query parameters. `asWritten` keeps relative times; otherwise they become absolute, equal in all requests. Only objects in use have an age. */
function selection(asWritten, without) {
  const query = new URLSearchParams();
  if (state.service !== null && (state.service || asWritten)) query.set("service", state.service);
  if (state.type && without !== "type") query.set("type", state.type);
  for (const label of state.labels) if (without !== "age" || !/^age[!=]/.test(label)) query.append("label", label);
  if (state.trace) query.set("trace_id", state.trace);
  if (state.span) query.set("span_id", state.span);
  if (without !== "time") {
    const from = asWritten ? state.from : moment(state.from);
    if (from || (asWritten && from !== null)) query.set("from", from);
    if (state.to) query.set("to", asWritten ? state.to : moment(state.to));
  }
  return query;
}
/** A timeline of the last hour ends now, not with the last window in it. */
function untilNow(query) {
  const timed = new URLSearchParams(query);
  if (timed.has("from") && !timed.has("to")) timed.set("to", String(now));
  return timed;
}
const UNITS_MS = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 };
let now = Date.now();
function moment(text) {
  const relative = /^-(\d+)([smhd])$/.exec(text || "");
  return relative ? String(Math.floor(now - relative[1] * UNITS_MS[relative[2]])) : text || "";
}

/** Milliseconds of a time in the address bar: relative, a unix number of any unit, or a date. */
function milliseconds(text) {
  const number = Number(moment(text));
  if (!Number.isFinite(number)) return Date.parse(text);
  return number < 1e11 ? number * 1e3 : number < 1e14 ? number : number / 1e6;
}

async function request(name, query) {
  const response = await fetch("/api/" + name + "?" + query);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

// ---- one round: request and show everything -------------------------------------------------------------------

let round = 0;
let isStep = false;
/** Start and end of the timeline, in milliseconds. */
let shownRange = [0, 0];
let shown = { top: null, beside: null, rows: [], unit: "" };
const flamegraph = new Flamegraph(byId("flame"));

async function load() {
  const mine = ++round;
  root.removeAttribute("data-ready");
  now = Date.now();
  try {
    const { services } = await request("services", "");
    if (mine !== round) return;
    if (services.length === 0) return await showEmpty(mine);
    byId("empty").hidden = true;
    if (state.service === null) state.service = services.reduce((best, of) => (of.samples > best.samples ? of : best)).name;
    if (state.from === null) state.from = Math.max(...services.map((of) => of.to_ms)) > now - 3600e3 ? "-1h" : "";
    showServices(services);
    const { types } = await request("types", selection(false, "type"));
    if (mine !== round) return;
    if (!state.type || (types.length && !types.some((of) => of.type === state.type))) state.type = usualType(types);
    showTypes(types);
    writeAddress(isStep);
    isStep = true;
    const filters = selection(false);
    const native = state.native ? "&native=1" : "";
    const besideType = types.some((of) => of.type === BESIDE[state.type]) ? BESIDE[state.type] : null;
    const besideFilters = selection(false, "age");
    besideFilters.set("type", besideType);
    const [labels, timeline, top, flame, traces, beside] = await Promise.all([
      request("labels", selection(false, "type")), request("timeline", untilNow(filters)), request("top", filters + native + "&limit=500"),
      request("flamegraph", filters + native), request("traces", filters + "&limit=200"), besideType && request("top", besideFilters + native + "&limit=500"),
    ]);
    if (mine !== round) return;
    showFilters(labels.labels);
    showTimeline(timeline);
    shown = { top, beside, besideType, rows: joinedRows(top, beside), unit: top.unit };
    showFigures(top, traces);
    showDownloads();
    byId("content").hidden = false;
    showView();
    showTop();
    showTraces(traces);
    applySearch();
    flamegraph.show(flame.tree);
    shownRange = [timeline.from_ms, timeline.to_ms];
    if (state.view === "compare") await compare(mine);
    if (mine !== round) return;
    await showNothing(mine, top.samples);
    if (mine !== round) return;
    problem("");
    root.dataset.total = top.total;
    root.dataset.samples = top.samples;
    root.dataset.ready = "true";
  } catch (error) {
    if (mine !== round) return;
    problem(error instanceof TypeError ? "The server does not answer. Is spanprof serve still running?" : error.message);
    root.dataset.ready = "error";
  }
}
function problem(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}
/** The type whose values stand beside those of another one: allocated and in use, number and duration of waits. */
const BESIDE = {
  alloc_space: "inuse_space", inuse_space: "alloc_space", alloc_objects: "inuse_objects", inuse_objects: "alloc_objects",
  contentions: "delay", delay: "contentions",
};
const BESIDE_WORDS = {
  alloc_space: "Allocated", inuse_space: "In use", alloc_objects: "Allocated", inuse_objects: "In use", contentions: "Waits", delay: "Delay",
};
/** The rows of a table with the values of the type beside it, and that type's further functions. */
function joinedRows(top, beside) {
  if (!beside) return top.rows;
  const key = (row) => row.function + "\n" + row.file;
  const others = new Map(beside.rows.map((row) => [key(row), row]));
  const rows = top.rows.map((row) => {
    const other = others.get(key(row));
    others.delete(key(row));
    return { ...row, besideFlat: other ? other.flat : 0, besideCum: other ? other.cum : 0 };
  });
  return rows.concat([...others.values()].map((row) => ({ ...row, flat: 0, cum: 0, besideFlat: row.flat, besideCum: row.cum })));
}
const USUAL = ["cpu", "wall", "alloc_space", "inuse_space"];
function usualType(types) {
  const names = types.map((of) => of.type);
  return USUAL.find((name) => names.includes(name)) || names[0] || "cpu";
}

// ---- header -------------------------------------------------------------------------------------------------------

function showServices(services) {
  const options = services.map((of) => element("option", { value: of.name }, of.name || "(no service.name)"));
  if (services.length > 1) options.unshift(element("option", { value: "*" }, "All services"));
  if (state.service && !services.some((of) => of.name === state.service)) options.push(element("option", { value: state.service }, state.service));
  byId("service").replaceChildren(...options);
  byId("service").value = state.service === "" && services.length > 1 ? "*" : state.service;
  document.title = (state.service || "all services") + " · spanprof";
}
byId("service").addEventListener("change", (event) => {
  state.service = event.target.value === "*" ? "" : event.target.value;
  state.labels = [];
  load();
});
function showTypes(types) {
  const names = types.map((of) => of.type);
  if (!names.includes(state.type)) names.push(state.type);
  const units = Object.fromEntries(types.map((of) => [of.type, of.unit]));
  byId("types").replaceChildren(...names.map((name) => element("button", {
    role: "radio", "aria-checked": String(name === state.type), title: units[name] && name + " in " + units[name],
    onclick: () => { state.type = name; load(); },
  }, name)));
  const range = byId("range");
  const isPreset = !state.to && [...range.options].some((option) => option.value === (state.from || ""));
  range.querySelector("[value=custom]").hidden = isPreset;
  range.value = isPreset ? state.from || "" : "custom";
}
byId("range").addEventListener("change", (event) => {
  if (event.target.value === "custom") return;
  state.from = event.target.value;
  state.to = "";
  load();
});
byId("refresh").addEventListener("click", () => load());
function showLive() {
  byId("live").setAttribute("aria-pressed", String(state.live));
  byId("native").setAttribute("aria-pressed", String(state.native));
}
byId("native").addEventListener("click", () => {
  state.native = !state.native;
  load();
});
byId("live").addEventListener("click", () => {
  state.live = !state.live;
  showLive();
  writeAddress();
  if (state.live) load();
});
let lastSeen = null;
setInterval(async () => {
  if (document.hidden || !(state.live || !byId("empty").hidden)) return;
  try {
    const stats = await request("stats", "");
    const seen = stats.windows + ":" + stats.received_requests;
    if (seen !== lastSeen) { lastSeen = seen; load(); }
  } catch (error) {
    problem("The server does not answer. Is spanprof serve still running?");
  }
}, 2500);

const THEME_KEY = "spanprof-theme";
function applyTheme(name) {
  root.dataset.theme = name || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
let chosenTheme = null;
try { chosenTheme = localStorage.getItem(THEME_KEY); } catch (error) { /* storage may be off */ }
applyTheme(chosenTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(chosenTheme));
byId("theme").addEventListener("click", () => {
  chosenTheme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem(THEME_KEY, chosenTheme); } catch (error) { /* storage may be off */ }
  applyTheme(chosenTheme);
});

// ---- filters ------------------------------------------------------------------------------------------------------

function chip(name, value, remove) {
  return element("span", { class: "chip", title: name + " " + value }, element("span", {}, element("b", {}, name), " " + value),
    element("button", { "aria-label": "Remove filter " + name, onclick: () => { remove(); load(); } }, "×"));
}
/** Key, operator and value of a filter such as route!=/cart or route=~/cart/.* */
const LABEL = /^(.+?)(!=|=~|!~|=)(.*)$/s;
function showFilters(labels) {
  const chips = state.labels.map((label, at) => {
    const [, key, operator, value] = LABEL.exec(label) || [, label, "=", ""];
    return chip(key, (operator === "=" ? "" : operator + " ") + (value || "“”"), () => state.labels.splice(at, 1));
  });
  if (state.trace) chips.push(chip("trace", state.trace, () => { state.trace = ""; }));
  if (state.span) chips.push(chip("span", state.span, () => { state.span = ""; }));
  if (state.to) {
    const text = (state.from ? clock(milliseconds(state.from), true) : "…") + " – " + clock(milliseconds(state.to));
    chips.push(chip("time", text, () => { state.from = null; state.to = ""; }));
  }
  byId("chips").replaceChildren(...chips);
  const options = labels.flatMap((label) => label.values.map((value) => element("option", { value: label.name + "=" + value })));
  byId("suggestions").replaceChildren(...options.slice(0, 2000));
}
byId("filter-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("filter").value.trim();
  const hex = text.toLowerCase().replace(/^(trace|span)_id=/, "");
  let error = "";
  if (/^[0-9a-f]{32}$/.test(hex)) state.trace = hex;
  else if (/^[0-9a-f]{16}$/.test(hex)) state.span = hex;
  else if (LABEL.test(text)) { if (!state.labels.includes(text)) state.labels.push(text); }
  else if (text) error = "Expected label=value (or !=, =~, !~), 32 hex digits of a trace, or 16 of a span";
  byId("filter-error").textContent = error;
  if (text && !error) { byId("filter").value = ""; load(); }
});
byId("filter").addEventListener("input", (event) => {
  byId("filter-error").textContent = "";
  // A selected suggestion is submitted at once.
  if (event.inputType === "insertReplacementText" || event.inputType === undefined) byId("filter-form").requestSubmit();
});

/** Where no sample passes, names the filters without which some would. */
async function showNothing(mine, samples) {
  byId("nothing").hidden = samples > 0;
  if (samples > 0) return;
  const active = state.labels.map((label) => [label, "label", label]);
  for (const [key, value] of [["trace_id", state.trace], ["span_id", state.span]]) if (value) active.push([key + "=" + value, key]);
  if (state.from || state.to) active.push(["the time range", "from", "to"]);
  const counts = await Promise.all(active.map(([, key, more]) => {
    const without = selection(false);
    without.delete(key);
    if (key === "label") for (const label of state.labels) if (label !== more) without.append("label", label);
    if (key === "from") without.delete("to");
    return request("top", without + "&limit=1");
  }));
  if (mine !== round) return;
  const excluding = active.filter((filter, at) => counts[at].samples > 0).map(([name]) => name);
  const cause = excluding.length ? "Without " + excluding.join(", or without ") + ", some would."
    : active.length ? "More than one of these excludes them: " + active.map(([name]) => name).join(", ") + "." : "This service has no samples of the type " + state.type + ".";
  byId("nothing").textContent = "No sample passes the filters. " + cause +
    " trace_id=… (32 hex digits) and span_id=… (16) select the samples that are linked to a span; Traces lists these spans.";
}

// ---- figures and downloads ----------------------------------------------------------------------------------------

function showFigures(top, traces) {
  const figure = (value, words, kind) => element("span", {}, element("b", { class: kind }, value), " " + words);
  const parts = [
    figure(amount(top.total, top.unit), state.type, "total"),
    ...(shown.beside ? [figure(amount(shown.beside.total, shown.beside.unit), shown.besideType)] : []),
    figure(top.samples.toLocaleString("en"), "samples"),
    figure(share(traces.linked_total, traces.total), "linked to " + traces.spans.toLocaleString("en") + (traces.spans === 1 ? " span" : " spans")),
    figure(top.windows.toLocaleString("en"), top.windows === 1 ? "window" : "windows"),
  ];
  if (top.windows_left_out) parts.push(element("span", { class: "warn" }, top.windows_left_out + " older windows left out: narrow the range"));
  byId("figures").replaceChildren(...parts);
}
function showDownloads() {
  const formats = [["pprof", "pprof (.pb.gz)", "pb.gz"], ["otlp", "OTLP (.otlp.pb)", "otlp.pb"], ["folded", "Folded stacks (.txt)", "txt"], ["flamegraph", "Flame graph (.html)", "html"]];
  const name = (state.service || "profiles").replace(/[^\w.-]+/g, "_") + "-" + state.type;
  byId("downloads").replaceChildren(...formats.map(([format, words, suffix]) =>
    element("a", { href: "/api/profile?" + selection(false) + "&format=" + format, download: name + "." + suffix }, words)));
}

document.addEventListener("click", (event) => {
  const menu = document.querySelector(".menu");
  if (!menu.contains(event.target)) menu.open = false;
});

// ---- views --------------------------------------------------------------------------------------------------------

for (const button of byId("views").children) {
  button.setAttribute("role", "radio");
  button.addEventListener("click", () => { state.view = button.dataset.view; writeAddress(); showView(); flamegraph.resize(); if (state.view === "compare") load(); });
}
function showView() {
  byId("panes").dataset.view = state.view;
  byId("panes").classList.toggle("beside", Boolean(shown.beside));
  for (const button of byId("views").children) button.setAttribute("aria-checked", String(button.dataset.view === state.view));
}
byId("search").addEventListener("input", (event) => { state.search = event.target.value; writeAddress(); applySearch(); showTop(); });
function applySearch() {
  if (byId("search").value !== state.search) byId("search").value = state.search;
  flamegraph.search(state.search);
}

function columns() {
  const [own, beside] = shown.beside ? [BESIDE_WORDS[state.type] + ", ", BESIDE_WORDS[shown.besideType] + ", "] : ["", ""];
  const numbers = [["flat", own + "self"], ["cum", own + "total"]];
  if (shown.beside) numbers.push(["besideFlat", beside + "self"], ["besideCum", beside + "total"]);
  const words = (text) => text[0].toUpperCase() + text.slice(1);
  return [...numbers.map(([name, text]) => [name, words(text), "number"]), ["function", "Function", ""]];
}
function showTop() {
  byId("top-head").replaceChildren(element("tr", {}, ...columns().map(([name, words, kind]) => element("th", {
    class: kind, "data-sort": name, tabindex: 0, "aria-sort": state.sort === name ? (name === "function" ? "ascending" : "descending") : null,
    onclick: () => sortBy(name), onkeydown: (event) => { if (event.key === "Enter") sortBy(name); },
  }, words + (state.sort === name ? (name === "function" ? " ↑" : " ↓") : "")))));
  const { rows, top, beside } = shown;
  if (!beside && state.sort.startsWith("beside")) state.sort = "flat";
  // A function selected by click does not filter the table; a search does.
  const searched = rows.some((row) => row.function === state.search) ? "" : state.search.trim();
  const finds = finder(searched);
  const visible = rows.filter((row) => !searched || finds(row.function) || finds(row.file));
  visible.sort((left, right) => state.sort === "function" ? left.function.localeCompare(right.function) : right[state.sort] - left[state.sort]);
  const number = meter(visible, ["flat", "cum"], top.total, shown.unit);
  const besideNumber = beside && meter(visible, ["besideFlat", "besideCum"], beside.total, beside.unit);
  const lines = visible.slice(0, 300).map((row) => element("tr", {
    tabindex: 0, class: state.search === row.function ? "chosen" : null,
    onclick: () => choose(row.function), onkeydown: (event) => { if (event.key === "Enter") choose(row.function); },
  }, number(row, "flat"), number(row, "cum"), ...(beside ? [besideNumber(row, "besideFlat"), besideNumber(row, "besideCum")] : []),
  element("td", { class: "name", title: row.function + "\n" + row.file }, element("div", {}, row.function || "(no name)"), element("small", {}, "\u200e" + row.file))));
  const left = top.functions - top.rows.length + Math.max(0, visible.length - 300);
  if (!searched && left > 0) lines.push(element("tr", {}, element("td", { colspan: columns().length, class: "name" }, left.toLocaleString("en") + " smaller functions")));
  byId("top-rows").replaceChildren(...lines);
}
/** Matches as the flame graph does: a substring, or /an expression/. */
function finder(wanted) {
  const expression = /^\/(.+)\/$/.exec(wanted);
  if (expression) {
    try {
      const pattern = new RegExp(expression[1], "i");
      return (text) => pattern.test(text);
    } catch (error) { /* incomplete expression: a substring */ }
  }
  return (text) => text.toLowerCase().includes(wanted.toLowerCase());
}
/** Makes number cells whose bar is relative to the longest of their column. */
function meter(rows, columns, total, unit) {
  const longest = Object.fromEntries(columns.map((name) => [name, rows.reduce((most, row) => Math.max(most, row[name]), 1)]));
  return (row, name) => {
    const cell = element("td", { class: "number" }, amount(row[name], unit), element("small", {}, share(row[name], total)));
    cell.style.setProperty("--share", Math.max(0, (100 * row[name]) / longest[name]) + "%");
    return cell;
  };
}
function sortBy(name) { state.sort = name; writeAddress(); showTop(); }
/** A second click on the same row clears the selection. */
function choose(name) {
  state.search = state.search === name ? "" : name;
  writeAddress();
  applySearch();
  showTop();
}

function showTraces(traces) {
  const number = meter(traces.rows, ["weight"], traces.total, traces.unit);
  const only = (key, id) => (event) => { event.stopPropagation(); state[key] = id; state.view = "both"; load(); };
  const lines = traces.rows.map((row) => element("tr", { tabindex: 0, onclick: only("span", row.span_id) },
    element("td", { class: "id", title: "Show this trace " + row.trace_id, onclick: only("trace", row.trace_id) }, row.trace_id),
    element("td", { class: "id", title: "Show this span" }, row.span_id), number(row, "weight"),
    element("td", { class: "number" }, row.samples.toLocaleString("en")),
    element("td", { class: "name" }, element("div", {}, Object.entries(row.labels).map(([key, value]) => key + "=" + value).join("  ")))));
  if (!lines.length) lines.push(element("tr", {}, element("td", { colspan: 5 }, "No sample here belongs to a span. With an OpenTelemetry SDK in the service, samples are linked automatically.")));
  byId("trace-rows").replaceChildren(...lines);
}

// ---- no profiles --------------------------------------------------------------------------------------------------

async function showEmpty(mine) {
  const stats = await request("stats", "");
  if (mine !== round) return;
  byId("content").hidden = true;
  byId("timeline").hidden = true;
  byId("types").replaceChildren();
  byId("empty").replaceChildren(
    element("h1", {}, stats.indexing ? "Reading the profiles of earlier runs…" : "Waiting for the first profiles"),
    element("p", {}, "This page updates as soon as a service sends. In a Python or Node.js service:"),
    element("pre", {}, 'import spanprof\nspanprof.start(service_name="my-service", endpoint="http://' + stats.http + '")\n\n' +
      "require('spanprof').start({ serviceName: 'my-service', endpoint: 'http://" + stats.http + "' })"),
    element("p", {}, "Or point any OTLP profiles exporter here:"),
    element("pre", {}, "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + stats.http + "     # http/protobuf\nOTEL_EXPORTER_OTLP_ENDPOINT=http://" + stats.grpc + "     # grpc"),
    element("p", {}, "Profiles are kept in ", element("code", {}, stats.dir)),
  );
  byId("empty").hidden = false;
  problem("");
  root.dataset.ready = "empty";
}

addEventListener("popstate", () => { isStep = false; readAddress(); showLive(); load(); });
readAddress();
showLive();
load();
