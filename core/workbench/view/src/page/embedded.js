/* The data of an exported page, and what the server would answer about it: same paths, parameters and members. */

const embedded = (() => {
  const element = document.getElementById("data");
  if (!element) return null;
  const data = JSON.parse(element.textContent);
  if (data.comparison) return comparisonOnly(data);
  const { functions, nodes, labels, sets, profiles } = data;
  const nodeCount = nodes.length / 2;
  /** The parent of each node; nodes are in depth-first order, so that the callees of a node follow it. */
  const parents = new Int32Array(nodeCount);
  const path = [];
  for (let node = 0; node < nodeCount; node++) {
    const level = nodes[2 * node];
    parents[node] = level ? path[level - 1] : 0;
    path[level] = node;
  }
  const called = Int32Array.from(parents, (_, node) => nodes[2 * node + 1]);
  const functionOf = (node) => called[node];
  const fileOf = (at) => functions.files[functions.file[at]];

  /** Whether a label set passes a condition such as route!=/cart; a missing label has the value "". */
  function condition(text) {
    const [, key, operator, value] = LABEL.exec(text) || [, text, "=", ""];
    const pattern = operator.endsWith("~") ? new RegExp("^(?:" + value + ")$") : null;
    return (set) => (pattern ? pattern.test(valueOf(set, key)) : valueOf(set, key) === value) !== operator.startsWith("!");
  }
  /** The value of a label in a set, "" without it. */
  const valueOf = (set, key) => labels[sets[set].find((at) => labels[at][0] === key)]?.[1] ?? "";
  const isOwn = (at) => functions.origin[at] === 0;
  const isManaged = (at) => functions.code[at] === 0, isNative = (at) => functions.code[at] === 1;
  const placeOf = (at) => fileOf(at) + (functions.lines[at] ? ":" + functions.lines[at] : "");
  /** Whether an expression selects each function. */
  function matchesOf(text) {
    const pattern = new RegExp(text);
    return functions.names.map((name, at) => at > 0 && [name, fileOf(at), name + " " + placeOf(at)].some((subject) => pattern.test(subject)));
  }
  /** Whether each call path passes the expressions of focus and ignore. */
  function passingPaths(query) {
    const passes = new Uint8Array(nodeCount).fill(1);
    const expressions = [...query.getAll("focus").map((text) => [text, true]), ...query.getAll("ignore").map((text) => [text, false])];
    for (const [text, isFocus] of expressions) {
      const matches = matchesOf(text);
      const found = new Uint8Array(nodeCount);
      for (let node = 1; node < nodeCount; node++) {
        found[node] = found[parents[node]] || matches[functionOf(node)] ? 1 : 0;
        if (Boolean(found[node]) !== isFocus) passes[node] = 0;
      }
    }
    return passes;
  }
  /** Calls `visit` with node, weight, observations and label set of each sample that passes the filter. */
  function eachSample(query, type, visit) {
    const service = query.get("service");
    const conditions = query.getAll("label").map(condition);
    const passes = sets.map((_, set) => conditions.every((isMet) => isMet(set)));
    const paths = passingPaths(query);
    for (const profile of profiles) {
      if (profile.type !== type || (service !== null && data.services[profile.service] !== service)) continue;
      const { samples } = profile;
      for (let at = 0; at < samples.length; at += 4) if (passes[samples[at + 1]] && paths[samples[at]]) visit(samples[at], samples[at + 2], samples[at + 3], samples[at + 1]);
    }
  }
  const unitOf = (type) => profiles.find((profile) => profile.type === type)?.unit || "";

  /** Self weights by node, their sum, and the number of observations. */
  function weights(query, type) {
    const own = new Float64Array(nodeCount);
    let total = 0, count = 0;
    eachSample(query, type, (node, weight, observations) => { own[node] += weight; total += weight; count += observations; });
    return { own, total, count };
  }
  const totals = (own) => totalWeights(parents, own);

  /** Self and total weight of each function. A function that calls itself counts once. */
  function byFunction(query, type) {
    const { own, total, count } = weights(query, type);
    const sums = totals(own);
    const [flat, charged, withNative, cum] = [0, 1, 2, 3].map(() => new Float64Array(functions.names.length));
    /** Of each path: its innermost function of own code, of native one only without another; the function to which native code is charged. */
    const innermost = new Int32Array(nodeCount), caller = new Int32Array(nodeCount);
    const hasManaged = new Uint8Array(nodeCount);
    const open = new Int32Array(functions.names.length);
    const stack = [];
    for (let node = 1; node < nodeCount; node++) {
      for (const level = nodes[2 * node]; stack.length >= level; ) open[functionOf(stack.pop())]--;
      stack.push(node);
      const at = functionOf(node);
      flat[at] += own[node];
      const before = innermost[parents[node]], isCalled = isNative(at) && hasManaged[parents[node]];
      innermost[node] = isOwn(at) && !(isNative(at) && before && !isNative(before)) ? at : before;
      hasManaged[node] = hasManaged[parents[node]] || isManaged(at) ? 1 : 0;
      caller[node] = isCalled ? caller[parents[node]] : at;
      if (innermost[node]) charged[innermost[node]] += own[node];
      if (isNative(at)) withNative[at] += own[node];
      if (!isNative(caller[node])) withNative[caller[node]] += own[node];
      if (!open[at]++) cum[at] += sums[node];
    }
    return { flat, own: charged, withNative, cum, total, count };
  }

  function top(query) {
    const type = query.get("type");
    const first = byFunction(query, type);
    const besideType = query.get("beside");
    const second = besideType && byFunction(query, besideType);
    let rows = functions.names.map((_, at) => at).filter((at) => first.cum[at] !== 0 || second?.cum[at]);
    const known = rows.length;
    if (query.get("search")) {
      const test = Flamegraph.functionTest(query.get("search"));
      rows = rows.filter((at) => test(functions.names[at], fileOf(at), functions.lines[at]));
    }
    const columns = { flat: first.flat, own: first.own, cum: first.cum, beside_flat: second?.flat, beside_cum: second?.cum };
    const order = columns[query.get("sort")];
    const byName = (one, other) => functions.names[one].toLowerCase() < functions.names[other].toLowerCase() ? -1 : 1;
    rows.sort(order ? (one, other) => order[other] - order[one] || first.cum[other] - first.cum[one] || byName(one, other) : byName);
    const matching = rows.length;
    const members = rows.slice(0, Number(query.get("limit") || 200)).map((at) => ({
      function: functions.names[at], file: fileOf(at), line: functions.lines[at] || undefined, flat: first.flat[at], with_native: first.withNative[at], own: first.own[at], cum: first.cum[at],
      beside_flat: second?.flat[at], beside_cum: second?.cum[at],
    }));
    return {
      type, unit: unitOf(type), gauge: profiles.some((profile) => profile.type === type && profile.gauge), total: first.total, samples: first.count, functions: known, matching, rows: members,
      beside: second ? { type: besideType, unit: unitOf(besideType), total: second.total } : undefined,
    };
  }

  /** Callers and callees of a function, and its lines without text. A call that a stack contains several times counts once. */
  function describe(query) {
    const type = query.get("type"), [name, file, line] = ["name", "file", "line"].map((key) => query.get(key));
    const { flat, withNative, cum, total } = byFunction(query, type);
    const isNamed = (at) => functions.names[at] === name && (!file || fileOf(at) === file) && (!line || String(functions.lines[at]) === line);
    const found = functions.names.map((_, at) => at).filter((at) => at && cum[at] && isNamed(at)).sort((one, other) => cum[other] - cum[one]);
    const summary = { type, unit: unitOf(type), total, matched: found.length };
    if (!found.length) return summary;
    const at = found[0];
    const sums = totals(weights(query, type).own);
    const callers = new Map(), callees = new Map();
    const path = [];
    for (let node = 1; node < nodeCount; node++) {
      path.length = nodes[2 * node] - 1;
      const callee = functionOf(node), caller = path.length ? path[path.length - 1] : 0;
      if ((callee === at || (caller === at && path.length)) && sums[node]) {
        const isKnown = path.some((_, nth) => nth && path[nth - 1] === caller && path[nth] === callee);
        if (callee === at && !isKnown) callers.set(caller, (callers.get(caller) || 0) + sums[node]);
        if (caller === at && !isKnown) callees.set(callee, (callees.get(callee) || 0) + sums[node]);
      }
      path.push(callee);
    }
    const rows = (sums) => [...sums].sort((one, other) => other[1] - one[1])
      .map(([at, weight]) => ({ function: functions.names[at], file: fileOf(at), line: functions.lines[at] || undefined, weight }));
    return {
      ...summary, function: functions.names[at], file: fileOf(at), line: functions.lines[at] || undefined, frame_type: functions.kinds[functions.kind[at]],
      flat: flat[at], with_native: withNative[at], cum: cum[at], callers: rows(callers), callees: rows(callees), caller_count: callers.size, callee_count: callees.size,
      source: sourceOf(at, query),
    };
  }
  const sources = new Map((data.sources || []).map((source) => [source.function, source]));
  /** The text of a function with the weights of its lines, which the filters do not change. */
  function sourceOf(at, query) {
    const source = sources.get(at);
    if (!source) return null;
    const weights = new Map((source.weights[query.get("type")] || []).map(([line, flat, cum]) => [line, { flat, cum }]));
    const isFiltered = ["label", "focus", "ignore", ...(data.services.length > 1 ? ["service"] : [])].some((name) => query.has(name));
    return {
      path: source.path, note: isFiltered ? "The weights of lines are of all samples, without the filters." : null,
      lines: source.text.map((text, nth) => ({ line: source.first + nth, text, flat: 0, cum: 0, ...weights.get(source.first + nth) })),
    };
  }

  /** Values of a label with a group of their own in the flame graph. */
  const MAX_GROUPS = 6;
  /** Ages of objects in use (model/heap_age.rs): their order is that of time. */
  const AGES = ["new", "survived", "old"];
  /** Name and self weights of the groups, the heaviest first, or the youngest; the other values last. */
  function groupsOf(query, type, key) {
    const sums = new Map();
    eachSample(query, type, (node, weight, _, set) => sums.set(valueOf(set, key), (sums.get(valueOf(set, key)) || 0) + weight));
    const values = [...sums.keys()].sort().sort((one, other) => sums.get(other) - sums.get(one)).slice(0, MAX_GROUPS);
    const age = (value) => (AGES.indexOf(value) + 1) || MAX_GROUPS;
    if (key === "age") values.sort((one, other) => age(one) - age(other));
    const groups = [...values.map((value) => key + (value ? "=" + value : ": none")), ...(sums.size > MAX_GROUPS ? [key + ": other values"] : [])]
      .map((name) => ({ name, own: new Float64Array(nodeCount) }));
    const nth = new Map(values.map((value, nth) => [value, nth]));
    eachSample(query, type, (node, weight, _, set) => { groups[nth.get(valueOf(set, key)) ?? MAX_GROUPS].own[node] += weight; });
    return groups;
  }

  /** The tree of the parameters, and the functions with the names of its groups. */
  function flamegraph(query) {
    const type = query.get("type"), key = query.get("group"), pattern = query.get("callers"), search = query.get("search")?.trim();
    const isInverted = Boolean(pattern) || query.get("invert") === "1";
    const matches = pattern && matchesOf(pattern);
    const shaped = (own) => {
      const whole = { parent: parents, fn: called, own };
      const tree = query.get("recursion") === "collapse" ? withoutRecursion(whole) : whole;
      return isInverted ? inverted(tree, matches) : tree;
    };
    const groups = key ? groupsOf(query, type, key) : [];
    const names = groups.map((group) => group.name);
    let tree = key ? { parent: [0], fn: [0], own: [0], elided: [0] } : shaped(weights(query, type).own);
    for (const [nthGroup, { own }] of groups.entries()) {
      const start = tree.fn.length, part = shaped(own);
      part.fn.forEach((at, node) => {
        tree.parent.push(node ? start + part.parent[node] : 0);
        tree.fn.push(node ? at : functions.names.length + nthGroup);
        tree.own.push(part.own[node]);
        tree.elided.push(part.elided?.[node] || 0);
      });
    }
    const test = search && Flamegraph.functionTest(search);
    if (query.get("fold")) tree = withFolded(tree, functions, test && functions.names.map((name, at) => test(name, fileOf(at), functions.lines[at])));
    const sums = totalWeights(tree.parent, tree.elided ? tree.own.map((weight, node) => weight + tree.elided[node]) : tree.own);
    const level = new Int32Array(sums.length), shown = [], elided = [];
    tree.fn.forEach((at, node) => {
      level[node] = node && level[tree.parent[node]] + 1;
      if (node && sums[node] === 0) return;
      shown.push(level[node], at, tree.own[node]);
      if (tree.elided) elided.push(tree.elided[node]);
    });
    const added = (column, value) => [...column, ...names.map(() => value)];
    const { file, lines, kind, origin } = functions;
    return { inverted: isInverted, tree: { type, unit: unitOf(type), ...functions, names: [...functions.names, ...names], file: added(file, 0), lines: added(lines, 0), kind: added(kind, 0),
      origin: added(origin, 3), nodes: shown, elided: elided.some(Boolean) ? elided : undefined } };
  }

  const answers = {
    stats: () => ({}),
    services: () => ({ services: data.services.map((name, service) => ({
      name, from_ms: 0, to_ms: 0, samples: profiles.reduce((sum, profile) => sum + (profile.service === service ? profile.samples.length : 0), 0),
    })) }),
    types: () => ({ types: [...new Map(profiles.map((profile) => [profile.type, { type: profile.type, unit: profile.unit, from_ms: 0, to_ms: 0 }])).values()] }),
    labels: () => {
      const values = new Map();
      for (const [key, value] of labels) values.set(key, [...(values.get(key) || []), value]);
      return { labels: [...values].map(([name, values]) => ({ name, values: values.sort() })) };
    },
    top,
    function: describe,
    flamegraph,
  };
  /** Where the profiles come from: times, sampling and the resource. */
  function about() {
    const from = Math.min(...profiles.map((profile) => profile.from_ms)), to = Math.max(...profiles.map((profile) => profile.to_ms));
    const sampled = new Map();
    for (const { type, samples, gauge } of profiles) if (!gauge) for (let at = 3; at < samples.length; at += 4) sampled.set(type, (sampled.get(type) || 0) + samples[at]);
    const periods = profiles.filter((profile) => profile.period > 0)
      .map((profile) => [profile.type, "one sample per " + amount(profile.period, profile.period_unit)]);
    return [["Recorded", clock(from, true)], ["Duration", amount((to - from) * 1e6, "nanoseconds")], ...new Map(periods),
      ["Samples", [...sampled].map(([type, count]) => count.toLocaleString("en") + " " + type).join(", ")],
      ...(data.losses ? [["Lost samples", data.losses.map(([reason, count]) => count + " " + reason).join(", ") || "none"]] : []), ...data.resource,
      ...data.left_out.map(([key, count]) => ["Left out", "the label " + key + ": " + count + " values"])];
  }
  return {
    title: data.title, about: about(), start: { view: "both", type: data.type }, views: ["both", "flame", "top"],
    answer: (name, query) => answers[name](new URLSearchParams(query)),
  };

  /** The result of `spanprof diff`. */
  function comparisonOnly({ title, comparison }) {
    const answers = {
      stats: {}, services: { services: [{ name: "", from_ms: 0, to_ms: 0, samples: 1 }] },
      types: { types: [{ type: comparison.type, unit: comparison.unit, from_ms: 0, to_ms: 0 }] }, labels: { labels: [] }, diff: comparison,
    };
    const start = { view: "compare", type: comparison.type, absolute: !comparison.normalized };
    return { title, about: [], start, views: ["compare"], isComparison: true, answer: (name) => answers[name] };
  }
})();
