"use strict";
const rows = document.querySelector(".rows");
const heads = [...rows.querySelectorAll(".head button")];
heads.forEach((head, column) => {
  head.disabled = false;
  head.addEventListener("click", () => {
    const order = head.dataset.order === "up" ? "down" : "up";
    heads.forEach((h) => delete h.dataset.order);
    head.dataset.order = order;
    const sign = order === "up" ? 1 : -1;
    const keyed = [...rows.querySelectorAll(":scope > details")].map((row) => {
      const cell = row.firstElementChild.children[column];
      return [cell.dataset.v ?? cell.textContent, row];
    });
    keyed.sort(([a], [b]) =>
      (a === "") - (b === "") || sign * (a - b || a.localeCompare(b, "en", { numeric: true })));
    rows.append(...keyed.map(([, row]) => row));
  });
});
const all = document.getElementById("all");
all.hidden = false;
all.addEventListener("click", () => {
  const open = all.textContent === "Open all";
  rows.querySelectorAll(":scope > details").forEach((row) => { row.open = open; });
  all.textContent = open ? "Close all" : "Open all";
});
const reveal = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
