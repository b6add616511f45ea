/*
 * The context menu of a flame graph: by the right mouse button, and by the Menu key or Shift+F10 on the selected node. A page adds
 * items as `graph.actions = (node) => [[label, action], …]`.
 */
class FlameMenu {
  constructor(graph) {
    this.graph = graph;
    this.list = element("div", "flamegraph-menu", graph.root);
    this.list.setAttribute("role", "menu");
    this.list.setAttribute("aria-label", "Function");
    this.list.hidden = true;
    graph.canvas.addEventListener("contextmenu", (event) => {
      event.preventDefault();
      if (this.list.hidden) this.open(graph.nodeAt(event), event.clientX, event.clientY);
    });
    graph.canvas.addEventListener("keydown", (event) => {
      if (event.key !== "ContextMenu" && !(event.key === "F10" && event.shiftKey)) return;
      event.preventDefault();
      const node = graph.selected < 0 ? graph.zoomed : graph.selected;
      const box = graph.canvas.getBoundingClientRect();
      const x = Math.max(0, graph.extent(node)[0]);
      this.open(node, box.left + x + 12, box.top + (graph.nodes.level[node] + 1) * ROW - graph.view.scrollTop, true);
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("focusout", (event) => { if (!this.list.contains(event.relatedTarget)) this.list.hidden = true; });
    graph.view.addEventListener("scroll", () => { this.list.hidden = true; });
  }

  open(node, left, top, byKey = false) {
    if (node <= 0) return;
    const { graph } = this;
    const path = graph.pathTo(node).slice(1);
    const items = [
      ["Zoom", () => graph.zoom(node)], ["Copy name", () => copyText(graph.name(node))],
      ["Copy stack", () => copyText(path.map((at) => [graph.name(at), graph.place(at)].filter(Boolean).join("  ")).join("\n"))],
      ...(graph.actions ? graph.actions(node) : []),
    ];
    this.list.replaceChildren(...items.map(([label, action]) => {
      const item = element("button", "");
      item.type = "button";
      item.tabIndex = -1;
      item.setAttribute("role", "menuitem");
      item.textContent = label;
      item.addEventListener("click", () => { this.close(); action(); });
      return item;
    }));
    this.node = byKey ? node : -1;
    this.list.hidden = false;
    const { width, height } = this.list.getBoundingClientRect();
    this.list.style.left = Math.max(4, Math.min(left, innerWidth - width - 6)) + "px";
    this.list.style.top = Math.max(4, Math.min(top, innerHeight - height - 6)) + "px";
    this.list.firstChild.focus();
    graph.tip.hidden = true;
  }

  /** The focus returns to the node on which a key opened the menu. */
  close() {
    this.list.hidden = true;
    this.graph.canvas.focus({ preventScroll: true });
    if (this.node >= 0) this.graph.select(this.node);
  }

  key(event) {
    const items = [...this.list.children];
    const at = items.indexOf(document.activeElement);
    const next = { ArrowDown: (at + 1) % items.length, ArrowUp: (at + items.length - 1) % items.length, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) items[next].focus();
    else if (event.key === "Escape" || event.key === "Tab") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Copies to the clipboard, also without the API, which browsers offer to secure pages only. */
async function copyText(text) {
  try { return await navigator.clipboard.writeText(text); } catch { /* absent or not permitted */ }
  const area = element("textarea", "", document.body);
  const focused = document.activeElement;
  area.value = text;
  area.style.cssText = "position: fixed; opacity: 0";
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
}
Flamegraph.copyText = copyText;
