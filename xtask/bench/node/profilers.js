'use strict';
// Starts and stops each profiler as its documentation describes. Loaded by the measured process only.

const fs = require('node:fs');

/** CPU time of the main thread in nanoseconds. */
function javaScriptNs() {
  return Number(fs.readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1').split(' ', 1)[0]);
}

/**
 * `load` once, then `start(rate, address)` and `stop()` any number of times. `stop` returns the profile. `endWindow` does the
 * work of the end of a window, encoding and delivery included; it returns true if that stopped the profiler.
 */
const PROFILERS = {
  none: () => ({ start() {}, stop() {} }),

  spanprof() {
    const spanprof = require('spanprof');
    return {
      start: (rate, address) => spanprof.start({ serviceName: 'bench', sampleRate: rate, endpoint: address }),
      stop: () => spanprof.stop(),
      async endWindow() {
        await spanprof.flush(10);
        return false;
      },
    };
  },

  // As dd-trace uses it: contexts and CPU time.
  datadog() {
    const { encode, time } = require('@datadog/pprof');
    return {
      start: (rate) => time.start({ intervalMicros: 1e6 / rate, durationMillis: 60_000, withContexts: true, collectCpuTime: true }),
      stop: () => time.stop(false),
      async endWindow() {
        await encode(time.stop(false));
        return true;
      },
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

  // Used by --cpu-prof and the tools built on it.
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
    const stop = () => {
      post('Profiler.stop');
      return made.profile;
    };
    return {
      start(rate) {
        post('Profiler.setSamplingInterval', { interval: 1e6 / rate });
        post('Profiler.start');
      },
      stop,
      async endWindow() {
        JSON.stringify(stop());
        return true;
      },
    };
  },
};

const PEERS = ['datadog', 'pyroscope', 'inspector'];

/** @param {string} name */
function load(name) {
  const profiler = PROFILERS[name]();
  const endWindow = async () => {
    await profiler.stop();
    return true;
  };
  return { endWindow, ...profiler };
}

module.exports = { load, PEERS, javaScriptNs };
