/* The state of the page, and the address that holds it: `readAddress` and `addressOf` are inverse. */

/** Values that the address leaves out. Null is chosen from the profiles: service, type, range, view, baseline. */
const DEFAULTS = {
  /** `service.name`, "" for profiles without it, "*" for all services. */
  service: null, type: null, labels: [], trace: "", span: "", from: null, to: "", view: null, search: "",
  /** The function selected by a click. */
  chosen: "", chosenFile: "", chosenLine: "",
  /** The call path to which the flame graph is zoomed: keys of functions, separated by dots. */
  zoom: "",
  /** Expressions: only stacks with a function that matches, without one, and the callers of those that match. */
  focus: [], ignore: [], callers: "",
  inverted: false, recursion: "keep",
  /** The label by which timeline and flame graph are split, what splits the timeline, and whether the labels are listed. */
  group: "", by: "label", explorer: false,
  sort: "flat", requestSort: "cpu",
  /** The endpoint whose spans are listed; null lists the endpoints, and "" is the endpoint of spans without one. */
  endpoint: null,
  /** Whether the flame graph shows each function of libraries and the runtime, instead of one frame for each run. */
  libraries: false,
  live: false, native: false, base: null, baseLabels: "", absolute: false, allChanges: false, vanished: false,
};
const VIEWS = { requests: "Requests", both: "Both", flame: "Flame graph", top: "Table", compare: "Compare" };
const SORTS = ["flat", "own", "cum", "beside_flat", "beside_cum", "function"];
const BASELINES = {
  previous: "Same length before", half: "First half of the range", thirds: "First third, with the last", hour: "One hour before", day: "One day before",
  week: "One week before", same: "Same time",
};
/** Names in the address of the texts and the flags of the state. */
const TEXTS = { trace_id: "trace", span_id: "span", to: "to", search: "search", function: "chosen", file: "chosenFile", line: "chosenLine", zoom: "zoom", callers: "callers", group: "group", baseline: "baseLabels" };
const FLAGS = { live: "live", native: "native", libraries: "libraries", absolute: "absolute", all: "allChanges", vanished: "vanished", inverted: "inverted", labels: "explorer" };
const CHOICES = {
  view: ["view", Object.keys(VIEWS)], sort: ["sort", SORTS], order: ["requestSort", ["duration", "cpu", "wait", "alloc", "errors"]], base: ["base", Object.keys(BASELINES)],
  recursion: ["recursion", ["keep", "collapse"]], by: ["by", ["label", "type"]],
};
/** Texts of which null and "" differ. */
const OPTIONAL = ["service", "type", "from", "endpoint"];
/** Parameters that may be repeated. */
const LISTS = { label: "labels", focus: "focus", ignore: "ignore" };

function readAddress(search) {
  const query = new URLSearchParams(search);
  const state = { ...DEFAULTS };
  for (const [name, key] of Object.entries(LISTS)) state[key] = query.getAll(name);
  for (const name of OPTIONAL) state[name] = query.get(name);
  for (const [name, key] of Object.entries(TEXTS)) state[key] = query.get(name) || "";
  for (const [name, key] of Object.entries(FLAGS)) state[key] = query.get(name) === "1";
  for (const [name, [key, values]] of Object.entries(CHOICES)) if (values.includes(query.get(name))) state[key] = query.get(name);
  return state;
}

function addressOf(state) {
  const query = new URLSearchParams();
  for (const name of OPTIONAL) if (state[name] !== null) query.set(name, state[name]);
  for (const [name, key] of Object.entries(LISTS)) for (const value of state[key]) query.append(name, value);
  for (const [name, key] of Object.entries(TEXTS)) if (state[key]) query.set(name, state[key]);
  for (const [name, key] of Object.entries(FLAGS)) if (state[key]) query.set(name, "1");
  for (const [name, [key]] of Object.entries(CHOICES)) if (state[key] !== DEFAULTS[key]) query.set(name, state[key]);
  return "?" + query;
}

/** The filter of a state as query parameters of the API. Times are absolute, equal in all requests of one load. */
function filterOf(state, now) {
  const query = new URLSearchParams();
  if (state.service !== null && state.service !== "*") query.set("service", state.service);
  if (state.type) query.set("type", state.type);
  for (const label of state.labels) query.append("label", label);
  if (state.trace) query.set("trace_id", state.trace);
  if (state.span) query.set("span_id", state.span);
  if (state.from) query.set("from", absoluteTime(state.from, now));
  if (state.to) query.set("to", absoluteTime(state.to, now));
  return query;
}

/** Key, operator and value of a filter such as route!=/cart or route=~/cart/.* */
const LABEL = /^(.+?)(!=|=~|!~|=)(.*)$/s;

const escapedPattern = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
/** The expression that selects one function. The server compares it with `name file:line`. */
const patternOf = (name, place) => "^" + escapedPattern(name + (place ? " " + place : "")) + "$";
/** The function that an expression of [`patternOf`] selects, without its file; other expressions as they are. */
function patternText(pattern) {
  const text = /^\^(.*)\$$/s.exec(pattern)?.[1].replace(/\\([.*+?^${}()|[\]\\])/g, "$1");
  return text !== undefined && patternOf(text, "") === pattern ? text.replace(/ \S*[./]\S*$/, "") || text : "/" + pattern + "/";
}

/** How the flame graph draws the stacks, each with the change that undoes it. */
function transformsOf(state) {
  const transforms = [];
  if (state.callers) transforms.push({ name: "callers of", value: patternText(state.callers), without: { callers: "", zoom: "" } });
  if (state.inverted) transforms.push({ name: "inverted", value: "", without: { inverted: false, zoom: "" } });
  if (state.recursion === "collapse") transforms.push({ name: "recursion", value: "collapsed", without: { recursion: "keep", zoom: "" } });
  return transforms;
}

/** The conditions of a state, each with the text that names it and the change that removes it. */
function filtersOf(state) {
  const filters = state.labels.map((label, nth) => ({ text: label, without: { labels: state.labels.filter((_, other) => other !== nth) } }));
  if (state.trace) filters.push({ text: "trace_id=" + state.trace, without: { trace: "" } });
  if (state.span) filters.push({ text: "span_id=" + state.span, without: { span: "" } });
  for (const [key, words] of [["focus", "only through"], ["ignore", "without"]]) {
    state[key].forEach((pattern, nth) => filters.push({
      text: words + " " + patternText(pattern), name: words, value: patternText(pattern), without: { [key]: state[key].filter((_, other) => other !== nth), zoom: "" },
    }));
  }
  if (state.from || state.to) filters.push({ text: "the time range", isTime: true, without: { from: "", to: "" } });
  return filters;
}

const UNITS_MS = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 };
/** Length of a range such as -5m in milliseconds; NaN for other times. */
function rangeMs(text) {
  const relative = /^-(\d+)([smhd])$/.exec(text || "");
  return relative ? relative[1] * UNITS_MS[relative[2]] : NaN;
}
function absoluteTime(text, now) {
  const before = rangeMs(text);
  return Number.isNaN(before) ? text : String(Math.floor(now - before));
}
/** Milliseconds of a time in the address: relative, a Unix number of any unit, or a date. */
function milliseconds(text, now) {
  const number = Number(absoluteTime(text, now));
  if (!Number.isFinite(number)) return Date.parse(text);
  return number < 1e11 ? number * 1e3 : number < 1e14 ? number : number / 1e6;
}
