'use strict';
// The work of a small shop: these functions appear in its profile.

const crypto = require('node:crypto');
const timers = require('node:timers/promises');

const CATALOGUE = Array.from({ length: 400 }, (_, number) => ({ name: `article ${number}`, price: ((number * 17) % 90) + 1 }));

function priceCart(size) {
  let total = 0;
  for (let at = 0; at < size * 20; at++) {
    const article = CATALOGUE[(at * 7919) % CATALOGUE.length];
    total += article.price + JSON.stringify(article).length % 2;
  }
  return total;
}

function similarity(left, right) {
  let sum = 0;
  for (const letter of new Set(left + right)) sum += left.split(letter).length * right.split(letter).length;
  return sum;
}

async function search(words) {
  let best = 0;
  for (const [number, article] of CATALOGUE.entries()) {
    best = Math.max(best, similarity(words, article.name));
    if (number % 50 === 0) await timers.setImmediate();
  }
  return best;
}

function renderReport(rows) {
  const digest = crypto.createHash('sha256');
  for (let row = 0; row < rows; row++) {
    digest.update(JSON.stringify({ row, squares: Array.from({ length: 20 }, (_, number) => row * number) }));
  }
  return digest.digest('hex');
}

module.exports = { priceCart, search, renderReport };
