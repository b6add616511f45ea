// Compiled against the committed declarations, never run: what a user of TypeScript writes.
import * as spanprof from 'spanprof';
import Pyroscope from 'spanprof/pyroscope';
import 'spanprof/register';

const running: boolean = spanprof.start({ serviceName: 'checkout', sampleRate: 100, tags: { region: 'eu' } });
const sum: number = spanprof.tagWrapper({ endpoint: '/cart' }, (a: number, b: number) => a + b, 1, 2);
const later: Promise<string> = spanprof.tag_wrapper({ endpoint: '/cart' }, async () => 'done');
const bound: (name: string) => number = spanprof.bind((name: string) => name.length);
const delivered: Promise<boolean> = spanprof.flush(5);
const labels: Record<string, string> = spanprof.getLabels();
spanprof.update({ wall: true });
Pyroscope.init({ appName: 'checkout', serverAddress: 'http://127.0.0.1:4040', wall: { collectCpuTime: true } });
Pyroscope.wrapWithLabels({ vehicle: 'bike' }, () => sum);
// @ts-expect-error a rate is a number
spanprof.start({ sampleRate: 'often' });
export { bound, delivered, labels, later, running };
