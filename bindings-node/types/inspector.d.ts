/**
 * @param {number} rateHz
 * @param {number} seconds of a window
 */
export function begin(rateHz: number, seconds: number): void;
/** Hands over what was sampled so far, and goes on. Called by a timer too: nothing leaves it. */
export function handOver(): void;
/** Hands over the rest and ends. */
export function end(): void;
