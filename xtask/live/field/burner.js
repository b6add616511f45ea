'use strict';
// Prints a result, after CPU time in `fieldWork`.

const { fieldWork, start } = require('./profiled.js');

start();
fieldWork(1000);
console.log(Array.from({ length: 100_000 }, (_, number) => number % 97).reduce((sum, number) => sum + number, 0));
