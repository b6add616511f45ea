'use strict';
// Work that fills a window with very many stacks and labels: functions that call each other by the digits of a number, a stack
// of its own for every number.

const STEPS = Array.from({ length: 10 }, (_, digit) =>
  new Function('steps', 'burn', `return function step${digit}(rest, left) { return left === 0 ? burn(rest) : steps[rest % 10](Math.floor(rest / 10), left - 1) + ${digit}; }`));
const burners = [];
function burn(turns) {
  let x = turns;
  for (let i = 0; i < 20_000; i++) x = (x * 31 + i) % 65537;
  return x;
}
for (const step of STEPS) burners.push(step(burners, burn));

let number = 0;

/** Works until `done` says so, each piece under labels that `labelled` puts on it. */
function fill(labelled, done) {
  for (; !done(); number++) labelled({ request: String(number % 6000) }, () => burners[number % 10](number, 5));
}

module.exports = { fill };
