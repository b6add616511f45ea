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
/** From now on lines are logged as they are queued, which does not keep the process alive. */
export function flushAsQueued(): void;
/** @param {Logger | undefined} newLogger */
export function setLogger(newLogger: Logger | undefined): void;
