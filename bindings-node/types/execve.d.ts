/** Wraps `process.execve` once, if it exists and the clock requires it. */
export function install(): void;
