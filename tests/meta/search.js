// Prints, as JSON, the pages that each query finds on a built site, best first, by the site's own
// search: node search.js SITE QUERY...
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
// The scripts run without a browser: no element exists, and what they store is dropped.
const world = vm.createContext({
  document: { getElementById: () => null },
  localStorage: { setItem: () => {} },
  SPHINX_HIGHLIGHT_ENABLED: false,
  _ready: () => {},
  _: (text) => text,
  queries,
});
world.window = world;
for (const script of ["_static/language_data.js", "_static/searchtools.js", "searchindex.js"]) {
  vm.runInContext(fs.readFileSync(path.join(site, script), "utf8"), world);
}
const found = vm.runInContext(
  "queries.map((text) => Search._performSearch(...Search._parseQuery(text)).map(([page]) => page))",
  world,
);
// Sphinx shows the last result first; a page may be found several times.
console.log(JSON.stringify(found.map((pages) => [...new Set(pages.reverse())])));
