/* The view Traces: spans by weight. */

/** Labels that describe a request, most telling first; others follow. */
const TELLING = ["http.request.method", "http.route", "endpoint", "span_name", "url.path", "rpc.method"];
function labelsText(labels) {
  const rank = (key) => (TELLING.includes(key) ? TELLING.indexOf(key) : key.startsWith("service.") || key.startsWith("process.") ? 99 : 50);
  const sorted = Object.entries(labels).sort(([left], [right]) => rank(left) - rank(right) || left.localeCompare(right));
  return sorted.map(([key, value]) => key + "=" + value).join("  ");
}

function Traces() {
  const { data, error } = responses.traces || {};
  const attributes = { ...paneAttributes("traces", "traces"), class: paneClass("traces", "pane") };
  if (!data) return h("section", attributes, error && h(PaneError, { error }));
  const showOnly = (changes) => change({ ...changes, view: "both" });
  const rows = data.rows.map((row) => h("tr", { ...pressable(() => showOnly({ span: row.span_id })) },
    h("td", { class: "name", title: labelsText(row.labels) }, h("div", {}, labelsText(row.labels) || "(no labels)")),
    h(NumberCell, { value: row.weight, total: data.total, unit: data.unit }),
    h("td", { class: "number" }, row.samples.toLocaleString("en")),
    h("td", { class: "id", title: "Show the trace " + row.trace_id }, h("button", {
      type: "button", class: "link", onClick: (event) => { event.stopPropagation(); showOnly({ trace: row.trace_id, span: "" }); },
    }, row.trace_id)),
    h("td", { class: "id", title: "The span " + row.span_id }, row.span_id)));
  return h("section", attributes, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Spans" },
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Labels"), h("th", { class: "number", scope: "col" }, "Weight"),
      h("th", { class: "number", scope: "col" }, "Samples"), h("th", { class: "id", scope: "col" }, "Trace"), h("th", { class: "span-id", scope: "col" }, "Span"))),
    h("tbody", { id: "trace-rows" }, rows)),
    !rows.length && h("p", { class: "nothing" }, "No sample here belongs to a span. With an OpenTelemetry SDK in the service, samples are linked automatically.")));
}
