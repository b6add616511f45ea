/**
 * @param {number} rateHz
 * @param {number} seconds of a window
 */
export function start(rateHz: number, seconds: number): void;
/** Submits the samples so far, and continues. Never throws, since a timer calls it. */
export function submit(): void;
/** Submits the remaining samples, and stops. */
export function stop(): void;
