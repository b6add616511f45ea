'use strict';
// Becomes another program while it is sampled: the new program ends by its own code.

const { fieldWork, start } = require('./profiled.js');

start();
fieldWork(20);
process.execve('/bin/sh', ['sh', '-c', `exit ${process.argv[2]}`], process.env);
