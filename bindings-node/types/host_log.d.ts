export type Logger = {
    info?: (line: string) => void;
    warn?: (line: string) => void;
};
/**
 * @param {string} level
 * @param {string} line
 */
export function log(level: string, line: string): void;
/** Logs all queued lines. */
export function flush(): void;
/** Logs all queued lines in a handler of `exit`: everything is written before it returns. */
export function flushAtExit(): void;
/**
 * Logs queued lines once per window; the timer does not keep the process alive.
 * @param {number} seconds of a window
 */
export function flushEvery(seconds: number): void;
export function stopFlushing(): void;
/** @param {Logger | undefined} newLogger */
export function setLogger(newLogger: Logger | undefined): void;
