/** Name and version of a runtime that is not Node.js; undefined in Node.js. */
export function otherThanNode(): string | undefined;
/** Name and version of this runtime. */
export function name(): string;
