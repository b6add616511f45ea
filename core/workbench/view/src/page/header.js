/* The header: service, profile type, time range and theme. */

/** Buttons of which one is chosen; the arrow keys move. */
function Radios({ id, label, options, value, onChange }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const names = options.map(([name]) => name);
    const next = (names.indexOf(value) + step + names.length) % names.length;
    event.currentTarget.children[next].focus();
    onChange(names[next]);
  };
  return h("div", { id, class: "pills", role: "radiogroup", "aria-label": label, onKeyDown: move }, options.map(([name, words, title]) =>
    h("button", { key: name, type: "button", role: "radio", "aria-checked": String(name === value), tabIndex: name === value ? 0 : -1, title,
      "data-value": name, onClick: () => onChange(name) }, words)));
}

/** Names of profile types; others stay as they are. */
const TYPE_WORDS = {
  cpu: "CPU", wall: "Wall time", off_cpu: "Waiting", alloc_space: "Allocated", alloc_objects: "Allocated objects", inuse_space: "In use", inuse_objects: "Objects in use",
  delay: "Locks", contentions: "Lock waits", gc: "GC", event_loop_lag: "Event loop blocked", threads: "Threads", requests: "Requests", request_errors: "Failed requests",
};
const typeWords = (name) => TYPE_WORDS[name] || name;

const RANGES = { "-5m": "Last 5 minutes", "-15m": "Last 15 minutes", "-1h": "Last hour", "-6h": "Last 6 hours", "-1d": "Last day", "": "Everything" };

function Header() {
  const services = responses.services?.data?.services || [];
  const types = responses.types?.data?.types || [];
  const serviceNames = services.map((service) => service.name);
  if (state.service !== null && state.service !== "*" && !serviceNames.includes(state.service)) serviceNames.push(state.service);
  // "/" cannot be a service of the list: the value of an option is never empty, which a select treats as unselected.
  const valueOf = (name) => (name === "" ? "/" : name);
  const options = serviceNames.map((name) => h("option", { value: valueOf(name) }, name || "(no service.name)"));
  if (services.length > 1 || state.service === "*") options.unshift(h("option", { value: "*" }, "All services"));
  const typeNames = types.map((type) => type.type);
  if (state.type && !typeNames.includes(state.type)) typeNames.push(state.type);
  const isPreset = !state.to && Object.hasOwn(RANGES, state.from || "");
  const toggle = (name, title, ...words) =>
    h("button", { id: name, type: "button", class: "quiet", "aria-pressed": String(state[name]), title, onClick: () => change({ [name]: !state[name] }) }, words);
  return h("header", { class: "bar" },
    h("h1", { class: "brand", title: "spanprof " + root.dataset.version }, h("span", { class: "logo", "aria-hidden": "true" }), embedded ? embedded.title : "spanprof"),
    !isEmpty() && [
      (!embedded || services.length > 1) && h("label", { class: "field" }, h("span", {}, "Service"), h("select", {
        id: "service", value: state.service === null ? undefined : valueOf(state.service),
        onChange: (event) => change({ service: event.target.value === "/" ? "" : event.target.value, labels: [], endpoint: null }),
      }, options)),
      h("label", { class: "field" }, h("span", {}, "Profile"), h("select", { id: "types", value: state.type, onChange: (event) => change({ type: event.target.value }) },
        typeNames.map((name) => h("option", { value: name }, typeWords(name))))),
      !embedded && h("label", { class: "field" }, h("span", {}, "Time"), h("select", {
        id: "range", value: isPreset ? state.from || "" : "custom",
        onChange: (event) => event.target.value !== "custom" && change({ from: event.target.value, to: "" }),
      }, Object.entries(RANGES).map(([value, words]) => h("option", { value }, words)), !isPreset && h("option", { value: "custom" }, "Selected range"))),
    ],
    h("div", { class: "actions" },
      !embedded && [
        toggle("native", "Show the native code of V8 below JSON.parse and other built-in functions", "Native"),
        !isEmpty() && toggle("live", "Refresh when new profiles arrive", h("i", { class: "dot" }), "Live"),
        h("button", { id: "refresh", type: "button", class: "quiet", title: "Refresh now", onClick: () => load() }, "Refresh"),
      ],
      !isEmpty() && h("button", { id: "show-keys", type: "button", class: "quiet", title: "Keys (?)", "aria-label": "Keys", onClick: () => toggleKeySheet() }, "?"),
      h("button", { id: "theme", type: "button", class: "quiet", title: "Light or dark", "aria-label": "Light or dark", onClick: switchTheme }, "◐")));
}

const THEME_KEY = "spanprof-theme";
let chosenTheme = null;
try { chosenTheme = localStorage.getItem(THEME_KEY); } catch (error) { /* storage may be off */ }
function applyTheme() {
  root.dataset.theme = chosenTheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
function switchTheme() {
  chosenTheme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem(THEME_KEY, chosenTheme); } catch (error) { /* storage may be off */ }
  applyTheme();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
