/**
 * Sets `pyroscope.profile.id` and `profile.type` on every local root span, and reports its duration and its status:
 * `new NodeTracerProvider({ spanProcessors: [new SpanProcessor()] })`.
 */
export class SpanProcessor {
    /** @param {any} span */
    onStart(span: any): void;
    /** @param {any} span */
    onEnd(span: any): void;
    /** @returns {Promise<void>} */
    forceFlush(): Promise<void>;
    /** @returns {Promise<void>} */
    shutdown(): Promise<void>;
}
