// A table, a block of code or a figure that is wider than the screen scrolls. Keys scroll what has the focus, so the Tab key reaches
// it. On a narrow screen, cells with a long text get a width of their own: else they have a word a line.
// The buttons of each block of code get a name. The theme adds both after this script is loaded.
const LONG_TEXT = 60; // characters
const NARROW = 720; // pixels
const SCROLLING = ".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img:only-child)";
const prepare = () => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap")) {
    for (const cell of wrap.querySelectorAll("td")) {
      const widened = innerWidth < NARROW && cell.textContent.length > LONG_TEXT;
      cell.style.minWidth = widened ? "12rem" : "";
    }
  }
  for (const part of document.querySelectorAll(SCROLLING)) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => nav.setAttribute("aria-label", `Code ${i + 1}`));
};
addEventListener("resize", prepare);
new MutationObserver(prepare).observe(document.querySelector(".md-content"), { childList: true, subtree: true });
prepare();
