// Order of the results of a search on the site: guides before proofs, papers and the reference.
var Scorer = {
  // `result` is [docname, title, anchor, description, score, filename, kind]. A name of the reference
  // or a word of search_words.toml keeps its score; a match in the text or a title of a page that is
  // read after a guide counts less.
  score: ([docname, , , , score, , kind]) => {
    const later = /^(design|reference)\/|^(benchmarks|errata|figures|architecture|table-)/;
    return later.test(docname) && kind !== "object" && kind !== "index" ? score - 8 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
