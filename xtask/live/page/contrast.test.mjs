// The contrast of text on the frames of the flame graphs and on the bars of tables. axe-core measures neither: it cannot see a
// canvas or a gradient. The graphs draw every tint into a recorder instead of their canvas.

import assert from 'node:assert/strict';
import { pageTest } from './session.mjs';

/** WCAG 2.2, success criterion 1.4.3. */
const LEAST = 4.5;

/** Red, green and blue of a color of CSS, 0 to 255, as the browser resolves it. */
const resolved = (page, colors) => page.evaluate((texts) => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  return texts.map((text) => {
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  });
}, colors);
function luminance(color) {
  const [red, green, blue] = color.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrast(one, other) {
  const [lighter, darker] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (lighter + 0.05) / (darker + 0.05);
}
const blended = (color, alpha, back) => color.map((part, nth) => alpha * part + (1 - alpha) * back[nth]);

/**
 * The distinct pairs of text and frame that the graph draws, as `[text, frame, alpha]`, and the color behind it. Each frame type has
 * functions of every origin in 1,500 directories, which cover all variations; nodes of a comparison have every degree of change.
 */
const drawn = (page, isDiff, search, zooms) => page.evaluate((asDiff, text, isZoomed) => {
  const pairs = new Map();
  let frame;
  const pen = {
    globalAlpha: 1, fillStyle: '', setTransform() {}, clearRect() {}, strokeRect() {}, measureText: () => ({ width: 7 }),
    fillRect() { frame = [this.fillStyle, this.globalAlpha]; },
    fillText() { pairs.set([this.fillStyle, ...frame].join(), [this.fillStyle, ...frame]); },
  };
  const kinds = [...Flamegraph.frameTypes, 'another'];
  const tree = { type: 'cpu', unit: 'count', names: ['root', 'caller'], files: [''], file: [0, 0], lines: [0, 0], kinds, kind: [0, 0], origin: [3, 0], nodes: [0, 0, 0, 1, 1, 0] };
  const add = (kind, origin, file) => {
    tree.nodes.push(2, tree.names.length, 1000);
    tree.names.push(tree.names.length % 2 ? 'odd' : 'even');
    tree.files.push(file);
    tree.file.push(tree.files.length - 1);
    for (const [column, value] of Object.entries({ lines: 0, kind, origin })) tree[column].push(value);
  };
  if (asDiff) for (let nth = 0; nth <= 400; nth++) add(0, 0, '');
  else for (const kind of kinds.keys()) for (let origin = 0; origin < 5; origin++) for (let nth = 0; nth < 1500; nth++) add(kind, origin, `${nth}/f`);
  const count = tree.nodes.length / 3;
  if (asDiff) {
    const weights = Array.from({ length: count }, (_, node) => (node < 2 ? 0 : 1000));
    const baseline = weights.map((weight, node) => weight && Math.max(0, 10 * (node - 2) - 1000));
    tree.diff = { baseline, comparison: weights, significant: weights.map((_, node) => node % 5 > 0), low: weights, high: weights };
  }
  const host = document.body.appendChild(document.createElement('div'));
  const graph = new (asDiff ? DiffFlamegraph : Flamegraph)(host);
  graph.show(tree);
  graph.search(text);
  if (isZoomed) graph.zoomed = 2;
  Object.assign(graph, { pen, width: 50 * count, height: 1000 });
  graph.draw();
  host.remove();
  const panel = getComputedStyle(document.documentElement).getPropertyValue('--panel');
  return { pairs: [...pairs.values()], panel };
}, isDiff, search, zooms);

async function leastContrast(page, isDiff, search, zooms) {
  const { pairs, panel } = await drawn(page, isDiff, search, zooms);
  const [back, ...colors] = await resolved(page, [panel, ...pairs.flatMap(([text, frame]) => [text, frame])]);
  const contrasts = pairs.map(([text, frame, alpha], nth) => ({ text, frame, alpha, contrast: contrast(colors[2 * nth], blended(colors[2 * nth + 1], alpha, back)) }));
  return { count: pairs.length, low: contrasts.filter((pair) => pair.contrast < LEAST).sort((one, other) => one.contrast - other.contrast) };
}

for (const theme of ['light', 'dark']) {
  for (const [name, isDiff, least] of [['the flame graph', false, 1000], ['the comparison', true, 100]]) {
    pageTest(`text on the frames of ${name} has a contrast of ${LEAST}:1 in the ${theme} theme`, async ({ open }) => {
      const page = await open('?view=both&service=api&type=cpu', { theme });
      for (const [search, zooms] of [['', false], ['odd', false], ['', true], ['odd', true]]) {
        const { count, low } = await leastContrast(page, isDiff, search, zooms);
        assert.ok(zooms || count >= least, `${count} pairs of colors`);
        assert.deepEqual(low.slice(0, 5), [], `${low.length} of ${count} pairs, search ${search || 'none'}`);
      }
    });
  }

  pageTest(`the numbers on the bars of the table have a contrast of ${LEAST}:1 in the ${theme} theme`, async ({ open }) => {
    const page = await open('?view=top&service=api&type=cpu', { theme });
    const colors = await page.evaluate(() => {
      const { color } = getComputedStyle(document.querySelector('#top-rows td.number'));
      const style = getComputedStyle(document.documentElement);
      return [color, getComputedStyle(document.querySelector('#top-rows td.number small')).color, style.getPropertyValue('--bar-soft')];
    });
    const [number, percentage, bar] = await resolved(page, colors);
    for (const text of [number, percentage]) assert.ok(contrast(text, bar) >= LEAST, `${contrast(text, bar)}`);
  });
}
