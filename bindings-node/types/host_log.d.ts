export type Logger = {
    info?: (line: string) => void;
    warn?: (line: string) => void;
};
/**
 * @param {string} level
 * @param {string} line
 */
export function say(level: string, line: string): void;
/** Logs what waits. */
export function handOver(): void;
/** Logs what waits, in a handler of `exit`: everything is written before it returns. */
export function handOverAtExit(): void;
/**
 * Logs what waits after each window of so many seconds; the timer keeps no process alive.
 * @param {number} seconds
 */
export function handOverEvery(seconds: number): void;
export function handOverNoMore(): void;
/** @param {Logger | undefined} given */
export function setLogger(given: Logger | undefined): void;
