// One export request of profiles in OTLP/JSON (opentelemetry-proto 1.10): the tables of the dictionary, each entry once.
// Entry 0 of each table is the empty one.

const PERIOD_NS = 10_000_000;

/** Entries by their JSON text. */
class Table {
  entries = [];
  #indices = new Map();

  constructor(empty) {
    this.index(empty);
  }

  index(entry) {
    const key = JSON.stringify(entry);
    if (!this.#indices.has(key)) this.#indices.set(key, this.entries.push(entry) - 1);
    return this.#indices.get(key);
  }
}

class Dictionary {
  #strings = new Table('');
  #functions = new Table({});
  #locations = new Table({});
  #stacks = new Table({});
  #attributes = new Table({});
  #links = new Table({});

  string(text) {
    return this.#strings.index(text);
  }

  attribute(key, value) {
    return this.#attributes.index({ keyStrindex: this.string(key), value: typeof value === 'number' ? { intValue: String(value) } : { stringValue: value } });
  }

  /** `functions` are root first, stacks leaf first. The frame type may depend on the name. */
  stack(functions, { frameType, fileOf }) {
    const typeOf = typeof frameType === 'function' ? frameType : () => frameType;
    const location = (name) => {
      const attributeIndices = typeOf(name) ? [this.attribute('profile.frame.type', typeOf(name))] : [];
      const functionIndex = this.#functions.index({ nameStrindex: this.string(name), filenameStrindex: this.string(fileOf(name)) });
      return this.#locations.index({ lines: [{ functionIndex, line: 12 }], attributeIndices });
    };
    return this.#stacks.index({ locationIndices: functions.map(location).reverse() });
  }

  link(link) {
    return link ? this.#links.index({ traceId: link.traceId, spanId: link.spanId }) : 0;
  }

  tables() {
    return {
      stringTable: this.#strings.entries,
      functionTable: this.#functions.entries,
      locationTable: this.#locations.entries,
      stackTable: this.#stacks.entries,
      attributeTable: this.#attributes.entries,
      linkTable: this.#links.entries,
    };
  }
}

const isCount = (type) => type.startsWith('request');
const isPlain = (type) => isCount(type) || type.endsWith('_space');

/** Sample type, period type and period. Times are counted samples of a period; amounts of memory are bytes. */
function valueTypes(dictionary, type) {
  const valueType = (kind, unit) => ({ typeStrindex: dictionary.string(kind), unitStrindex: dictionary.string(unit) });
  if (isCount(type)) return { sampleType: valueType(type, 'count'), periodType: valueType(type, 'count'), period: 1 };
  return type.endsWith('_space')
    ? { sampleType: valueType(type, 'bytes'), periodType: valueType('space', 'bytes'), period: 524_288 }
    : { sampleType: valueType('samples', 'count'), periodType: valueType(type, 'nanoseconds'), period: PERIOD_NS };
}

function valuesOf(value, timesMs) {
  if (!timesMs) return { values: [String(value)] };
  return { values: timesMs.map(() => String(value / timesMs.length)), timestampsUnixNano: timesMs.map((ms) => `${ms}000000`) };
}

/**
 * The request of one service and window. A sample has `type`, `functions` (root first), `weight` (nanoseconds, bytes or a count),
 * `labels`, `link` ({ traceId, spanId }), and `timesMs`, over which its weight is evenly distributed.
 */
export function exportRequest({ name, pid, frames, commit }, { fromMs, toMs }, samples) {
  const dictionary = new Dictionary();
  const profiles = [...new Set(samples.map((sample) => sample.type))].map((type) => ({
    ...valueTypes(dictionary, type),
    timeUnixNano: `${fromMs}000000`,
    durationNano: `${toMs - fromMs}000000`,
    samples: samples.filter((sample) => sample.type === type).map((sample) => ({
      stackIndex: dictionary.stack(sample.functions, frames),
      attributeIndices: Object.entries(sample.labels ?? {}).map(([key, value]) => dictionary.attribute(key, value)),
      linkIndex: dictionary.link(sample.link),
      ...valuesOf(isPlain(type) ? sample.weight : sample.weight / PERIOD_NS, sample.timesMs),
    })),
  }));
  const attributes = [{ key: 'process.pid', value: { intValue: String(pid) } }];
  if (name) attributes.push({ key: 'service.name', value: { stringValue: name } });
  if (commit) attributes.push({ key: 'vcs.ref.head.revision', value: { stringValue: commit } });
  const scope = { name: 'page-tests', version: '1' };
  return {
    resourceProfiles: [{ resource: { attributes }, scopeProfiles: [{ scope, profiles }] }],
    dictionary: dictionary.tables(),
  };
}
