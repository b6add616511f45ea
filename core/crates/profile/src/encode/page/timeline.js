/* The timeline, and the selection of a range in it. */

function Timeline() {
  const { data, error } = responses.timeline || {};
  const attributes = paneAttributes("timeline", "timeline", "timeline");
  if (error) return h("section", { ...attributes, "aria-label": "Weight over time" }, h(PaneError, { error }));
  if (!data) return h("section", { ...attributes, "aria-label": "Weight over time" });
  const highest = Math.max(1, ...data.totals);
  const count = Math.max(1, data.totals.length);
  const end = data.from_ms + count * data.step_ms;
  const isDated = end - data.from_ms > 43200e3;
  const bars = data.series ? stackedBars(data, highest) : data.totals.map((total, at) => {
    if (total <= 0) return null;
    const height = Math.max(3, (92 * total) / highest);
    return h("rect", { key: at, class: "step", x: at + 0.08, y: 100 - height, width: 0.84, height },
      h("title", {}, clock(data.from_ms + at * data.step_ms, true) + "  " + amount(total, data.unit)));
  });
  const times = [0, 0.25, 0.5, 0.75, 1].map((part) =>
    h("span", {}, clock(data.from_ms + part * (end - data.from_ms), isDated || part === 0)));
  return h("section", { ...attributes, "aria-label": "Weight over time; drag to select a range",
    onPointerDown: (event) => brush(event, data.from_ms, end) },
    h("svg", { viewBox: "0 0 " + count + " 100", preserveAspectRatio: "none", "aria-hidden": "true" }, bars),
    h("div", { class: "scale", "aria-hidden": "true" }, scaleTicks(data, highest).map(({ part, words }) => h("span", { style: { bottom: 92 * part + "%" } }, words))),
    h("div", { class: "axis" }, times), data.series && h(SeriesLegend, { data }));
}

/** Two ticks of the scale: times per second of time, which are cores or threads, states as they are, other amounts per second. */
function scaleTicks(data, highest) {
  if (!data.totals.some((total) => total > 0)) return [];
  const seconds = data.step_ms / 1e3;
  const words = (value) => {
    if (data.gauge) return amount(value, data.unit);
    const rate = value / seconds;
    if (data.unit !== "nanoseconds") return amount(rate, data.unit) + "/s";
    const parallel = rate / 1e9;
    return parallel.toLocaleString("en", { maximumSignificantDigits: 2 }) + (state.type === "cpu" ? " cores" : " threads");
  };
  return [0.5, 1].map((part) => ({ part, words: words(part * highest) }));
}

const valueWords = (value) => (value === null ? "other values" : value === "" ? "none" : value);
/** A bar of each step, with a part for each value of the group. */
function stackedBars(data, highest) {
  return data.totals.map((total, at) => {
    let below = 0;
    return data.series.map(({ value, totals }, nth) => {
      if (totals[at] <= 0) return null;
      const height = (92 * totals[at]) / highest;
      below += height;
      return h("rect", { key: at + ":" + nth, class: "step part", x: at + 0.08, y: 100 - below, width: 0.84, height, style: { fill: seriesColor(data, nth) } },
        h("title", {}, clock(data.from_ms + at * data.step_ms, true) + "  " + valueWords(value) + ": " + amount(totals[at], data.unit)));
    });
  });
}
const seriesColor = (data, nth) => (data.series[nth].value === null ? "var(--series-other)" : "var(--series-" + nth + ")");

/** The values of the group; a click selects one. */
function SeriesLegend({ data }) {
  const sum = (totals) => totals.reduce((sum, total) => sum + total, 0);
  const all = sum(data.totals);
  const entry = ({ value, totals }, nth) => {
    const content = [h("i", { style: { background: seriesColor(data, nth) } }), valueWords(value), h("small", {}, " " + share(sum(totals), all))];
    return h("li", {}, value === null ? h("span", {}, content)
      : h("button", { type: "button", class: "link", title: "Only " + state.group + "=" + value, onClick: () => change(withLabel(state.group, value)) }, content));
  };
  return h("ul", { id: "series", "aria-label": "Values of " + state.group, onPointerDown: (event) => event.stopPropagation() }, data.series.map(entry));
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
