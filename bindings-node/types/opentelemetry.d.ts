/** Wraps what is registered now, and what will be. */
export function install(): void;
