// Packages without declarations, or not installed for the tests, and the application of the example for NestJS.
declare module '@nestjs/core';
declare module 'express';
declare module '*/app.module.js';
