'use strict';
// Half a second of CPU time, delivered to the receiver of the environment.

const spanprof = require('spanprof');

function burn() {
  const until = process.cpuUsage().user + 500_000;
  while (process.cpuUsage().user < until) JSON.stringify(Array.from({ length: 500 }, (_, number) => number * number));
}

spanprof.start({ serviceName: 'delivery' });
burn();
spanprof.stop().then((isStopped) => process.exit(isStopped ? 0 : 1));
