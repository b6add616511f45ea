/* An exported page says where its profiles come from. */

function About() {
  return h("details", { class: "menu" }, h("summary", {}, "About"), h("div", { id: "about" },
    h("table", {}, h("tbody", {}, embedded.about.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))))));
}
