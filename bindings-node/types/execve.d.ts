/** Wraps the function once, if there is one and the clock needs it. */
export function install(): void;
