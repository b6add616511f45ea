'use strict';
// Work that fills a window with many stacks and labels: functions call each other by the digits of a number, with a distinct
// stack for every number.

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

/** Works until `done` returns true, each piece under the labels of `labelled`. */
function fill(labelled, done) {
  for (; !done(); number++) labelled({ request: String(number % 6000) }, () => burners[number % 10](number, 5));
}

module.exports = { fill };
