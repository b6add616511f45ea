/* The store: the state of the page and the responses that it shows. `change` changes the state; a load fills what is null. */

let state = currentState();
/** The last response of each request by name, or its error. */
const responses = {};
/** Requests of the current load that have not been answered: what they show belongs to an earlier state. */
let pending = new Set();
/** The time of the current load: ranges such as -1h end there. */
let now = Date.now();
let loadNumber = 0;
let aborts = new AbortController();
/** Set where the server does not answer. */
let problem = "";

/** Changes the state and loads what it shows. `isStep`: the browser's Back button returns to the earlier state. */
function change(changes, { isStep = true, loads = undefined } = {}) {
  state = { ...state, ...changes };
  writeAddress(isStep);
  return load(loads);
}
function writeAddress(isStep) {
  const address = addressOf(state);
  if (address === currentAddress()) return;
  // A file can change the fragment of its address only.
  const shown = embedded ? "#" + address.slice(1) : address;
  history[isStep ? "pushState" : "replaceState"](null, "", shown);
}
function currentState() {
  const read = readAddress(currentAddress());
  if (!embedded) return read;
  const { start } = embedded;
  return { ...read, ...(embedded.isComparison ? start : { view: read.view || start.view, type: read.type || start.type }) };
}
function currentAddress() {
  return embedded ? "?" + location.hash.slice(1) : location.search;
}
addEventListener("popstate", () => { state = currentState(); load(); });

async function request(name, query) {
  if (embedded) return embedded.answer(name, query);
  const response = await fetch("/api/" + name + "?" + query, { signal: aborts.signal });
  const text = await response.text();
  let answer;
  try { answer = JSON.parse(text); } catch (error) { throw new Error(name + ": expected JSON, got " + (text.slice(0, 80) || "nothing") + " (status " + response.status + ")"); }
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

/** Requests one part. Its earlier response stays until this one arrives, as stale. */
async function fetchPart(name, path, query) {
  const mine = loadNumber;
  let response;
  try {
    response = { data: await request(path, query), error: "" };
  } catch (error) {
    if (mine !== loadNumber) return null;
    if (error instanceof TypeError) problem = "The server does not answer. Is spanprof serve still running?";
    response = { data: null, error: error.message };
  }
  if (mine !== loadNumber) return null;
  responses[name] = response;
  pending.delete(name);
  show();
  return response.data;
}

/** The parts that a view shows. */
const PARTS = { both: ["top", "flame"], flame: ["top", "flame"], top: ["top"], compare: ["compare"] };
function partsOf(view) {
  const parts = view !== "requests" ? PARTS[view] : isOneRequest() ? ["top", "request", "flame", ...(state.span ? [] : ["spans"])] : ["top", "requests", "explain"];
  return [...parts, ...(hasFunctionPane(view) ? ["function"] : []), ...(state.explorer ? ["weights"] : [])];
}
const TABLE_ROWS = 100;

/** Loads all parts of the view, or only `parts` for a change that leaves the filter. */
async function load(parts) {
  const mine = ++loadNumber;
  aborts.abort();
  aborts = new AbortController();
  const isWhole = !parts;
  // Parts that the last load did not finish are still due.
  parts = new Set(parts ? [...parts, ...pending] : ["services", "types", "labels", ...(embedded ? [] : ["timeline"]), ...partsOf(state.view || "requests")]);
  if (isWhole) {
    now = Date.now();
    // Responses of another view are neither shown nor current.
    for (const name of Object.keys(responses)) if (name !== "stats" && !parts.has(name)) delete responses[name];
  }
  pending = parts;
  problem = "";
  root.dataset.ready = "loading";
  show();
  const isCurrent = () => mine === loadNumber;
  const fetches = [];
  if (parts.has("services")) {
    if (!responses.stats?.data) fetches.push(fetchPart("stats", "stats", ""));
    const known = await fetchPart("services", "services", "");
    if (!isCurrent()) return;
    if (!known) return finish("error");
    if (!known.services.length) {
      await fetchPart("stats", "stats", "");
      pending = new Set();
      return isCurrent() && finish("empty");
    }
    chooseService(known.services);
  }
  if (parts.has("types")) {
    const filter = filterOf({ ...state, type: null }, now);
    fetches.push(fetchPart("labels", "labels", filter));
    const known = await fetchPart("types", "types", filter);
    if (!isCurrent()) return;
    if (!known) return finish("error");
    if (state.type === null && (isRequestView() || (state.view === null && isOneRequest()))) {
      const known = await fetchPart("request", ...QUERIES.request());
      if (!isCurrent()) return;
      if (known?.found) state.type = known.type;
      parts.delete("request");
    }
    chooseType(known.types);
    if (state.view === null) {
      await chooseView(parts);
      if (!isCurrent()) return;
    }
    writeAddress(false);
  }
  const before = parts.has("compare") ? beforeQuery() : null;
  if (before) {
    await fetchPart("before", "top", before);
    if (!isCurrent()) return;
  }
  for (const name of ["timeline", "top", "flame", "function", "weights", "requests", "request", "spans", "explain", "compare"]) if (parts.has(name)) fetches.push(fetchPart(name, ...QUERIES[name]()));
  await Promise.all(fetches);
  if (!isCurrent()) return;
  await explainEmpty();
  if (isCurrent()) finish(Object.values(responses).some((response) => response.error) ? "error" : "true");
}
function finish(ready) {
  if (ready === "error") pending = new Set();
  show();
  const { top } = responses;
  root.dataset.total = top?.data ? top.data.total : "";
  root.dataset.samples = top?.data?.samples ?? "";
  root.dataset.ready = ready;
  // The server completes a partial result in the background.
  const isDue = (data) => (data?.windows_left_out > 0 && !data.too_large) || data?.indexing;
  const isPartial = Object.keys(responses).some((name) => isCompleted(name) && isDue(responses[name]?.data));
  const mine = loadNumber;
  if (isPartial) setTimeout(() => { if (mine === loadNumber) load(); }, 1000);
}

/** Whether the server completes the results of a part. It keeps no parts of results with labels. */
const isCompleted = (name) => name === "top" || (["flame", "timeline"].includes(name) && !state.group);

/** Path and query of the parts of a view. */
const QUERIES = {
  timeline: () => ["timeline", timelineQuery()],
  top: () => {
    const query = shownFilter();
    query.set("sort", state.sort);
    query.set("limit", String(tableLimit));
    if (state.search) query.set("search", state.search);
    const beside = besideType();
    if (beside) query.set("beside", beside);
    return ["top", query];
  },
  flame: () => ["flamegraph", flameQuery()],
  weights: () => ["labels", filterOf(state, now) + "&weights=1&limit=50"],
  function: () => ["function", functionQuery()],
  requests: () => ["requests", requestsQuery()],
  request: () => ["request", filterOf({ ...state, type: null }, now)],
  spans: () => ["requests", filterOf({ ...state, type: null }, now) + "&by=span"],
  explain: () => ["explain", filterOf({ ...state, type: null }, now)],
  compare: () => ["diff", comparisonQuery()],
};
/** The server sends the nodes that are visible at the width of the flame graph, below the zoomed one. */
function flameQuery() {
  const query = shownFilter();
  query.set("width", String(document.querySelector("#flame .flamegraph-view")?.clientWidth || innerWidth));
  if (!state.libraries) query.set("fold", "libraries");
  if (state.zoom) query.set("path", state.zoom);
  if (markedText()) query.set("search", markedText());
  if (state.callers) query.set("callers", state.callers);
  else if (state.inverted) query.set("invert", "1");
  if (state.group) query.set("group", state.group);
  if (state.recursion === "collapse") query.set("recursion", "collapse");
  return query;
}
/** The filter of the parts that have stacks. */
function shownFilter(of = state) {
  const query = stackFilter(of);
  if (of.native) query.set("native", "1");
  return query;
}
function stackFilter(of = state) {
  const query = filterOf(of, now);
  for (const name of ["focus", "ignore"]) for (const pattern of of[name]) query.append(name, pattern);
  return query;
}
let tableLimit = TABLE_ROWS;

/** A trace can cross services; otherwise the service with most samples. */
function chooseService(services) {
  if (state.service === null) {
    const largest = services.reduce((best, service) => (service.samples > best.samples ? service : best));
    state.service = state.trace || state.span ? "*" : largest.name;
  }
  if (state.from === null) state.from = state.trace || state.span || state.to ? "" : usualRange(services.filter(({ name }) => state.service === "*" || name === state.service));
}
/** The shortest preset that has all profiles, else the shortest from the last hour on that has any, else everything. */
function usualRange(services) {
  const first = Math.min(...services.map((service) => service.from_ms));
  const last = Math.max(...services.map((service) => service.to_ms));
  return ["-5m", "-15m"].find((range) => first >= now - rangeMs(range)) || ["-1h", "-6h", "-1d"].find((range) => last > now - rangeMs(range)) || "";
}
/** Whether the store has no profile of the chosen service. */
const isUnknownService = () => !embedded && state.service !== null && state.service !== "*" && !(responses.services?.data?.services || []).some(({ name }) => name === state.service);
/** Requests where samples are linked to spans; an address with a search or a function is of the flame graph and the table. */
async function chooseView(parts) {
  const isOfFunctions = state.search || state.chosen;
  if (!isOfFunctions && isOneRequest()) state.view = "requests";
  else {
    const requests = isOfFunctions ? null : await fetchPart("requests", ...QUERIES.requests());
    state.view = requests?.spans > 0 ? "requests" : "both";
  }
  parts.delete("requests");
  if (state.view === "both") for (const name of partsOf("both")) parts.add(name);
}
const USUAL_TYPES = ["cpu", "wall", "alloc_space", "inuse_space"];
function chooseType(types) {
  const names = types.map((type) => type.type);
  if (state.type && (!names.length || names.includes(state.type))) return;
  state.type = USUAL_TYPES.find((name) => names.includes(name)) || names[0] || "cpu";
  if (!besideType() && state.sort.startsWith("beside")) state.sort = "flat";
}
/** The type whose values stand beside those of another one: allocated and in use, number and duration of waits. */
const BESIDE = {
  alloc_space: "inuse_space", inuse_space: "alloc_space", alloc_objects: "inuse_objects", inuse_objects: "alloc_objects",
  contentions: "delay", delay: "contentions",
};
function besideType() {
  const types = responses.types?.data?.types || [];
  return types.some((type) => type.type === BESIDE[state.type]) ? BESIDE[state.type] : null;
}

/** Start and end in milliseconds of the windows that the filter selects, or null. */
function shownWindows() {
  const type = (responses.types?.data?.types || []).find((type) => type.type === state.type);
  return type ? [type.from_ms, type.to_ms] : null;
}
/** A timeline of the last hour ends now; one of selected windows has their range. */
function timelineQuery() {
  const query = shownFilter();
  const windows = shownWindows();
  if (state.to && windows) {
    query.set("from", String(windows[0]));
    query.set("to", String(windows[1]));
  } else if (state.from) query.set("to", String(now));
  if (isByType()) query.set("by", "type");
  else if (state.group) query.set("group", state.group);
  return query;
}
/** Types of which the timeline can show all at once: times of threads. Wall time contains the others. */
const TIME_TYPES = ["cpu", "off_cpu", "delay", "gc", "event_loop_lag"];
function canSplitByType() {
  const types = (responses.types?.data?.types || []).map((type) => type.type);
  return !embedded && TIME_TYPES.includes(state.type) && types.filter((type) => TIME_TYPES.includes(type)).length > 1;
}
const isByType = () => state.by === "type" && canSplitByType();

/** The filters that can be removed where no sample passes: those without which some would, else all. */
let emptyCauses = [];
/** Whether a response of `/api/top` has samples. The number of selected stacks' samples is not known, that of their stacks is. */
const hasSamples = (data) => (data?.samples || data?.stacks) > 0;
/** Whether the response of the view has no sample. */
function hasNoSamples() {
  if (state.view === "compare") return responses.compare?.data?.comparison_total === 0;
  const { top } = responses;
  return Boolean(top?.data) && !hasSamples(top.data);
}
async function explainEmpty() {
  emptyCauses = [];
  if (embedded?.isComparison || isRequestView() || isUnknownService() || !hasNoSamples()) return;
  const filters = filtersOf(state);
  const queryWithout = ({ without, isTime }) => {
    const query = shownFilter({ ...state, ...without });
    query.set("limit", "1");
    const compared = state.view === "compare" && !isTime ? comparisonQuery() : null;
    for (const name of ["from", "to"]) if (compared?.has(name)) query.set(name, compared.get(name));
    return query;
  };
  const counts = await Promise.all(filters.map((filter) => request("top", queryWithout(filter)).catch(() => null)));
  const excluding = filters.filter((filter, nth) => hasSamples(counts[nth]));
  emptyCauses = excluding.length ? excluding : filters;
  emptyCauses.isSure = excluding.length > 0;
}

/** Whether the server has no profile. */
const isEmpty = () => responses.services?.data?.services.length === 0;

let lastSeen = null;
if (!embedded) setInterval(async () => {
  if (document.hidden || !(state.live || isEmpty())) return;
  try {
    const stats = await request("stats", "");
    const seen = stats.windows + ":" + stats.received_requests;
    if (seen !== lastSeen) { lastSeen = seen; load(); }
  } catch (error) {
    if (error.name === "AbortError") return;
    problem = "The server does not answer. Is spanprof serve still running?";
    show();
  }
}, 2500);
