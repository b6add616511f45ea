/* Quantities and times as text. The scripts of this directory are parts of one function, see page.rs. */
const { amount } = Flamegraph;
const share = (part, whole) => (whole ? ((100 * part) / whole).toFixed(1) + "%" : "–");
/** `+4.1%`, `+1,234%` */
function signed(fraction) {
  const digits = Math.abs(fraction) < 10 ? 1 : 0;
  return (fraction > 0 ? "+" : "") + (100 * fraction).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + "%";
}
/** `1 window`, `2 windows` */
const counted = (count, noun) => count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
function clock(ms, withDate) {
  const date = new Date(ms);
  const day = date.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const time = date.toLocaleTimeString(undefined, { hour12: false });
  return withDate ? day + ", " + time : time;
}
