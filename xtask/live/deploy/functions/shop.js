'use strict';
// A small shop without OpenTelemetry and spanprof in its code: `/report` renders a report, `/health` answers.

const crypto = require('node:crypto');
const http = require('node:http');

function renderReport(rows) {
  const digest = crypto.createHash('sha256');
  for (let row = 0; row < rows; row++) {
    digest.update(JSON.stringify({ row, squares: Array.from({ length: 20 }, (_, number) => row * number) }));
  }
  return digest.digest('hex');
}

http.createServer((request, response) => {
  const rows = Number(new URL(request.url, 'http://shop').searchParams.get('rows') ?? 0);
  response.end(renderReport(rows));
}).listen(8000, '0.0.0.0');
