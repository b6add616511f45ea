/* Quantities and times as text. The scripts of this directory are parts of one function, see page.rs. */
const SCALES = {
  nanoseconds: [[3600e9, "h"], [60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
};
function amount(value, unit) {
  if (value === 0) return "0";
  const scales = SCALES[unit];
  if (!scales) return value.toLocaleString("en");
  const [scale, name] = scales.find(([scale]) => Math.abs(value) >= scale) || scales[scales.length - 1];
  const scaled = value / scale;
  const digits = scale === 1 || Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2;
  return scaled.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + "\u00a0" + name;
}
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
