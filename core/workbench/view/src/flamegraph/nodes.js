/* The nodes of a tree, and the keys of call paths. */

function hash(text) {
  let value = 2166136261;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  return value >>> 0;
}

/** The tree as typed arrays, in depth-first preorder: a node's subtree is [node, end[node]). */
function unpack(tree) {
  const flat = tree.nodes;
  const count = flat.length / 3;
  const nodes = {
    count,
    level: new Uint32Array(count), fn: new Uint32Array(count), parent: new Uint32Array(count), end: new Uint32Array(count),
    self: new Float64Array(count), elided: new Float64Array(count), total: new Float64Array(count), start: new Float64Array(count), depth: 0,
  };
  const path = [];
  for (let node = 0; node < count; node++) {
    const level = flat[node * 3];
    nodes.level[node] = level;
    nodes.fn[node] = flat[node * 3 + 1];
    nodes.self[node] = Math.max(0, flat[node * 3 + 2]);
    nodes.elided[node] = tree.elided ? tree.elided[node] : 0;
    nodes.total[node] = nodes.self[node] + nodes.elided[node];
    nodes.parent[node] = level ? path[level - 1] : 0;
    path[level] = node;
    nodes.depth = Math.max(nodes.depth, level);
  }
  for (let node = count - 1; node >= 0; node--) {
    if (!nodes.end[node]) nodes.end[node] = node + 1;
    if (node) {
      const parent = nodes.parent[node];
      nodes.total[parent] += nodes.total[node];
      nodes.end[parent] = Math.max(nodes.end[parent], nodes.end[node]);
    }
  }
  const next = new Float64Array(count);
  for (let node = 1; node < count; node++) {
    const parent = nodes.parent[node];
    nodes.start[node] = next[node] = next[parent];
    next[parent] += nodes.total[node];
  }
  return nodes;
}
