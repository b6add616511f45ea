/* The filters, and what is shown where they exclude every sample. */

function Chip({ name, value, without }) {
  return h("span", { class: "chip", title: name + " " + value }, h("span", {}, h("b", {}, name), " " + value),
    h("button", { type: "button", "aria-label": "Remove filter " + name, onClick: () => change(without) }, "×"));
}

/** A trace or span may be of any service and time. */
const ANYWHERE = { service: "*", from: "", to: "", endpoint: null };

class Filters extends Component {
  add(event) {
    event.preventDefault();
    const text = this.input.value.trim();
    const hex = text.toLowerCase().replace(/^(trace|span)_id=/, "");
    const added = !embedded && /^[0-9a-f]{32}$/.test(hex) ? { trace: hex, ...ANYWHERE } : !embedded && /^[0-9a-f]{16}$/.test(hex) ? { span: hex, ...ANYWHERE }
      : LABEL.test(text) ? { labels: [...new Set([...state.labels, text])] } : null;
    this.setState({ error: text && !added ? "Expected label=value (or !=, =~, !~)" + (embedded ? "" : ", 32 hex digits of a trace, or 16 of a span") + "; got " + text : "" });
    if (!added) return;
    this.input.value = "";
    change(added);
  }
  /** Moves a filter into the input. */
  edit(text, without) {
    this.setState({ isOpen: true }, () => {
      this.input.value = text;
      this.input.focus();
    });
    change(without);
  }
  render() {
    const { isOpen } = this.state;
    // The view of one request names its span itself.
    const isId = (text) => /^(trace|span)_id=/.test(text);
    const chips = filtersOf(state).filter(({ isTime, text }) => (isTime ? state.to : !isRequestView() || !isId(text))).map(({ text, name, value: shown, without, isTime }) => {
      if (name) return h(Chip, { name, value: shown, without });
      if (isTime) {
        const range = (state.from ? clock(milliseconds(state.from, now), true) : "…") + " – " + clock(milliseconds(state.to, now));
        return h(Chip, { name: "time", value: range, without: { from: null, to: "" } });
      }
      return isId(text) ? h(Chip, { name: text.slice(0, text.indexOf("=")), value: text.slice(text.indexOf("=") + 1), without }) : h(LabelChip, { key: text, text, without, edit: () => this.edit(text, without) });
    });
    chips.push(...transformsOf(state).map((transform) => h(Chip, transform)));
    const suggestions = shownLabels().flatMap((label) => label.values.map((value) => label.name + "=" + value)).slice(0, 2000);
    // A selected suggestion is submitted at once.
    const onInput = (event) => {
      if (this.state.error) this.setState({ error: "" });
      if (event.inputType === "insertReplacementText" || event.inputType === undefined) this.add(event);
    };
    // Only a narrow screen has the button.
    const toggle = h("button", { id: "show-filters", type: "button", class: "quiet", "aria-expanded": String(Boolean(isOpen)), onClick: () => this.setState({ isOpen: !isOpen }) }, "Filters");
    return h("section", { class: isOpen ? "filters open" : "filters", "aria-label": "Filters" }, h("div", { id: "chips", class: "chips" }, chips), toggle,
      h("form", { id: "filter-form", onSubmit: (event) => this.add(event) },
        h("input", { id: "filter", list: "suggestions", autocomplete: "off", spellcheck: false, onInput, ref: (input) => { this.input = input; },
          placeholder: "Filter: label=value (or !=, =~, !~)" + (embedded ? "" : ", a trace id or a span id"), "aria-label": "Add a filter" }),
        h("datalist", { id: "suggestions" }, suggestions.map((value) => h("option", { key: value, value })))),
      !embedded && h("button", { id: "explore", type: "button", class: "quiet", "aria-pressed": String(state.explorer), "aria-controls": state.explorer ? "labels" : null,
        onClick: () => change({ explorer: !state.explorer }, { isStep: false, loads: state.explorer ? [] : ["weights"] }) }, "Labels"),
      (!embedded || labelKeys().length > 0) && h(GroupBy),
      h("p", { id: "filter-error", class: "error", role: "alert" }, this.state.error));
  }
}

/** Names the filters that exclude every sample, with a button to remove each; or the service that no profile has. */
function NothingPasses() {
  if (isUnknownService()) return h("p", { id: "nothing", class: "nothing", role: "status" }, "No profile here is of the service “" + state.service + "”. ",
    h("button", { type: "button", class: "remove-filter", onClick: () => change({ service: "*", endpoint: null }) }, "Show all services"));
  if (embedded?.isComparison || pending.has(state.view === "compare" ? "compare" : "top") || !hasNoSamples()) return null;
  // A request that was not found says so itself.
  if (isRequestView()) return responses.request?.data?.found ? h("p", { id: "nothing", class: "nothing", role: "status" }, "This request has no samples of the type " + typeWords(state.type) + ".") : null;
  const names = emptyCauses.map((filter) => (filter.name ? "“" + filter.text + "”" : filter.text));
  const cause = !emptyCauses.isSure && names.length < 2 ? "There are no samples of the type " + typeWords(state.type) + (state.service === "*" ? "." : " from this service.")
    : emptyCauses.isSure ? "Without " + names.join(", or without ") + ", some would."
    : "More than one of these excludes them: " + names.join(", ") + ".";
  return h("p", { id: "nothing", class: "nothing", role: "status" }, "No sample passes the filters. " + cause + " ",
    (emptyCauses.isSure || names.length > 1) && emptyCauses.map(({ text, without }) => h("button", { type: "button", class: "remove-filter", onClick: () => change(without) }, "Remove " + text)));
}
