/** Wraps the current and any later context manager. */
export function install(): void;
