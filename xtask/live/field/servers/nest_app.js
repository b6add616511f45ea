'use strict';
// A Nest application on Express. Responses depend only on the path.
//
//     nest_app.js PORT

const { fieldWork, start } = require('../profiled.js');

const isProfiled = start({ stopOnSignals: ['SIGTERM'] });

require('reflect-metadata');
const { Controller, Get, Module, Param } = require('@nestjs/common');
const { NestFactory } = require('@nestjs/core');

class Pages {
  fieldCart(number) {
    fieldWork(30);
    return `cart ${number}: ${number * number}\n`;
  }

  fieldSearch() {
    fieldWork(30);
    return 'search\n';
  }

  async fieldLater(number) {
    await new Promise((resolve) => { setTimeout(resolve, 10); });
    fieldWork(30);
    return `later ${number}\n`;
  }
}

/** Output of TypeScript's compiler for `@Get(path)` before a method with a parameter `@Param('number')`. */
function route(method, path) {
  if (path.includes(':number')) Param('number')(Pages.prototype, method, 0);
  Get(path)(Pages.prototype, method, Object.getOwnPropertyDescriptor(Pages.prototype, method));
}

route('fieldCart', 'cart/:number');
route('fieldSearch', 'search');
route('fieldLater', 'later/:number');
Controller()(Pages);

class Application {}
Module({ controllers: [Pages] })(Application);

NestFactory.create(Application, { logger: ['warn', 'error'] }).then((application) => {
  if (isProfiled) application.use(require('spanprof').expressMiddleware());
  return application.listen(Number(process.argv[2]), '127.0.0.1');
});
