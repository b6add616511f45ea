/*
 * Draws the tree of a comparison: `new DiffFlamegraph(element)`, then `.show(tree)` with the value of the encoder's diff_json().
 * The width of a node is its weight in the comparison. Significant changes are colored, red for growth and blue for shrinkage,
 * which color-blind readers can distinguish. Options show all changes, and the call paths that vanished.
 */
window.DiffFlamegraph = (() => {
"use strict";

const { amount, percent, element } = window.Flamegraph;
const GREW = [6, 78];
const SHRANK = [212, 74];

/** `+4.1%` */
function signed(fraction) {
  const value = 100 * fraction;
  if (Math.abs(value) < 0.05) return "0.0%";
  return (value > 0 ? "+" : "") + value.toFixed(Math.abs(value) < 1000 ? 1 : 0) + "%";
}

class DiffFlamegraph extends window.Flamegraph {
  constructor(host) {
    super(host);
    this.showsAll = false;
    this.showsVanished = false;
    const toggle = (words, name, changed) => {
      const label = element("label", "flamegraph-toggle", null);
      const box = element("input", "", label);
      box.type = "checkbox";
      box.addEventListener("change", () => { this[name] = box.checked; changed(); });
      label.append(words);
      this.legend.before(label);
      return label;
    };
    this.allToggle = toggle("All changes", "showsAll", () => this.redraw());
    this.vanishedToggle = toggle("Vanished", "showsVanished", () => this.show(this.source, this.sideTotals));
  }

  /**
   * Shows another comparison. `totals` are those of the two sides where the tree has weights that are scaled to a common total;
   * `options` are those of a flame graph.
   */
  show(tree, totals, options) {
    if (!tree.diff) return super.show(tree);
    this.source = tree;
    this.sideTotals = totals;
    const { baseline, comparison } = tree.diff;
    const nodes = tree.nodes.slice();
    baseline.forEach((weight, node) => {
      nodes[node * 3 + 2] = this.showsVanished ? Math.max(weight, comparison[node]) : comparison[node];
    });
    super.show({ ...tree, nodes }, options);
    this.sides = [baseline, comparison].map((side) => this.totals(side));
    this.scales = this.sides.map((side, nth) => (totals && side[0] ? totals[nth] / side[0] : 1));
    this.describe();
    this.showLegend();
    this.redraw();
  }

  /** Sets whether all changes are colored; the caller has the control instead of this graph. */
  showAll(all) {
    this.allToggle.hidden = true;
    this.showsAll = all;
    this.redraw();
  }

  /** Sets whether the call paths that vanished are shown; the caller has the control instead of this graph. */
  showVanished(shows) {
    this.vanishedToggle.hidden = true;
    if (shows === this.showsVanished) return;
    this.showsVanished = shows;
    if (this.source) this.show(this.source, this.sideTotals);
  }

  /** Weight of each node with its callees. */
  totals(selfs) {
    const totals = Float64Array.from(selfs);
    for (let node = totals.length - 1; node > 0; node--) totals[this.nodes.parent[node]] += totals[node];
    return totals;
  }

  /** The weight of one side as text, as that side measured it. */
  sideAmount(value, side) { return amount(value * this.scales[side], this.tree.unit); }

  /** Whether shares are compared. */
  isScaled() { return this.scales[0] !== this.scales[1]; }

  describe() {
    super.describe();
    if (!this.sides || this.zoomed >= this.sides[0].length) return;
    const [before, after] = this.sides.map((side) => side[this.zoomed]);
    const name = this.zoomed ? this.name(this.zoomed) : this.tree.type;
    this.about.textContent = `${name}: ${this.sideAmount(before, 0)} → ${this.sideAmount(after, 1)}${this.zoomed || !this.isScaled() ? ", " + this.change(this.zoomed) : ""}`;
  }

  change(node) {
    const [before, after] = this.sides.map((side) => side[node]);
    if (before === after) return this.isScaled() ? "same share" : "unchanged";
    return before === 0 ? "new" : after === 0 ? "vanished" : signed(after / before - 1);
  }

  fill(node) {
    const { diff } = this.tree;
    if (!diff || !this.sides || node === 0 || (!diff.significant[node] && !this.showsAll)) return this.tint(220, 5, 10);
    const [before, after] = this.sides.map((side) => side[node]);
    const most = Math.max(before, after);
    if (before === after || most <= 0) return this.tint(220, 5, 10);
    const [hue, saturation] = after > before ? GREW : SHRANK;
    // The square root keeps small changes visible.
    return this.tint(hue, saturation, 12 - 26 * Math.sqrt(Math.abs(after - before) / most));
  }

  tipRows(node) {
    const { sides, tree } = this;
    if (!sides) return [];
    const { diff } = tree;
    const row = (label, value, side) => [label, this.sideAmount(value, side), percent(value, sides[side][0])];
    const rows = [row("baseline", sides[0][node], 0), row("comparison", sides[1][node], 1), ["change", this.change(node), ""],
      ["self", `${this.sideAmount(diff.baseline[node], 0)} → ${this.sideAmount(diff.comparison[node], 1)}`, ""]];
    if (diff.low[node] !== null) rows.push(["95 % interval", signed(diff.low[node]) + " to " + signed(diff.high[node]), ""]);
    if (node) rows.push(["", diff.significant[node] ? "significant" : diff.low[node] === null ? "nothing can be concluded" : "may be chance", ""]);
    return rows;
  }

  showLegend() {
    if (!this.sides) return;
    const entries = [["grew", ...GREW, -8], ["shrank", ...SHRANK, -8], ["no significant change", 220, 5, 10]];
    this.legend.replaceChildren(...entries.map(([words, hue, saturation, vary]) => {
      const entry = element("span", "", null);
      element("i", "", entry).style.background = this.tint(hue, saturation, vary);
      entry.append(words);
      return entry;
    }));
  }
}

return DiffFlamegraph;
})();
