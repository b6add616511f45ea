/**
 * Calls `fn(...args)` and resolves to a {@link Capture} with its result and its own profile: the samples of this thread meanwhile,
 * and of the asynchronous work that it starts. Rejects if `fn` throws or rejects.
 * @template {any[]} A
 * @template R
 * @param {(...args: A) => R} fn
 * @param {A} args
 * @returns {Promise<Capture<Awaited<R>>>}
 */
export function capture<A extends any[], R>(fn: (...args: A) => R, ...args: A): Promise<Capture<Awaited<R>>>;
/**
 * The result and the profile of captured work.
 * @template R
 */
export class Capture<R> {
    /**
     * @param {R} result
     * @param {import('./noop.js').NativeProfile} profile
     */
    constructor(result: R, profile: import("./noop.js").NativeProfile);
    /** The value of the captured function, or of its promise. */
    result: R;
    /**
     * The profile as gzip-compressed pprof, with labels and span links.
     * @returns {Buffer}
     */
    pprof(): Buffer;
    /**
     * A flame graph: one self-contained HTML page.
     * @returns {string}
     */
    flamegraph(): string;
    /**
     * Names of the profile types that have samples.
     * @returns {string[]}
     */
    types(): string[];
    /**
     * Writes a file; its extension selects the format: `.html`, `.pb.gz` or `.folded`. The active OpenTelemetry span gets the
     * attributes `profile.file` and `profile.type`. Throws `SpanprofError` when the file cannot be written.
     * @param {string} path
     */
    save(path: string): void;
    /**
     * Sends the profile to the destinations of the running profiler, as types that begin with `capture_`; returns whether it was
     * delivered within `timeout` seconds. Later it is still sent, or counted as lost.
     * @param {number} [timeout] seconds; `stopTimeout` by default
     * @returns {Promise<boolean>}
     */
    send(timeout?: number): Promise<boolean>;
    #private;
}
