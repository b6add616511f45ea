/*
 * Draws a stack tree on a canvas, root at the top. `new Flamegraph(element)`, then `.show(tree)` with the value of the
 * encoder's json(); `.search(text)`, `.reset()`, `.resize()`. Visits only nodes of visible width: the cost depends on the screen, not on the profile.
 *
 * A server may leave out narrow nodes: their weight is in `elided` of the tree. Then set `.onzoom = (path, isElided) => {}`, which
 * is called with the keys of the functions down to the zoomed node, and whether callees are missing below it. Request the tree of
 * this path, and pass it to `.show(tree, { path })`. `.path()` is the current one.
 */

const ROW = 19;
const FONT = "12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
const MIN_VISIBLE_WIDTH = 0.35;
/** Label, hue and saturation of a frame type; the package varies hue and lightness slightly. */
const KINDS = {
  "": ["other", 220, 9], cpython: ["Python", 44, 72], v8js: ["JavaScript", 88, 44], jvm: ["JVM code", 162, 40],
  native: ["native code", 330, 40], kernel: ["kernel", 354, 54], rust: ["Rust", 20, 66],
};
/** Of libraries in every language, apart from own code (warm) and the runtime (gray). */
const LIBRARY_HUE = 212;
/** Members of the tree's `origin`, as of the encoder's CodeOrigin. */
const [OWN, LIBRARY, RUNTIME, PROFILER] = [0, 1, 2, 4];
const SCALES = {
  nanoseconds: [[3600e9, "h"], [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
};

function amount(value, unit) {
  const scales = SCALES[unit];
  if (!scales || value === 0) return value.toLocaleString("en") + (scales || !unit || unit === "count" ? "" : " " + unit);
  const [scale, name] = scales.find(([scale]) => Math.abs(value) >= scale) || scales[scales.length - 1];
  const scaled = value / scale;
  const digits = scale === 1 || Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2;
  return scaled.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + "\u00a0" + name;
}
function percent(part, whole) {
  if (whole <= 0) return "–";
  return part === 0 ? "0%" : ((100 * part) / whole).toFixed(part < whole / 1000 ? 3 : 1) + "%";
}

/** White text has a contrast of 4.6:1 on it. WCAG 2.2 requires 4.5:1 (success criterion 1.4.3), also after rounding to bytes. */
const MAX_DARK_LUMINANCE = 1.05 / 4.6 - 0.05;
/** The relative luminance of a color, as of WCAG 2.2. */
function luminance(hue, saturation, lightness) {
  const chroma = (saturation / 100) * Math.min(lightness, 100 - lightness) / 100;
  const linear = (offset) => {
    const turn = (offset + hue / 30 + 12) % 12;
    const value = lightness / 100 - chroma * Math.max(-1, Math.min(turn - 3, 9 - turn, 1));
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(0) + 0.7152 * linear(8) + 0.0722 * linear(4);
}

function element(name, className, parent) {
  const created = document.createElement(name);
  created.className = className;
  if (parent) parent.append(created);
  return created;
}

class Flamegraph {
  constructor(host) {
    this.root = element("div", "flamegraph", host);
    const bar = element("div", "flamegraph-bar", this.root);
    this.about = element("span", "flamegraph-about", bar);
    this.match = element("span", "flamegraph-match", bar);
    this.match.setAttribute("role", "status");
    this.legend = element("span", "flamegraph-legend", bar);
    this.back = element("button", "flamegraph-reset", bar);
    this.back.type = "button";
    this.back.textContent = "Reset zoom";
    this.back.addEventListener("click", () => this.reset());
    this.view = element("div", "flamegraph-view", this.root);
    this.space = element("div", "flamegraph-space", this.view);
    this.canvas = element("canvas", "", this.view);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.pen = this.canvas.getContext("2d");
    this.tip = element("div", "flamegraph-tip", this.root);
    this.tip.setAttribute("role", "tooltip");
    this.tip.hidden = true;
    this.announcement = element("div", "flamegraph-announcement", this.root);
    this.announcement.setAttribute("aria-live", "polite");
    this.query = "";
    this.colors = new Map();
    this.show({ type: "", unit: "", names: ["root"], files: [""], file: [0], origin: [3], lines: [0], kinds: [""], kind: [0], nodes: [0, 0, 0] });

    this.view.addEventListener("scroll", () => { if (this.selected < 0) this.hover(-1); this.redraw(); });
    this.canvas.addEventListener("blur", () => { this.selected = -1; this.hover(-1); this.redraw(); });
    this.canvas.addEventListener("mousemove", (event) => this.hover(this.nodeAt(event), event));
    this.canvas.addEventListener("mouseleave", () => this.hover(-1));
    this.canvas.addEventListener("click", (event) => {
      const node = this.nodeAt(event);
      if (node >= 0) this.zoom(node);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.menu = new FlameMenu(this);
    new ResizeObserver(() => this.resize()).observe(this.view);
    const recolor = () => { this.colors.clear(); this.redraw(); this.showLegend(); };
new MutationObserver(recolor).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  }

  /** Shows another tree, zoomed to a path: by default the current one, as far as it still exists. */
  show(tree, { path = this.tree ? this.path() : [] } = {}) {
    this.tree = tree;
    this.nodes = unpack(tree);
    this.colors.clear();
    this.zoomed = this.searched = this.find(path);
    this.selected = -1;
    this.hovered = -1;
    this.tip.hidden = true;
    this.search(this.query);
    this.showLegend();
    this.resize();
  }

  /** Whether name or file of a function contain the text; an expression, written as /expression/, is also matched with `name file:line`. */
  static functionTest(text) {
    const expression = /^\/(.+)\/$/.exec(text);
    if (expression) {
      try {
        const pattern = new RegExp(expression[1], "i");
        return (name, file, line) => [name, file, name + (file && " " + file + (line ? ":" + line : ""))].some((subject) => pattern.test(subject));
      } catch { /* Incomplete expressions are searched as text. */ }
    }
    const part = text.toLowerCase();
    return (name, file) => [name, file].some((subject) => subject.toLowerCase().includes(part));
  }

  /** Marks functions whose name or file passes the test of the text. */
  search(text) {
    this.query = text = (text || "").trim();
    this.matched = null;
    if (text) {
      const test = Flamegraph.functionTest(text);
      const { names, files, file, lines } = this.tree;
      this.matched = names.map((name, at) => at > 0 && test(name, files[file[at]], lines[at]));
    }
    this.count();
    this.redraw();
  }

  /** Resets selection and zoom. */
  reset() {
    this.selected = -1;
    this.hover(-1);
    this.zoom(0);
  }

  /** Fits the canvas to its element. */
  resize() {
    this.space.style.height = (this.nodes.depth + 1) * ROW + 6 + "px";
    const [width, height] = [this.view.clientWidth, this.view.clientHeight];
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = width + "px";
    this.canvas.style.height = height + "px";
    this.canvas.style.marginBottom = -height + "px";
    Object.assign(this, { width, height, ratio });
    // Draws immediately, since setting its size clears a canvas.
    this.draw();
  }

  zoom(node) {
    const isOther = node !== this.zoomed;
    this.zoomed = node;
    this.count();
    this.describe();
    this.reveal(node);
    this.redraw();
    if (isOther && this.onzoom) this.onzoom(this.path(), this.isElided());
  }

  /** Keys of the functions from the root's callee to the zoomed node. */
  path() { return this.pathTo(this.zoomed).slice(1).map((node) => this.pathKey(node)); }

  /** Whether the tree lacks callees below the zoomed node. */
  isElided() { return this.nodes.elided.subarray(this.zoomed, this.nodes.end[this.zoomed]).some((weight) => weight > 0); }

  // ---- bar, legend and tooltip ----

  /** Shows the weight of the topmost matches within the zoom: nested matches count once. Elided ones are known to the server only. */
  count() {
    const { nodes, matched, tree } = this;
    const isKnown = tree.matched !== undefined && tree.search === this.query && this.zoomed === this.searched;
    let weight = isKnown ? tree.matched : 0;
    if (matched && !isKnown) {
      for (let node = this.zoomed; node < nodes.end[this.zoomed];) {
        if (matched[nodes.fn[node]]) {
          weight += nodes.total[node];
          node = nodes.end[node];
        } else node++;
      }
    }
    const atLeast = isKnown || !this.isElided() ? "" : "at least ";
    this.match.textContent = matched ? `Matched ${atLeast}${percent(weight, nodes.total[this.zoomed])} (${amount(weight, this.tree.unit)})` : "";
    this.root.dataset.matched = matched ? weight : "";
  }

  describe() {
    const { nodes, zoomed, tree } = this;
    this.back.hidden = zoomed === 0;
    const total = amount(nodes.total[zoomed], tree.unit);
    this.about.textContent = zoomed === 0 ? `${tree.type ? tree.type + ": " : ""}${total}`
      : `${this.name(zoomed)}: ${total}, ${percent(nodes.total[zoomed], nodes.total[0])} of all`;
    this.canvas.setAttribute("aria-label", `Flame graph. ${this.about.textContent}. Arrow keys move, Enter zooms, Escape resets, the Menu key lists actions.`);
  }

  showLegend() {
    this.root.classList.toggle("flamegraph-dark", this.isDark());
    const { kind, kinds, origin } = this.tree;
    const swatches = new Map();
    for (let fn = 1; fn < kind.length; fn++) {
      const [name, hue, saturation] = KINDS[kinds[kind[fn]]] || KINDS[""];
      const words = origin[fn] === OWN ? "your " + name : origin[fn] === LIBRARY ? "libraries" : origin[fn] === RUNTIME ? "runtime and kernel" : origin[fn] === PROFILER ? "profiler" : name;
      if (!swatches.has(words)) swatches.set(words, this.shade(hue, saturation, 0, origin[fn]));
    }
    this.legend.replaceChildren(...[...swatches].sort().map(([words, color]) => {
      const entry = element("span", "");
      element("i", "", entry).style.background = color;
      entry.append(words);
      return entry;
    }));
    this.describe();
  }

  hover(node, event) {
    if (node !== this.hovered) {
      this.hovered = node;
      this.canvas.style.cursor = node >= 0 ? "pointer" : "";
      this.tip.hidden = node < 0;
      if (node >= 0) this.fillTip(node);
      this.redraw();
    }
    if (event && node >= 0) this.placeTip(event.clientX + 14, event.clientY + 16, event.clientY - 10);
  }

  fillTip(node) {
    const heading = element("b", "");
    heading.textContent = this.name(node);
    const source = element("small", "");
    source.textContent = [this.place(node), Flamegraph.kindWords(this.kind(node))].filter(Boolean).join(" · ");
    const table = element("table", "");
    for (const cells of this.tipRows(node)) {
      const added = table.insertRow();
      for (const cell of cells) added.insertCell().textContent = cell;
    }
    this.tip.replaceChildren(heading, source, table);
  }

  /** Cells of the rows of the tooltip. */
  tipRows(node) {
    const { nodes, tree, zoomed } = this;
    const values = [["total", nodes.total[node]], [tree.inverted ? "outermost" : "self", nodes.self[node]]];
    if (nodes.elided[node]) values.push(["not shown", nodes.elided[node]]);
    return values.map(([label, value]) => {
      const cells = [label, amount(value, tree.unit), percent(value, nodes.total[0])];
      if (zoomed && nodes.level[node] >= nodes.level[zoomed]) cells.push(percent(value, nodes.total[zoomed]) + " of zoom");
      return cells;
    });
  }

  placeTip(left, below, above) {
    const { width, height } = this.tip.getBoundingClientRect();
    const top = below + height > innerHeight - 4 ? above - height : below;
    this.tip.style.left = Math.max(4, Math.min(left, innerWidth - width - 6)) + "px";
    this.tip.style.top = Math.max(4, top) + "px";
  }

  // ---- navigation ----

  name(node) { return this.tree.names[this.nodes.fn[node]]; }
  file(node) { return this.tree.files[this.tree.file[this.nodes.fn[node]]]; }
  /** file:line of a function, as far as they are known. */
  place(node) {
    const line = this.tree.lines[this.nodes.fn[node]];
    return this.file(node) + (line ? ":" + line : "");
  }
  kind(node) { return this.tree.kinds[this.tree.kind[this.nodes.fn[node]]]; }

  /** Key of a function in call paths, as of the server's FunctionKey::path_key. */
  pathKey(node) {
    const text = `${this.name(node)}\0${this.file(node)}:${this.tree.lines[this.nodes.fn[node]]}`;
    return hash(text).toString(16).padStart(8, "0");
  }

  pathTo(node) {
    const path = [node];
    while (node) path.unshift(node = this.nodes.parent[node]);
    return path;
  }

  children(node) {
    const all = [];
    for (let child = node + 1; child < this.nodes.end[node]; child = this.nodes.end[child]) all.push(child);
    return all;
  }

  /** The last node of a path that exists. */
  find(keys) {
    let node = 0;
    for (const key of keys) {
      const child = this.children(node).find((child) => this.pathKey(child) === key);
      if (child === undefined) break;
      node = child;
    }
    return node;
  }

  key(event) {
    const { nodes } = this;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const from = this.selected < 0 ? this.zoomed : this.selected;
    const siblings = () => (from ? this.children(nodes.parent[from]) : [0]);
    const heaviest = (all) => all.reduce((best, child) => (nodes.total[child] > nodes.total[best] ? child : best), all[0]);
    const step = (by) => siblings()[siblings().indexOf(from) + by];
    const moves = {
      ArrowUp: () => nodes.parent[from], ArrowDown: () => heaviest(this.children(from)), ArrowLeft: () => step(-1),
      ArrowRight: () => step(1), Home: () => 0,
    };
    if (moves[event.key]) this.select(this.selected < 0 ? this.zoomed : moves[event.key]() ?? from);
    else if (event.key === "Enter") this.zoom(from);
    else if (event.key === "Backspace") this.select(nodes.parent[this.zoomed]), this.zoom(nodes.parent[this.zoomed]);
    else if (event.key === "Escape") this.reset();
    else return;
    event.preventDefault();
  }

  select(node) {
    const { nodes, zoomed } = this;
    this.selected = node;
    const inside = node >= zoomed && node < nodes.end[zoomed];
    const above = zoomed >= node && zoomed < nodes.end[node];
    if (!inside && !above) this.zoom(nodes.parent[node]);
    this.reveal(node);
    this.announcement.textContent = `${this.name(node)}, total ${amount(nodes.total[node], this.tree.unit)}, ` +
      `${percent(nodes.total[node], nodes.total[0])}, self ${amount(nodes.self[node], this.tree.unit)}`;
    this.hovered = -1;
    this.hover(node);
    const box = this.canvas.getBoundingClientRect();
    const [x] = this.extent(node);
    const y = box.top + nodes.level[node] * ROW - this.view.scrollTop;
    this.placeTip(box.left + Math.max(0, x) + 8, y + ROW + 6, y - 6);
  }

  reveal(node) {
    const top = this.nodes.level[node] * ROW;
    if (top < this.view.scrollTop) this.view.scrollTop = Math.max(0, top - ROW);
    else if (top + 2 * ROW > this.view.scrollTop + this.height) this.view.scrollTop = top - this.height / 2;
  }

  /** Left edge and width of a node on the canvas; ancestors of the zoomed node have the full width. */
  extent(node) {
    const { nodes, zoomed, width } = this;
    const total = nodes.total[zoomed];
    if (nodes.level[node] < nodes.level[zoomed] || total <= 0) return [0, width];
    return [((nodes.start[node] - nodes.start[zoomed]) / total) * width, (nodes.total[node] / total) * width];
  }

  nodeAt(event) {
    const { nodes, zoomed } = this;
    const box = this.canvas.getBoundingClientRect();
    const level = Math.floor((event.clientY - box.top + this.view.scrollTop) / ROW);
    const x = event.clientX - box.left;
    if (level < 0 || level > nodes.depth || nodes.total[zoomed] <= 0) return -1;
    if (level <= nodes.level[zoomed]) return this.pathTo(zoomed)[level];
    const at = nodes.start[zoomed] + (x / this.width) * nodes.total[zoomed];
    let node = zoomed;
    while (nodes.level[node] < level) {
      const inside = this.children(node).find((child) => at >= nodes.start[child] && at < nodes.start[child] + nodes.total[child]);
      if (inside === undefined) return -1;
      node = inside;
    }
    return node;
  }

  // ---- drawing ----

  isDark() {
    const theme = document.documentElement.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  /** A color of frames. Dark ones are as light as white text permits: yellow and green are lighter than red and blue of one lightness. */
  tint(hue, saturation, vary) {
    if (!this.isDark()) return `hsl(${hue} ${saturation}% ${74 + vary}%)`;
    let lightness = 36 + vary;
    while (luminance(hue, saturation * 0.62, lightness) > MAX_DARK_LUMINANCE) lightness--;
    return `hsl(${hue} ${saturation * 0.62}% ${lightness}%)`;
  }

  /** Own code is saturated, libraries are pale, runtime and profiler are gray. */
  shade(hue, saturation, vary, origin) {
    if (origin === LIBRARY) return this.tint(LIBRARY_HUE, 30, this.isDark() ? vary - 10 : vary / 2 + 13);
    if (origin === RUNTIME || origin === PROFILER) return this.tint(220, 6, vary / 2);
    return this.tint(hue, origin === OWN ? Math.max(saturation, 62) : saturation, vary);
  }

  /**
   * Color of a function: the hue of its frame type and the shade of its origin, varied by package (the directory of its file, else
   * the first part of its name).
   */
  color(fn) {
    let color = this.colors.get(fn);
    if (!color) {
      const { names, files, file, kinds, kind, origin } = this.tree;
      const [, hue, saturation] = KINDS[kinds[kind[fn]]] || KINDS[""];
      const path = files[file[fn]];
      const separator = Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\"));
      const seed = hash(separator > 0 ? path.slice(0, separator) : path || names[fn].split(/[.:]/)[0]);
      color = fn === 0 ? this.tint(220, 6, 8) : this.shade(hue + (seed % 19) - 9, saturation, ((seed >>> 8) % 11) - 5, origin[fn]);
      this.colors.set(fn, color);
    }
    return color;
  }

  /** Color of a node. */
  fill(node) { return this.color(this.nodes.fn[node]); }

  redraw() {
    if (this.frameRequest) return;
    this.frameRequest = requestAnimationFrame(() => {
      this.frameRequest = 0;
      this.draw();
    });
  }

  draw() {
    const { nodes, pen, zoomed, width, height, matched } = this;
    if (!width || !height) return;
    const dark = this.isDark();
    const began = performance.now();
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const letter = pen.measureText("m").width;
    const top = this.view.scrollTop;
    const [first, last] = [Math.floor(top / ROW), Math.ceil((top + height) / ROW)];
    const base = nodes.start[zoomed];
    const scale = nodes.total[zoomed] > 0 ? width / nodes.total[zoomed] : 0;
    const [ink, faded] = dark ? ["#ffffff", "#b4bcc5"] : ["#16191d", "#4a5159"];
    const box = (node, x, wide, isAbove) => {
      const fn = nodes.fn[node];
      const y = nodes.level[node] * ROW - top;
      const hit = matched && matched[fn];
      pen.globalAlpha = matched && !hit ? 0.35 : isAbove ? 0.55 : 1;
      pen.fillStyle = hit ? (dark ? "#c2255c" : "#f783ac") : this.fill(node);
      pen.fillRect(x, y, Math.max(MIN_VISIBLE_WIDTH, wide - (wide > 3 ? 1 : 0)), ROW - 1);
      if (node === this.hovered || node === this.selected) {
        pen.globalAlpha = 1;
        pen.strokeStyle = ink;
        pen.strokeRect(x + 0.5, y + 0.5, Math.max(0, wide - 2), ROW - 2);
      }
      const letters = Math.floor((wide - 8) / letter);
      if (letters >= 3) {
        const name = this.name(node);
        pen.globalAlpha = 1;
        pen.fillStyle = matched && !hit ? faded : ink;
        pen.fillText(name.length > letters ? name.slice(0, letters - 1) + "…" : name, x + 4, y + ROW / 2);
      }
    };
    /** A thin line below a node where callees are elided, right of the others. */
    const elision = (node, x) => {
      const wide = nodes.elided[node] * scale;
      if (wide < MIN_VISIBLE_WIDTH) return;
      pen.globalAlpha = 1;
      pen.fillStyle = dark ? "#3a424d" : "#dce0e5";
      pen.fillRect(x + (nodes.total[node] - nodes.self[node]) * scale - wide, (nodes.level[node] + 1) * ROW - top, wide, 3);
    };
    for (const node of this.pathTo(zoomed).slice(0, -1)) if (nodes.level[node] >= first) box(node, 0, width, true);
    // Rightmost edge drawn in each row: narrow nodes within the same pixel are drawn once.
    const edges = new Float64Array(nodes.depth + 2).fill(-1);
    let drawn = 0;
    for (let node = zoomed; node < nodes.end[zoomed] && scale > 0;) {
      const level = nodes.level[node];
      const x = (nodes.start[node] - base) * scale;
      const wide = nodes.total[node] * scale;
      if (level > last || (wide < MIN_VISIBLE_WIDTH && x + wide < edges[level] + MIN_VISIBLE_WIDTH)) {
        node = nodes.end[node];
        continue;
      }
      edges[level] = x + wide;
      if (level >= first) {
        box(node, x, wide, false);
        elision(node, x);
        drawn++;
      }
      node = wide < MIN_VISIBLE_WIDTH ? nodes.end[node] : node + 1;
    }
    pen.globalAlpha = 1;
    this.root.dataset.drawn = drawn;
    this.root.dataset.drawMs = (performance.now() - began).toFixed(2);
  }
}

/** `kindWords` is the name of a frame type that people use: `Python` for `cpython`. */
Object.assign(Flamegraph, { amount, percent, element, frameTypes: Object.keys(KINDS), kindWords: (kind) => (kind && KINDS[kind]?.[0]) || kind });
