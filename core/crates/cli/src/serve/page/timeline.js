/* The timeline, and the selection of a range in it. */
const SVG = "http://www.w3.org/2000/svg";
function showTimeline(timeline) {
  const box = byId("timeline");
  const highest = Math.max(1, ...timeline.totals);
  const svg = document.createElementNS(SVG, "svg");
  const count = Math.max(1, timeline.totals.length);
  svg.setAttribute("viewBox", "0 0 " + count + " 100");
  svg.setAttribute("preserveAspectRatio", "none");
  timeline.totals.forEach((total, at) => {
    if (total <= 0) return;
    const height = Math.max(3, (92 * total) / highest);
    const bar = document.createElementNS(SVG, "rect");
    for (const [name, value] of [["class", "step"], ["x", at + 0.08], ["y", 100 - height], ["width", 0.84], ["height", height]]) bar.setAttribute(name, value);
    const title = document.createElementNS(SVG, "title");
    title.textContent = clock(timeline.from_ms + at * timeline.step_ms, true) + "  " + amount(total, timeline.unit);
    bar.append(title);
    svg.append(bar);
  });
  const end = timeline.from_ms + count * timeline.step_ms;
  const dated = end - timeline.from_ms > 43200e3;
  const axis = element("div", { class: "axis" }, ...[0, 0.25, 0.5, 0.75, 1].map((part) =>
    element("span", {}, clock(timeline.from_ms + part * (end - timeline.from_ms), dated || part === 0))));
  box.replaceChildren(svg, axis);
  box.hidden = !timeline.totals.length;
  box.onpointerdown = (event) => brush(event, timeline.from_ms, end);
}
function brush(event, from, to) {
  const box = byId("timeline");
  const bounds = box.querySelector("svg").getBoundingClientRect();
  const fraction = (at) => Math.min(1, Math.max(0, (at - bounds.left) / bounds.width));
  const start = fraction(event.clientX);
  const mark = element("div", { class: "brush" });
  box.append(mark);
  box.setPointerCapture(event.pointerId);
  let stop = start;
  const move = (moved) => {
    stop = fraction(moved.clientX);
    mark.style.left = 100 * Math.min(start, stop) + "%";
    mark.style.width = 100 * Math.abs(stop - start) + "%";
  };
  const end = () => {
    box.removeEventListener("pointermove", move);
    mark.remove();
    if (Math.abs(stop - start) * bounds.width < 5) return;
    state.from = String(Math.floor(from + Math.min(start, stop) * (to - from)));
    state.to = String(Math.ceil(from + Math.max(start, stop) * (to - from)));
    load();
  };
  box.addEventListener("pointermove", move);
  box.addEventListener("pointerup", end, { once: true });
  box.addEventListener("pointercancel", () => { box.removeEventListener("pointermove", move); mark.remove(); }, { once: true });
}
