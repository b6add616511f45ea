// Compiled against the committed declarations, never run: typical code of a TypeScript user.
import * as spanprof from 'spanprof';
import * as pprof from 'spanprof/pprof';
import Pyroscope from 'spanprof/pyroscope';
import 'spanprof/register';

const running: boolean = spanprof.start({ serviceName: 'checkout', sampleRate: 100, tags: { region: 'eu' } });
const sum: number = spanprof.tagWrapper({ endpoint: '/cart' }, (a: number, b: number) => a + b, 1, 2);
const later: Promise<string> = spanprof.tag_wrapper({ endpoint: '/cart' }, async () => 'done');
const bound: (name: string) => number = spanprof.bind((name: string) => name.length);
const delivered: Promise<boolean> = spanprof.flush(5);
const labels: Record<string, string> = spanprof.getLabels();
const runs: boolean = spanprof.isRunning();
spanprof.update({ wall: true });
Pyroscope.init({ appName: 'checkout', serverAddress: 'http://127.0.0.1:4040', wall: { collectCpuTime: true } });
Pyroscope.wrapWithLabels({ vehicle: 'bike' }, () => sum);
interface RequestLabels {
  endpoint: string;
  tenant?: string | undefined;
}
const requestLabels: RequestLabels = { endpoint: '/cart' };
const labeled: number = spanprof.tagWrapper(requestLabels, () => 1);
spanprof.setLabels(requestLabels);
spanprof.tagWrapper(spanprof.prepareLabels(requestLabels), () => 1);
Pyroscope.wrapWithLabels(requestLabels, () => 1);
spanprof.tagWrapper(new Map([['endpoint', '/cart']]), () => 1);
spanprof.start({ tags: requestLabels, serviceName: process.env.SERVICE, headers: { authorization: process.env.TOKEN }, stopOnSignals: ['SIGTERM'] });
Pyroscope.init({ appName: process.env.SERVICE, heap: false, wall: { samplingIntervalMicros: undefined } });
async function ofPprof(): Promise<Buffer> {
  const sourceMapper: pprof.SourceMapper = await pprof.SourceMapper.create(['dist']);
  const wall: pprof.Profile = await pprof.time.profile({ durationMillis: 10, intervalMicros: 1000, name: 'a', sourceMapper, lineNumbers: true });
  const stop: () => pprof.Profile = pprof.time.start(1000, 'a', sourceMapper, true);
  const type: string | undefined = stop().stringTable[Number(wall.sampleType[0]?.type)];
  pprof.heap.start(512 * 1024, 64);
  const root: pprof.AllocationProfileNode = pprof.heap.v8Profile();
  const bytes: Buffer = pprof.encodeSync(pprof.heap.profile(type, sourceMapper));
  pprof.heap.stop();
  return root.allocations.length > 0 ? bytes : pprof.encode(wall);
}
// @ts-expect-error a string is not a set of labels
spanprof.tagWrapper('endpoint', () => 1);
// @ts-expect-error not a signal
spanprof.start({ stopOnSignals: ['SIGNONE'] });
// @ts-expect-error a rate is a number
spanprof.start({ sampleRate: 'often' });
export { bound, labeled, delivered, labels, later, ofPprof, running, runs };
