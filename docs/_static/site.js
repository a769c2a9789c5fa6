// What scrolls sideways can be reached by keyboard, too.
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".table-wrapper, div.highlight pre")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});
