"use strict";
{
  // A press hides a method in all drawings of its chart, or shows it.
  for (const key of document.querySelectorAll("figure.curves .key")) {
    const variant = key.closest(".variant");
    const drawn = [...variant.querySelectorAll(".series")].filter((one) => one.dataset.method === key.dataset.method);
    key.addEventListener("click", () => {
      const shown = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", String(shown));
      for (const one of drawn) one.classList.toggle("off", !shown);
    });
    const others = (on) => {
      for (const one of variant.querySelectorAll(".series")) one.classList.toggle("dim", on && !drawn.includes(one));
    };
    key.addEventListener("pointerenter", (event) => {
      others(event.pointerType === "mouse" && key.getAttribute("aria-pressed") === "true");
    });
    key.addEventListener("pointerleave", () => others(false));
  }

  // Of several variants one is shown at a time; without JavaScript, and in print, all are.
  for (const figure of document.querySelectorAll("figure.curves")) {
    const variants = [...figure.querySelectorAll(".variant")];
    if (variants.length < 2) continue;
    const label = document.createElement("label"), select = document.createElement("select");
    label.className = "pick";
    label.append("Variant ", select);
    for (const one of variants) select.add(new Option(one.dataset.variant));
    const pick = () => variants.forEach((one, k) => one.classList.toggle("away", k !== select.selectedIndex));
    select.addEventListener("change", pick);
    figure.prepend(label);
    pick();
  }

  addEventListener("beforeprint", () => { for (const folded of document.querySelectorAll("details")) folded.open = true; });

  for (const figure of document.querySelectorAll("figure.map")) {
    const select = figure.querySelector("select");
    select.addEventListener("change", () => {
      for (const group of figure.querySelectorAll("[data-class]"))
        group.classList.toggle("dim", select.value !== "" && group.dataset.class !== select.value);
    });
  }
}
