'use strict';
// Replaces itself by exec while it is sampled: the new program ends with its own exit code.

const { fieldWork, start } = require('../profiled.js');

start();
fieldWork(20);
process.execve('/bin/sh', ['sh', '-c', `exit ${process.argv[2]}`], process.env);
