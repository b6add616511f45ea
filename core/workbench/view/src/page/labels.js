/* Labels: the operators of filters, the explorer of keys and values, and the label by which timeline and flame graph are split. */

const OPERATORS = { "=": "is", "!=": "is not", "=~": "matches", "!~": "does not match" };

/** A filter by a label. Its operator can be changed, and its text edited in the input of filters. */
function LabelChip({ text, without, edit }) {
  const [, key, operator, value] = LABEL.exec(text) || [, text, "=", ""];
  const select = (event) => {
    const [was, is] = [operator.endsWith("~"), event.target.value.endsWith("~")];
    const changed = key + event.target.value + (is && !was ? escapedPattern(value) : was && !is ? value.replace(/\\(.)/g, "$1") : value);
    change({ labels: state.labels.map((label) => (label === text ? changed : label)) });
  };
  return h("span", { class: "chip", title: text }, h("b", {}, key),
    h("select", { class: "operator", value: operator, "aria-label": "Operator of the filter " + key, onChange: select },
      Object.entries(OPERATORS).map(([name, words]) => h("option", { value: name, title: words }, name))),
    h("button", { type: "button", class: "edit", title: "Edit", "aria-label": "Edit the filter " + text, onClick: edit }, value || "“”"),
    h("button", { type: "button", "aria-label": "Remove filter " + key, onClick: () => change(without) }, "×"));
}
const withLabel = (key, value) => ({ labels: [...new Set([...state.labels, key + "=" + (/^[~"\s]|\s$/.test(value) ? '"' + value + '"' : value)])] });

/** Labels that nobody selects by: ids have filters of their own, and durations differ in each request. */
const INTERNAL_LABELS = ["duration", "trace_id", "span_id", "local root span id"];
/** The labels of the profiles; `endpoint` only where no route has the same. */
function shownLabels() {
  const labels = responses.labels?.data?.labels || [];
  const hasRoute = labels.some(({ name }) => name === "http.route");
  return labels.filter(({ name }) => !INTERNAL_LABELS.includes(name) && !(hasRoute && name === "endpoint"));
}
function labelKeys() {
  const keys = shownLabels().map((label) => label.name);
  return state.group && !keys.includes(state.group) ? [...keys, state.group] : keys;
}
function GroupBy() {
  return h("label", { class: "field" }, h("span", {}, "Group by"), h("select", { id: "group", value: isByType() ? BY_TYPE : state.group, onChange: (event) => groupBy(event.target.value) },
    h("option", { value: "" }, "nothing"), canSplitByType() && h("option", { value: BY_TYPE }, "profile type (timeline)"), labelKeys().map((key) => h("option", { key, value: key }, key))));
}
/** The value of the option for profile types. No label has it, since filters end a key at "=". */
const BY_TYPE = "by=type";
const groupBy = (value) => change(value === BY_TYPE ? { by: "type", group: "", zoom: "" } : { by: "label", group: value, zoom: "" },
  { loads: [!embedded && "timeline", hasFlameGraph() && "flame"].filter(Boolean) });

/** Values of each key in the order of their weight. Those of keys with very many values have no weight. */
const VALUE_ROWS = 6;
class LabelExplorer extends Component {
  render() {
    if (!state.explorer) return null;
    const { data } = responses.weights || {};
    const attributes = { ...paneAttributes("labels", "weights", "explorer"), "aria-label": "Labels" };
    if (!data) return h("section", attributes, h(PaneStatus, { part: "weights", loading: "Adding up the labels…" }));
    const weighted = new Set(data.labels.map((label) => label.label));
    const others = shownLabels().filter((label) => !weighted.has(label.name));
    const button = (key, value, ...content) => h("button", { type: "button", title: key + "=" + value, onClick: () => change(withLabel(key, value)) }, content);
    const card = (label) => {
      const isOpen = this.state[label.label];
      const shown = isOpen ? label.values : label.values.slice(0, VALUE_ROWS);
      return h("div", { key: label.label + label.resource, class: "label" }, h("h2", {}, label.label, h("small", {}, " " + counted(label.count, "value") + (label.resource ? ", resource" : ""))),
        h("ul", {}, shown.map(({ value, weight }) => h("li", { style: { "--share": Math.min(100, (100 * weight) / (data.total || 1)) + "%" } },
          button(label.label, value, h("span", {}, value || "“”"), h("small", {}, amount(weight, data.unit) + " · " + share(weight, data.total)))))),
        label.values.length > VALUE_ROWS && h("button", { type: "button", class: "link", onClick: () => this.setState({ [label.label]: !isOpen }) },
          isOpen ? "Fewer" : label.values.length < label.count ? label.values.length + " heaviest of " + label.count : "All " + label.count),
        label.count > 1 && state.group !== label.label && h("button", { type: "button", class: "link", onClick: () => groupBy(label.label) }, "Group by"));
    };
    return h("section", attributes, h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Labels and their values" },
      data.labels.length || others.length ? [data.labels.filter(({ label }) => !INTERNAL_LABELS.includes(label)).map(card), others.map((label) => h("div", { key: label.name, class: "label" }, h("h2", {}, label.name, h("small", {}, " " + counted(label.values.length, "value") + ", without weights")),
        h("ul", {}, label.values.slice(0, VALUE_ROWS).map((value) => h("li", {}, button(label.name, value, h("span", {}, value)))))))]
        : h("p", { class: "nothing" }, "No sample here has a label.")));
  }
}
