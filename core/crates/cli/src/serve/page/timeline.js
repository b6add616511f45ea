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
  const bars = data.totals.map((total, at) => {
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
    h("div", { class: "axis" }, times));
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
