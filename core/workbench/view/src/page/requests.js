/* The view Requests: endpoints, the spans of one, and one span beside the others of its endpoint. */

const REQUEST_SORTS = { duration: "Duration", cpu: "CPU", wait: "Waiting", alloc: "Allocated", errors: "Errors" };
function requestsQuery() {
  const query = filterOf({ ...state, type: null, span: "", trace: state.endpoint ? "" : state.trace }, now);
  query.set("by", state.endpoint !== null ? "span" : "endpoint");
  query.set("sort", state.requestSort);
  if (state.endpoint !== null) query.set("endpoint", state.endpoint);
  query.set("limit", String(requestLimit));
  return query;
}
const REQUEST_ROWS = 200;
let requestLimit = REQUEST_ROWS;
/** Where waits come from. */
const WAIT_SOURCES = { off_cpu: "time off the CPU", "wall - cpu": "wall time less CPU time", awaited: "time of awaited calls", delay: "time spent waiting for locks" };
const isOneRequest = () => Boolean(state.span || state.trace);
/** Whether the page shows one request beside the others of its endpoint. */
const isRequestView = () => state.view === "requests" && isOneRequest();

/** The type to show of a listed span: that of the column by which the spans are sorted, of times the one with most. */
const typeOfRow = (row) => (state.requestSort === "alloc" && row.alloc_bytes ? "alloc_space" : row.type || "cpu");
/** The order of an endpoint's spans that lists the slow ones first: by their durations, or else by the longer one of CPU time and waits, unless another is chosen. */
const sortOfSpans = (row, wait) => (state.requestSort !== "cpu" ? state.requestSort : row.p99_ns ? "duration" : wait && row.wait_ns > row.cpu_ns ? "wait" : "cpu");
function Requests() {
  if (isOneRequest()) return [h(OneRequest), h(FlamePane)];
  const { data } = responses.requests || {};
  const attributes = paneAttributes("requests", "requests");
  if (!data) return h("section", attributes, h(PaneStatus, { part: "requests", loading: "Loading the requests…" }));
  const isSpans = data.by === "span";
  const has = (type) => Object.hasOwn(data.types, type);
  const countsRequests = has("requests");
  // Of all requests, if their ends are reported; else of the spans that have samples.
  const timed = countsRequests ? null : has("wall") ? "wall" : "cpu";
  // A narrow screen has no room for minor columns beside the names.
  const minor = "number minor";
  const sortable = (name, kind = "number", title = REQUEST_SORTS[name]) => h("th", { class: kind, scope: "col", "aria-sort": state.requestSort === name ? "descending" : null },
    h("button", { type: "button", onClick: () => { requestLimit = REQUEST_ROWS; change({ requestSort: name }, { loads: ["requests"] }); } }, title, state.requestSort === name && " ↓"));
  const time = (ns, kind = "number") => h("td", { class: kind }, ns ? amount(ns, "nanoseconds") : "–");
  const quantile = (row, at) => time(timed ? row.types[timed]?.[at] : row[at + "_ns"], at === "p50" ? minor : "number");
  // The longest known duration of an endpoint opens its request.
  const slowest = ({ slowest, endpoint, service }) => slowest
    ? h("button", { type: "button", tabIndex: -1, class: "link", title: "Open the slowest request", onClick: (event) => {
      event.stopPropagation();
      change({ endpoint, service: state.service === "*" ? service : state.service, trace: slowest.trace_id, span: slowest.span_id, type: slowest.type });
    } }, amount(slowest.duration_ns, "nanoseconds"))
    : "–";
  const cell = (value, type, unit) => (has(type) ? h(NumberCell, { value: value ?? 0, total: data.types[type].total, unit, name: type === "alloc_space" ? "minor" : "" }) : h("td", { class: type === "alloc_space" ? minor : "number" }, "–"));
  // The source is that of all services; this one may lack it.
  const wait = data.wait && has(data.wait.split(" ")[0]) ? data.wait : null;
  const waitTotal = data.rows.reduce((sum, row) => sum + (row.wait_ns || 0), 0);
  // Samples without an endpoint are of work beside the requests.
  const isNamed = (row) => isSpans || row.endpoint !== "";
  const listed = [...data.rows.filter(isNamed), ...data.rows.filter((row) => !isNamed(row))];
  const hasEndpoints = isSpans && data.rows.some((row) => row.service !== data.rows[0].service || row.endpoint !== data.rows[0].endpoint);
  const rows = listed.map((row) => h("tr", { ...pressable(() => (isSpans
    ? change({ trace: row.trace_id, span: row.span_id, type: typeOfRow(row) })
    : change({ endpoint: row.endpoint, service: state.service === "*" ? row.service : state.service, requestSort: sortOfSpans(row, wait) }))) },
    isSpans ? h("td", { class: "name" }, h("div", {}, clock(row.first_ms, true)), h("small", {}, "\u200e" + row.trace_id))
      : h(EndpointCell, { row }),
    hasEndpoints && h(EndpointCell, { row }),
    !isSpans && h("td", { class: minor }, (row.requests || row.spans).toLocaleString("en")),
    countsRequests && h("td", { class: minor + (row.errors ? " failed" : ""), title: row.requests ? share(row.errors, row.requests) + " of its requests" : null },
      isSpans ? (row.errors ? "failed" : "–") : row.errors.toLocaleString("en")),
    isSpans ? countsRequests && time(row.duration_ns) : [quantile(row, "p50"), quantile(row, "p99"), countsRequests && h("td", { class: "number" }, slowest(row))],
    cell(row.cpu_ns, "cpu", "nanoseconds"),
    !wait ? h("td", { class: "number" }, "–") : h(NumberCell, { value: row.wait_ns, total: waitTotal, unit: "nanoseconds" }),
    cell(row.alloc_bytes, "alloc_space", "bytes"), h("td", { class: minor }, row.samples.toLocaleString("en"))));
  const timedWords = { wall: " wall", cpu: " CPU" }[timed] || "";
  return [h("section", attributes,
    isSpans && h(Crumbs, { endpoint: state.endpoint, rest: counted(data.count, "span") }),
    h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": isSpans ? "Spans" : "Endpoints" },
      h(RowTable, { id: "request-rows", rows, heads: [h("th", { scope: "col" }, isSpans ? "Start" : "Endpoint"), hasEndpoints && h("th", { scope: "col" }, "Endpoint"),
        !isSpans && h("th", { class: minor, scope: "col" }, countsRequests ? "Requests" : "Spans"),
        countsRequests && sortable("errors", minor),
        isSpans ? countsRequests && sortable("duration")
          : [h("th", { class: minor, scope: "col" }, "p50" + timedWords), countsRequests ? sortable("duration", "number", "p99") : h("th", { class: "number", scope: "col" }, "p99" + timedWords), countsRequests && h("th", { class: "number", scope: "col" }, "Max")],
        sortable("cpu"), sortable("wait"), sortable("alloc", minor), h("th", { class: minor, scope: "col" }, "Samples")] }),
      data.count > data.rows.length && h("p", { class: "more" }, data.rows.length.toLocaleString("en") + " of " + counted(data.count, isSpans ? "span" : "endpoint") + ". ",
        h("button", { type: "button", id: "more", onClick: () => { requestLimit += 4 * REQUEST_ROWS; load(["requests"]); } }, "Show more")),
      data.samples_left_out > 0 && h("p", { class: "more" }, "Only the heaviest requests are listed. The others have " + counted(data.samples_left_out, "sample") + ": narrow the range."),
      data.spans === 0 && h("p", { class: "nothing" }, "No sample here belongs to a span. With an OpenTelemetry SDK or a middleware in the service, samples are linked automatically."),
      data.spans > 0 && !isSpans && !data.rows.some(isNamed) && h("p", { class: "nothing" }, "These spans have no endpoint. The middlewares of spanprof label samples with http.route; the labels endpoint and span_name name endpoints too."),
      data.spans > 0 && !wait && !data.awaits && h("p", { class: "nothing" }, "Waits are unknown: no profile of wall time, off-CPU time or locks. SPANPROF_PROFILES=all records them."),
      h("p", { class: "more" }, (wait ? "Waiting is " + WAIT_SOURCES[wait] + ". " : "") + (timed ? (isSpans ? "" : "Quantiles are of the spans that have samples.") : isSpans ? "Durations are known of the slowest and the failed requests." : "Quantiles are of the durations of all requests.")))), h(Findings)];
}

function EndpointCell({ row, more = "" }) {
  return h("td", { class: "name endpoint" }, h("div", {}, row.endpoint || "(no endpoint)"), h("small", {}, "\u200e" + row.service + more));
}

/** The findings of `spanprof explain`. */
function Findings() {
  const { data } = responses.explain || {};
  const attributes = paneAttributes("findings", "explain");
  if (!data) return h("section", attributes, h(PaneStatus, { part: "explain", loading: "Loading the findings…" }));
  const items = data.findings.map((finding) => h("li", {},
    h("h3", {}, finding.function || finding.evidence.span_id ? h("button", { type: "button", class: "link", title: finding.evidence.span_id ? "Open the request" : "Show it in the flame graph",
      onClick: () => change(finding.evidence.span_id ? { trace: finding.evidence.trace_id, span: finding.evidence.span_id, type: finding.type || state.type }
        : { view: "both", type: finding.type || state.type, ...chosenBy(finding.function.function, finding.function.file) }) }, finding.title) : finding.title),
    h("p", { class: "soft" }, [finding.severity, state.service === "*" && finding.service, finding.samples > 0 && counted(finding.samples, "sample")].filter(Boolean).join(" · ")),
    finding.command && h("pre", { tabIndex: 0 }, finding.command)));
  return h("section", attributes, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Findings" },
    h("h2", {}, "Findings"), items.length ? h("ol", {}, items) : h("p", { class: "nothing" }, "No problem found, and no function of your own code has the 20 samples that a statement needs."), h(Hints, { hints: data.hints })));
}

/** Profiles that would show more, in the words of `spanprof explain`. */
const Hints = ({ hints }) => hints.map((hint) => h("p", { class: "hint soft" }, hint));

function Crumbs({ endpoint, rest }) {
  return h("nav", { class: "crumbs", "aria-label": "Requests" },
    h("button", { type: "button", class: "link", onClick: () => change({ endpoint: null, trace: "", span: "" }) }, "Endpoints"), " › ",
    endpoint !== null && [isOneRequest() ? h("button", { type: "button", class: "link", onClick: () => change({ endpoint, trace: "", span: "" }) }, endpoint || "(no endpoint)")
      : h("b", {}, endpoint || "(no endpoint)"), " › "],
    rest);
}

/** One span, or all spans of a trace: where its time went, and what differs from the others of its endpoint. */
function OneRequest() {
  const { data } = responses.request || {};
  const attributes = { ...paneAttributes("request", "request"), "aria-label": "One request" };
  if (!data) return h("section", attributes, h(PaneStatus, { part: "request", loading: "Loading the request…" }));
  const subject = state.span ? "span " + state.span : "trace " + state.trace;
  if (!data.found) return h("section", attributes, h(Crumbs, { endpoint: state.endpoint, rest: subject }),
    h("p", { class: "nothing" }, "No sample belongs to the " + subject + (state.service === "*" ? "" : " in the service " + (state.service || "(no service.name)")) + ". It was shorter than the sampling interval" + (state.from ? ", or the time range excludes it. " : ". "),
      state.service !== "*" && h("button", { type: "button", class: "remove-filter", onClick: () => change({ service: "*", endpoint: null }) }, "Search all services"),
      h("button", { type: "button", class: "remove-filter", onClick: () => change({ trace: "", span: "" }) }, "Remove " + subject),
      state.from && h("button", { type: "button", class: "remove-filter", onClick: () => change({ from: "", to: "" }) }, "Remove the time range")));
  const others = data.time.others === 1 ? "the other one" : "the mean of " + data.time.others.toLocaleString("en") + " others";
  return h("section", attributes, h(Crumbs, { endpoint: data.endpoint, rest: subject }),
    h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "The request and the others of its endpoint" },
      h("h2", {}, (data.endpoint || "(no endpoint)") + " · " + clock(data.first_ms, true), data.duration_ns && " · " + amount(data.duration_ns, "nanoseconds"), data.time.failed && h("span", { class: "failed" }, " · failed")),
      h("p", { class: "soft" }, data.service + " · trace ", h(TraceLinks, { data })),
      h(TraceSpans), h(TimeTable, { time: data.time }), h(Hints, { hints: data.hints }),
      data.time.others > 0 && h("p", { class: "soft" }, "Others: " + others + " of the endpoint, " + amount(data.others_within_s * 1e9, "nanoseconds") + " before and after."),
      [...data.differences].sort((one, other) => (other.type === state.type) - (one.type === state.type)).map((difference) => h(Differences, { key: difference.type, difference,
        title: data.time.rows.find((row) => row.name === difference.type)?.title || difference.type }))));
}

const numberHead = (title) => h("th", { class: "number", scope: "col" }, title);
/** The spans of a trace, which may be of several endpoints and services. */
function TraceSpans() {
  const { data } = responses.spans || {};
  if (state.span || !data || data.rows.length < 2) return null;
  const hasDurations = data.rows.some((row) => row.duration_ns !== null);
  const time = (ns) => h("td", { class: "number" }, ns ? amount(ns, "nanoseconds") : "–");
  const rows = data.rows.map((row) => h("tr", { ...pressable(() => change({ span: row.span_id, type: typeOfRow(row) })) },
    h(EndpointCell, { row, more: " · " + clock(row.first_ms, true) }), hasDurations && time(row.duration_ns), time(row.cpu_ns), time(row.wait_ns)));
  return [h(RowTable, { id: "trace-spans", rows, heads: [h("th", { scope: "col" }, "Spans of the trace"), (hasDurations ? ["Duration", "CPU", "Waiting"] : ["CPU", "Waiting"]).map(numberHead)] }), data.count > data.rows.length && h("p", { class: "soft" }, data.rows.length.toLocaleString("en") + " of " + counted(data.count, "span") + ".")];
}

/** The profile types, each with its parts below it. A click shows the type, and of a reason to wait the frame that the profiler recorded for it. */
function TimeTable({ time }) {
  const numbers = (total, unit) => [h("td", { class: "number" }, amount(total.weight, unit)),
    h("td", { class: "number" }, time.others ? amount(Math.round(total.mean), unit) : "–"),
    h("td", { class: "number" }, time.others && total.mean ? (total.weight / total.mean).toFixed(1) + " ×" : "–"),
    h("td", { class: "number" }, total.samples.toLocaleString("en"))];
  const isShown = (row, part) => row.type === state.type && part.frame && state.chosen === part.frame;
  const rows = time.rows.flatMap((row) => [
    h("tr", { class: row.name === state.type && !row.parts.some((part) => isShown(row, part)) ? "chosen" : "", ...pressable(() => change({ type: row.type, ...chosenBy("") })) },
      h("td", { class: "name" }, row.title), numbers(row, row.unit)),
    row.parts.map((part) => h("tr", { class: "part" + (isShown(row, part) ? " chosen" : ""), ...pressable(() => change({ type: row.type, ...chosenBy(part.frame || "") })) },
      h("td", { class: "name" }, part.title), numbers(part, row.unit)))]);
  return h(RowTable, { id: "request-types", kind: "types", rows, heads: [h("th", { scope: "col" }, "Where its time went"), ["This", "Others", "Ratio", "Samples"].map(numberHead)] });
}

/** The trace id, with links into the tracing systems that the server knows. */
function TraceLinks({ data }) {
  const traceId = state.trace || data.trace_id;
  // Encodes what no URL may contain, such as the JSON in an address of Grafana.
  const address = (url) => url.replaceAll("{trace_id}", traceId).replaceAll("{span_id}", data.span_id || "").replace(/["{}|\\^`<> ]/g, encodeURIComponent);
  const links = (responses.stats?.data?.trace_urls || []).map(({ name, url }) => [" · ",
    h("a", { class: "trace-link", href: address(url), title: name && "Open the trace in " + name, target: "_blank", rel: "noopener noreferrer" }, name || "Open the trace")]);
  return [h("code", {}, traceId), links];
}

function Differences({ difference, title }) {
  const significant = difference.rows.filter((row) => row.significant);
  const rows = state.allChanges || !significant.length ? difference.rows : significant;
  const hidden = difference.rows.length - rows.length;
  const toggle = h("button", { type: "button", class: "link", onClick: () => change({ allChanges: !state.allChanges }, { loads: [] }) },
    state.allChanges ? "Only significant" : "All differences");
  return [
    h("h3", {}, title + ", by function"),
    h("p", { class: "soft" }, difference.not_concluded ? "Nothing can be concluded: " + difference.not_concluded + "."
      : significant.length ? counted(significant.length, "significant difference") + ". " : "No difference is significant: each may be chance. ",
    (hidden > 0 || state.allChanges) && significant.length > 0 && toggle),
    h(RowTable, { kind: "differences", heads: [h("th", { scope: "col" }, "Function"), ["This", "Others"].map(numberHead)], rows: rows.map((row) => h("tr", { class: (row.significant ? (row.weight > row.mean ? "grew" : "shrank") : "") + (isChosen(row) ? " chosen" : ""), ...pressable(() => choose(row.function, row.file, row.line)) },
      h(NameCell, { name: row.function, file: row.file, line: row.line }), h("td", { class: "number change" }, amount(row.weight, difference.unit)),
      h("td", { class: "number" }, amount(Math.round(row.mean), difference.unit)))) }),
  ];
}
