"use strict";
// Tables with the class "sortable": each heading becomes a button, so the keyboard works as the mouse does. A cell's data-value is what
// counts where its text is not the number; cells without a number stay at the end in both directions.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.trim();
    return cell.classList.contains("number") ? (text === "" || isNaN(text) ? null : Number(text)) : text;
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort"), number = heading.classList.contains("number");
      const down = now ? now === "ascending" : number;
      headings.forEach(other => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a, column), y = value(b, column);
        if (x === null || y === null) return (x === null) - (y === null);
        return (number ? x - y : x.localeCompare(y, undefined, { numeric: true })) * (down ? -1 : 1);
      });
      body.append(...rows);
    });
  });
}
// Paper has no way to open what is closed.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
