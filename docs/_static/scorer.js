// How the search ranks what it finds: Sphinx's own numbers, but decision records last.
var Scorer = {
  score: (result) => {
    const [page, , , , score] = result;
    return page.startsWith("adr/") ? score - 100 : score;
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
