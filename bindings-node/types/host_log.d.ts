export type Logger = {
    info?: (line: string) => void;
    warn?: (line: string) => void;
};
/**
 * @param {string} level
 * @param {string} line
 */
export function say(level: string, line: string): void;
/** Says what waits. */
export function handOver(): void;
/**
 * Says what waits when the first window has ended: one timer, once, that keeps no process alive.
 * @param {number} seconds
 */
export function handOverAfter(seconds: number): void;
/** @param {Logger | undefined} given */
export function setLogger(given: Logger | undefined): void;
