'use strict';
// A debugger client for the inspector of another process: one WebSocket, hand-written since older versions of Node.js have none.

const http = require('node:http');
const { once } = require('node:events');

/** One text frame of a client, which must be masked; here with a mask of zeros. */
function frame(text) {
  const body = Buffer.from(text);
  const head = body.length < 126 ? Buffer.from([0x81, 0x80 | body.length]) : Buffer.from([0x81, 0xfe, body.length >> 8, body.length & 255]);
  return Buffer.concat([head, Buffer.alloc(4), body]);
}

/** The texts of complete frames in `data`, and the rest. */
function texts(data) {
  const messages = [];
  for (;;) {
    if (data.length < 2) return [messages, data];
    let [length, head] = [data[1] & 127, 2];
    if (length === 126) [length, head] = [data.length < 4 ? Infinity : data.readUInt16BE(2), 4];
    else if (length === 127) [length, head] = [data.length < 10 ? Infinity : Number(data.readBigUInt64BE(2)), 10];
    if (data.length < head + length) return [messages, data];
    messages.push(data.subarray(head, head + length).toString());
    data = data.subarray(head + length);
  }
}

/** Connects; returns `send(method, params)` and `close()`. */
async function connect(url) {
  const { hostname, port, pathname } = new URL(url);
  const headers = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': Buffer.alloc(16).toString('base64') };
  const [, socket, first] = await once(http.get({ hostname, port, path: pathname, headers }), 'upgrade');
  let rest = first;
  const pending = new Map();
  socket.on('data', (data) => {
    let messages;
    [messages, rest] = texts(Buffer.concat([rest, data]));
    for (const { id, result, error } of messages.map((text) => JSON.parse(text))) pending.get(id)?.(error ?? result);
  });
  let last = 0;
  const send = (method, params = {}) => new Promise((resolve) => {
    pending.set(++last, resolve);
    socket.write(frame(JSON.stringify({ id: last, method, params })));
  });
  return { send, close: () => socket.destroy() };
}

module.exports = { connect };
