'use strict';
// Bundles a program into one file: minified except for the names of functions, which the cell searches in profiles.
//
//     node_bundle.js esbuild|webpack ENTRY OUTPUT [EXTERNAL]

const path = require('node:path');

const [kind, entry, output, external] = process.argv.slice(2);

function esbuild() {
  const externals = external ? [external] : [];
  require('esbuild').buildSync({
    entryPoints: [entry], outfile: output, bundle: true, platform: 'node', external: externals,
    minifyWhitespace: true, minifySyntax: true, sourcemap: true, nodePaths: [process.env.NODE_PATH],
  });
}

function webpack() {
  const settings = {
    entry, mode: 'production', target: 'node', devtool: 'source-map',
    output: { path: path.dirname(output), filename: path.basename(output) },
    externals: external ? { [external]: `commonjs ${external}` } : {},
    resolve: { modules: [process.env.NODE_PATH] },
  };
  require('webpack')(settings, (error, made) => {
    if (error || made.hasErrors()) throw error ?? new Error(made.toString());
  });
}

({ esbuild, webpack })[kind]();
