/* Stack trees as the server has them (transform/tree.rs, invert.rs, fold.rs): parent, function and self weight by node, in
   depth-first order. Functions are numbered in the order of siblings. */

/** The highest priority of functions of the runtime that may pass calls on: not collectors, compilers and the profiler. */
const PASSES_CALLS_ON = 6;
/** Nodes up to which an inverted tree has all of them, and the share of the lightest node of a larger one. */
const MAX_INVERTED = 2e6, MIN_INVERTED = 1 / 5e4;

/** Weights with those of all callees. */
function totalWeights(parent, own) {
  const sums = Float64Array.from(own);
  for (let node = sums.length - 1; node > 0; node--) sums[parent[node]] += sums[node];
  return sums;
}

/** A tree that is built path by path. */
class TreeBuilder {
  parent = [0];
  fn = [0];
  own = [0];
  /** Weight of callees that the tree lacks, by node. */
  elided = new Map();
  /** Nodes by the hash of parent and function, with linear probing. */
  slots = new Int32Array(1 << 16);
  slotOf(parent, fn) {
    const mask = this.slots.length - 1, hash = Math.imul(parent + 1, 0x9e3779b1) ^ Math.imul(fn, 0x85ebca77);
    let slot = (hash ^ (hash >>> 15)) & mask;
    for (let node; (node = this.slots[slot]) && (this.parent[node] !== parent || this.fn[node] !== fn); ) slot = (slot + 1) & mask;
    return slot;
  }
  child(parent, fn) {
    const slot = this.slotOf(parent, fn);
    if (this.slots[slot]) return this.slots[slot];
    const node = (this.slots[slot] = this.parent.push(parent) - 1);
    this.fn.push(fn);
    this.own.push(0);
    if (2 * node > this.slots.length) {
      this.slots = new Int32Array(2 * this.slots.length);
      for (let at = 1; at <= node; at++) this.slots[this.slotOf(this.parent[at], this.fn[at])] = at;
    }
    return node;
  }
  elide(node, weight) { this.elided.set(node, (this.elided.get(node) || 0) + weight); }
  /** The nodes that have a weight. */
  tree() {
    const { parent, fn, own, elided } = this;
    const sums = totalWeights(parent, elided.size ? own.map((weight, node) => weight + (elided.get(node) || 0)) : own);
    const [sameFunction, first, next, numbers] = [0, 1, 2, 3].map(() => new Int32Array(fn.length));
    const ofFunction = [];
    for (let node = 1; node < fn.length; node++) {
      if (sums[node] === 0) continue;
      sameFunction[node] = ofFunction[fn[node]] || 0;
      ofFunction[fn[node]] = node;
    }
    // Each node is prepended to the callees of its parent, those of the last function first.
    for (let at = ofFunction.length - 1; at > 0; at--) {
      for (let node = ofFunction[at]; node; node = sameFunction[node]) {
        next[node] = first[parent[node]];
        first[parent[node]] = node;
      }
    }
    const tree = { parent: [], fn: [], own: [], elided: elided.size ? [] : undefined };
    for (const pending = [0]; pending.length;) {
      const node = pending.pop();
      numbers[node] = tree.fn.push(fn[node]) - 1;
      tree.parent.push(numbers[parent[node]]);
      tree.own.push(own[node]);
      tree.elided?.push(elided.get(node) || 0);
      if (next[node]) pending.push(next[node]);
      if (first[node]) pending.push(first[node]);
    }
    return tree;
  }
}

/** Consecutive calls of one function as one. */
function withoutRecursion({ parent, fn, own }) {
  const built = new TreeBuilder();
  const target = new Int32Array(fn.length);
  fn.forEach((at, node) => {
    const caller = target[parent[node]];
    target[node] = node && (parent[node] && at === fn[parent[node]] ? caller : built.child(caller, at));
    built.own[target[node]] += own[node];
  });
  return built.tree();
}

/** The callers of functions below them: of those that match, the outermost of recursive calls; else of those in which samples end. */
function inverted({ parent, fn, own }, matches) {
  const built = new TreeBuilder();
  const sums = totalWeights(parent, own), level = new Int32Array(fn.length), below = new Uint8Array(fn.length);
  let ends = [], count = 0, total = 0;
  fn.forEach((at, node) => {
    if (!node) return;
    level[node] = level[parent[node]] + 1;
    below[node] = below[parent[node]] || matches?.[at] ? 1 : 0;
    const weight = !matches ? own[node] : below[node] > below[parent[node]] ? sums[node] : 0;
    if (weight === 0) return;
    ends.push({ node, weight, target: 0 });
    count += level[node];
    total += weight;
  });
  if (!matches) total += built.own[0] = own[0];
  const least = count > MAX_INVERTED ? Math.trunc(total * MIN_INVERTED) : -Infinity;
  // One more caller of each path at a time, since a light node ends all of its paths.
  for (let weights = [0]; ends.length; ) {
    for (const end of ends) {
      end.target = built.child(end.target, fn[end.node]);
      weights[end.target] = (weights[end.target] || 0) + end.weight;
    }
    ends = ends.filter((end) => {
      end.node = parent[end.node];
      if (weights[end.target] < least) built.elide(built.parent[end.target], end.weight);
      else if (end.node) return true;
      else built.own[end.target] += end.weight;
      return false;
    });
  }
  return built.tree();
}

/**
 * Each run of libraries as one frame, and each of the runtime. A run of the runtime that passes calls of or to a library on is left out.
 * A run of libraries has the name next to own code that it calls, else the first one; parts of the standard library name it only without
 * others (fold.rs). Functions of `keeps` stay, and so does the type of an object at the leaf. `fold` is the function of the frame; `priority` is 0 to 2 of libraries, to 9 of the runtime, 10 of the kernel.
 */
function withFolded({ parent, fn, own, elided }, { fold, priority, file, files }, keeps) {
  const built = new TreeBuilder();
  const sums = totalWeights(parent, elided ? own.map((weight, node) => weight + elided[node]) : own);
  const groupOf = (at) => (fold[at] && !keeps?.[at] ? 1 + (priority[at] > 2) + (priority[at] > 9) : 0);
  const groups = Uint8Array.from(fold, (_, at) => groupOf(at));
  /** The path before the run of a node, the functions that may name the run, and the node before a run of the runtime. */
  const [before, first, last, outer] = [0, 1, 2, 3].map(() => new Int32Array(fn.length));
  /** The node that calls a function, without what passes the call on. The label that groups a tree has no entry in `groups`. */
  const callerOf = (node, group) => {
    const caller = parent[node], around = outer[caller];
    const passesOn = groups[fn[caller]] === 2 && priority[first[caller]] <= PASSES_CALLS_ON && group < 2 && around;
    return passesOn && !(groups[fn[around]] > 1) && (group === 1 || groups[fn[around]] === 1) ? around : caller;
  };
  const end = (node, isCaller) => (groups[fn[node]] ? built.child(before[node], fold[(isCaller ? last : first)[node]]) : before[node]);
  fn.forEach((at, node) => {
    if (node && sums[node] !== 0) {
      const group = groups[at], caller = callerOf(node, group);
      if (group === 2) outer[node] = groups[fn[caller]] === 2 ? outer[caller] : caller;
      if (!group) before[node] = built.child(end(caller, true), at);
      else if (group === groups[fn[caller]]) {
        before[node] = before[caller];
        first[node] = priority[at] > priority[first[caller]] ? at : first[caller];
        last[node] = priority[at] >= Math.max(1, priority[last[caller]]) ? at : last[caller];
      } else {
        before[node] = end(caller, false);
        first[node] = last[node] = at;
      }
    }
    if (own[node]) built.own[node && files[file[at]] === "<type>" ? built.child(end(parent[node], false), at) : end(node, false)] += own[node];
    if (elided?.[node]) built.elide(end(node, false), elided[node]);
  });
  return built.tree();
}
