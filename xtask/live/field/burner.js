'use strict';
// Prints a result, after CPU time in `fieldWork`.
//
//     burner.js [SECONDS]

const { fieldWork, start } = require('./profiled.js');

start();
fieldWork(Number(process.argv[2] ?? 1) * 1000);
console.log(Array.from({ length: 100_000 }, (_, number) => number % 97).reduce((sum, number) => sum + number, 0));
