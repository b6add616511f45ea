/* The flame graphs. They draw on a canvas and keep their own zoom; the components pass trees and the search on. */

/** What the flame graph marks: the selected function, else the search. */
function markedText() {
  if (!state.chosen) return state.search;
  // Functions of a comparison have no lines.
  const line = "(:" + (state.chosenLine || "\\d+") + ")?";
  return "/^" + escapedPattern(state.chosen) + (state.chosenFile ? " " + escapedPattern(state.chosenFile) + line : "") + "$/";
}

/**
 * The parts that a change of the search or of the selected function loads: the server does not fold functions that match, and knows
 * the weight of matches that are not shown.
 */
function partsOfSearch(parts) {
  const { data } = responses.flame || {};
  return data && (!state.libraries || data.tree.elided?.some((weight) => weight > 0)) ? [...parts, "flame"] : parts;
}

/** Folds or unfolds libraries and the runtime. Call paths differ, so the zoom ends. */
function toggleLibraries() {
  change({ libraries: !state.libraries, zoom: "" }, { loads: hasFlameGraph() ? ["flame"] : [] });
}
function LibrariesButton() {
  if (!hasFlameGraph() && state.view !== "compare") return null;
  return h("button", { id: "libraries", type: "button", class: "quiet", "aria-pressed": String(state.libraries), "aria-keyshortcuts": "l",
    title: "Show each function of libraries and of the runtime, instead of one frame for each library ( l )", onClick: toggleLibraries }, "Libraries");
}

/** A graph on the response of `part`. Subclasses create and draw it. */
class GraphPane extends Component {
  componentDidMount() {
    this.graph = this.create();
    this.update();
  }
  componentDidUpdate() { this.update(); }
  update() {
    const { data } = responses[this.part] || {};
    // Hidden by its visibility, the graph keeps its width, which the next request has.
    this.element.style.visibility = data ? "" : "hidden";
    const shown = data && this.shownOf(data);
    if (shown && shown !== this.drawn) this.draw((this.drawn = shown), data);
    if (this.marked !== markedText()) this.graph.search((this.marked = markedText()));
  }
  /** The part of the response that is drawn. */
  shownOf(data) { return data; }
  host() { return h(Host, { set: (host) => { this.element = host; } }); }
}

const zoomOf = ({ zoom }) => ({ path: zoom ? zoom.split(".") : [] });

class FlamePane extends GraphPane {
  part = "flame";
  create() {
    const graph = new Flamegraph(this.element);
    graph.onzoom = (path, isElided) => change({ zoom: path.join(".") }, { loads: isElided ? ["flame"] : [] });
    graph.actions = (node) => {
      const [name, file, line] = [graph.name(node), graph.file(node), graph.tree.lines[graph.nodes.fn[node]]];
      const pattern = patternOf(name, graph.place(node));
      const isCalled = !state.inverted && !state.callers;
      return [
        ["Open function", () => change({ ...chosenBy(name, file, line) }, { loads: partsOfSearch(["function"]) })],
        ["Focus: only stacks through it", () => change({ focus: [...new Set([...state.focus, pattern])], zoom: "" })],
        ["Hide: drop stacks through it", () => change({ ignore: [...new Set([...state.ignore, pattern])], zoom: "" })],
        isCalled && ["Show callers", () => change({ callers: pattern, zoom: "" }, { loads: ["flame"] })],
      ].filter(Boolean);
    };
    return graph;
  }
  draw({ tree, inverted }) {
    this.graph.show({ ...tree, type: typeWords(tree.type), inverted }, zoomOf(state));
  }
  render() {
    return h("section", { ...paneAttributes("flame", "flame"), "aria-label": "Flame graph" }, h(PaneStatus, { part: "flame", loading: "Loading the flame graph…" }), this.host());
  }
}

class DiffFlamePane extends GraphPane {
  part = "compare";
  create() {
    const graph = new DiffFlamegraph(this.element);
    graph.onzoom = (path) => change({ zoom: path.join(".") }, { loads: [] });
    return graph;
  }
  /** Libraries are folded, unless only functions within them match. */
  shownOf({ tree, folded }) {
    const test = markedText() && Flamegraph.functionTest(markedText());
    const hasMatch = ({ names, files, file, lines }) => names.some((name, at) => at && test(name, files[file[at]], lines[at]));
    return state.libraries || (test && !hasMatch(folded) && hasMatch(tree)) ? tree : folded;
  }
  draw(tree, { baseline_total: before, comparison_total: after }) { this.graph.show({ ...tree, type: typeWords(tree.type) }, [before, after], zoomOf(state)); }
  update() {
    this.graph.showVanished(state.vanished);
    super.update();
    this.graph.showAll(state.allChanges);
  }
  render() {
    return h("section", { id: "compare-flame", class: paneClass("compare", "pane"), "aria-label": "Flame graph of the comparison" },
      h(PaneStatus, { part: "compare", loading: "Loading the flame graph…" }), this.host());
  }
}

/** An element whose children are not Preact's. */
class Host extends Component {
  shouldComponentUpdate() { return false; }
  render() { return h("div", { class: "host", ref: (host) => host && this.props.set(host) }); }
}
