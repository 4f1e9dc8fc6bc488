// A table that is wider than the screen scrolls. Keys scroll what has the focus, so it can be reached
// by the Tab key. Tables are wrapped by the theme after this script is loaded, and change with the window.
const reach = () => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (wrap.scrollWidth > wrap.clientWidth) wrap.tabIndex = 0;
    else wrap.removeAttribute("tabindex");
  }
};
addEventListener("resize", reach);
new MutationObserver(reach).observe(document.querySelector(".md-content"), { childList: true, subtree: true });
reach();
