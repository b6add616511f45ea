/* The keys of the page, and the sheet that lists them. */

/** Keys outside of input fields: what they do, and the action. */
const KEYS = {
  "/": ["Search functions", () => document.querySelector("#search")?.focus()],
  l: ["Fold or unfold libraries in the flame graph", () => document.querySelector("#libraries")?.click()],
  ...(embedded?.isComparison ? {} : { i: ["Invert the stacks of the flame graph", () => hasFlameGraph() && invert()] }),
  ...Object.fromEntries(Object.entries(VIEWS).filter(([view]) => !embedded || embedded.views.includes(view)).map(([view, words], nth) => [nth + 1, ["View: " + words, () => state.view !== view && change({ view })]])),
  "?": ["Show or hide this list", () => toggleKeySheet()],
};
/** Keys of the focused flame graph, which handles them itself. */
const FLAME_KEYS = {
  "↑ ↓ ← →": "Move to the caller, the heaviest callee, the functions beside it", Enter: "Zoom to the function", Backspace: "Zoom out by one function",
  "Esc": "Reset the zoom", Home: "Move to the root", "Menu, Shift+F10": "Actions on the function: copy, focus, hide, callers",
};

function toggleKeySheet() {
  const sheet = document.querySelector("#keys");
  sheet[sheet.open ? "close" : "showModal"]();
}

function KeySheet() {
  const rows = (keys) => h("dl", {}, keys.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)]));
  // A click beside the sheet is one on the dialog itself.
  return h("dialog", { id: "keys", "aria-labelledby": "keys-title", onClick: (event) => { if (event.target === event.currentTarget) event.target.close(); } },
    h("div", {}, h("div", { class: "function-head" }, h("h2", { id: "keys-title" }, "Keys"),
      h("button", { type: "button", class: "quiet", "aria-label": "Close the list", onClick: toggleKeySheet }, "×")),
    h("h3", {}, "Everywhere"), rows(Object.entries(KEYS).map(([key, [words]]) => [key, words])),
    h("h3", {}, "In the flame graph"), rows(Object.entries(FLAME_KEYS)),
    h("h3", {}, "In tables and lists"), rows([["↑ ↓", "Move to another row"], ["→", "Move to the button of the row"], ["Enter", "Open the row"], ["← →", "Choose a view"]])));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const isSheetOpen = document.querySelector("#keys")?.open;
  if (!Object.hasOwn(KEYS, event.key) || isEmpty() || (isSheetOpen && event.key !== "?")) return;
  event.preventDefault();
  KEYS[event.key][1]();
});
