/**
 * Sets `pyroscope.profile.id` and `profile.type` on every local root span, and reports its duration, its route, its status
 * and the calls that it awaited. Added to the program's tracer provider by `start`; where that is not possible:
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
/**
 * The attributes of the SDK's resource become those of the profiles.
 * @param {any} resource
 */
export function adoptResource(resource: any): void;
