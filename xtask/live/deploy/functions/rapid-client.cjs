'use strict';
// The part of aws-lambda-ric's native client that its JavaScript client still needs: synchronous posts to the runtime API.

const { execFileSync } = require('node:child_process');
const module_ = require('node:module');

const load = module_._extensions['.node'];
const post = (id, what, body) => {
  const url = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/${id}/${what}`;
  execFileSync('curl', ['--silent', '--data-binary', '@-', url], { input: body });
};

module_._extensions['.node'] = (module, name) => {
  if (!name.endsWith('rapid-client.node')) return load(module, name);
  module.exports = {
    initializeClient() {},
    done: (id, body) => post(id, 'response', body),
    error: (id, body) => post(id, 'error', body),
  };
};
