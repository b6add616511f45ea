/* The flame graphs. They draw on a canvas and keep their own zoom; the components pass trees and the search on. */

/** What the flame graph marks: the selected function, else the search. */
function markedText() {
  return state.chosen ? "/^" + state.chosen.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&") + "$/" : state.search;
}

/** The parts that a change of the search or of the selected function loads: matches that are not shown are known to the server only. */
function partsOfSearch(parts) {
  return responses.flame?.data?.tree.elided?.some((weight) => weight > 0) ? [...parts, "flame"] : parts;
}

class FlamePane extends Component {
  componentDidMount() {
    this.graph = new Flamegraph(this.host);
    this.graph.onzoom = (path, isElided) => change({ zoom: path.join(".") }, { loads: isElided ? ["flame"] : [] });
    this.update();
  }
  componentDidUpdate() { this.update(); }
  update() {
    const { data } = responses.flame || {};
    if (data && data !== this.drawn) {
      this.drawn = data;
      this.graph.show(data.tree, { path: state.zoom ? state.zoom.split(".") : [] });
    }
    if (this.marked !== markedText()) this.graph.search((this.marked = markedText()));
  }
  render() {
    const { error } = responses.flame || {};
    return h("section", { ...paneAttributes("flame", "flame"), class: paneClass("flame", "pane"), "aria-label": "Flame graph" },
      error && h(PaneError, { error }), h(Host, { set: (host) => { this.host = host; } }));
  }
}

class DiffFlamePane extends Component {
  componentDidMount() {
    this.graph = new DiffFlamegraph(this.host);
    this.update();
  }
  componentDidUpdate() { this.update(); }
  update() {
    const { data } = responses.compare || {};
    if (data && data !== this.drawn) {
      this.drawn = data;
      this.graph.show(data.tree, [data.baseline_total, data.comparison_total]);
    }
    this.graph.showAll(state.allChanges);
    if (this.marked !== markedText()) this.graph.search((this.marked = markedText()));
  }
  render() {
    return h("section", { id: "compare-flame", class: paneClass("compare", "pane"), "aria-label": "Flame graph of the comparison" },
      h(Host, { set: (host) => { this.host = host; } }));
  }
}

/** An element whose children are not Preact's. */
class Host extends Component {
  shouldComponentUpdate() { return false; }
  render() { return h("div", { class: "host", ref: (host) => host && this.props.set(host) }); }
}
