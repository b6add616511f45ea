/* The timeline, and the selection of a range in it. */

function Timeline() {
  const { data } = responses.timeline || {};
  const attributes = paneAttributes("timeline", "timeline", "timeline");
  if (!data) return h("section", { ...attributes, "aria-label": "Weight over time" }, h(PaneStatus, { part: "timeline", loading: "Loading the timeline…" }));
  const highest = Math.max(1, ...data.totals, ...containedSeries(data).flatMap(({ totals }) => totals));
  const count = Math.max(1, data.totals.length);
  const end = data.from_ms + count * data.step_ms;
  const isDated = end - data.from_ms > 43200e3;
  const times = [0, 0.25, 0.5, 0.75, 1].map((part) =>
    h("span", {}, clock(data.from_ms + part * (end - data.from_ms), isDated || part === 0)));
  return h("section", { ...attributes, "aria-label": "Weight over time; drag to select a range",
    onPointerDown: (event) => brush(event, data.from_ms, end) },
    h("svg", { viewBox: "0 0 " + count + " 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      data.gauge ? stateAreas(data, highest) : data.series ? stackedBars(data, highest) : bars(data, highest)),
    h("div", { class: "scale", "aria-hidden": "true" }, scaleTicks(data, highest).map(({ part, words }) => h("span", { style: { bottom: 92 * part + "%" } }, words))),
    h("div", { class: "axis" }, times), data.gauge && h(StateWords, { data }), data.series && h(SeriesLegend, { data }));
}

/** Amount of a state, with the noun of what is counted. */
const STATE_NOUNS = { inuse_objects: "objects", threads: "threads", goroutine: "goroutines" };
const stateAmount = (value, unit) => (unit === "bytes" || !STATE_NOUNS[state.type] ? amount(value, unit) : Math.round(value).toLocaleString("en") + " " + STATE_NOUNS[state.type]);

/** Two ticks of the scale: times per second of time, which are cores or threads, states as they are, other amounts per second. */
function scaleTicks(data, highest) {
  if (!data.totals.some((total) => total > 0) && !containedSeries(data).length) return [];
  const seconds = data.step_ms / 1e3;
  const words = (value) => {
    if (data.gauge) return stateAmount(value, data.unit);
    const rate = value / seconds;
    if (data.unit !== "nanoseconds") return amount(rate, data.unit) + "/s";
    const parallel = rate / 1e9;
    return parallel.toLocaleString("en", { maximumSignificantDigits: 2 }) + (state.type === "cpu" && !isByType() ? " cores" : " threads");
  };
  return [0.5, 1].map((part) => ({ part, words: words(part * highest) }));
}

const stepTime = (data, at) => clock(data.from_ms + at * data.step_ms, true) + "  ";
const valueWords = (value) => (value === null ? "other values" : value === "" ? "none" : value);
const heightOf = (total, highest) => (92 * total) / highest;
/** Series whose time is part of that of others: they are lines, and not added. */
const containedSeries = (data) => (data.series || []).filter(({ added }) => added === false);

function bars(data, highest) {
  return data.totals.map((total, at) => {
    if (total <= 0) return null;
    const height = Math.max(3, heightOf(total, highest));
    return h("rect", { key: at, class: "step", x: at + 0.08, y: 100 - height, width: 0.84, height },
      h("title", {}, stepTime(data, at) + amount(total, data.unit)));
  });
}
/** A bar of each step, with a part for each value of the group. */
function stackedBars(data, highest) {
  const stacked = data.totals.map((total, at) => {
    let below = 0;
    return data.series.map(({ value, totals, added }, nth) => {
      if (totals[at] <= 0 || added === false) return null;
      const height = heightOf(totals[at], highest);
      below += height;
      return h("rect", { key: at + ":" + nth, class: "step part", x: at + 0.08, y: 100 - below, width: 0.84, height, style: { fill: seriesColor(data, nth) } },
        h("title", {}, stepTime(data, at) + valueWords(value) + ": " + amount(totals[at], data.unit)));
    });
  });
  const runs = runsOf(data.totals.map((total, at) => (data.series.some(({ totals }) => totals[at] > 0) ? total : null)));
  const lines = data.series.map(({ value, totals, added }, nth) => added === false
    && h("path", { key: "line " + value, class: "line", style: { stroke: seriesColor(data, nth) }, d: runs.map((run) => linePath(run, (at) => totals[at], highest)).join("") }));
  return [stacked, lines];
}
const seriesColor = (data, nth) => (data.series[nth].value === null ? "var(--series-other)" : "var(--series-" + nth + ")");

/** First and last step of each run of steps that have a value. */
function runsOf(totals) {
  const runs = [];
  totals.forEach((total, at) => {
    if (total === null) return;
    if (at && totals[at - 1] !== null) runs[runs.length - 1][1] = at;
    else runs.push([at, at]);
  });
  return runs;
}
/** A line through the middles of the steps of a run, from its start to its end. */
function linePoints([first, last], valueOf, highest) {
  const points = Array.from({ length: last - first + 1 }, (_, nth) => [first + nth + 0.5, valueOf(first + nth)]);
  return [[first, valueOf(first)], ...points, [last + 1, valueOf(last)]].map(([x, value]) => x + " " + (100 - heightOf(value, highest)).toFixed(2));
}
const linePath = (run, valueOf, highest) => "M" + linePoints(run, valueOf, highest).join("L");
const areaPath = (run, belowOf, valueOf, highest) => linePath(run, valueOf, highest) + "L" + linePoints(run, belowOf, highest).reverse().join("L") + "Z";

/** A state over time: a line with an area, or an area of each value of the group. Steps without windows are gaps. */
function stateAreas(data, highest) {
  const runs = runsOf(data.totals);
  const paths = (path) => runs.map(path).join("");
  const below = data.totals.map(() => 0);
  const areas = data.series ? data.series.map(({ value, totals }, nth) => {
    const start = below.slice();
    totals.forEach((total, at) => { below[at] += total; });
    const end = below.slice();
    return h("path", { key: valueWords(value), class: "area part", style: { fill: seriesColor(data, nth) }, d: paths((run) => areaPath(run, (at) => start[at], (at) => end[at], highest)) });
  }) : [h("path", { class: "area", d: paths((run) => areaPath(run, () => 0, (at) => data.totals[at], highest)) }),
    h("path", { class: "line", d: paths((run) => linePath(run, (at) => data.totals[at], highest)) })];
  const parts = (at) => (data.series || []).map(({ value, totals }) => "\n" + valueWords(value) + ": " + stateAmount(totals[at], data.unit)).join("");
  const titles = data.totals.map((total, at) => total !== null && h("rect", { key: at, class: "hover", x: at, y: 0, width: 1, height: 100 },
    h("title", {}, stepTime(data, at) + stateAmount(total, data.unit) + parts(at))));
  return [areas, titles];
}
/** The extremes of a state, and its growth: the comparison of the first third of the range with the last. */
function StateWords({ data }) {
  if (data.last === undefined) return null;
  const figure = (words, value) => h("span", {}, words + " ", h("b", {}, stateAmount(value, data.unit)));
  const grow = () => change({ view: "compare", base: "thirds", baseLabels: "", absolute: true });
  return h("div", { id: "state-words", onPointerDown: (event) => event.stopPropagation() }, figure("Lowest", data.lowest), figure("last", data.last), figure("peak", data.peak),
    h("button", { id: "growth", type: "button", class: "link", title: "Compare the first third of the range with the last third", onClick: grow }, "Growth"));
}

/** The values of the group, or the types; a click selects one. */
function SeriesLegend({ data }) {
  const sum = (totals) => totals.reduce((sum, total) => sum + total, 0);
  const all = sum(data.totals);
  const lastStep = data.totals.findLastIndex((total) => total !== null);
  const words = ({ totals, added }) => (data.gauge ? stateAmount(totals[lastStep] || 0, data.unit) : added === false ? amount(sum(totals), data.unit) : share(sum(totals), all));
  const entry = (series, nth) => {
    const { value, added } = series;
    const content = [h("i", { class: added === false ? "line" : "", style: { background: seriesColor(data, nth) } }), valueWords(value), h("small", {}, " " + words(series))];
    const [title, changes] = isByType() ? ["Show " + value, { type: value }] : ["Only " + state.group + "=" + value, value !== null && withLabel(state.group, value)];
    return h("li", {}, value === null ? h("span", {}, content) : h("button", { type: "button", class: "link", title, onClick: () => change(changes) }, content));
  };
  const contained = containedSeries(data);
  return h("ul", { id: "series", "aria-label": isByType() ? "Profile types" : "Values of " + state.group, onPointerDown: (event) => event.stopPropagation() }, data.series.map(entry),
    contained.length > 0 && h("li", { class: "contained" }, contained.map(({ value }) => value).join(", ") + ": not added, since CPU time and time off the CPU contain it"));
}

/** Says which windows a selected range has: their samples without timestamps cannot be divided. */
function RangeNote() {
  const windows = shownWindows();
  const { top } = responses;
  if (!state.to || !windows || !top?.data || pending.has("top")) return null;
  const count = top.data.windows ? counted(top.data.windows, "window") + " of " : "";
  return h("p", { id: "range-note", class: "note" }, count + clock(windows[0], true) + " – " + clock(windows[1]) +
    ", whole windows: only samples with timestamps can be selected within one.");
}

/** Says what the profiles lack that hours have replaced, for what is shown. */
function HoursNote() {
  const shown = Object.entries(responses).filter(([name, { data }]) => data && !pending.has(name));
  const limits = [];
  const timeline = shown.find(([name]) => name === "timeline")?.[1].data;
  if (timeline?.resolution_ms) limits.push("the timeline is exact to " + (timeline.resolution_ms < 3600e3 ? "a minute" : "an hour"));
  if (shown.some(([name, { data }]) => name !== "timeline" && data.resolution_ms)) limits.push("the range is rounded to whole hours");
  const labels = [...new Set(shown.flatMap(([, { data }]) => data.omitted_labels || []))];
  if (labels.length) limits.push("samples have no label " + labels.join(", "));
  if (!limits.length) return null;
  const until = responses.stats?.data?.hours_to_ms;
  return h("p", { id: "hours-note", class: "note" }, "Older profiles" + (until ? ", until " + clock(until, true) + "," : "") + " are kept by the hour: " + limits.join("; ") + ".");
}

function brush(event, from, to) {
  const box = event.currentTarget;
  const bounds = box.querySelector("svg").getBoundingClientRect();
  const fraction = (x) => Math.min(1, Math.max(0, (x - bounds.left) / bounds.width));
  const start = fraction(event.clientX);
  const mark = document.createElement("div");
  mark.className = "brush";
  box.append(mark);
  box.setPointerCapture(event.pointerId);
  let stop = start;
  const move = (moved) => {
    stop = fraction(moved.clientX);
    mark.style.left = 100 * Math.min(start, stop) + "%";
    mark.style.width = 100 * Math.abs(stop - start) + "%";
  };
  const end = (isSelected) => {
    box.removeEventListener("pointermove", move);
    mark.remove();
    if (!isSelected || Math.abs(stop - start) * bounds.width < 5) return;
    const at = (part) => from + part * (to - from);
    change({ from: String(Math.floor(at(Math.min(start, stop)))), to: String(Math.ceil(at(Math.max(start, stop)))) });
  };
  box.addEventListener("pointermove", move);
  box.addEventListener("pointerup", () => end(true), { once: true });
  box.addEventListener("pointercancel", () => end(false), { once: true });
}
