'use strict';
// A function that is small enough to be inlined, in its own file.

exports.step = function step(x) { // enters step
  return (x * 1103 + 12345) % 65537; // works in step
};
