'use strict';
// How each profiler is started and stopped by its own documentation; loaded by the measured process only.

const fs = require('node:fs');

/** CPU time of the main thread in nanoseconds. */
function javaScriptNs() {
  return Number(fs.readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1').split(' ', 1)[0]);
}

/**
 * `load` once, then `start(rate, address)` and `stop()` as often as wanted. `stop` gives what the profiler made; `deliver`
 * makes of it what is sent or written, where that is not done yet.
 */
const PROFILERS = {
  none: () => ({ start() {}, stop() {} }),

  spanprof() {
    const spanprof = require('spanprof');
    return {
      start: (rate, address) => spanprof.start({ serviceName: 'bench', sampleRate: rate, endpoint: address }),
      stop: () => spanprof.stop(),
    };
  },

  // As dd-trace uses it: contexts and CPU time.
  datadog() {
    const { encode, time } = require('@datadog/pprof');
    return {
      start: (rate) => time.start({ intervalMicros: 1e6 / rate, durationMillis: 60_000, withContexts: true, collectCpuTime: true }),
      stop: () => time.stop(false),
      deliver: encode,
    };
  },

  pyroscope() {
    const { default: pyroscope } = require('@pyroscope/nodejs');
    let configured = false;
    return {
      start(rate, address) {
        const wall = { samplingDurationMs: 60_000, samplingIntervalMicros: 1e6 / rate, collectCpuTime: true };
        if (!configured) pyroscope.init({ serverAddress: address, appName: 'bench', flushIntervalMs: 60_000, wall });
        configured = true;
        pyroscope.startWallProfiling();
      },
      stop: () => pyroscope.stopWallProfiling(),
    };
  },

  // What --cpu-prof and the tools built upon it use.
  inspector() {
    const { Session } = require('node:inspector');
    const session = new Session();
    session.connect();
    let made;
    const post = (method, parameters) => session.post(method, parameters, (error, result) => {
      if (error) throw error;
      made = result;
    });
    post('Profiler.enable');
    return {
      start(rate) {
        post('Profiler.setSamplingInterval', { interval: 1e6 / rate });
        post('Profiler.start');
      },
      stop() {
        post('Profiler.stop');
        return made.profile;
      },
      deliver: JSON.stringify,
    };
  },
};

const PEERS = ['datadog', 'pyroscope', 'inspector'];

module.exports = { load: (name) => ({ deliver() {}, ...PROFILERS[name]() }), PEERS, javaScriptNs };
