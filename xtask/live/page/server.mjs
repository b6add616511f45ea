// A `spanprof serve` on free ports with an empty directory.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import path from 'node:path';

/** The program in the environment variable SPANPROF, or the debug build of the work tree. */
export const PROGRAM = process.env.SPANPROF || fileURLToPath(new URL('../../../target/debug/spanprof', import.meta.url));

/** Addresses of a trace in tracing systems; the last has no name. */
const TRACE_URLS = [
  'Jaeger=http://localhost:16686/trace/{trace_id}?uiFind={span_id}',
  'Tempo eu-1=http://localhost:3000/explore?schemaVersion=1&orgId=1&panes={"t":{"datasource":"tempo","queries":[{"refId":"A","query":"{trace_id}"}]}}',
  'http://localhost:9411/zipkin/traces/{trace_id}',
];
/** Address of a source line in a repository. */
export const SOURCE_URL = 'https://git.example/shop/blob/{commit}/{path}#L{line}';
/** The lines of `api/app.py` below the directory of the sources. */
export const SOURCE = Array.from({ length: 30 }, (_, at) => `    statement_${at + 1}(cart) # line ${at + 1}`);

export class Server {
  #child;
  #directory;
  #kill = () => this.#child.kill('SIGKILL');

  constructor(child, directory) {
    this.#child = child;
    this.#directory = directory;
    process.once('exit', this.#kill);
  }

  static async start() {
    const directory = mkdtempSync(path.join(tmpdir(), 'spanprof-page-'));
    const [profiles, sources] = [path.join(directory, 'profiles'), path.join(directory, 'sources')];
    mkdirSync(path.join(sources, 'api'), { recursive: true });
    writeFileSync(path.join(sources, 'api', 'app.py'), SOURCE.join('\n'));
    const words = ['serve', '--grpc', '0', '--http', '0', '--json', '--dir', profiles,
      '--source-path', sources, '--source-url', SOURCE_URL,
      ...TRACE_URLS.flatMap((template) => ['--trace-url', template])];
    const child = spawn(PROGRAM, words, { stdio: ['ignore', 'pipe', 'pipe'] });
    const server = new Server(child, directory);
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (part) => { log += part; });
    const failed = once(child, 'exit').then(([code]) => { throw new Error(`${PROGRAM} serve ended with ${code}: ${log}`); });
    // The first line of standard output has the addresses.
    const [line] = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), failed]);
    failed.catch(() => {});
    server.url = JSON.parse(line).url.replace(/\/$/, '');
    return server;
  }

  async stop() {
    process.off('exit', this.#kill);
    if (this.#child.exitCode === null) {
      const ended = once(this.#child, 'exit');
      process.kill(this.#child.pid, 'SIGTERM');
      await ended;
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
