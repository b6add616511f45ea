'use strict';
// A function small enough to be inlined, in a file of its own.

exports.step = function step(x) { // enters step
  return (x * 1103 + 12345) % 65537; // works in step
};
