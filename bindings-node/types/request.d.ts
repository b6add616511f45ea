/**
 * Labels of a request, with the ids of its `traceparent` header when no span of this process is current.
 * @param {{method?: string, headers?: Record<string, any>}} request
 * @returns {Record<string, string>}
 */
export function requestLabels(request: {
    method?: string;
    headers?: Record<string, any>;
}): Record<string, string>;
